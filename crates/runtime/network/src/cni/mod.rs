//! CNI: the network as other people's plugins make it.
//!
//! ```text
//!  directory ─ config ─► network ─┐
//!  sandbox ──────────────────────┴─► add: cache, ADD each ─► result into cache ─► addresses
//!                                    delete: DEL each in reverse ─► cache removed
//!                                    collect: delete whatever no record names
//! ```
//!
//! The cache is written before the first plugin runs, so a crash leaves nothing that is not found again; what is deleted
//! is deleted by the configuration that made it, whatever the directory says by then. Plugins keep the path of a
//! namespace, so it is bound to a file for as long as it is theirs.

mod cache;
mod child;
mod config;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Map, Value};
use thiserror::Error;

use self::cache::Cache;
use self::config::NetworkConfig;
use crate::attachment::{Attachment, Maker};
use crate::network::{SetupError, SetupRequest};
use crate::plan::bandwidth::bandwidth;
use crate::plan::pod::POD_LINK;

/// A configuration is a page.
const LONGEST_CONFIG: u64 = 1 << 20;

/// Where CNI's things are.
#[derive(Clone, Debug)]
pub struct CniSettings {
    /// Configurations: `/etc/cni/net.d`.
    pub config_dir: PathBuf,
    /// Plugins: `/opt/cni/bin`.
    pub plugin_dirs: Vec<PathBuf>,
    /// What is known of sandboxes that plugins connected. It outlives a reboot, as plugins' own notes do.
    pub cache_dir: PathBuf,
    /// Where namespaces are bound for plugins: `/run/netns`.
    pub namespace_dir: PathBuf,
    /// How long one plugin may take.
    pub patience: Duration,
}

/// Something about plugins that went wrong.
#[derive(Debug, Error)]
pub enum CniError {
    /// A file or directory.
    #[error("{step} {}", path.display())]
    File {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A configuration that is none.
    #[error("CNI configuration {}: {reason}", path.display())]
    Config {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The configuration went while it was needed.
    #[error("no CNI configuration in {}", .0.display())]
    NoConfig(PathBuf),
    /// There is no such program.
    #[error("no plugin {plugin} in {directories}")]
    NoPlugin {
        /// Which.
        plugin: String,
        /// Where it was looked for.
        directories: String,
    },
    /// A plugin that could not be run to its end.
    #[error("{command} by plugin {plugin}")]
    Run {
        /// Which.
        plugin: String,
        /// What it should do.
        command: &'static str,
        /// Why it did not.
        source: io::Error,
    },
    /// A plugin that refused.
    #[error("{command} by plugin {plugin}: {reason}")]
    Refused {
        /// Which.
        plugin: String,
        /// What it should do.
        command: &'static str,
        /// In its own words.
        reason: String,
    },
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CniError {
    let path = path.to_owned();
    move |source| CniError::File { step, path, source }
}

/// Runs plugins.
#[derive(Debug)]
pub(crate) struct Cni {
    settings: CniSettings,
}

impl Cni {
    pub(crate) fn new(settings: CniSettings) -> Self {
        Self { settings }
    }

    /// The configuration that counts now; none means that the built-in network is meant.
    pub(crate) fn configuration(&self) -> Result<Option<NetworkConfig>, CniError> {
        let directory = &self.settings.config_dir;
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.map_err(failed("read", directory))?,
        };
        let names = entries.flatten().filter_map(|it| it.file_name().into_string().ok());
        let names: BTreeSet<String> = names.filter(|it| config::is_config(it)).collect();
        let mut trouble = None;
        for name in names {
            let path = directory.join(name);
            let bytes = read(&path, LONGEST_CONFIG).map_err(failed("read", &path))?;
            match config::parse(&bytes) {
                Ok(network) => return Ok(Some(network)),
                Err(reason) => trouble = trouble.or(Some(CniError::Config { path, reason })),
            }
        }
        // A file that says nothing must not quietly mean another network.
        trouble.map_or(Ok(None), Err)
    }

    /// Connects a sandbox, or takes down what there is of it.
    pub(crate) fn add(
        &self,
        request: &SetupRequest,
        namespace: BorrowedFd<'_>,
    ) -> Result<Attachment, SetupError> {
        let limits = bandwidth(&request.annotations)?;
        let no_config = || CniError::NoConfig(self.settings.config_dir.clone());
        let network = self.configuration()?.ok_or_else(no_config)?;
        let path = cache::bind(&self.settings.namespace_dir, &request.sandbox, namespace)?;
        let mut cache = Cache {
            sandbox: request.sandbox.clone(),
            network,
            arguments: arguments(request),
            capabilities: config::capabilities(&request.ports, limits, &request.annotations),
            namespace: path,
            result: None,
        };
        let added = cache.write(&self.settings.cache_dir).and_then(|()| self.add_all(&mut cache));
        let addresses = match added {
            Ok(addresses) => addresses,
            Err(error) => {
                if let Err(also) = self.delete(&request.sandbox) {
                    tracing::warn!(sandbox = request.sandbox, err = %also, "What plugins made is left");
                }
                return Err(error.into());
            }
        };
        Ok(Attachment {
            sandbox: request.sandbox.clone(),
            addresses,
            ports: request.ports.clone(),
            bandwidth: limits,
            maker: Maker::Cni.into(),
        })
    }

    fn add_all(&self, cache: &mut Cache) -> Result<Vec<String>, CniError> {
        for plugin in &cache.network.plugins {
            let said = self.run("ADD", plugin, cache, cache.result.as_ref())?;
            let refused = |reason: String| CniError::Refused {
                plugin: config::program(plugin).to_owned(),
                command: "ADD",
                reason,
            };
            let result = serde_json::from_slice(&said)
                .map_err(|error| refused(format!("its result is none: {error}")))?;
            cache.result = Some(result);
        }
        cache.write(&self.settings.cache_dir)?;
        let addresses = cache.result.as_ref().map(config::addresses).unwrap_or_default();
        if addresses.is_empty() {
            return Err(CniError::Refused {
                plugin: cache.network.name.clone(),
                command: "ADD",
                reason: "the result has no address".to_owned(),
            });
        }
        Ok(addresses)
    }

    /// Disconnects a sandbox. One that is not known has been.
    pub(crate) fn delete(&self, sandbox: &str) -> Result<(), CniError> {
        let Some(cache) = Cache::read(&self.settings.cache_dir, sandbox)? else {
            return cache::unbind(&cache::place(&self.settings.namespace_dir, sandbox));
        };
        let is_new = config::knows_results(&cache.network.version);
        for plugin in cache.network.plugins.iter().rev() {
            self.run("DEL", plugin, &cache, cache.result.as_ref().filter(|_| is_new))?;
        }
        cache::unbind(&cache.namespace)?;
        cache.remove(&self.settings.cache_dir)
    }

    /// Asks each plugin whether everything is as it made it.
    pub(crate) fn check(&self, sandbox: &str) -> Result<(), CniError> {
        let Some(cache) = Cache::read(&self.settings.cache_dir, sandbox)? else { return Ok(()) };
        if !cache.network.has_check || !config::knows_results(&cache.network.version) {
            return Ok(());
        }
        for plugin in &cache.network.plugins {
            self.run("CHECK", plugin, &cache, cache.result.as_ref())?;
        }
        Ok(())
    }

    /// Disconnects every sandbox that has no record. One that cannot be is left for the next time.
    pub(crate) fn collect(&self, named: &BTreeSet<String>) -> Result<Vec<String>, CniError> {
        let mut removed = Vec::new();
        for sandbox in cache::all(&self.settings.cache_dir)? {
            if named.contains(&sandbox) {
                continue;
            }
            match self.delete(&sandbox) {
                Ok(()) => removed.push(sandbox),
                Err(error) => {
                    tracing::warn!(sandbox, err = %crate::network::chain(&error), "What plugins made for nobody is left");
                }
            }
        }
        Ok(removed)
    }

    fn run(
        &self,
        command: &'static str,
        plugin: &Map<String, Value>,
        cache: &Cache,
        result: Option<&Value>,
    ) -> Result<Vec<u8>, CniError> {
        let name = config::program(plugin);
        let directories = &self.settings.plugin_dirs;
        let list = std::env::join_paths(directories).unwrap_or_default();
        let found = directories.iter().map(|it| it.join(name)).find(|it| it.is_file());
        let program = found.ok_or_else(|| CniError::NoPlugin {
            plugin: name.to_owned(),
            directories: list.to_string_lossy().into_owned(),
        })?;
        let mut process = Command::new(program);
        process
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &cache.sandbox)
            .env("CNI_NETNS", cache.namespace_if_bound())
            .env("CNI_IFNAME", POD_LINK)
            .env("CNI_ARGS", &cache.arguments)
            .env("CNI_PATH", &list);
        let input = config::input(&cache.network, plugin, &cache.capabilities, result);
        let plugin = name.to_owned();
        let output = match child::run(process, &input, self.settings.patience) {
            Ok(output) => output,
            Err(source) => return Err(CniError::Run { plugin, command, source }),
        };
        if output.code == Some(0) {
            return Ok(output.stdout);
        }
        Err(CniError::Refused { plugin, command, reason: reason(&output) })
    }
}

/// A plugin's refusal in its own words.
fn reason(output: &child::Output) -> String {
    let said: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    let text = |field| said.as_ref().and_then(|it| it.get(field)).and_then(Value::as_str);
    let words: Vec<&str> = [text("msg"), text("details")].into_iter().flatten().collect();
    let words: Vec<&str> = words.into_iter().filter(|it| !it.is_empty()).collect();
    if !words.is_empty() {
        return words.join("; ");
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let end = match (output.code, output.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
    };
    if complaint.is_empty() { end } else { format!("{end}: {complaint}") }
}

/// Who the pod is, in the form that plugins of Kubernetes know.
fn arguments(request: &SetupRequest) -> String {
    let pairs = [
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", &request.namespace),
        ("K8S_POD_NAME", &request.name),
        ("K8S_POD_INFRA_CONTAINER_ID", &request.sandbox),
        ("K8S_POD_UID", &request.uid),
    ];
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", value.replace([';', '='], "_"));
    pairs.iter().map(pair).collect::<Vec<_>>().join(";")
}

/// A file of at most that size.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
