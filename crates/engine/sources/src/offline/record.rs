//! A copy of a pod as bytes: JSON with a version, so that a later agent can tell what it reads.
//! Pure.
//!
//! Left out is what changes without meaning (managed fields, resource versions, our own marks) and
//! what nobody needs to start a pod (everything of an object but its data).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_ports::{Token, TokenAsk};
use ferrolet_types::{
    PodUid, Timestamp,
    pod::{PodView as _, SEEN_ANNOTATION, SOURCE_ANNOTATION},
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Pod as ApiPod, Secret, Service, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::{Deserialize, Serialize};

/// The format that is written, and the only one that is read.
const VERSION: u32 = 1;

/// Everything one pod needs to start. No `Debug`: it holds secrets.
#[derive(Clone, PartialEq)]
pub(super) struct Record {
    /// The pod, with its last status.
    pub(super) pod: ApiPod,
    /// Secrets by name; `None` for one that the API did not have.
    pub(super) secrets: BTreeMap<String, Option<Arc<Secret>>>,
    /// Config maps by name; `None` for one that the API did not have.
    pub(super) config_maps: BTreeMap<String, Option<Arc<ConfigMap>>>,
    /// Tokens in its name.
    pub(super) tokens: BTreeMap<TokenAsk, Token>,
    /// Services that its containers are told of.
    pub(super) services: Vec<Arc<Service>>,
    /// The handler of its runtime class.
    pub(super) runtime_handler: Option<String>,
}

/// Why bytes are not a copy of a pod.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    // The parser's own words might quote a secret.
    #[error("parse it: it is no copy of a pod from line {line}, column {column} on")]
    Parse { line: usize, column: usize },
    #[error("put it into JSON")]
    Encode,
    #[error("its version is {0}, not {VERSION}")]
    Version(u32),
    #[error("it holds pod {0:?}")]
    OtherPod(String),
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    version: u32,
    pod: ApiPod,
    secrets: BTreeMap<String, Option<Secret>>,
    config_maps: BTreeMap<String, Option<ConfigMap>>,
    tokens: Vec<WrittenToken>,
    services: Vec<Service>,
    runtime_handler: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenToken {
    service_account: String,
    audiences: Vec<String>,
    lifetime_seconds: Option<u64>,
    token: String,
    expires: Time,
}

impl Record {
    /// The bytes of the copy; the same record gives the same bytes.
    pub(super) fn encode(&self) -> Result<Vec<u8>, RecordError> {
        let tokens = self.tokens.iter().map(|(ask, token)| WrittenToken {
            service_account: ask.service_account.clone(),
            audiences: ask.audiences.clone(),
            lifetime_seconds: ask.lifetime.map(|it| it.as_secs()),
            token: token.text.clone(),
            expires: Time(token.expires.0),
        });
        let written = Written {
            version: VERSION,
            pod: bare_pod(&self.pod),
            secrets: each(&self.secrets, bare_secret),
            config_maps: each(&self.config_maps, bare_config_map),
            tokens: tokens.collect(),
            services: self.services.iter().map(|it| bare_service(it)).collect(),
            runtime_handler: self.runtime_handler.clone(),
        };
        serde_json::to_vec(&written).map_err(|_| RecordError::Encode)
    }

    /// Reads the copy that is kept under this uid.
    pub(super) fn decode(uid: &PodUid, bytes: &[u8]) -> Result<Self, RecordError> {
        // Asked first: another version may have other fields.
        let Versioned { version } = serde_json::from_slice(bytes).map_err(unparsed)?;
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let written: Written = serde_json::from_slice(bytes).map_err(unparsed)?;
        let pod = written.pod;
        if pod.uid() != *uid {
            return Err(RecordError::OtherPod(pod.uid().to_string()));
        }
        let (key, uid) = (pod.key(), uid.clone());
        let tokens = written.tokens.into_iter().map(|it| {
            let ask = TokenAsk {
                namespace: key.namespace.to_string(),
                service_account: it.service_account,
                audiences: it.audiences,
                lifetime: it.lifetime_seconds.map(Duration::from_secs),
                bound_pod: Some((key.clone(), uid.clone())),
            };
            let token = Token { text: it.token, expires: Timestamp(it.expires.0) };
            (ask, token)
        });
        Ok(Self {
            tokens: tokens.collect(),
            secrets: shared(written.secrets),
            config_maps: shared(written.config_maps),
            services: written.services.into_iter().map(Arc::new).collect(),
            runtime_handler: written.runtime_handler,
            pod,
        })
    }
}

/// The services that the pod's containers are told of: those of its namespace unless it declines,
/// and `kubernetes`.
pub(super) fn visible(pod: &ApiPod, services: &[Arc<Service>]) -> Vec<Arc<Service>> {
    let namespace = pod.key().namespace;
    let has_links = pod.spec_ref().enable_service_links.unwrap_or(true);
    let is_visible = |service: &&Arc<Service>| {
        let meta = &service.metadata;
        let (home, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        (has_links && home == Some(&*namespace))
            || (home == Some("default") && name == Some("kubernetes"))
    };
    let mut visible: Vec<_> = services.iter().filter(is_visible).cloned().collect();
    // The order they were learnt in means nothing and must not count as a change.
    let place = |it: &Arc<Service>| (it.metadata.namespace.clone(), it.metadata.name.clone());
    visible.sort_by_key(place);
    visible
}

fn unparsed(error: serde_json::Error) -> RecordError {
    RecordError::Parse { line: error.line(), column: error.column() }
}

fn bare_pod(pod: &ApiPod) -> ApiPod {
    let mut pod = pod.clone();
    pod.metadata.managed_fields = None;
    pod.metadata.resource_version = None;
    if let Some(annotations) = pod.metadata.annotations.as_mut() {
        annotations.retain(|key, _| key != SOURCE_ANNOTATION && key != SEEN_ANNOTATION);
    }
    pod
}

fn bare_secret(secret: &Secret) -> Secret {
    Secret {
        metadata: bare_meta(&secret.metadata),
        data: secret.data.clone(),
        type_: secret.type_.clone(),
        ..Secret::default()
    }
}

fn bare_config_map(map: &ConfigMap) -> ConfigMap {
    ConfigMap {
        metadata: bare_meta(&map.metadata),
        data: map.data.clone(),
        binary_data: map.binary_data.clone(),
        ..ConfigMap::default()
    }
}

fn bare_service(service: &Service) -> Service {
    let spec = service.spec.as_ref().map(|spec| ServiceSpec {
        cluster_ip: spec.cluster_ip.clone(),
        ports: spec.ports.clone(),
        ..ServiceSpec::default()
    });
    Service { metadata: bare_meta(&service.metadata), spec, ..Service::default() }
}

fn bare_meta(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        ..ObjectMeta::default()
    }
}

fn each<T>(
    objects: &BTreeMap<String, Option<Arc<T>>>,
    bare: impl Fn(&T) -> T,
) -> BTreeMap<String, Option<T>> {
    let objects = objects.iter();
    objects.map(|(name, object)| (name.clone(), object.as_deref().map(&bare))).collect()
}

fn shared<T>(objects: BTreeMap<String, Option<T>>) -> BTreeMap<String, Option<Arc<T>>> {
    let objects = objects.into_iter();
    objects.map(|(name, object)| (name, object.map(Arc::new))).collect()
}
