//! The agent's own log as the configuration wants it, at the start and at each reload.

use anyhow::Context as _;
use ferrolet_config::config::{LogFormat, Logging};
use ferrolet_traces::TraceLayer;
use tokio::{sync::watch, time::sleep};

use crate::logging::{self, Format, LogControl, LogStreams, Parting, Rule};

/// Handles to the process's one log.
#[derive(Clone)]
pub struct OwnLog {
    pub(crate) control: LogControl,
    pub(crate) streams: LogStreams,
    /// How long a line may wait.
    flush_every: watch::Sender<std::time::Duration>,
}

impl OwnLog {
    /// Starts it.
    pub(crate) fn start(settings: &Logging, traces: Option<TraceLayer>) -> anyhow::Result<Self> {
        let log = Self::quiet(settings);
        logging::init(&log.control, &log.streams, traces).context("start logging")?;
        log.apply(settings);
        Ok(log)
    }

    /// One that nobody writes to: the process has another log, or none.
    pub(crate) fn quiet(settings: &Logging) -> Self {
        Self {
            control: LogControl::new(format(settings), settings.verbosity),
            streams: LogStreams::of_process(parting(settings)),
            flush_every: watch::Sender::new(settings.flush_frequency),
        }
    }

    /// Has every setting take effect.
    pub(crate) fn apply(&self, settings: &Logging) {
        self.control.set_format(format(settings));
        self.control.set_threshold(settings.verbosity);
        let rules = settings
            .rules
            .iter()
            .map(|rule| Rule { pattern: rule.file_pattern.clone(), threshold: rule.verbosity });
        self.control.set_rules(rules.collect());
        self.streams.part(parting(settings));
        self.flush_every.send_if_modified(|known| {
            std::mem::replace(known, settings.flush_frequency) != settings.flush_frequency
        });
    }

    /// Writes what waits, for ever.
    pub(crate) async fn run(self) {
        let mut pace = self.flush_every.subscribe();
        loop {
            let period = *pace.borrow_and_update();
            // Both are cancel-safe: a pause begins anew, and a change is remembered.
            tokio::select! {
                () = sleep(period), if !period.is_zero() => self.streams.flush(),
                changed = pace.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }
}

/// Starts the log of a command that has no configuration.
pub(crate) fn start_plain(verbosity: u32) -> anyhow::Result<()> {
    let control = LogControl::new(Format::Text, verbosity);
    let streams = LogStreams::of_process(Parting::Together);
    logging::init(&control, &streams, None).context("start logging")
}

fn format(settings: &Logging) -> Format {
    match settings.format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    }
}

fn parting(settings: &Logging) -> Parting {
    let output = match settings.format {
        LogFormat::Text => settings.text,
        LogFormat::Json => settings.json,
    };
    match output.split_stream {
        false => Parting::Together,
        true => Parting::Split {
            buffer: usize::try_from(output.info_buffer_size).unwrap_or(usize::MAX).min(MOST_BUFFER),
        },
    }
}

/// More than this is not set aside for lines, whatever is asked for.
const MOST_BUFFER: usize = 16 << 20;
