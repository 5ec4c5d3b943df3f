//! What pulls need of the node: the files that remember them, the node's own registry logins, and
//! the plugins that know more.
//!
//! Implemented by the adapter `host`, faked by `testkit`. Refuses: understanding any of the
//! contents; that is core's `images`.

use crate::{Fut, HostError};

/// The files below `image_manager`.
pub trait PullFiles: Send + Sync {
    /// Reads one; `None` when it is not there.
    fn read<'a>(
        &'a self,
        kind: PullFile,
        name: &'a str,
    ) -> Fut<'a, Result<Option<Vec<u8>>, HostError>>;
    /// Writes one, whole or not at all.
    fn write<'a>(
        &'a self,
        kind: PullFile,
        name: &'a str,
        content: &'a str,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Removes one. Absent is success.
    fn remove<'a>(&'a self, kind: PullFile, name: &'a str) -> Fut<'a, Result<(), HostError>>;
    /// Every file of a kind, with its content.
    fn list(&self, kind: PullFile) -> Fut<'_, Result<Vec<NamedFile>, HostError>>;
}

/// A file's name and content.
pub type NamedFile = (String, Vec<u8>);

/// What a file remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PullFile {
    /// That a pull began.
    Intent,
    /// What was pulled, and who may use it.
    Record,
}

/// Where the node's own credentials for registries come from.
pub trait RegistryLogins: Send + Sync {
    /// The node's docker configuration, if it has one.
    fn node_config(&self) -> Fut<'_, Option<NodeDockerConfig>>;
    /// Runs a plugin to its end and answers with what it wrote; bounded in time and size by the
    /// adapter.
    fn ask_plugin<'a>(&'a self, call: &'a PluginCall) -> Fut<'a, Result<Vec<u8>, HostError>>;
}

/// The text of a docker configuration, by its shape. `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq)]
pub enum NodeDockerConfig {
    /// A `config.json`.
    Json(Vec<u8>),
    /// A `.dockercfg`.
    Old(Vec<u8>),
}

impl std::fmt::Debug for NodeDockerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Json(_) => "Json",
            Self::Old(_) => "Old",
        })
    }
}

/// One run of a plugin. `Debug` does not show the input, which may hold a token.
#[derive(Clone, PartialEq, Eq)]
pub struct PluginCall {
    /// The executable's name in the plugin directory.
    pub name: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Variables on top of the agent's own.
    pub env: Vec<(String, String)>,
    /// Standard input.
    pub input: String,
}

impl std::fmt::Debug for PluginCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginCall").field("name", &self.name).finish_non_exhaustive()
    }
}
