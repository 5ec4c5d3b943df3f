//! A container checked, planned and written down; nothing runs yet.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_images::{Image, LayerKey, Ownership};
use ferrolet_runtime_plan::{
    Refusal,
    container::{ContainerPlace, ImageFacts, container as plan_container, log_path},
    stop_signal,
};
use ferrolet_runtime_protocol::{launch::LaunchSpec, sandbox::IdMaps};
use tokio::time::timeout;
use tracing::warn;

use super::{
    Runtime, cdi, devices,
    error::RuntimeError,
    events::EventKind,
    files::{disk, make_directory, off_thread, write_record},
    new_id,
    phase::Phase,
    record::{ContainerSpec, container_name},
    table::{Container, Sandbox},
};

/// How long the node's own files may take to be looked at: volumes may be another machine's.
const LOOKING: Duration = Duration::from_secs(60);
/// The root directory of an image that says nothing of it.
const PLAIN_ROOT: Ownership = Ownership { mode: 0o755, uid: 0, gid: 0 };

impl Runtime {
    /// Reserves and records a container; its id.
    pub(crate) async fn create_container(
        &self,
        request: cri::CreateContainerRequest,
    ) -> Result<String, RuntimeError> {
        let config = request.config.ok_or(Refusal::Missing("the container's configuration"))?;
        let metadata = config.metadata.clone().unwrap_or_default();
        if metadata.name.is_empty() {
            return Err(Refusal::Missing("the container's metadata (name)").into());
        }
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        if sandbox.link().is_none() {
            return Err(RuntimeError::NotReady(sandbox.record.id.clone()));
        }
        let id = new_id()?;
        let name = container_name(&metadata, &sandbox.record.id);
        self.table().reserve_container(&name, &id)?;
        let made = self.make_container(&id, config, &sandbox).await;
        if let Err(error) = made {
            let places = self.0.places.clone();
            let path = places.container(&id);
            if let Err(left) = off_thread(move || places.remove(&path)).await {
                warn!(
                    container = id,
                    error = &left as &dyn std::error::Error,
                    "something is left of a container that could not be made"
                );
            }
            self.table().forget_container(&id);
            return Err(error);
        }
        self.tell(&id, &sandbox.record.id, EventKind::ContainerCreatedEvent);
        Ok(id)
    }

    async fn make_container(
        &self,
        id: &str,
        config: cri::ContainerConfig,
        sandbox: &Sandbox,
    ) -> Result<(), RuntimeError> {
        let asked = config.image.clone().unwrap_or_default().image;
        let image = self.image(&asked)?;
        let mut layers = image.layers.clone();
        let mut volumes = BTreeMap::new();
        for (at, mount) in config.mounts.iter().enumerate() {
            if let Some(volume) = &mount.image {
                let image = self.image(&volume.image)?;
                volumes.insert(at, self.layer_paths(&image));
                layers.extend(image.layers);
            }
        }
        let hold = self.0.store.hold(&layers)?;
        let place = self.0.places.container(id);
        let (mut planned, anonymous) = with_anonymous_volumes(&config, &image, &place);
        let edits = cdi::resolve(&config.cdi_devices).await?;
        planned.cdi_devices.clear();
        edits.before(&mut planned)?;
        let found = {
            let planned = planned.clone();
            let look = off_thread(move || {
                make_missing_sources(&planned)?;
                devices::find(&planned)
            });
            let overdue = |_| RuntimeError::Overdue {
                attempt: "look at volumes and devices",
                seconds: LOOKING.as_secs(),
            };
            timeout(LOOKING, look).await.map_err(overdue)??
        };
        let filter = self.seccomp_filter(&planned).await?;
        let mut launch =
            self.plan(id, &planned, sandbox, &image, (&volumes, &found, filter.as_deref()))?;
        edits.after(&mut launch)?;
        let spec = ContainerSpec {
            id: id.to_owned(),
            sandbox: sandbox.record.id.clone(),
            created_at: self.now(),
            image_id: image.id.to_string(),
            image_ref: image.digests.first().cloned().unwrap_or_else(|| image.id.to_string()),
            image_name: image.tags.first().cloned().unwrap_or(asked),
            layers: layers.iter().map(|it| it.as_str().to_owned()).collect(),
            stop_signal: stop_signal(config.stop_signal(), &image.config.config.stop_signal),
            log_path: log_path(&config, &sandbox.record.config()).unwrap_or_default(),
            launch: Some(launch),
            config: Some(config),
        };
        let container = Container::new(spec, Phase::Created, Some(hold));
        let root = Root {
            place,
            anonymous,
            ownership: image.root.unwrap_or(PLAIN_ROOT),
            users: sandbox.record.spec.as_ref().and_then(|it| it.user.clone()),
            spec: Arc::clone(&container.spec),
        };
        off_thread(move || root.make()).await?;
        self.table().containers.insert(id.to_owned(), container);
        Ok(())
    }

    fn plan(
        &self,
        id: &str,
        config: &cri::ContainerConfig,
        sandbox: &Sandbox,
        image: &Image,
        (volumes, devices, seccomp): (
            &BTreeMap<usize, Vec<String>>,
            &[ferrolet_runtime_plan::container::NodeDevice],
            Option<&ferrolet_runtime_seccomp::Filter>,
        ),
    ) -> Result<LaunchSpec, RuntimeError> {
        let execution = &image.config.config;
        let facts = ImageFacts {
            env: execution.env.clone(),
            entrypoint: execution.entrypoint.clone(),
            cmd: execution.cmd.clone(),
            user: execution.user.clone(),
            working_dir: execution.working_dir.clone(),
            layers: self.layer_paths(image),
        };
        let place = self.0.places.container(id);
        let pod = self.0.places.pod(&sandbox.record.id);
        let launch = plan_container(
            config,
            ContainerPlace {
                id,
                sandbox: &sandbox.record.config(),
                sandbox_directory: text(&pod)?,
                hostname: &sandbox.record.hostname,
                upper: text(&place.join("upper"))?,
                work: text(&place.join("work"))?,
                image: &facts,
                hierarchies: &self.0.settings.hierarchies,
                cgroup_parent: &self.0.settings.cgroup_parent,
                devices,
                seccomp,
            },
            volumes,
        )?;
        Ok(launch)
    }

    fn image(&self, name: &str) -> Result<Image, RuntimeError> {
        self.0.store.find(name).ok_or_else(|| RuntimeError::NoImage(name.to_owned()))
    }

    /// The directories of an image's layers, the uppermost first.
    fn layer_paths(&self, image: &Image) -> Vec<String> {
        let path = |key: &LayerKey| {
            let path = self.0.store.path().join("layers").join(key.as_str()).join("fs");
            path.to_string_lossy().into_owned()
        };
        image.layers.iter().rev().map(path).collect()
    }
}

fn text(path: &Path) -> Result<&str, RuntimeError> {
    path.to_str().ok_or_else(|| Refusal::Unsupported("a directory that is not UTF-8").into())
}

/// A container's directory, before it is made.
struct Root {
    place: PathBuf,
    anonymous: Vec<PathBuf>,
    ownership: Ownership,
    users: Option<IdMaps>,
    spec: Arc<ContainerSpec>,
}

impl Root {
    /// The record goes last: without it everything here is half made.
    fn make(&self) -> Result<(), RuntimeError> {
        make_directory(&self.place)?;
        for name in ["upper", "work"] {
            self.give(&self.place.join(name), self.ownership)?;
        }
        for path in &self.anonymous {
            self.give(path, PLAIN_ROOT)?;
        }
        write_record(&self.place.join("spec"), &*self.spec)
    }

    /// A directory of the pod's, whose users may not be the node's.
    fn give(&self, path: &Path, ownership: Ownership) -> Result<(), RuntimeError> {
        make_directory(path)?;
        let (uid, gid) = match self.users.as_ref().and_then(IdMaps::root) {
            Some(root) => root,
            None => (ownership.uid, ownership.gid),
        };
        chown(path, Some(uid), Some(gid)).map_err(disk("give away", path))?;
        let mode = fs::Permissions::from_mode(ownership.mode & 0o7777);
        fs::set_permissions(path, mode).map_err(disk("set mode of", path))
    }
}

/// What an image declares as volumes and nobody mounts are fresh directories of the container's own.
fn with_anonymous_volumes(
    config: &cri::ContainerConfig,
    image: &Image,
    place: &Path,
) -> (cri::ContainerConfig, Vec<PathBuf>) {
    let mut config = config.clone();
    let mut made = Vec::new();
    let trimmed = |path: &str| path.trim_end_matches('/').to_owned();
    for (at, target) in image.config.config.volumes.iter().enumerate() {
        let target = trimmed(target);
        let is_mounted = config.mounts.iter().any(|it| trimmed(&it.container_path) == target);
        if !target.starts_with('/') || is_mounted {
            continue;
        }
        let source = place.join(format!("volume-{at}"));
        config.mounts.push(cri::Mount {
            container_path: target,
            host_path: source.to_string_lossy().into_owned(),
            ..Default::default()
        });
        made.push(source);
    }
    (config, made)
}

/// A directory of the node that a container mounts and that is not there is made, as containerd does.
fn make_missing_sources(config: &cri::ContainerConfig) -> Result<(), RuntimeError> {
    let sources = config.mounts.iter().filter(|it| it.image.is_none());
    for source in sources.map(|it| Path::new(&it.host_path)).filter(|it| it.is_absolute()) {
        if fs::symlink_metadata(source).is_err() {
            fs::create_dir_all(source).map_err(disk("make directory", source))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolet_runtime_images::{Digest, manifest::ImageConfig};

    #[test]
    fn volumes_of_an_image_are_made_unless_they_are_mounted() {
        let mut parsed = ImageConfig::default();
        parsed.config.volumes = ["/data", "/cache/", "relative"].map(str::to_owned).to_vec();
        let image = Image {
            id: Digest::of(b""),
            tags: Default::default(),
            digests: Default::default(),
            usage: Default::default(),
            layers: Vec::new(),
            root: None,
            config: parsed.into(),
        };
        let mount = cri::Mount { container_path: "/cache".to_owned(), ..Default::default() };
        let config = cri::ContainerConfig { mounts: vec![mount], ..Default::default() };
        let (planned, made) = with_anonymous_volumes(&config, &image, Path::new("/c1"));
        assert_eq!(made, [Path::new("/c1/volume-0")]);
        assert_eq!(planned.mounts.len(), 2);
        assert_eq!(planned.mounts[1].container_path, "/data");
        assert_eq!(planned.mounts[1].host_path, "/c1/volume-0");
    }
}
