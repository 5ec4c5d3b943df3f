//! What is different between two configurations, and when each difference takes effect.
//!
//! Pure: two effective configurations in, one [`Change`] for each field that differs out. Which
//! fields can change while the agent runs is said once, in [`LIVE`]; whoever makes another one so
//! adds it there.

use serde_json::Value;

use crate::RawConfig;

/// Fields that take effect at a reload. All others wait for the next start.
pub(crate) const LIVE: &[&str] = &[
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "eventBurst",
    "eventRecordQPS",
    "evictionHard",
    "evictionMaxPodGracePeriod",
    "evictionMinimumReclaim",
    "evictionPressureTransitionPeriod",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "logging.flushFrequency",
    "logging.format",
    "logging.options.json.infoBufferSize",
    "logging.options.json.splitStream",
    "logging.options.text.infoBufferSize",
    "logging.options.text.splitStream",
    "logging.verbosity",
    "logging.vmodule",
    "maxPods",
    "mergeDefaultEvictionSettings",
    "podsPerCore",
];

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// While the agent runs.
    Now,
    /// At the next start.
    AfterRestart,
}

/// One field that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The field's path.
    pub path: String,
    /// What it is; none when it is not set.
    pub old: Option<Value>,
    /// What it is to be.
    pub new: Option<Value>,
    /// When.
    pub effect: Effect,
}

/// Every field that differs: those that have a value now, then those that get one.
pub fn compare(running: &RawConfig, next: &RawConfig) -> Vec<Change> {
    // A value that Go gives a variable nobody set says nothing.
    let (running, next) = (&running.written(), &next.written());
    let mut paths = running.paths();
    let known: std::collections::BTreeSet<String> = paths.iter().cloned().collect();
    paths.extend(next.paths().into_iter().filter(|path| !known.contains(path)));
    let differs = |path: &String| running.get(path) != next.get(path);
    let changes = paths.into_iter().filter(differs).map(|path| Change {
        old: shown(running, &path),
        new: shown(next, &path),
        effect: if LIVE.contains(&path.as_str()) { Effect::Now } else { Effect::AfterRestart },
        path,
    });
    changes.collect()
}

/// The value as anybody may see it.
fn shown(raw: &RawConfig, path: &str) -> Option<Value> {
    let value = raw.get(path)?;
    Some(if path == "staticPodURLHeader" { Value::from("<masked>") } else { value.clone() })
}

impl RawConfig {
    /// This configuration with the live fields of another: what an agent that has reloaded runs
    /// with.
    #[must_use]
    pub fn with_live_fields_of(&self, next: &Self) -> Self {
        let mut result = self.clone();
        for path in LIVE {
            match next.get(path) {
                Some(value) => result.set(path, value.clone()),
                None => result.remove(path),
            }
        }
        result
    }
}
