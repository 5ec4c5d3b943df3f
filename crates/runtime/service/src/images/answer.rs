//! What the image service says. Pure.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ferrolet_cri_proto as cri;
use ferrolet_runtime_images::{
    Credentials, Image, LayerError, PullError, Reference, RegistryError, UnpackError, Usage,
};
use http::StatusCode;
use tonic::{Code, Status};

use crate::chain::chain;

/// What a kubelet looks for to tell pods that the registry is away.
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";

/// An image as CRI shows it.
pub(super) fn image(image: &Image) -> cri::Image {
    let (uid, username) = user(&image.config.config.user);
    cri::Image {
        id: image.id.to_string(),
        repo_tags: image.tags.iter().cloned().collect(),
        repo_digests: image.digests.iter().cloned().collect(),
        size: image.usage.bytes,
        uid: uid.map(|value| cri::Int64Value { value }),
        username,
        spec: None,
        pinned: false,
    }
}

/// A user by number or by name; neither means root. A number that is nobody's is passed on as a name, so that a kubelet
/// that must not run root refuses it instead of taking it for nothing (CVE-2024-40635).
fn user(text: &str) -> (Option<i64>, String) {
    let user = text.split(':').next().unwrap_or_default();
    let is_number = !user.is_empty() && user.bytes().all(|byte| byte.is_ascii_digit());
    match user.parse::<u32>() {
        Ok(uid) if is_number && uid != u32::MAX => (Some(uid.into()), String::new()),
        _ => (None, user.to_owned()),
    }
}

/// What `crictl inspecti` shows beside the image.
pub(super) fn info(image: &Image) -> BTreeMap<String, String> {
    let execution = &image.config.config;
    let info = serde_json::json!({
        "layers": image.layers.iter().map(|it| it.as_str()).collect::<Vec<_>>(),
        "inodes": image.usage.inodes,
        "imageSpec": {
            "os": image.config.os,
            "architecture": image.config.architecture,
            "config": {
                "User": execution.user,
                "Env": execution.env,
                "Entrypoint": execution.entrypoint,
                "Cmd": execution.cmd,
                "WorkingDir": execution.working_dir,
                "Labels": execution.labels,
                "StopSignal": execution.stop_signal,
            },
        },
    });
    BTreeMap::from([("info".to_owned(), info.to_string())])
}

/// Room that images take.
pub(super) fn usage(usage: Usage, mountpoint: String, timestamp: i64) -> cri::FilesystemUsage {
    cri::FilesystemUsage {
        timestamp,
        fs_id: Some(cri::FilesystemIdentifier { mountpoint }),
        used_bytes: Some(cri::UInt64Value { value: usage.bytes }),
        inodes_used: Some(cri::UInt64Value { value: usage.inodes }),
    }
}

/// Who pulls. Credentials that name another server are not for this registry.
pub(super) fn credentials(
    auth: Option<cri::AuthConfig>,
    reference: &Reference,
) -> Result<Credentials, Status> {
    let Some(auth) = auth.filter(|it| is_for(&it.server_address, reference.registry())) else {
        return Ok(Credentials::Anonymous);
    };
    if !auth.registry_token.is_empty() {
        return Ok(Credentials::RegistryToken(auth.registry_token));
    }
    if !auth.identity_token.is_empty() {
        return Ok(Credentials::IdentityToken(auth.identity_token));
    }
    if !auth.username.is_empty() {
        return Ok(Credentials::Basic { user: auth.username, password: auth.password });
    }
    if auth.auth.is_empty() {
        return Ok(Credentials::Anonymous);
    }
    let refuse = || {
        Status::invalid_argument("the field auth of the credentials is not a name and a password")
    };
    let text = STANDARD.decode(auth.auth.trim()).map_err(|_| refuse())?;
    let text = String::from_utf8(text).map_err(|_| refuse())?;
    let (user, password) = text.split_once(':').ok_or_else(refuse)?;
    // Some tools fill the field up with NULs.
    Ok(Credentials::Basic {
        user: user.to_owned(),
        password: password.trim_end_matches('\0').to_owned(),
    })
}

/// Whether a server's address, as people write it, means a registry.
fn is_for(address: &str, registry: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest);
    let usual =
        |name: &str| matches!(name, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    host.is_empty() || host == registry || usual(host) && usual(registry)
}

/// A failed pull as a kubelet is told.
pub(super) fn pull_code(name: &str, error: &PullError) -> Status {
    let text = format!("failed to pull image {name:?}: {}", chain(error));
    let code = match error {
        PullError::Registry(error) => match error {
            RegistryError::Connection { .. } | RegistryError::Silence { .. } => {
                return Status::new(Code::Unavailable, format!("{REGISTRY_UNAVAILABLE}: {text}"));
            }
            RegistryError::Status { status, .. } => match *status {
                StatusCode::NOT_FOUND => Code::NotFound,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Code::PermissionDenied,
                StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
                _ => Code::Unknown,
            },
            RegistryError::Token { .. } => Code::PermissionDenied,
            _ => Code::Unknown,
        },
        PullError::Layer(LayerError::Unpack { source: UnpackError::Room { .. }, .. }) => {
            Code::ResourceExhausted
        }
        PullError::Layer(LayerError::Store(_)) | PullError::Store(_) => Code::Internal,
        PullError::Ended => Code::Aborted,
        PullError::Manifest { .. } | PullError::Layer(_) | PullError::Limit(_) => {
            Code::FailedPrecondition
        }
    };
    Status::new(code, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_number_or_a_name_and_never_silently_nobody() {
        let name = |text: &str| (None, text.to_owned());
        let number = |uid| (Some(uid), String::new());
        let cases = [
            ("", name("")),
            ("0", number(0)),
            ("1000:50000", number(1000)),
            ("007", number(7)),
            ("www-data:www", name("www-data")),
            (":group", name("")),
            ("+0", name("+0")),
            ("-1", name("-1")),
            ("4294967295", name("4294967295")),
            ("99999999999999999999", name("99999999999999999999")),
        ];
        for (text, expected) in cases {
            assert_eq!(user(text), expected, "{text}");
        }
    }

    #[test]
    fn credentials_are_for_the_server_that_they_name() {
        let reference = Reference::parse("registry.example:5000/app").unwrap();
        let basic = |user: &str, password: &str| Credentials::Basic {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        let auth = |server: &str| cri::AuthConfig {
            username: "me".to_owned(),
            password: "secret".to_owned(),
            server_address: server.to_owned(),
            ..Default::default()
        };
        let check = |auth, reference: &Reference| credentials(Some(auth), reference).unwrap();
        for server in ["", "registry.example:5000", "https://registry.example:5000/v1/"] {
            assert_eq!(check(auth(server), &reference), basic("me", "secret"), "{server}");
        }
        for server in ["registry.example", "https://elsewhere", "docker.io"] {
            assert_eq!(check(auth(server), &reference), Credentials::Anonymous, "{server}");
        }
        let docker = Reference::parse("busybox").unwrap();
        assert_eq!(check(auth("https://index.docker.io/v1/"), &docker), basic("me", "secret"));
        let encoded =
            |text: &str| cri::AuthConfig { auth: STANDARD.encode(text), ..Default::default() };
        assert_eq!(check(encoded("me:se:cret\0\0"), &reference), basic("me", "se:cret"));
        assert!(credentials(Some(encoded("nothing")), &reference).is_err());
        let token = cri::AuthConfig { identity_token: "t".to_owned(), ..auth("") };
        assert_eq!(check(token, &reference), Credentials::IdentityToken("t".to_owned()));
        assert_eq!(credentials(None, &reference).unwrap(), Credentials::Anonymous);
    }

    #[test]
    fn a_failed_pull_has_a_code_and_all_its_causes() {
        let status = |status| {
            let host = "example.com".to_owned();
            PullError::Registry(RegistryError::Status {
                host,
                status,
                what: "manifests/1".to_owned(),
            })
        };
        let told = pull_code("app:1", &status(StatusCode::NOT_FOUND));
        assert_eq!(told.code(), Code::NotFound);
        assert_eq!(
            told.message(),
            "failed to pull image \"app:1\": example.com answered 404 Not Found for manifests/1"
        );
        assert_eq!(pull_code("a", &status(StatusCode::FORBIDDEN)).code(), Code::PermissionDenied);
        let away =
            RegistryError::Connection { host: "example.com".to_owned(), source: "refused".into() };
        let told = pull_code("app:1", &PullError::Registry(away));
        assert_eq!(told.code(), Code::Unavailable);
        assert_eq!(
            told.message(),
            "RegistryUnavailable: failed to pull image \"app:1\": ask example.com: refused"
        );
    }
}
