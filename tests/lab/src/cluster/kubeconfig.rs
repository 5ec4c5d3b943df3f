//! Kubeconfig files, with everything inside so that a copy works anywhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::authority::Identity;

/// What a client shows to the API server.
#[derive(Debug, Clone, Copy)]
pub enum Credential<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// A kubeconfig of one cluster and one user. JSON, which is YAML too.
pub(super) fn kubeconfig(server: &str, authority: &str, credential: Credential<'_>) -> Value {
    let user = match credential {
        Credential::Certificate(identity) => json!({
            "client-certificate-data": STANDARD.encode(&identity.certificate),
            "client-key-data": STANDARD.encode(&identity.key),
        }),
        Credential::Token(token) => json!({ "token": token }),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "lab",
            "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(authority),
            },
        }],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "user" } }],
        "current-context": "lab",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_and_a_certificate_each_become_the_user() {
        let identity = Identity { certificate: "cert".to_owned(), key: "key".to_owned() };
        let cases = [
            (Credential::Token("t"), json!({"token": "t"})),
            (
                Credential::Certificate(&identity),
                json!({"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}),
            ),
        ];
        for (credential, expected) in cases {
            let config = kubeconfig("https://127.0.0.1:1", "ca", credential);
            assert_eq!(config["users"][0]["user"], expected);
            assert_eq!(config["clusters"][0]["cluster"]["certificate-authority-data"], "Y2E=");
        }
    }
}
