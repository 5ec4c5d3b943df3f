//! The exec protocol: one JSON object in, one out.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_types::parse_go_duration;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::config::{CacheScope, Provider, TokenCache};
use crate::{
    docker::{DockerConfig, Login},
    keyring::{Coordinates, hex},
};

/// What a plugin is asked. `Debug` shows no token.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The image's place: registry and path, without tag.
    pub image: String,
    /// The service account, its token, and the annotations that the plugin wants.
    pub account: Option<AccountPart>,
}

/// The part of a request that concerns the pod's service account.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountPart {
    /// Which account.
    pub account: Coordinates,
    /// Its token.
    pub token: String,
    /// Its annotations, those that were asked for.
    pub annotations: BTreeMap<String, String>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("image", &self.image)
            .field("account", &self.account.as_ref().map(|it| &it.account))
            .finish_non_exhaustive()
    }
}

/// What an answer is kept under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKey {
    subject: String,
    account: Option<AccountKey>,
}

/// The account that an answer is for, with what the plugin was told of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AccountKey {
    account: Coordinates,
    annotations: BTreeMap<String, String>,
    /// The token's hash, when the answer is for this token alone.
    token: Option<String>,
}

impl Request {
    /// The text for the plugin's standard input.
    #[must_use]
    pub fn encode(&self, api_version: &str) -> String {
        let mut value = json!({
            "kind": "CredentialProviderRequest",
            "apiVersion": api_version,
            "image": self.image,
        });
        if let Some(part) = &self.account {
            value["serviceAccountToken"] = json!(part.token);
            if !part.annotations.is_empty() {
                value["serviceAccountAnnotations"] = json!(part.annotations);
            }
        }
        format!("{value}\n")
    }

    /// The key of an answer of this scope.
    #[must_use]
    pub fn key(&self, provider: &Provider, scope: CacheScope) -> CacheKey {
        let subject = match scope {
            CacheScope::Image => self.image.clone(),
            CacheScope::Registry => self.registry().to_owned(),
            // No image and no registry is called that.
            CacheScope::Global => "<global>".to_owned(),
        };
        let cache = provider.token.as_ref().map(|it| it.cache);
        let account = self.account.as_ref().map(|part| {
            let token = (cache == Some(TokenCache::Token))
                .then(|| hex(&Sha256::digest(part.token.as_bytes())));
            AccountKey {
                account: part.account.clone(),
                annotations: part.annotations.clone(),
                token,
            }
        });
        CacheKey { subject, account }
    }

    /// The keys under which an answer to this request may be found, the narrowest first.
    #[must_use]
    pub fn keys(&self, provider: &Provider) -> [CacheKey; 3] {
        let scopes = [CacheScope::Image, CacheScope::Registry, CacheScope::Global];
        scopes.map(|scope| self.key(provider, scope))
    }

    fn registry(&self) -> &str {
        self.image.split('/').next().unwrap_or_default()
    }
}

/// What a plugin answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Logins by pattern.
    pub config: DockerConfig,
    /// For how much it counts.
    pub scope: CacheScope,
    /// How long it may be kept; zero for not at all.
    pub keep: Duration,
}

/// Why an answer cannot be used. None of these shows any of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not JSON, a stranger's field, a field of the wrong kind.
    #[error("error decoding credential provider plugin response from stdout")]
    Unreadable,
    /// Another version of the protocol.
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{expected}, actual apiVersion:{actual}"
    )]
    OtherVersion {
        /// As configured.
        expected: String,
        /// As answered.
        actual: String,
    },
    /// It does not say for how much it counts.
    #[error("credential provider plugin did not return a valid cacheKeyType: {0}")]
    BadScope(String),
    /// The token came back as a password, and would be given to others of the same account.
    #[error(
        "credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'"
    )]
    TokenEchoed,
}

/// Reads a plugin's answer to a request.
pub fn parse_answer(
    provider: &Provider,
    request: &Request,
    text: &[u8],
) -> Result<Answer, AnswerError> {
    let fields: Map<String, Value> =
        serde_json::from_slice(text).map_err(|_| AnswerError::Unreadable)?;
    let said = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    if said("apiVersion") != provider.api_version {
        return Err(AnswerError::OtherVersion {
            expected: provider.api_version.clone(),
            actual: said("apiVersion").chars().take(100).collect(),
        });
    }
    let known = ["kind", "apiVersion", "cacheKeyType", "cacheDuration", "auth"];
    if said("kind") != "CredentialProviderResponse"
        || fields.keys().any(|name| !known.contains(&name.as_str()))
    {
        return Err(AnswerError::Unreadable);
    }
    let config = logins(fields.get("auth"))?;
    if let (Some(token), Some(part)) = (&provider.token, &request.account)
        && token.cache != TokenCache::Token
        && config.logins.values().any(|it| it.password == part.token)
    {
        return Err(AnswerError::TokenEchoed);
    }
    let scope = match said("cacheKeyType") {
        "Image" => CacheScope::Image,
        "Registry" => CacheScope::Registry,
        "Global" => CacheScope::Global,
        other => return Err(AnswerError::BadScope(other.chars().take(100).collect())),
    };
    let keep = match fields.get("cacheDuration") {
        None | Some(Value::Null) => provider.default_cache,
        Some(Value::String(text)) => {
            // A negative one has expired already.
            if text.starts_with('-') {
                Duration::ZERO
            } else {
                parse_go_duration(text).map_err(|_| AnswerError::Unreadable)?
            }
        }
        Some(_) => return Err(AnswerError::Unreadable),
    };
    Ok(Answer { config, scope, keep })
}

fn logins(auth: Option<&Value>) -> Result<DockerConfig, AnswerError> {
    let empty = Map::new();
    let entries = match auth {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(entries)) => entries,
        Some(_) => return Err(AnswerError::Unreadable),
    };
    let mut logins = BTreeMap::new();
    for (pattern, entry) in entries {
        let entry = entry.as_object().ok_or(AnswerError::Unreadable)?;
        let text = |name: &str| match entry.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(AnswerError::Unreadable),
        };
        if entry.keys().any(|it| it != "username" && it != "password") {
            return Err(AnswerError::Unreadable);
        }
        let login = Login {
            username: text("username")?,
            password: text("password")?,
            email: String::new(),
        };
        logins.insert(pattern.clone(), login);
    }
    Ok(DockerConfig { logins })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::AccountToken;

    const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

    fn provider(cache: Option<TokenCache>) -> Provider {
        Provider {
            name: "p".to_owned(),
            match_images: vec!["*.test".to_owned()],
            default_cache: Duration::from_secs(60),
            api_version: V1.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            token: cache.map(|cache| AccountToken {
                audience: "registry".to_owned(),
                cache,
                is_account_required: true,
                required_annotations: Vec::new(),
                optional_annotations: Vec::new(),
            }),
        }
    }

    fn request(image: &str, token: Option<&str>) -> Request {
        Request {
            image: image.to_owned(),
            account: token.map(|token| AccountPart {
                account: Coordinates {
                    namespace: "ns".to_owned(),
                    name: "robot".to_owned(),
                    uid: "1".to_owned(),
                },
                token: token.to_owned(),
                annotations: BTreeMap::from([("role".to_owned(), "x".to_owned())]),
            }),
        }
    }

    #[test]
    fn a_request_says_what_the_protocol_wants() {
        assert_eq!(
            request("a.test/x", None).encode(V1),
            format!(
                "{{\"apiVersion\":\"{V1}\",\"image\":\"a.test/x\",\"kind\":\"CredentialProviderRequest\"}}\n"
            )
        );
        let text = request("a.test/x", Some("tok")).encode(V1);
        assert!(text.contains("\"serviceAccountToken\":\"tok\""));
        assert!(text.contains("\"serviceAccountAnnotations\":{\"role\":\"x\"}"));
        assert!(!format!("{:?}", request("a.test/x", Some("tok"))).contains("tok"));
    }

    #[test]
    fn answers_are_read_strictly() {
        let head = format!("\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"{V1}\"");
        let parse = |rest: &str| {
            let text = format!("{{{head},{rest}}}");
            parse_answer(&provider(None), &request("a.test/x", None), text.as_bytes())
        };
        let good = parse(r#""cacheKeyType":"Registry","cacheDuration":"1m30s","auth":{"*.test":{"username":"u","password":"p"}}"#).unwrap();
        assert_eq!((good.scope, good.keep), (CacheScope::Registry, Duration::from_secs(90)));
        assert_eq!(good.config.logins["*.test"].password, "p");
        let kept = |text: &str| parse(text).unwrap().keep.as_secs();
        assert_eq!(kept(r#""cacheKeyType":"Image""#), 60);
        assert_eq!(kept(r#""cacheKeyType":"Image","cacheDuration":"0s""#), 0);
        assert_eq!(kept(r#""cacheKeyType":"Image","cacheDuration":"-5s""#), 0);
        for bad in [
            r#""cacheKeyType":"Image","more":1"#,
            r#""cacheKeyType":"Image","cacheDuration":5"#,
            r#""cacheKeyType":"Image","auth":{"x":{"token":"secret"}}"#,
        ] {
            assert_eq!(parse(bad), Err(AnswerError::Unreadable), "{bad}");
        }
        assert_eq!(
            parse(r#""cacheKeyType":"Node""#),
            Err(AnswerError::BadScope("Node".to_owned()))
        );
        let other = br#"{"kind":"CredentialProviderResponse","apiVersion":"v2"}"#;
        let refused = parse_answer(&provider(None), &request("a.test/x", None), other);
        assert!(matches!(refused, Err(AnswerError::OtherVersion { .. })));
    }

    #[test]
    fn a_token_may_come_back_only_to_its_own_pod() {
        let text = format!(
            r#"{{"kind":"CredentialProviderResponse","apiVersion":"{V1}","cacheKeyType":"Image","auth":{{"a.test":{{"username":"u","password":"tok"}}}}}}"#
        );
        let parse = |cache| {
            let request = request("a.test/x", Some("tok"));
            parse_answer(&provider(Some(cache)), &request, text.as_bytes())
        };
        assert_eq!(parse(TokenCache::ServiceAccount), Err(AnswerError::TokenEchoed));
        assert!(parse(TokenCache::Token).is_ok());
    }

    #[test]
    fn keys_tell_images_accounts_and_tokens_apart() {
        let key = |cache, image: &str, token: &str, scope| {
            request(image, Some(token)).key(&provider(Some(cache)), scope)
        };
        use CacheScope::{Global, Image, Registry};
        let account = TokenCache::ServiceAccount;
        assert_eq!(key(account, "a.test/x", "1", Image), key(account, "a.test/x", "2", Image));
        assert_ne!(
            key(TokenCache::Token, "a.test/x", "1", Image),
            key(TokenCache::Token, "a.test/x", "2", Image)
        );
        assert_ne!(key(account, "a.test/x", "1", Image), key(account, "a.test/y", "1", Image));
        assert_eq!(
            key(account, "a.test/x", "1", Registry),
            key(account, "a.test/y", "1", Registry)
        );
        assert_eq!(key(account, "a.test/x", "1", Global), key(account, "b.test/y", "1", Global));
        assert_ne!(
            request("a.test/x", None).key(&provider(None), Image),
            key(account, "a.test/x", "1", Image)
        );
    }
}
