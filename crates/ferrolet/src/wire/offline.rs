//! `--offline-start`, wired to the host's disk. Without the flag no copy stays behind: they hold secrets.

use std::sync::Arc;

use ferrolet_cluster::objects::references;
use ferrolet_config::Loaded;
use ferrolet_host::offline::OfflineCopies;
use ferrolet_sources::offline::{Named, Offline};
use ferrolet_types::Pod;

/// Opens the copies of an earlier life, or removes them when they are not wanted.
pub(super) async fn open(loaded: &Loaded) -> Option<Offline> {
    let flags = &loaded.flags;
    let copies = OfflineCopies::new(&flags.root_dir);
    if flags.offline_start && flags.kubeconfig.is_some() {
        return Some(Offline::open(Arc::new(copies), named_by).await);
    }
    if let Err(error) = copies.discard().await {
        tracing::warn!(%error, "Copies of pods from an earlier --offline-start are still on disk");
    }
    None
}

fn named_by(pod: &Pod) -> Named {
    let found = references(pod);
    Named { secrets: found.secrets, config_maps: found.config_maps }
}
