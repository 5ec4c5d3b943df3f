//! The kubeconfig of a node that has just joined: same server, but our own certificate, by its
//! path. As upstream writes it.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{Access, Cluster, Config, Context, NamedCluster, NamedContext, NamedUser, Trust, User};

/// The text to store: the server of `bootstrap`, and the certificate and key in the file
/// `current_pem`.
pub fn write_bootstrapped(bootstrap: &Access, current_pem: &str) -> String {
    let (is_unchecked, data) = match (&bootstrap.trust, &bootstrap.authority_file) {
        (Trust::Anybody, _) => (true, String::new()),
        (Trust::Authorities(_), Some(_)) => (false, String::new()),
        (Trust::Authorities(pem), None) => (false, STANDARD.encode(pem)),
    };
    let file = bootstrap.authority_file.as_ref();
    let config = Config {
        api_version: "v1".to_owned(),
        kind: "Config".to_owned(),
        clusters: vec![NamedCluster {
            name: "default-cluster".to_owned(),
            cluster: Cluster {
                server: bootstrap.server.clone(),
                tls_server_name: bootstrap.server_name.clone().unwrap_or_default(),
                insecure_skip_tls_verify: is_unchecked,
                certificate_authority: file
                    .map(|path| path.display().to_string())
                    .unwrap_or_default(),
                certificate_authority_data: data,
                ..Cluster::default()
            },
        }],
        users: vec![NamedUser {
            name: "default-auth".to_owned(),
            user: User {
                client_certificate: current_pem.to_owned(),
                client_key: current_pem.to_owned(),
                ..User::default()
            },
        }],
        contexts: vec![NamedContext {
            name: "default-context".to_owned(),
            context: Context {
                cluster: "default-cluster".to_owned(),
                namespace: "default".to_owned(),
                user: "default-auth".to_owned(),
            },
        }],
        current_context: "default-context".to_owned(),
    };
    serde_saphyr::to_string(&config).expect("strings, lists and booleans always serialize")
}
