//! The file's own shape: what of `v1.Config` a node can use or must refuse. Wire type; goes no
//! further than this folder.

use serde::{Deserialize, Serialize};

/// The whole file.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Config {
    /// `v1`.
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    /// `Config`.
    pub kind: String,
    /// Servers.
    pub clusters: Vec<NamedCluster>,
    /// Pairs of server and user.
    pub contexts: Vec<NamedContext>,
    /// The pair to use.
    pub current_context: String,
    /// Identities.
    pub users: Vec<NamedUser>,
}

/// A server under its name.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct NamedCluster {
    /// The name.
    pub name: String,
    /// The server.
    pub cluster: Cluster,
}

/// A server.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Cluster {
    /// Its address.
    pub server: String,
    /// The name on its certificate.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tls_server_name: String,
    /// Its certificate is not checked.
    #[serde(skip_serializing_if = "is_false")]
    pub insecure_skip_tls_verify: bool,
    /// The authority's file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub certificate_authority: String,
    /// The authority itself, in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub certificate_authority_data: String,
    /// A proxy on the way.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proxy_url: String,
}

/// An identity under its name.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct NamedUser {
    /// The name.
    pub name: String,
    /// The identity.
    #[serde(default)]
    pub user: User,
}

/// An identity.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct User {
    /// The certificate's file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_certificate: String,
    /// The certificate itself, in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_certificate_data: String,
    /// The key's file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_key: String,
    /// The key itself, in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_key_data: String,
    /// A bearer token.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// A file with a bearer token.
    #[serde(rename = "tokenFile", skip_serializing_if = "String::is_empty")]
    pub token_file: String,
    /// Basic auth.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// Somebody else's name.
    #[serde(rename = "as", skip_serializing_if = "String::is_empty")]
    pub impersonate: String,
    /// A program that prints credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<serde_json::Map<String, serde_json::Value>>,
    /// A cloud's own way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_provider: Option<serde_json::Map<String, serde_json::Value>>,
}

/// A pair under its name.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct NamedContext {
    /// The name.
    pub name: String,
    /// The pair.
    pub context: Context,
}

/// Which server as which user.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Context {
    /// The server's name.
    pub cluster: String,
    /// The default namespace; a node has no use for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The user's name.
    pub user: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}
