//! Everything a pod has to open a registry: its pull secrets first, then the node's own
//! configuration, then plugins.

use std::{collections::BTreeSet, sync::Arc};

use ferrolet_images::{
    Coordinates, Credential, DockerConfig, DockerConfigError, Keyring, Source, provider::Provider,
};
use ferrolet_ports::{EventKind, NodeDockerConfig, RegistryLogins};
use ferrolet_types::{Pod, pod::PodView as _};
use k8s_openapi::api::core::v1::Secret;

use super::plugins::Plugins;
use crate::{World, tell::say_of_pod};

/// Asks everybody who may know.
pub(super) struct Gatherer {
    logins: Option<Arc<dyn RegistryLogins>>,
    plugins: Option<Plugins>,
}

/// What was found for one image.
#[derive(Default)]
pub(super) struct Found {
    /// In the order in which they are tried.
    pub(super) credentials: Vec<Credential>,
    /// Pull secrets that are not there.
    pub(super) missing: BTreeSet<String>,
}

/// A pull secret that cannot be read. Says where, never what.
#[derive(Debug, thiserror::Error)]
#[error("image pull secret {name:?} {fault}")]
pub(super) struct BadSecret {
    name: String,
    fault: DockerConfigError,
}

impl Gatherer {
    pub(super) fn new(logins: Option<Arc<dyn RegistryLogins>>, providers: Vec<Provider>) -> Self {
        let plugins = logins
            .clone()
            .filter(|_| !providers.is_empty())
            .map(|logins| Plugins::new(providers, logins));
        Self { logins, plugins }
    }

    /// What fits an image's place.
    pub(super) async fn gather(
        &self,
        world: &World,
        pod: &Pod,
        place: &str,
    ) -> Result<Found, BadSecret> {
        let mut found = Found::default();
        let mut keyring = Keyring::default();
        self.add_secrets(world, pod, &mut keyring, &mut found.missing).await?;
        found.credentials = keyring.lookup(place);
        if let Some(logins) = &self.logins {
            found.credentials.extend(of_node(&**logins, place).await);
        }
        if let Some(plugins) = &self.plugins {
            let objects = world.objects.as_deref();
            let more = plugins.credentials(objects, pod, place).await;
            found.credentials.extend(more);
        }
        Ok(found)
    }

    async fn add_secrets(
        &self,
        world: &World,
        pod: &Pod,
        keyring: &mut Keyring,
        missing: &mut BTreeSet<String>,
    ) -> Result<(), BadSecret> {
        let Some(objects) = world.objects.as_deref() else {
            return Ok(());
        };
        let namespace = pod.key().namespace;
        let references = pod.spec_ref().image_pull_secrets.iter().flatten();
        // The API lets empty names through, and nobody misses them.
        for reference in references.filter(|it| !it.name.is_empty()) {
            let name = &reference.name;
            let Ok(secret) = objects.get_secret(&namespace, name).await else {
                missing.insert(name.clone());
                continue;
            };
            let config = docker_config(&secret);
            let config = config.map_err(|fault| BadSecret { name: name.clone(), fault })?;
            let source = Source::Secret(Coordinates {
                namespace: namespace.to_string(),
                name: name.clone(),
                uid: secret.metadata.uid.clone().unwrap_or_default(),
            });
            keyring.add(&source, config);
        }
        Ok(())
    }
}

/// The docker configuration in a secret of one of the two types that hold one; empty in any other.
fn docker_config(secret: &Secret) -> Result<DockerConfig, DockerConfigError> {
    let content = |kind: &str, key: &str| {
        let is_kind = secret.type_.as_deref().is_none_or(|it| it == kind);
        let data = secret.data.as_ref()?;
        data.get(key).filter(|it| is_kind && !it.0.is_empty()).map(|it| it.0.as_slice())
    };
    if let Some(text) = content("kubernetes.io/dockerconfigjson", ".dockerconfigjson") {
        return DockerConfig::parse_json(text);
    }
    match content("kubernetes.io/dockercfg", ".dockercfg") {
        Some(text) => DockerConfig::parse_old(text),
        None => Ok(DockerConfig::default()),
    }
}

/// What the node's own configuration has.
async fn of_node(logins: &dyn RegistryLogins, place: &str) -> Vec<Credential> {
    let parsed = match logins.node_config().await {
        Some(NodeDockerConfig::Json(text)) => DockerConfig::parse_json(&text),
        Some(NodeDockerConfig::Old(text)) => DockerConfig::parse_old(&text),
        None => return Vec::new(),
    };
    match parsed {
        Ok(config) => {
            let mut keyring = Keyring::default();
            keyring.add(&Source::Node, config);
            keyring.lookup(place)
        }
        Err(error) => {
            tracing::warn!(%error, "The node's docker configuration cannot be used");
            Vec::new()
        }
    }
}

pub(super) fn say_missing_secrets(world: &World, pod: &Pod, missing: &BTreeSet<String>) {
    let names: Vec<&str> = missing.iter().map(String::as_str).collect();
    let message = format!(
        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
        names.join(", ")
    );
    say_of_pod(
        world.events.as_ref(),
        pod,
        EventKind::Warning,
        "FailedToRetrieveImagePullSecret",
        message,
    );
}
