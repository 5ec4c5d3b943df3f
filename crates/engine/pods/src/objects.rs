//! What containers take from the API: config maps, secrets and services for the environment.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_ports::ApiError;
use ferrolet_spec::{EnvObjects, Lookup, Services, env};
use ferrolet_types::{
    Pod,
    pod::{PodSource, PodView},
};
use k8s_openapi::api::core::v1::Container;

use crate::{World, memory::Memory};

/// An environment has to fit into a call of the kernel; a file for one is not longer.
const LARGEST_ENV_FILE: usize = 1 << 20;

/// Fetches everything the container's environment refers to. A node on its own has nothing to fetch
/// from.
pub(crate) async fn env_objects(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    container: &Container,
) -> EnvObjects {
    let needs = env::needs(container);
    let files = env_files(world, memory, needs.files).await;
    let Some(objects) = world.objects.as_deref() else {
        return EnvObjects { files, ..EnvObjects::default() };
    };
    let namespace = pod.key().namespace;
    let mut found = EnvObjects { services: services(world, pod), files, ..EnvObjects::default() };
    for name in needs.config_maps {
        let lookup = looked_up(objects.get_config_map(&namespace, &name).await);
        found.config_maps.insert(name, lookup);
    }
    for name in needs.secrets {
        let lookup = looked_up(objects.get_secret(&namespace, &name).await);
        found.secrets.insert(name, lookup);
    }
    found
}

/// The files that an environment is read from; those of volumes that the pod does not have are left
/// out.
async fn env_files(
    world: &World,
    memory: &Memory,
    needed: BTreeSet<(String, String)>,
) -> BTreeMap<(String, String), Lookup<String>> {
    let mut found = BTreeMap::new();
    for (volume, path) in needed {
        let Some(mount) = memory.made.volumes().get(&volume) else {
            continue;
        };
        let content = world.files.read_in_volume(&mount.host_path, &path, LARGEST_ENV_FILE).await;
        let lookup = match content {
            Ok(content) => Lookup::Found(content),
            Err(error) => Lookup::Failed(error.to_string()),
        };
        found.insert((volume, path), lookup);
    }
    found
}

fn services(world: &World, pod: &Pod) -> Services {
    let read = world.lookups.as_deref().and_then(|lookups| lookups.services());
    match (read, pod.source()) {
        (Some(services), _) => Services::Read(services),
        (None, PodSource::Api) => Services::NotRead,
        // A static pod does not wait for a cluster.
        (None, PodSource::File | PodSource::Http) => Services::Read(Vec::new()),
    }
}

fn looked_up<T>(answer: Result<T, ApiError>) -> Lookup<T> {
    match answer {
        Ok(object) => Lookup::Found(object),
        Err(error) if error.is_not_found() => Lookup::NotFound,
        Err(error) => Lookup::Failed(error.message),
    }
}
