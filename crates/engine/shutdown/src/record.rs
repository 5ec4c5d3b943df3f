//! When the last shutdown began and ended, kept in a file over the boot: upstream's format.

use ferrolet_ports::{StateFiles, Tally, metrics};
use ferrolet_types::Timestamp;
use serde_json::{Value, json};

const FILE: &str = "graceful_node_shutdown_state";
/// The zero of Go's time.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// A shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShutdownRecord {
    pub(crate) start: Option<Timestamp>,
    pub(crate) end: Option<Timestamp>,
}

impl ShutdownRecord {
    /// What an earlier life of the agent left.
    pub(crate) async fn load(files: &dyn StateFiles) -> Self {
        let content = match files.read(FILE).await {
            Ok(content) => content.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "Nothing is known of the last shutdown");
                return Self::default();
            }
        };
        if content.is_empty() {
            return Self::default();
        }
        Self::parse(&content).unwrap_or_else(|| {
            tracing::warn!(file = FILE, "The record of the last shutdown makes no sense");
            Self::default()
        })
    }

    /// Remembers it.
    pub(crate) async fn store(self, files: &dyn StateFiles) {
        if let Err(error) = files.write(FILE, self.to_bytes()).await {
            tracing::warn!(%error, "The record of this shutdown is lost");
        }
    }

    /// Shows it in the metrics.
    pub(crate) fn show(self, tally: &Tally) {
        let seconds = |time: Option<Timestamp>| {
            #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are small numbers")]
            time.map_or(0.0, |time| time.0.as_second() as f64)
        };
        tally.set(metrics::KUBELET_GRACEFUL_SHUTDOWN_START_TIME_SECONDS, [], seconds(self.start));
        tally.set(metrics::KUBELET_GRACEFUL_SHUTDOWN_END_TIME_SECONDS, [], seconds(self.end));
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(content).ok()?;
        let time = |field: &str| match value.get(field) {
            None => Some(None),
            Some(text) if text == NEVER => Some(None),
            Some(text) => Some(Some(Timestamp(text.as_str()?.parse().ok()?))),
        };
        Some(Self { start: time("startTime")?, end: time("endTime")? })
    }

    fn to_bytes(self) -> Vec<u8> {
        let text = |time: Option<Timestamp>| time.map_or(NEVER.to_owned(), |time| time.to_string());
        json!({"startTime": text(self.start), "endTime": text(self.end)}).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_upstreams() {
        let start = Some(Timestamp::from_second(1_700_000_000));
        let begun = ShutdownRecord { start, end: None };
        let text = r#"{"endTime":"0001-01-01T00:00:00Z","startTime":"2023-11-14T22:13:20Z"}"#;
        assert_eq!(String::from_utf8(begun.to_bytes()).unwrap(), text);
        assert_eq!(ShutdownRecord::parse(text.as_bytes()), Some(begun));
        // Upstream writes the zone of the machine and fractions of seconds.
        let theirs =
            r#"{"startTime":"2023-11-14T23:13:20.5+01:00","endTime":"2023-11-14T22:13:30Z"}"#;
        let found = ShutdownRecord::parse(theirs.as_bytes()).unwrap();
        assert_eq!(found.end, Some(Timestamp::from_second(1_700_000_010)));
        assert_eq!(
            found.start.unwrap().to_second_precision(),
            Timestamp::from_second(1_700_000_000)
        );
        for nonsense in ["", "{", "[]x", r#"{"startTime":7}"#, r#"{"startTime":"soon"}"#] {
            assert_eq!(ShutdownRecord::parse(nonsense.as_bytes()), None, "{nonsense}");
        }
    }
}
