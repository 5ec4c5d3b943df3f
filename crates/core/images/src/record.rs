//! What was pulled, with whose credentials: the files below `image_manager`, in upstream's format.
//!
//! An *intent* says that a pull of an image name began; a *record* says which image came of it and
//! who may use it. Files are named by the hash of the name or reference. Both kinds decode
//! strictly: a file that says more than we understand is not used. Decides: merging new credentials
//! into a record. Refuses: files.

use std::collections::BTreeMap;

use ferrolet_types::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::keyring::{Coordinates, Credential, Source, hex};

const GROUP: &str = "kubelet.config.k8s.io/";
const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const READABLE: [&str; 2] = ["v1beta1", "v1alpha1"];

/// Who may use an image, by the repository it was asked for under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledRecord {
    /// When it was written last.
    pub last_updated: Timestamp,
    /// The runtime's reference of the image.
    pub image_ref: String,
    /// Credentials by the name that pods used, without tag and digest.
    pub credentials: BTreeMap<String, PullCredentials>,
}

/// Whose credentials have opened a repository.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PullCredentials {
    /// Every pod of the node may use the image; the rest is empty then.
    pub is_node_wide: bool,
    /// Pull secrets with the fingerprint they had.
    pub secrets: Vec<SecretUse>,
    /// Service accounts.
    pub service_accounts: Vec<Coordinates>,
}

/// A pull secret and what it held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretUse {
    /// Which secret.
    pub secret: Coordinates,
    /// The credential's fingerprint.
    pub fingerprint: String,
}

impl PullCredentials {
    /// What the credential that opened the registry means for later; none at all means that
    /// everybody may.
    #[must_use]
    pub fn of(used: Option<&Credential>) -> Self {
        match used.map(|it| (it, &it.source)) {
            None | Some((_, Source::Node)) => Self { is_node_wide: true, ..Self::default() },
            Some((credential, Source::Secret(secret))) => Self {
                secrets: vec![SecretUse {
                    secret: secret.clone(),
                    fingerprint: credential.fingerprint(),
                }],
                ..Self::default()
            },
            Some((_, Source::ServiceAccount(account))) => {
                Self { service_accounts: vec![account.clone()], ..Self::default() }
            }
        }
    }

    fn is_empty(&self) -> bool {
        !self.is_node_wide && self.secrets.is_empty() && self.service_accounts.is_empty()
    }

    /// Adds what is new; false when nothing is.
    fn merge(&mut self, new: PullCredentials) -> bool {
        if self.is_node_wide || new.is_empty() {
            return false;
        }
        if new.is_node_wide {
            *self = new;
            return true;
        }
        let mut has_changed = false;
        for used in new.secrets {
            match self.secrets.iter_mut().find(|it| it.secret == used.secret) {
                Some(known) if *known == used => {}
                Some(known) => {
                    *known = used;
                    has_changed = true;
                }
                None => {
                    self.secrets.push(used);
                    has_changed = true;
                }
            }
        }
        for account in new.service_accounts {
            if !self.service_accounts.contains(&account) {
                self.service_accounts.push(account);
                has_changed = true;
            }
        }
        self.secrets.sort();
        self.service_accounts.sort();
        has_changed
    }
}

/// The record after a pull, when it differs from the one before. `credentials` is `None` when
/// nobody knows how the image came here: then the record alone makes later pods prove themselves.
#[must_use]
pub fn after_pull(
    before: Option<PulledRecord>,
    repository: &str,
    image_ref: &str,
    credentials: Option<PullCredentials>,
    now: Timestamp,
) -> Option<PulledRecord> {
    let Some(mut record) = before else {
        let credentials = credentials.map(|it| (repository.to_owned(), it));
        return Some(PulledRecord {
            last_updated: now,
            image_ref: image_ref.to_owned(),
            credentials: credentials.into_iter().collect(),
        });
    };
    let new = credentials.filter(|it| !it.is_empty())?;
    let has_changed = match record.credentials.get_mut(repository) {
        Some(known) => known.merge(new),
        None => {
            record.credentials.insert(repository.to_owned(), new);
            true
        }
    };
    record.last_updated = now;
    has_changed.then_some(record)
}

/// The name of the file about an image name or reference.
#[must_use]
pub fn file_name(subject: &str) -> String {
    format!("sha256-{}", hex(&Sha256::digest(subject)))
}

/// Why a file is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It is not JSON.
    #[error("is not a JSON object")]
    NotAnObject,
    /// It is of another kind or version.
    #[error("kind {0:?} of {1:?} is not known here")]
    Unknown(String, String),
    /// A field is missing, of the wrong kind, or not known.
    #[error("field {0} is not what it should be")]
    BadField(String),
}

/// The text of an intent.
#[must_use]
pub fn encode_intent(image: &str) -> String {
    let value = json!({"kind": "ImagePullIntent", "apiVersion": VERSION, "image": image});
    format!("{value}\n")
}

/// The image name of an intent.
pub fn decode_intent(text: &[u8]) -> Result<String, RecordError> {
    let fields = typed(text, "ImagePullIntent", &["image"])?;
    text_field(&fields, "image")
}

/// The text of a record.
#[must_use]
pub fn encode_record(record: &PulledRecord) -> String {
    let mapping: Map<String, Value> = record
        .credentials
        .iter()
        .map(|(repository, credentials)| (repository.clone(), encode_credentials(credentials)))
        .collect();
    let mut value = json!({
        "kind": "ImagePulledRecord",
        "apiVersion": VERSION,
        "lastUpdatedTime": record.last_updated.to_second_precision().to_string(),
        "imageRef": record.image_ref,
    });
    if !mapping.is_empty() {
        value["credentialMapping"] = Value::Object(mapping);
    }
    format!("{value}\n")
}

fn encode_credentials(credentials: &PullCredentials) -> Value {
    let coordinates =
        |it: &Coordinates| json!({"uid": it.uid, "namespace": it.namespace, "name": it.name});
    let mut value = json!({});
    if !credentials.secrets.is_empty() {
        let secrets = credentials.secrets.iter().map(|it| {
            let mut secret = coordinates(&it.secret);
            secret["credentialHash"] = json!(it.fingerprint);
            secret
        });
        value["kubernetesSecrets"] = secrets.collect();
    }
    if !credentials.service_accounts.is_empty() {
        value["kubernetesServiceAccounts"] =
            credentials.service_accounts.iter().map(coordinates).collect();
    }
    if credentials.is_node_wide {
        value["nodePodsAccessible"] = json!(true);
    }
    value
}

/// The record of a text.
pub fn decode_record(text: &[u8]) -> Result<PulledRecord, RecordError> {
    let known = ["lastUpdatedTime", "imageRef", "credentialMapping"];
    let fields = typed(text, "ImagePulledRecord", &known)?;
    let last_updated = match fields.get("lastUpdatedTime") {
        None | Some(Value::Null) => Timestamp::from_second(0),
        Some(Value::String(text)) => {
            let parsed = text.parse::<jiff::Timestamp>();
            let parsed = parsed.map_err(|_| bad("lastUpdatedTime"))?;
            Timestamp::from_second(parsed.as_second())
        }
        Some(_) => return Err(bad("lastUpdatedTime")),
    };
    let mut credentials = BTreeMap::new();
    for (repository, value) in object_field(&fields, "credentialMapping")? {
        credentials.insert(repository, decode_credentials(&value)?);
    }
    Ok(PulledRecord { last_updated, image_ref: text_field(&fields, "imageRef")?, credentials })
}

fn decode_credentials(value: &Value) -> Result<PullCredentials, RecordError> {
    const LISTS: [&str; 2] = ["kubernetesSecrets", "kubernetesServiceAccounts"];
    let fields = value.as_object().ok_or_else(|| bad("credentialMapping"))?;
    known_only(fields, &[LISTS[0], LISTS[1], "nodePodsAccessible"])?;
    let list = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            items.iter().map(|it| it.as_object().cloned().ok_or_else(|| bad(name))).collect()
        }
        Some(_) => Err(bad(name)),
    };
    let coordinates = |item: &Map<String, Value>| -> Result<Coordinates, RecordError> {
        Ok(Coordinates {
            namespace: text_field(item, "namespace")?,
            name: text_field(item, "name")?,
            uid: text_field(item, "uid")?,
        })
    };
    let mut secrets = Vec::new();
    for item in list(LISTS[0])? {
        known_only(&item, &["uid", "namespace", "name", "credentialHash"])?;
        secrets.push(SecretUse {
            secret: coordinates(&item)?,
            fingerprint: text_field(&item, "credentialHash")?,
        });
    }
    let mut service_accounts = Vec::new();
    for item in list(LISTS[1])? {
        known_only(&item, &["uid", "namespace", "name"])?;
        service_accounts.push(coordinates(&item)?);
    }
    let is_node_wide = match fields.get("nodePodsAccessible") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(is)) => *is,
        Some(_) => return Err(bad("nodePodsAccessible")),
    };
    Ok(PullCredentials { is_node_wide, secrets, service_accounts })
}

fn bad(field: &str) -> RecordError {
    RecordError::BadField(field.to_owned())
}

fn typed(text: &[u8], kind: &str, known: &[&str]) -> Result<Map<String, Value>, RecordError> {
    let fields: Map<String, Value> =
        serde_json::from_slice(text).map_err(|_| RecordError::NotAnObject)?;
    let said = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let version = said("apiVersion").strip_prefix(GROUP);
    if said("kind") != kind || !version.is_some_and(|it| READABLE.contains(&it)) {
        let (kind, version) = (said("kind").to_owned(), said("apiVersion").to_owned());
        return Err(RecordError::Unknown(kind, version));
    }
    let known: Vec<&str> = ["kind", "apiVersion"].iter().chain(known).copied().collect();
    known_only(&fields, &known)?;
    Ok(fields)
}

fn known_only(fields: &Map<String, Value>, known: &[&str]) -> Result<(), RecordError> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(stranger) => Err(bad(stranger)),
        None => Ok(()),
    }
}

fn text_field(fields: &Map<String, Value>, name: &str) -> Result<String, RecordError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(bad(name)),
    }
}

fn object_field(
    fields: &Map<String, Value>,
    name: &str,
) -> Result<Map<String, Value>, RecordError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(_) => Err(bad(name)),
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
