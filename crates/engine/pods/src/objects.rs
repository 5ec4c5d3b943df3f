//! What containers take from the API: config maps, secrets and services for the environment.

use ferrolet_ports::ApiError;
use ferrolet_spec::{EnvObjects, Lookup, Services, env};
use ferrolet_types::{
    Pod,
    pod::{PodSource, PodView},
};
use k8s_openapi::api::core::v1::Container;

use crate::World;

/// Fetches everything the container's environment refers to. A node on its own has nothing to fetch from.
pub(crate) async fn env_objects(world: &World, pod: &Pod, container: &Container) -> EnvObjects {
    let Some(objects) = world.objects.as_deref() else {
        return EnvObjects::default();
    };
    let needs = env::needs(container);
    let namespace = pod.key().namespace;
    let mut found = EnvObjects {
        services: services(world, pod),
        ..EnvObjects::default()
    };
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

fn services(world: &World, pod: &Pod) -> Services {
    let read = world
        .lookups
        .as_deref()
        .and_then(|lookups| lookups.services());
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
