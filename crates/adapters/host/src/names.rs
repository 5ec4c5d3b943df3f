//! The node's own files of name resolution: the port `NodeNames` on a real node.
//!
//! In: the path of the resolver's file, from the configuration. Out: texts, at most as long as
//! upstream reads. Refuses: judging what they say.

use std::path::{Path, PathBuf};

use ferrolet_linux::offload::{Job, Pool, never};
use ferrolet_ports::{Fut, HostError, NodeNames};

use crate::machine::{read_hosts_file, read_resolver_file};

/// The files of this node.
#[derive(Clone, Debug)]
pub struct NameFiles {
    resolver: Option<PathBuf>,
}

impl NameFiles {
    /// Takes the path of the resolver's configuration (`resolvConf`), unless pods shall have none;
    /// touches nothing.
    pub fn new(resolver: Option<&Path>) -> Self {
        Self { resolver: resolver.map(Path::to_owned) }
    }
}

impl NodeNames for NameFiles {
    fn hosts(&self) -> Fut<'_, String> {
        Box::pin(async {
            let read =
                Job::on(Pool::State, "read the hosts file").run(|| Ok(read_hosts_file())).await;
            read.unwrap_or_default()
        })
    }

    fn resolver(&self) -> Fut<'_, Result<Option<String>, HostError>> {
        let Some(path) = self.resolver.clone() else {
            return Box::pin(std::future::ready(Ok(None)));
        };
        let attempt = format!("read {}", path.display());
        Box::pin(Job::on(Pool::State, attempt.clone()).run(move || {
            let read = read_resolver_file(&path);
            read.map(Some).map_err(|error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                never(attempt, cause.unwrap_or_else(|| error.to_string()))
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_resolver_is_read_anew_each_time() {
        let held = tempfile::tempdir().unwrap();
        let path = held.path().join("resolv.conf");
        let names = NameFiles::new(Some(&path));
        let missing = names.resolver().await.unwrap_err();
        assert!(missing.to_string().contains("resolv.conf"), "{missing}");
        for text in ["nameserver 10.0.0.1\n", "nameserver 10.0.0.2\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(names.resolver().await.unwrap().as_deref(), Some(text));
        }
        assert_eq!(NameFiles::new(None).resolver().await.unwrap(), None);
    }
}
