//! The environment of a container.
//!
//! In: a pod, a container, and everything its variables refer to, already fetched ([`EnvObjects`];
//! [`needs`] says what). Out: names and values in a stable order: `envFrom` entries in their order
//! with keys sorted, `env` in its order (a name given twice keeps its first place and takes its
//! last value), then service variables that nothing overrides. Upstream's order is that of a Go
//! map, so nothing can depend on it. Refuses: fetching.

mod fields;
mod files;
mod services;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ferrolet_resources::Amounts;
use ferrolet_types::pod::PodView as _;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvFromSource, EnvVarSource, FileKeySelector, Pod, Secret, Service,
};

use crate::expand::expand;

/// Objects that environments refer to. An object that is not listed was not asked for: that is a
/// node without a cluster.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct EnvObjects {
    /// Config maps of the pod's namespace by name.
    pub config_maps: BTreeMap<String, Lookup<Arc<ConfigMap>>>,
    /// Secrets of the pod's namespace by name.
    pub secrets: BTreeMap<String, Lookup<Arc<Secret>>>,
    /// Services of the cluster.
    pub services: Services,
    /// Contents of environment files by volume name and path in the volume; `Failed` when the path
    /// cannot be read.
    pub files: BTreeMap<(String, String), Lookup<String>>,
}

/// What came of asking for an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<T> {
    /// There it is.
    Found(T),
    /// There is no such object.
    NotFound,
    /// Nobody could say; the text says why.
    Failed(String),
}

/// The cluster's services, as far as they are known.
#[derive(Clone, Debug, PartialEq)]
pub enum Services {
    /// Not listed yet: pods of the API have to wait.
    NotRead,
    /// All of them, or those of the pod's namespace and `default/kubernetes`; none on a node
    /// without a cluster.
    Read(Vec<Arc<Service>>),
}

impl Default for Services {
    fn default() -> Self {
        Self::Read(Vec::new())
    }
}

/// What a container's environment refers to.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EnvNeeds {
    /// Names of config maps.
    pub config_maps: BTreeSet<String>,
    /// Names of secrets.
    pub secrets: BTreeSet<String>,
    /// Volume names and paths of environment files.
    pub files: BTreeSet<(String, String)>,
}

/// Why an environment cannot be made. Texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what the variants are")]
pub enum EnvError {
    #[error("services have not yet been read at least once, cannot construct envvars")]
    ServicesNotRead,
    #[error("couldn't get {kind} {namespace}/{name}, no kubeClient defined")]
    NoCluster { kind: &'static str, namespace: String, name: String },
    #[error("{kind} {name:?} not found")]
    ObjectMissing { kind: &'static str, name: String },
    #[error("{0}")]
    ObjectUnavailable(String),
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    KeyMissing { key: String, kind: &'static str, namespace: String, name: String },
    #[error("unsupported pod version: {0}")]
    FieldVersion(String),
    #[error("field label not supported: {0}")]
    FieldUnknown(String),
    #[error("field label does not support subscript: {0}")]
    FieldSubscript(String),
    #[error("invalid key subscript in {field}: {fault}")]
    FieldKey { field: String, fault: String },
    #[error("unsupported fieldPath: {0}")]
    FieldUnsupported(String),
    #[error("the node has no IP address")]
    NoHostIp,
    #[error("unsupported container resource : {0}")]
    ResourceUnknown(String),
    #[error("container {0} not found")]
    ContainerMissing(String),
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    FileVolumeMissing(String),
    #[error("couldn't parse env file")]
    FileUnreadable,
    #[error("environment variable key {key:?} not found in file {path:?}")]
    FileKeyMissing { key: String, path: String },
}

/// Everything an environment is made from besides its pod.
pub(crate) struct EnvInputs<'a> {
    pub(crate) objects: &'a EnvObjects,
    pub(crate) pod_ips: &'a [String],
    pub(crate) host_ips: &'a [String],
    pub(crate) allocatable: &'a Amounts,
}

/// What has to be fetched before the container's environment can be made.
pub fn needs(container: &Container) -> EnvNeeds {
    let mut needs = EnvNeeds::default();
    for from in container.env_from.iter().flatten() {
        needs.config_maps.extend(from.config_map_ref.iter().map(|r| r.name.clone()));
        needs.secrets.extend(from.secret_ref.iter().map(|r| r.name.clone()));
    }
    let sources = container.env.iter().flatten();
    for source in sources.filter_map(|var| var.value_from.as_ref()) {
        let config_map = source.config_map_key_ref.iter();
        needs.config_maps.extend(config_map.map(|r| r.name.clone()));
        let secret = source.secret_key_ref.iter();
        needs.secrets.extend(secret.map(|r| r.name.clone()));
        let file = source.file_key_ref.iter();
        needs.files.extend(file.map(|r| (r.volume_name.clone(), r.path.clone())));
    }
    needs
}

/// The value that counts when a name is given more than once.
pub(crate) fn last_value<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = env.iter().rev().find(|(other, _)| other == name);
    found.map(|(_, value)| value.as_str())
}

/// The container's own environment.
pub(crate) fn environment(
    pod: &Pod,
    container: &Container,
    inputs: &EnvInputs<'_>,
) -> Result<Vec<(String, String)>, EnvError> {
    let maker = Maker { pod, container, inputs };
    let services = maker.service_variables()?;
    let mut env = Vec::new();
    for from in container.env_from.iter().flatten() {
        for (name, value) in maker.all_of(from)? {
            set(&mut env, name, value);
        }
    }
    for variable in container.env.iter().flatten() {
        let literal = variable.value.as_deref().filter(|text| !text.is_empty());
        let value = match (literal, &variable.value_from) {
            (Some(text), _) => Some(expand(text, |name| {
                last_value(&env, name).or_else(|| last_value(&services, name))
            })),
            (None, Some(source)) => maker.one_of(source)?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            set(&mut env, variable.name.clone(), value);
        }
    }
    let own: BTreeSet<String> = env.iter().map(|(name, _)| name.clone()).collect();
    env.extend(services.into_iter().filter(|(name, _)| !own.contains(name)));
    Ok(env)
}

fn set(env: &mut Vec<(String, String)>, name: String, value: String) {
    match env.iter_mut().find(|(other, _)| *other == name) {
        Some((_, old)) => *old = value,
        None => env.push((name, value)),
    }
}

struct Maker<'a> {
    pod: &'a Pod,
    container: &'a Container,
    inputs: &'a EnvInputs<'a>,
}

impl<'a> Maker<'a> {
    fn service_variables(&self) -> Result<Vec<(String, String)>, EnvError> {
        let services = match &self.inputs.objects.services {
            Services::Read(services) => services,
            // A static pod may be what brings the cluster up.
            Services::NotRead if self.pod.is_static() => return Ok(Vec::new()),
            Services::NotRead => return Err(EnvError::ServicesNotRead),
        };
        Ok(services::variables(self.pod, services))
    }

    fn all_of(&self, from: &EnvFromSource) -> Result<Vec<(String, String)>, EnvError> {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let named = |key: &String| format!("{prefix}{key}");
        if let Some(reference) = &from.config_map_ref {
            let found = self.config_map(&reference.name, reference.optional)?;
            let data = found.into_iter().filter_map(|map| map.data.as_ref());
            let pairs = data.flatten().map(|(key, value)| (named(key), value.clone()));
            return Ok(pairs.collect());
        }
        if let Some(reference) = &from.secret_ref {
            let found = self.secret(&reference.name, reference.optional)?;
            let data = found.into_iter().filter_map(|secret| secret.data.as_ref());
            let pairs = data.flatten().map(|(key, value)| (named(key), text(&value.0)));
            return Ok(pairs.collect());
        }
        Ok(Vec::new())
    }

    /// The value of one variable; `None` when it is optional and absent.
    fn one_of(&self, source: &EnvVarSource) -> Result<Option<String>, EnvError> {
        if let Some(reference) = &source.field_ref {
            return fields::field(self.pod, reference, self.inputs).map(Some);
        }
        if let Some(reference) = &source.resource_field_ref {
            let allocatable = self.inputs.allocatable;
            return fields::resource(self.pod, self.container, reference, allocatable).map(Some);
        }
        if let Some(reference) = &source.config_map_key_ref {
            let Some(map) = self.config_map(&reference.name, reference.optional)? else {
                return Ok(None);
            };
            let value = map.data.as_ref().and_then(|data| data.get(&reference.key));
            let found = value.cloned();
            return self.key(
                "ConfigMap",
                &reference.name,
                &reference.key,
                reference.optional,
                found,
            );
        }
        if let Some(reference) = &source.secret_key_ref {
            let Some(secret) = self.secret(&reference.name, reference.optional)? else {
                return Ok(None);
            };
            let value = secret.data.as_ref().and_then(|data| data.get(&reference.key));
            let found = value.map(|bytes| text(&bytes.0));
            return self.key("Secret", &reference.name, &reference.key, reference.optional, found);
        }
        if let Some(reference) = &source.file_key_ref {
            return self.file(reference);
        }
        Ok(Some(String::new()))
    }

    fn config_map(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<&'a ConfigMap>, EnvError> {
        let found = self.inputs.objects.config_maps.get(name);
        self.object(["configMap", "configmap"], name, optional, found)
    }

    fn secret(&self, name: &str, optional: Option<bool>) -> Result<Option<&'a Secret>, EnvError> {
        let found = self.inputs.objects.secrets.get(name);
        self.object(["secret", "secret"], name, optional, found)
    }

    fn object<T>(
        &self,
        [asked, kind]: [&'static str; 2],
        name: &str,
        optional: Option<bool>,
        found: Option<&'a Lookup<Arc<T>>>,
    ) -> Result<Option<&'a T>, EnvError> {
        let name = name.to_owned();
        match found {
            Some(Lookup::Found(object)) => Ok(Some(object)),
            Some(Lookup::NotFound) if optional == Some(true) => Ok(None),
            Some(Lookup::NotFound) => Err(EnvError::ObjectMissing { kind, name }),
            Some(Lookup::Failed(why)) => Err(EnvError::ObjectUnavailable(why.clone())),
            None => Err(EnvError::NoCluster {
                kind: asked,
                namespace: self.pod.key().namespace.to_string(),
                name,
            }),
        }
    }

    fn key(
        &self,
        kind: &'static str,
        name: &str,
        key: &str,
        optional: Option<bool>,
        found: Option<String>,
    ) -> Result<Option<String>, EnvError> {
        if found.is_some() || optional == Some(true) {
            return Ok(found);
        }
        Err(EnvError::KeyMissing {
            key: key.to_owned(),
            kind,
            namespace: self.pod.key().namespace.to_string(),
            name: name.to_owned(),
        })
    }

    fn file(&self, reference: &FileKeySelector) -> Result<Option<String>, EnvError> {
        let volume = &reference.volume_name;
        let at = (volume.clone(), reference.path.clone());
        let content = match self.inputs.objects.files.get(&at) {
            Some(Lookup::Found(content)) => content,
            Some(Lookup::NotFound | Lookup::Failed(_)) => return Err(EnvError::FileUnreadable),
            None => return Err(EnvError::FileVolumeMissing(volume.clone())),
        };
        let value = files::value_of(content, &reference.key).ok_or(EnvError::FileUnreadable)?;
        match (value.is_empty(), reference.optional) {
            (false, _) => Ok(Some(value)),
            (true, Some(true)) => Ok(None),
            (true, _) => Err(EnvError::FileKeyMissing {
                key: reference.key.clone(),
                path: reference.path.clone(),
            }),
        }
    }
}

/// Variables are text; bytes that are none are replaced, as no process could have relied on them.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
