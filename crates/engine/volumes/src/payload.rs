//! The files of a volume, from its sources and the objects at hand. Pure.
//!
//! In: what the plan names, and what was gathered. Out: every file with content, mode and owner, or
//! upstream's sentence about what is missing. Sources are laid over each other in order. A path
//! that is a file for one and a directory for another source is refused here, before anything is
//! written.

use std::{collections::BTreeMap, sync::Arc};

use ferrolet_ports::{
    ApiErrorKind, ObjectKind, PayloadFile, Token, TokenAsk, TrustAsk, VolumeSpec,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::{
    certificates::Bundle,
    paths::{clean, file_path_fault},
    plan::{Item, Source, joined},
    trust::anchors,
};

/// What was gathered for one pod's volumes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) config_maps: BTreeMap<String, Got<Arc<ConfigMap>>>,
    pub(crate) secrets: BTreeMap<String, Got<Arc<Secret>>>,
    pub(crate) tokens: BTreeMap<TokenAsk, Got<Token>>,
    /// Texts of trust bundles.
    pub(crate) trust: BTreeMap<TrustAsk, Got<Vec<String>>>,
    /// Keys and certificates, by volume and index of the source.
    pub(crate) certificates: BTreeMap<(String, usize), Got<Bundle>>,
    /// What the pod's claims stand for, by the volume's name in the pod.
    pub(crate) claims: BTreeMap<String, Got<VolumeSpec>>,
}

/// An object, or why there is none.
pub(crate) type Got<T> = Result<T, Missing>;

/// Why an object is not at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// The API has no such object: waiting for it to appear is enough.
    pub(crate) is_absent: bool,
    /// One sentence.
    pub(crate) message: String,
}

impl Missing {
    pub(crate) fn new(kind: ApiErrorKind, message: String) -> Self {
        Self { is_absent: kind == ApiErrorKind::NotFound, message }
    }
}

/// Why a volume's files cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PayloadFault {
    /// One sentence.
    pub(crate) message: String,
    /// Nothing will change before an object does.
    pub(crate) awaits_objects: bool,
}

/// Every file of a volume.
pub(crate) fn compute(
    volume: &str,
    sources: &[Source],
    gathered: &Gathered,
) -> Result<BTreeMap<String, PayloadFile>, PayloadFault> {
    let mut files = BTreeMap::new();
    let mut faults = Vec::new();
    let mut awaits_objects = true;
    for source in sources {
        match source_files(volume, source, gathered) {
            Ok(found) => files.extend(found),
            Err(missing) => {
                awaits_objects &= missing.is_absent;
                faults.push(missing.message);
            }
        }
    }
    if let Some(message) = joined(&faults) {
        return Err(PayloadFault { message, awaits_objects });
    }
    let fault = |message: String| PayloadFault { message, awaits_objects: true };
    let mut cleaned = BTreeMap::new();
    for (path, file) in files {
        if let Some(message) = file_path_fault(&path) {
            return Err(fault(message));
        }
        cleaned.insert(clean(&path), file);
    }
    match conflict(&cleaned) {
        Some(message) => Err(fault(message)),
        None => Ok(cleaned),
    }
}

/// A path that would have to be both a file and a directory.
fn conflict(files: &BTreeMap<String, PayloadFile>) -> Option<String> {
    files.keys().find_map(|path| {
        let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
        let file = parents.into_iter().find(|it| files.contains_key(*it))?;
        Some(format!("conflicting paths: {file} is a file and the directory of {path}"))
    })
}

fn source_files(
    volume: &str,
    source: &Source,
    gathered: &Gathered,
) -> Got<Vec<(String, PayloadFile)>> {
    match source {
        Source::OfPod(files) => {
            files.clone().map_err(|message| Missing { is_absent: false, message })
        }
        Source::Trust { path, ask, is_optional, mode, owner } => {
            let bundles = match gathered.trust.get(ask) {
                Some(Ok(bundles)) => bundles.as_slice(),
                Some(Err(missing)) if missing.is_absent && *is_optional => &[],
                Some(Err(missing)) => {
                    // The watch on bundles may be the part that fails: ask again.
                    return Err(Missing { is_absent: false, message: missing.message.clone() });
                }
                None => &[],
            };
            if bundles.is_empty() && !is_optional {
                return Err(Missing {
                    is_absent: false,
                    message: "combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned(),
                });
            }
            let file = PayloadFile { content: anchors(bundles), mode: *mode, owner: *owner };
            Ok(vec![(path.clone(), file)])
        }
        Source::Certificate { index, bundle_path, key_path, chain_path, mode, owner, .. } => {
            let place = (volume.to_owned(), *index);
            let missing = || Missing {
                is_absent: false,
                message: "credentials were not gathered".to_owned(),
            };
            let found = gathered.certificates.get(&place).ok_or_else(missing)?;
            let found = found.as_ref().map_err(Clone::clone)?;
            let both = format!("{}{}", found.key, found.chain);
            let files = [
                (bundle_path, both.as_str()),
                (key_path, found.key.as_str()),
                (chain_path, found.chain.as_str()),
            ];
            let file = |content: &str| PayloadFile {
                content: content.as_bytes().to_vec(),
                mode: *mode,
                owner: *owner,
            };
            let named = files.into_iter();
            Ok(named.filter_map(|(path, content)| Some((path.clone()?, file(content)))).collect())
        }
        Source::Token { path, ask, mode, owner } => {
            let token = gathered.tokens.get(ask);
            let token = token.unwrap_or(&NOT_GATHERED).as_ref();
            let file = PayloadFile {
                content: token.map_err(Clone::clone)?.text.clone().into_bytes(),
                mode: *mode,
                owner: *owner,
            };
            Ok(vec![(path.clone(), file)])
        }
        Source::Object { kind, name, is_optional, items, mode } => {
            let asked = KeysAsked { items, mode: *mode, is_optional: *is_optional };
            match kind {
                ObjectKind::ConfigMap => config_map_files(gathered.config_maps.get(name), &asked),
                ObjectKind::Secret => secret_files(gathered.secrets.get(name), &asked),
                // Bundles have a source of their own, above.
                ObjectKind::TrustBundle => Ok(Vec::new()),
            }
        }
    }
}

static NOT_GATHERED: Got<Token> = Err(Missing { is_absent: false, message: String::new() });

struct KeysAsked<'a> {
    items: &'a [Item],
    mode: u32,
    is_optional: bool,
}

fn config_map_files(
    found: Option<&Got<Arc<ConfigMap>>>,
    asked: &KeysAsked<'_>,
) -> Got<Vec<(String, PayloadFile)>> {
    let Some(map) = object(found, asked)? else {
        return Ok(Vec::new());
    };
    let text = map.data.iter().flatten();
    let text = text.map(|(key, value)| (key, value.as_bytes()));
    let binary = map.binary_data.iter().flatten();
    let binary = binary.map(|(key, value)| (key, value.0.as_slice()));
    // Text wins over binary under the same key when keys are chosen, binary when all are taken:
    // upstream's order.
    let keys: BTreeMap<&String, &[u8]> = if asked.items.is_empty() {
        text.chain(binary).collect()
    } else {
        binary.chain(text).collect()
    };
    files(&keys, asked, "configmap references non-existent config key")
}

fn secret_files(
    found: Option<&Got<Arc<Secret>>>,
    asked: &KeysAsked<'_>,
) -> Got<Vec<(String, PayloadFile)>> {
    let Some(secret) = object(found, asked)? else {
        return Ok(Vec::new());
    };
    let data = secret.data.iter().flatten();
    let keys = data.map(|(key, value)| (key, value.0.as_slice())).collect();
    files(&keys, asked, "references non-existent secret key")
}

/// The object; `None` when it is missing and need not be there.
fn object<'a, T>(found: Option<&'a Got<Arc<T>>>, asked: &KeysAsked<'_>) -> Got<Option<&'a T>> {
    match found {
        Some(Ok(object)) => Ok(Some(object)),
        Some(Err(missing)) if missing.is_absent && asked.is_optional => Ok(None),
        Some(Err(missing)) => Err(missing.clone()),
        None => Err(Missing { is_absent: false, message: "object was not gathered".to_owned() }),
    }
}

fn files(
    keys: &BTreeMap<&String, &[u8]>,
    asked: &KeysAsked<'_>,
    complaint: &str,
) -> Got<Vec<(String, PayloadFile)>> {
    let file =
        |content: &[u8], mode: u32| PayloadFile { content: content.to_vec(), mode, owner: None };
    if asked.items.is_empty() {
        let all = keys.iter();
        return Ok(all.map(|(key, content)| ((*key).clone(), file(content, asked.mode))).collect());
    }
    let mut found = Vec::new();
    for item in asked.items {
        match keys.get(&item.key) {
            Some(content) => {
                found.push((item.path.clone(), file(content, item.mode.unwrap_or(asked.mode))))
            }
            None if asked.is_optional => {}
            None => {
                return Err(Missing {
                    is_absent: true,
                    message: format!("{complaint}: {}", item.key),
                });
            }
        }
    }
    Ok(found)
}
