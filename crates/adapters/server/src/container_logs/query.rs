//! The query of a log request, decoded and checked as upstream decodes and checks `PodLogOptions`.

use ferrolet_ports::LogOutput;
use ferrolet_types::Timestamp;

use crate::query::pairs_of;
use crate::refusal::Refusal;

/// Why a query is refused; the words are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueryError {
    #[error(r#"{{"message": "Unable to decode query."}}"#)]
    Undecodable,
    #[error(r#"{{"message": "Invalid request."}}"#)]
    Invalid,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct LogQuery {
    pub(super) follow: bool,
    pub(super) previous: bool,
    pub(super) timestamps: bool,
    pub(super) tail_lines: Option<u64>,
    pub(super) limit_bytes: Option<u64>,
    since_seconds: Option<u64>,
    since_time: Option<Timestamp>,
    stream: Option<String>,
}

pub(super) fn parse(query: &str) -> Result<LogQuery, QueryError> {
    let pairs = pairs_of(query);
    let first = |name: &str| {
        let found = pairs.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    };
    // An older name for the same; `all` asks for everything.
    let tail = match first("tail").filter(|it| !it.is_empty()) {
        Some("all") => None,
        Some(older) => Some(older),
        None => first("tailLines"),
    };
    let flag = |name| first(name).is_some_and(|it| it != "0" && !it.eq_ignore_ascii_case("false"));
    let since_time = match first("sinceTime") {
        None | Some("" | "null") => None,
        Some(moment) => Some(Timestamp(moment.parse().map_err(|_| QueryError::Undecodable)?)),
    };
    let since_seconds = number(first("sinceSeconds"))?;
    let stream = first("stream").map(str::to_owned);
    let query = LogQuery {
        follow: flag("follow"),
        previous: flag("previous"),
        timestamps: flag("timestamps"),
        tail_lines: at_least(0, number(tail)?)?,
        limit_bytes: at_least(1, number(first("limitBytes"))?)?,
        since_seconds: at_least(1, since_seconds)?,
        since_time,
        stream,
    };
    let is_known = |stream: &str| ["All", "Stdout", "Stderr"].contains(&stream);
    let stream = query.stream.as_deref().unwrap_or("All");
    let is_contradictory = (query.since_seconds.is_some() && query.since_time.is_some())
        || (stream != "All" && query.tail_lines.is_some());
    if is_contradictory || !is_known(stream) {
        return Err(QueryError::Invalid);
    }
    Ok(query)
}

fn number(text: Option<&str>) -> Result<Option<i64>, QueryError> {
    text.map(|text| text.parse().map_err(|_| QueryError::Undecodable)).transpose()
}

fn at_least(least: i64, number: Option<i64>) -> Result<Option<u64>, QueryError> {
    let Some(number) = number else {
        return Ok(None);
    };
    let checked = u64::try_from(number).ok().filter(|_| number >= least);
    checked.map(Some).ok_or(QueryError::Invalid)
}

impl LogQuery {
    /// The moment before which nothing is wanted.
    pub(super) fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let seconds = self.since_seconds.map(|seconds| {
            let back = i64::try_from(seconds).unwrap_or(i64::MAX);
            Timestamp::from_second(now.0.as_second().saturating_sub(back).max(0))
        });
        seconds.or(self.since_time)
    }

    /// Which output; only one of two is behind a gate.
    pub(super) fn output(&self, has_split_streams: bool) -> Result<LogOutput, Refusal> {
        let stream = self.stream.as_deref().unwrap_or("All");
        match stream {
            "All" => Ok(LogOutput::All),
            "Stdout" if has_split_streams => Ok(LogOutput::Stdout),
            "Stderr" if has_split_streams => Ok(LogOutput::Stderr),
            _ => Err(Refusal::bad(format!(
                "unable to return the given log stream: {stream:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_as_upstream_decodes_them() {
        let check = |query: &str, expected: Result<LogQuery, QueryError>| {
            assert_eq!(parse(query), expected, "{query}");
        };
        let none = LogQuery::default;
        check("", Ok(none()));
        check("unknown=1&follow", Ok(LogQuery { follow: true, ..none() }));
        check("follow=false&previous=0&timestamps=FALSE", Ok(none()));
        check(
            "follow=true&previous=1&timestamps=yes",
            Ok(LogQuery { follow: true, previous: true, timestamps: true, ..none() }),
        );
        check("tailLines=0", Ok(LogQuery { tail_lines: Some(0), ..none() }));
        check("tail=7&tailLines=3", Ok(LogQuery { tail_lines: Some(7), ..none() }));
        check("tail=all&tailLines=3", Ok(none()));
        check("tailLines=-1", Err(QueryError::Invalid));
        check("tailLines=x", Err(QueryError::Undecodable));
        check("tailLines=99999999999999999999", Err(QueryError::Undecodable));
        check("limitBytes=5", Ok(LogQuery { limit_bytes: Some(5), ..none() }));
        check("limitBytes=0", Err(QueryError::Invalid));
        check("sinceSeconds=0", Err(QueryError::Invalid));
        check("sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z", Err(QueryError::Invalid));
        check("sinceTime=yesterday", Err(QueryError::Undecodable));
        let moment = Timestamp::from_second(1_767_225_600);
        check(
            "sinceTime=2026-01-01T00%3A00:00Z",
            Ok(LogQuery { since_time: Some(moment), ..none() }),
        );
        check("stream=Stdin", Err(QueryError::Invalid));
        check("stream=Stdout&tailLines=1", Err(QueryError::Invalid));
    }

    #[test]
    fn seconds_count_back_from_now() {
        let query = parse("sinceSeconds=10").unwrap();
        let since = query.since(Timestamp::from_second(100));
        assert_eq!(since, Some(Timestamp::from_second(90)));
        let forever = parse("sinceSeconds=9223372036854775807").unwrap();
        assert_eq!(forever.since(Timestamp::from_second(100)), Some(Timestamp::from_second(0)));
    }

    #[test]
    fn one_output_alone_needs_its_gate() {
        let query = parse("stream=Stderr").unwrap();
        assert_eq!(query.output(true).unwrap(), LogOutput::Stderr);
        let refusal = query.output(false).unwrap_err();
        assert_eq!(refusal.status.as_u16(), 400);
    }
}
