//! `nfs` volumes: a directory of another machine, which the host's own program mounts for each pod.

use std::sync::Arc;

use ferrolet_ports::{
    AttachedBy, Fut, MountAsk, MountNeeds, NodeMounts, NodePart, NodeVolume, OnNode, Ownership,
    PodPlace, ProgramMount, Repeats, Unstaged, VolumeFault, VolumeFiles, VolumeMount,
    VolumeMounter, VolumePlace, VolumePlugin, VolumeSource,
};

use crate::local::unpublish;

/// The directory of NFS volumes.
pub(crate) const NFS: &str = "kubernetes.io~nfs";

/// Directories of other machines.
pub(crate) struct NfsPlugin {
    pub(crate) files: Arc<dyn VolumeFiles>,
    pub(crate) mounts: Arc<dyn NodeMounts>,
}

struct NfsMounter<'a> {
    plugin: &'a NfsPlugin,
    ask: MountAsk<'a>,
    source: &'a str,
    place: VolumePlace,
}

impl VolumePlugin for NfsPlugin {
    fn serves(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Nfs { .. })
    }

    fn owns_directory(&self, directory: &str) -> bool {
        directory == NFS
    }

    fn owns(&self, _: &NodeVolume) -> bool {
        false
    }

    fn mounter<'a>(
        &'a self,
        ask: MountAsk<'a>,
    ) -> Fut<'a, Result<Box<dyn VolumeMounter + 'a>, VolumeFault>> {
        Box::pin(async move {
            let VolumeSource::Nfs { source } = &ask.spec.source else {
                return Err(VolumeFault::lasting("not an NFS volume".to_owned()));
            };
            let mounter = NfsMounter { plugin: self, place: ask.place(NFS), source, ask };
            Ok(Box::new(mounter) as Box<dyn VolumeMounter + 'a>)
        })
    }

    fn node_part<'a>(&'a self, _: PodPlace<'a>) -> Fut<'a, Result<NodePart, VolumeFault>> {
        Box::pin(async { Ok(NodePart::Nothing) })
    }

    fn unpublish<'a>(
        &'a self,
        place: PodPlace<'a>,
        _: Option<&'a NodeVolume>,
    ) -> Fut<'a, Result<(), VolumeFault>> {
        Box::pin(unpublish(self.mounts.as_ref(), place))
    }

    fn unstage<'a>(&'a self, _: &'a NodeVolume) -> Fut<'a, Result<Unstaged, VolumeFault>> {
        Box::pin(async { Ok(Unstaged::Gone) })
    }

    fn on_node(&self) -> Fut<'_, Result<Vec<OnNode>, VolumeFault>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl VolumeMounter for NfsMounter<'_> {
    fn needs(&self) -> MountNeeds {
        MountNeeds {
            node_volume: None,
            attached_by: AttachedBy::Plugin,
            stages: false,
            repeats: Repeats::EachTime,
            may_grow: false,
            // Upstream leaves ownership to the server.
            ownership: Ownership::NotOurs,
        }
    }

    fn publish(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let mut options = self.ask.spec.mount_options.clone();
            if self.ask.spec.is_read_only {
                options.push("ro".to_owned());
            }
            let source = self.source.to_owned();
            let ask = ProgramMount { kind: "nfs".to_owned(), source, options };
            let mounted = self.plugin.mounts.mount_by_program(&self.place, &ask).await;
            mounted.map_err(|error| VolumeFault { wants_pause: true, ..VolumeFault::from(error) })
        })
    }

    fn mount(&self) -> VolumeMount {
        let spec = self.ask.spec;
        let path = self.plugin.files.volume_path(&self.place).display().to_string();
        VolumeMount { group: spec.group, ..VolumeMount::at(path, spec.is_read_only, false) }
    }
}
