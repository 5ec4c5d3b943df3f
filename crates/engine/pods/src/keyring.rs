//! Credentials for registries, from the docker configurations in pull secrets. Pure.
//!
//! An entry fits an image when its registry is the image's and its path is a prefix of the image's; the longest one first, as
//! upstream orders them. `*` in a registry stands for one label.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ferrolet_ports::RegistryAuth;
use serde_json::Value;

use crate::objects::PullSecret;

/// Names docker uses for its own registry.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// The credentials to try for an image, the most specific first.
pub(crate) fn credentials(image: &str, secrets: &[PullSecret]) -> Vec<RegistryAuth> {
    let (registry, path) = place(image);
    let mut fitting: Vec<(usize, RegistryAuth)> = secrets
        .iter()
        .flat_map(entries)
        .filter(|(server, _)| fits(server, &registry, &path))
        .map(|(server, auth)| (server.len(), auth))
        .collect();
    // A stable sort keeps the order of the pod's secrets among equals.
    fitting.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    fitting.into_iter().map(|(_, auth)| auth).collect()
}

/// The registry and path of an image name.
fn place(image: &str) -> (String, String) {
    let is_registry = |part: &str| part.contains('.') || part.contains(':') || part == "localhost";
    match image.split_once('/') {
        Some((first, rest)) if is_registry(first) => (canonical(first), rest.to_owned()),
        _ => ("docker.io".to_owned(), image.to_owned()),
    }
}

fn canonical(registry: &str) -> String {
    if DOCKER_HUB.contains(&registry) {
        "docker.io".to_owned()
    } else {
        registry.to_owned()
    }
}

fn entries(secret: &PullSecret) -> Vec<(String, RegistryAuth)> {
    let Ok(config) = serde_json::from_slice::<Value>(&secret.content) else {
        return Vec::new();
    };
    let list = if secret.key == ".dockerconfigjson" {
        config.get("auths")
    } else {
        Some(&config)
    };
    let entries = list.and_then(Value::as_object).into_iter().flatten();
    entries
        .map(|(server, entry)| (server.clone(), auth_of(server, entry)))
        .collect()
}

fn auth_of(server: &str, entry: &Value) -> RegistryAuth {
    let text = |name: &str| {
        entry
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (mut username, mut password) = (text("username"), text("password"));
    let decoded = STANDARD
        .decode(text("auth").trim())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some((user, pass)) = decoded.as_deref().and_then(|pair| pair.split_once(':')) {
        user.clone_into(&mut username);
        pass.clone_into(&mut password);
    }
    RegistryAuth {
        username,
        password,
        server_address: server.to_owned(),
        identity_token: text("identitytoken"),
        registry_token: text("registrytoken"),
        ..RegistryAuth::default()
    }
}

fn fits(server: &str, registry: &str, path: &str) -> bool {
    let server = server
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    let (host, prefix) = server.split_once('/').unwrap_or((server, ""));
    // Old configurations name the API's version as a path.
    let prefix = prefix
        .trim_matches('/')
        .trim_start_matches("v1")
        .trim_start_matches("v2")
        .trim_matches('/');
    host_fits(&canonical(host), registry)
        && (prefix.is_empty() || path == prefix || path.starts_with(&format!("{prefix}/")))
}

fn host_fits(pattern: &str, host: &str) -> bool {
    let split = |text: &str| {
        text.rsplit_once(':')
            .map_or((text.to_owned(), None), |(h, p)| {
                (h.to_owned(), Some(p.to_owned()))
            })
    };
    let ((pattern, pattern_port), (host, port)) = (split(pattern), split(host));
    let (labels, parts): (Vec<&str>, Vec<&str>) =
        (pattern.split('.').collect(), host.split('.').collect());
    pattern_port == port
        && labels.len() == parts.len()
        && labels
            .iter()
            .zip(&parts)
            .all(|(label, part)| *label == "*" || label == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(json: &str) -> PullSecret {
        PullSecret {
            key: ".dockerconfigjson".to_owned(),
            content: json.as_bytes().to_vec(),
        }
    }

    #[test]
    fn the_most_specific_entry_that_fits_comes_first() {
        let secrets = [secret(
            r#"{"auths": {
                "registry.example": {"username": "all", "password": "p"},
                "registry.example/team": {"username": "team", "password": "p"},
                "*.example.org": {"username": "star", "password": "p"},
                "https://index.docker.io/v1/": {"auth": "aHViOnNlY3JldA=="},
                "localhost:5000": {"username": "local", "password": "p"}
            }}"#,
        )];
        let check = |image: &str, users: &[&str]| {
            let found: Vec<String> = credentials(image, &secrets)
                .into_iter()
                .map(|auth| auth.username)
                .collect();
            assert_eq!(found, users, "{image}");
        };
        check("registry.example/team/app:1", &["team", "all"]);
        check("registry.example/teams/app:1", &["all"]);
        check("registry.example/app", &["all"]);
        check("a.example.org/x", &["star"]);
        check("a.b.example.org/x", &[]);
        check("busybox", &["hub"]);
        check("docker.io/library/busybox", &["hub"]);
        check("localhost:5000/x", &["local"]);
        check("localhost:5001/x", &[]);
    }

    #[test]
    fn an_old_style_secret_has_no_list_around_it() {
        let old = PullSecret {
            key: ".dockercfg".to_owned(),
            content: br#"{"registry.example": {"username": "u", "password": "p"}}"#.to_vec(),
        };
        assert_eq!(credentials("registry.example/x", &[old]).len(), 1);
        assert!(credentials("registry.example/x", &[secret("not json")]).is_empty());
    }
}
