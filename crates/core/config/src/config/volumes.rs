//! Volumes, and the objects that fill them.

use std::{path::PathBuf, time::Duration};

use super::reader::{Reader, words};

words! {
    /// How we learn that a secret or config map changed.
    ChangeDetection {
        /// The API server tells us.
        Watch = "Watch",
        /// We ask, and keep the answer for a while.
        Cache = "Cache",
        /// We ask each time.
        Get = "Get",
    }
}

/// Everything about volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volumes {
    /// Where flexVolume drivers are found.
    pub plugin_dir: PathBuf,
    /// How often disk use of volumes is measured; none means never.
    pub stats_period: Option<Duration>,
    /// Whether a controller in the cluster attaches volumes, and not we.
    pub controller_attach_detach: bool,
    /// Whether local storage of pods is limited.
    pub local_storage_isolation: bool,
    /// How changes of secrets and config maps are noticed.
    pub change_detection: ChangeDetection,
}

pub(super) fn read(r: &Reader<'_>) -> Volumes {
    // A negative period is upstream's way to switch the measuring off.
    let stats = r.nanos("volumeStatsAggPeriod").and_then(|nanos| u64::try_from(nanos).ok());
    Volumes {
        plugin_dir: r.text("volumePluginDir").into(),
        stats_period: stats.filter(|nanos| *nanos > 0).map(Duration::from_nanos),
        controller_attach_detach: r.flag("enableControllerAttachDetach"),
        local_storage_isolation: r.flag("localStorageCapacityIsolation"),
        change_detection: r.word("configMapAndSecretChangeDetectionStrategy"),
    }
}
