//! The configuration of plugins: strict, complete, every fault with its field and value.

use std::{collections::BTreeSet, time::Duration};

use ferrolet_types::parse_go_duration;
use serde_json::{Map, Value};

use crate::pattern::Place;

const CONFIG_GROUP: &str = "kubelet.config.k8s.io/";
const CONFIG_VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const PROTOCOLS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];

/// One plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The executable's name in the plugin directory.
    pub name: String,
    /// Patterns of images that it is asked about.
    pub match_images: Vec<String>,
    /// How long an answer is kept that does not say so itself.
    pub default_cache: Duration,
    /// The version of the protocol it speaks.
    pub api_version: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Variables on top of the agent's own environment.
    pub env: Vec<(String, String)>,
    /// The service-account token that it wants.
    pub token: Option<AccountToken>,
}

impl Provider {
    /// Whether it is asked about an image's place.
    #[must_use]
    pub fn is_for(&self, place: &str) -> bool {
        let mut patterns = self.match_images.iter();
        patterns.any(|pattern| crate::matches_place(pattern, place))
    }
}

/// Which token of the pod's service account a plugin gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountToken {
    /// Who the token is for.
    pub audience: String,
    /// What an answer is kept for.
    pub cache: TokenCache,
    /// A pod without an account is not asked for.
    pub is_account_required: bool,
    /// Annotations of the account that must be there.
    pub required_annotations: Vec<String>,
    /// Annotations of the account that are handed over when they are there.
    pub optional_annotations: Vec<String>,
}

/// What an answer that a token bought is kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCache {
    /// The service account.
    ServiceAccount,
    /// Exactly this token.
    Token,
}

/// For how much an answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// One image.
    Image,
    /// One registry.
    Registry,
    /// Everything that the plugin is asked about.
    Global,
}

/// Everything that is wrong with a configuration, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ProviderConfigError(pub Vec<String>);

/// Puts the plugins of several files together, in the files' order.
pub fn merge(files: Vec<Vec<Provider>>) -> Result<Vec<Provider>, ProviderConfigError> {
    let (mut all, mut seen, mut faults) = (Vec::new(), BTreeSet::new(), Vec::new());
    for provider in files.into_iter().flatten() {
        if !seen.insert(provider.name.clone()) {
            faults.push(format!("provider {:?} is configured more than once", provider.name));
        }
        all.push(provider);
    }
    if all.is_empty() {
        faults.push("providers: at least one is needed".to_owned());
    }
    if faults.is_empty() { Ok(all) } else { Err(ProviderConfigError(faults)) }
}

/// Reads one file, YAML or JSON.
pub fn parse_config(text: &str) -> Result<Vec<Provider>, ProviderConfigError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let whole: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ProviderConfigError(vec![error.to_string()]))?;
    let mut faults = Faults::default();
    let empty = Map::new();
    let fields = whole.as_object().unwrap_or_else(|| {
        faults.say("", "must be an object");
        &empty
    });
    check_type(fields, &mut faults);
    faults.only(fields, "", &["apiVersion", "kind", "providers"]);
    let providers: Vec<Provider> = list(fields, "providers", "", &mut faults)
        .iter()
        .enumerate()
        .filter_map(|(n, item)| provider(item, &format!("providers[{n}]"), &mut faults))
        .collect();
    if faults.0.is_empty() { Ok(providers) } else { Err(ProviderConfigError(faults.0)) }
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn say(&mut self, path: &str, message: impl std::fmt::Display) {
        self.0.push(if path.is_empty() {
            message.to_string()
        } else {
            format!("{path}: {message}")
        });
    }

    fn only(&mut self, fields: &Map<String, Value>, path: &str, known: &[&str]) {
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            self.say(&join(path, name), "no such field");
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn check_type(fields: &Map<String, Value>, faults: &mut Faults) {
    let said = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    if said("kind") != "CredentialProviderConfig" {
        let message = format!("{:?} must be CredentialProviderConfig", said("kind"));
        faults.say("kind", message);
    }
    let version = said("apiVersion").strip_prefix(CONFIG_GROUP);
    if !version.is_some_and(|it| CONFIG_VERSIONS.contains(&it)) {
        let message =
            format!("{:?} must be {CONFIG_GROUP}v1, v1beta1 or v1alpha1", said("apiVersion"));
        faults.say("apiVersion", message);
    }
}

fn list<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
    path: &str,
    faults: &mut Faults,
) -> &'a [Value] {
    match fields.get(name) {
        None | Some(Value::Null) => &[],
        Some(Value::Array(items)) => items,
        Some(_) => {
            faults.say(&join(path, name), "must be a list");
            &[]
        }
    }
}

fn text(fields: &Map<String, Value>, name: &str, path: &str, faults: &mut Faults) -> String {
    match fields.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => {
            faults.say(&join(path, name), format!("{other} must be a text"));
            String::new()
        }
    }
}

fn texts(fields: &Map<String, Value>, name: &str, path: &str, faults: &mut Faults) -> Vec<String> {
    let mut found = Vec::new();
    for item in list(fields, name, path, faults) {
        match item {
            Value::String(text) => found.push(text.clone()),
            other => faults.say(&join(path, name), format!("{other} must be a text")),
        }
    }
    found
}

fn provider(item: &Value, path: &str, faults: &mut Faults) -> Option<Provider> {
    let Some(fields) = item.as_object() else {
        faults.say(path, "must be an object");
        return None;
    };
    let known = [
        "name",
        "matchImages",
        "defaultCacheDuration",
        "apiVersion",
        "args",
        "env",
        "tokenAttributes",
    ];
    faults.only(fields, path, &known);
    let name = text(fields, "name", path, faults);
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', ' ', '\0']) {
        let message = format!("{name:?} must be the name of a file, without spaces and slashes");
        faults.say(&join(path, "name"), message);
    }
    let match_images = texts(fields, "matchImages", path, faults);
    if match_images.is_empty() {
        faults.say(&join(path, "matchImages"), "at least one pattern is needed");
    }
    for pattern in &match_images {
        if let Err(error) = Place::parse(pattern) {
            let message = format!("{pattern:?} is not a pattern: {error}");
            faults.say(&join(path, "matchImages"), message);
        }
    }
    let api_version = text(fields, "apiVersion", path, faults);
    if !PROTOCOLS.contains(&api_version.as_str()) {
        let message = format!("{api_version:?} must be one of {}", PROTOCOLS.join(", "));
        faults.say(&join(path, "apiVersion"), message);
    }
    let default_cache = default_cache(fields, path, faults);
    let args = texts(fields, "args", path, faults);
    let env = env(fields, path, faults);
    let token = token(fields, &api_version, path, faults);
    Some(Provider { name, match_images, default_cache, api_version, args, env, token })
}

fn default_cache(fields: &Map<String, Value>, path: &str, faults: &mut Faults) -> Duration {
    const NAME: &str = "defaultCacheDuration";
    let given = text(fields, NAME, path, faults);
    match fields.get(NAME) {
        None | Some(Value::Null) => {
            faults.say(&join(path, NAME), "is needed, for example 10m");
            Duration::ZERO
        }
        Some(_) => parse_go_duration(&given).unwrap_or_else(|_| {
            let message = format!("{given:?} must be a duration such as 10m, not negative");
            faults.say(&join(path, NAME), message);
            Duration::ZERO
        }),
    }
}

fn env(fields: &Map<String, Value>, path: &str, faults: &mut Faults) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (n, item) in list(fields, "env", path, faults).iter().enumerate() {
        let path = format!("{path}.env[{n}]");
        let Some(fields) = item.as_object() else {
            faults.say(&path, "must be an object");
            continue;
        };
        faults.only(fields, &path, &["name", "value"]);
        let name = text(fields, "name", &path, faults);
        let value = text(fields, "value", &path, faults);
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            faults.say(&path, format!("{name:?} is not the name of a variable"));
        }
        found.push((name, value));
    }
    found
}

fn token(
    fields: &Map<String, Value>,
    api_version: &str,
    path: &str,
    faults: &mut Faults,
) -> Option<AccountToken> {
    let path = join(path, "tokenAttributes");
    let fields = match fields.get("tokenAttributes") {
        None | Some(Value::Null) => return None,
        Some(Value::Object(fields)) => fields,
        Some(_) => {
            faults.say(&path, "must be an object");
            return None;
        }
    };
    let (required, optional) =
        ("requiredServiceAccountAnnotationKeys", "optionalServiceAccountAnnotationKeys");
    let known =
        ["serviceAccountTokenAudience", "cacheType", "requireServiceAccount", required, optional];
    faults.only(fields, &path, &known);
    if api_version != PROTOCOLS[0] {
        faults.say(&path, format!("needs apiVersion {}", PROTOCOLS[0]));
    }
    let audience = text(fields, known[0], &path, faults);
    if audience.is_empty() {
        faults.say(&join(&path, known[0]), "is needed");
    }
    let cache = match text(fields, "cacheType", &path, faults).as_str() {
        "ServiceAccount" => TokenCache::ServiceAccount,
        "Token" => TokenCache::Token,
        other => {
            let message = format!("{other:?} must be ServiceAccount or Token");
            faults.say(&join(&path, "cacheType"), message);
            TokenCache::Token
        }
    };
    let is_account_required = match fields.get("requireServiceAccount") {
        Some(Value::Bool(is)) => *is,
        _ => {
            faults.say(&join(&path, "requireServiceAccount"), "must be true or false");
            true
        }
    };
    let required_annotations = texts(fields, required, &path, faults);
    let optional_annotations = texts(fields, optional, &path, faults);
    if !is_account_required && !required_annotations.is_empty() {
        let message = "may only be set while requireServiceAccount is true";
        faults.say(&join(&path, required), message);
    }
    let mut seen = BTreeSet::new();
    for key in required_annotations.iter().chain(&optional_annotations) {
        if !is_annotation(key) {
            faults.say(&path, format!("{key:?} is not the key of an annotation"));
        }
        if !seen.insert(key) {
            faults.say(&path, format!("{key:?} is named twice"));
        }
    }
    Some(AccountToken {
        audience,
        cache,
        is_account_required,
        required_annotations,
        optional_annotations,
    })
}

/// `[prefix/]name`, upstream's qualified name without regard to case.
fn is_annotation(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_word = |text: &str, limit: usize, extra: &str| {
        text.len() <= limit
            && is_edge(text.chars().next())
            && is_edge(text.chars().last())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    };
    is_word(name, 63, "-_.") && prefix.is_none_or(|it| is_word(it, 253, "-."))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
