//! Docker's configuration files, as pull secrets and the node's own `config.json` hold them.
//!
//! In: JSON text. Out: logins by registry, or a fault that names the entry and never its content.

use std::collections::BTreeMap;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::{Map, Value};

/// Padding may be there or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What opens a registry. `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Login {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// An address that old configurations carry along.
    pub email: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

/// Logins by the registry (or part of one) that they are for, as written.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DockerConfig {
    /// The entries.
    pub logins: BTreeMap<String, Login>,
}

/// Why a text is not a docker configuration. Says where, never what: the text is secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DockerConfigError {
    /// It is not JSON, or not an object.
    #[error("is not a JSON object")]
    NotAnObject,
    /// An entry is not an object of texts.
    #[error("entry {0:?} is not an object of texts")]
    BadEntry(String),
    /// An entry's `auth` is something else.
    #[error("auth of entry {0:?} is not the base64 of user:password")]
    BadAuth(String),
}

impl DockerConfig {
    /// Reads a `config.json`, the shape of `.dockerconfigjson`: entries below `auths`.
    pub fn parse_json(text: &[u8]) -> Result<Self, DockerConfigError> {
        let whole = object(text)?;
        match whole.get("auths") {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(Value::Object(entries)) => Self::parse_entries(entries),
            Some(_) => Err(DockerConfigError::BadEntry("auths".to_owned())),
        }
    }

    /// Reads the older `.dockercfg`: entries at the top.
    pub fn parse_old(text: &[u8]) -> Result<Self, DockerConfigError> {
        Self::parse_entries(&object(text)?)
    }

    fn parse_entries(entries: &Map<String, Value>) -> Result<Self, DockerConfigError> {
        let mut logins = BTreeMap::new();
        for (place, entry) in entries {
            logins.insert(place.clone(), login(place, entry)?);
        }
        Ok(Self { logins })
    }
}

fn object(text: &[u8]) -> Result<Map<String, Value>, DockerConfigError> {
    serde_json::from_slice(text).map_err(|_| DockerConfigError::NotAnObject)
}

fn login(place: &str, entry: &Value) -> Result<Login, DockerConfigError> {
    let bad = || DockerConfigError::BadEntry(place.to_owned());
    let entry = entry.as_object().ok_or_else(bad)?;
    let text = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(bad()),
    };
    let mut login =
        Login { username: text("username")?, password: text("password")?, email: text("email")? };
    let auth = text("auth")?;
    if !auth.is_empty() {
        let decoded =
            BASE64.decode(auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (user, password) = decoded
            .as_deref()
            .and_then(|pair| pair.split_once(':'))
            .ok_or_else(|| DockerConfigError::BadAuth(place.to_owned()))?;
        user.clone_into(&mut login.username);
        password.clone_into(&mut login.password);
    }
    Ok(login)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_are_read_and_auth_counts_more() {
        let json = br#"{"auths": {"a.test": {"auth": "YW5uOnM6Y3JldA==", "username": "other"}, "b.test": {"username": "bob", "password": "p"}}, "credHelpers": {}}"#;
        let read = DockerConfig::parse_json(json).unwrap();
        let a = &read.logins["a.test"];
        assert_eq!((a.username.as_str(), a.password.as_str()), ("ann", "s:cret"));
        assert_eq!(read.logins["b.test"].username, "bob");
        let old = br#"{"a.test": {"auth": "YW5uOnM6Y3JldA"}}"#;
        assert_eq!(DockerConfig::parse_old(old).unwrap().logins["a.test"], *a);
        assert_eq!(DockerConfig::parse_json(b"{}").unwrap().logins.len(), 0);
    }

    #[test]
    fn faults_name_the_entry_and_not_its_content() {
        let check = |text: &str, message: &str| {
            let error = DockerConfig::parse_json(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message);
        };
        check("secret", "is not a JSON object");
        check(r#"{"auths": {"a.test": "x"}}"#, "entry \"a.test\" is not an object of texts");
        check(
            r#"{"auths": {"a.test": {"auth": "c2VjcmV0"}}}"#,
            "auth of entry \"a.test\" is not the base64 of user:password",
        );
    }
}
