//! Metrics of operations on volumes, in upstream's names, by plugin and outcome.
//!
//! Counted in the tally of the process. In: what was tried and how long it took. Refuses: names of volumes as labels.

use ferrolet_ports::{
    Tally, VolumeSource, VolumeSpec,
    metrics::{self, process},
};
use tokio::time::Instant;

use crate::plan::{Desired, PlannedVolume};

/// A volume is made what it should be.
pub(crate) async fn mount<T, E>(
    plugin: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let began = Instant::now();
    let made = work.await;
    let took = began.elapsed().as_secs_f64();
    note(process(), plugin, "volume_mount", made.is_ok(), took);
    if made.is_ok() {
        process().observe(
            metrics::VOLUME_OPERATION_TOTAL_SECONDS,
            ["overall_volume_mount", plugin],
            took,
        );
    }
    made
}

/// A volume is taken away from the directory of this plugin.
pub(crate) async fn unmount<T, E>(
    directory: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let began = Instant::now();
    let taken = work.await;
    let plugin = directory.replace('~', "/");
    let took = began.elapsed().as_secs_f64();
    note(process(), &plugin, "volume_unmount", taken.is_ok(), took);
    taken
}

fn note(tally: &Tally, plugin: &str, operation: &str, is_ok: bool, took: f64) {
    let status = if is_ok { "success" } else { "fail-unknown" };
    let labels = ["false", operation, status, plugin];
    tally.observe(metrics::STORAGE_OPERATION_DURATION_SECONDS, labels, took);
}

/// The plugin's name; a driver's is part of it.
pub(crate) fn plugin_of(volume: &PlannedVolume, resolved: Option<&VolumeSpec>) -> String {
    let of_spec = |spec: &VolumeSpec| match &spec.source {
        VolumeSource::HostPath { .. } => "kubernetes.io/host-path".to_owned(),
        VolumeSource::Csi(csi) => format!("kubernetes.io/csi:{}", csi.driver),
        VolumeSource::Local { .. } => "kubernetes.io/local-volume".to_owned(),
        VolumeSource::Nfs { .. } => "kubernetes.io/nfs".to_owned(),
        VolumeSource::Disk(volume) => volume.disk.key().kind.plugin().to_owned(),
        VolumeSource::Flex(flex) => flex.driver.clone(),
        VolumeSource::Unsupported(_) => "unknown".to_owned(),
    };
    match &volume.desired {
        Desired::EmptyDir { .. } => "kubernetes.io/empty-dir".to_owned(),
        Desired::Files { plugin, .. } => plugin.directory().replace('~', "/"),
        Desired::HostPath { .. } => "kubernetes.io/host-path".to_owned(),
        Desired::Image { .. } => "kubernetes.io/image".to_owned(),
        Desired::Inline(it) => of_spec(it),
        Desired::Claim(_) => resolved.map_or_else(|| "unknown".to_owned(), of_spec),
        Desired::Impossible(_) | Desired::Unsupported(_) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolet_ports::Measured as _;

    #[test]
    fn outcomes_have_upstreams_words() {
        let tally = Tally::new();
        note(&tally, "kubernetes.io/secret", "volume_mount", true, 0.2);
        note(&tally, "kubernetes.io/secret", "volume_mount", false, 7.0);
        let shown = tally.samples();
        let labels: Vec<String> = shown.iter().map(|it| it.labels.join(" ")).collect();
        let expected = ["fail-unknown", "success"]
            .map(|status| format!("false volume_mount {status} kubernetes.io/secret"));
        assert_eq!(labels, expected);
        let sums: Vec<f64> = shown.iter().map(|it| it.value.total()).collect();
        assert_eq!(sums, [7.0, 0.2]);
    }
}
