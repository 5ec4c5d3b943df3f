//! Which credentials fit an image, and in which order they are tried.
//!
//! Upstream's order: patterns in reverse alphabetical order, so that a longer path of a registry
//! comes before a shorter one; among equals the order in which they were added. Docker's own
//! registry is also known by its old name.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    docker::{DockerConfig, Login},
    pattern::Place,
};

/// The old name of docker's registry, under which clients store its login.
const DOCKER_HUB: &str = "index.docker.io";

/// An object of the API, exactly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coordinates {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
}

/// Where a credential comes from, which is also who may use what it fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The node itself: every pod here may use it.
    Node,
    /// A pull secret.
    Secret(Coordinates),
    /// A plugin that was given a service account's token.
    ServiceAccount(Coordinates),
}

/// A login and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// What opens the registry.
    pub login: Login,
    /// Where it comes from.
    pub source: Source,
}

impl Credential {
    /// The fingerprint that upstream's pull records hold.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let fields = [
            ("username", &self.login.username),
            ("password", &self.login.password),
            ("email", &self.login.email),
        ];
        let fields: Vec<String> = fields
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| format!("\"{name}\":{}", go_json(text)))
            .collect();
        hex(&Sha256::digest(format!("{{{}}}", fields.join(","))))
    }
}

/// A text as Go's encoder writes it: also safe inside HTML.
fn go_json(text: &str) -> String {
    let plain = Value::from(text).to_string();
    plain
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

/// Credentials by the pattern of places that they open.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    by_pattern: BTreeMap<Reverse<String>, Vec<Credential>>,
}

impl Keyring {
    /// Adds the logins of one configuration.
    pub fn add(&mut self, source: &Source, config: DockerConfig) {
        for (place, login) in config.logins {
            let Some(pattern) = pattern_of(&place) else {
                continue;
            };
            let credential = Credential { login, source: source.clone() };
            self.by_pattern.entry(Reverse(pattern)).or_default().push(credential);
        }
    }

    /// What fits an image's [`place`](crate::ImageName::place), best first.
    #[must_use]
    pub fn lookup(&self, place: &str) -> Vec<Credential> {
        let Ok(target) = Place::parse(place) else {
            return Vec::new();
        };
        let fits = |pattern: &str| Place::parse(pattern).is_ok_and(|it| it.fits(&target));
        let found: Vec<Credential> = self
            .by_pattern
            .iter()
            .filter(|(pattern, _)| fits(&pattern.0))
            .flat_map(|(_, credentials)| credentials.clone())
            .collect();
        if found.is_empty() && matches!(target.host, "docker.io" | DOCKER_HUB) {
            let hub = self.by_pattern.get(&Reverse(DOCKER_HUB.to_owned()));
            return hub.cloned().unwrap_or_default();
        }
        found
    }
}

/// An entry's key without scheme; `/v1/` and `/v2/` in front of a path mean the API, not the path.
fn pattern_of(place: &str) -> Option<String> {
    let bare =
        place.strip_prefix("https://").or_else(|| place.strip_prefix("http://")).unwrap_or(place);
    let parsed = Place::parse(bare).ok()?;
    let path = match parsed.path.get(..4) {
        Some("/v1/" | "/v2/") => &parsed.path[3..],
        _ => parsed.path,
    };
    Some(match path {
        "" | "/" => parsed.host.to_owned(),
        path => format!("{}{path}", parsed.host),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImageName;

    fn keyring(entries: &[(&str, &str)]) -> Keyring {
        let mut keyring = Keyring::default();
        for (place, user) in entries {
            let login = Login { username: (*user).to_owned(), ..Login::default() };
            let logins = BTreeMap::from([((*place).to_owned(), login)]);
            keyring.add(&Source::Node, DockerConfig { logins });
        }
        keyring
    }

    /// Credentials, one after another.
    #[test]
    fn the_most_specific_entry_that_fits_comes_first() {
        let ring = keyring(&[
            ("registry.example", "all"),
            ("registry.example/team", "team"),
            ("*.example.org", "star"),
            ("https://index.docker.io/v1/", "hub"),
            ("localhost:5000", "local"),
            ("https://registry.example/v2/", "again"),
        ]);
        let check = |image: &str, users: &[&str]| {
            let place = ImageName::parse(image).unwrap().place();
            let found: Vec<String> =
                ring.lookup(&place).into_iter().map(|it| it.login.username).collect();
            assert_eq!(found, users, "{image}");
        };
        check("registry.example/team/app:1", &["team", "all", "again"]);
        check("registry.example/app", &["all", "again"]);
        check("a.example.org/x", &["star"]);
        check("a.b.example.org/x", &[]);
        check("busybox", &["hub"]);
        check("docker.io/library/busybox", &["hub"]);
        check("localhost:5000/x", &["local"]);
        check("localhost:5001/x", &[]);
    }

    #[test]
    fn an_entry_for_the_hub_by_its_new_name_counts_before_the_old_one() {
        let ring = keyring(&[("docker.io", "new"), ("https://index.docker.io/v1/", "old")]);
        let found = ring.lookup("docker.io/library/busybox");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].login.username, "new");
    }

    /// Computed with upstream's code for the same inputs.
    #[test]
    fn fingerprints_are_upstreams() {
        let check = |username: &str, password: &str, text: &str| {
            let credential = Credential {
                login: Login {
                    username: username.to_owned(),
                    password: password.to_owned(),
                    email: String::new(),
                },
                source: Source::Node,
            };
            assert_eq!(credential.fingerprint(), hex(&Sha256::digest(text)));
        };
        check("ann", "pw", r#"{"username":"ann","password":"pw"}"#);
        check("", "a<b&\"c", "{\"password\":\"a\\u003cb\\u0026\\\"c\"}");
        check("", "", "{}");
    }
}
