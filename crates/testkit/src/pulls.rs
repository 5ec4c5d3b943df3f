//! Fakes of what pulls need of the node: files in memory, and plugins that are functions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ferrolet_ports::{
    Fut, HostError, NamedFile, NodeDockerConfig, PluginCall, PullFile, PullFiles, RegistryLogins,
    Retry,
};

/// Pull files in memory; they outlive the agent. Clones are handles to the same files.
#[derive(Clone, Default)]
pub struct FakePullFiles {
    files: Arc<Mutex<BTreeMap<(PullFile, String), String>>>,
}

impl FakePullFiles {
    /// The contents of every file of a kind, in the order of their names.
    pub fn contents(&self, kind: PullFile) -> Vec<String> {
        let files = lock(&self.files);
        let of_kind = files.iter().filter(|((it, _), _)| *it == kind);
        of_kind.map(|(_, content)| content.clone()).collect()
    }

    /// Puts a file there.
    pub fn put(&self, kind: PullFile, name: &str, content: &str) {
        lock(&self.files).insert((kind, name.to_owned()), content.to_owned());
    }
}

impl PullFiles for FakePullFiles {
    fn read<'a>(
        &'a self,
        kind: PullFile,
        name: &'a str,
    ) -> Fut<'a, Result<Option<Vec<u8>>, HostError>> {
        let content = lock(&self.files).get(&(kind, name.to_owned())).cloned();
        let bytes = content.map(String::into_bytes);
        Box::pin(std::future::ready(Ok(bytes)))
    }

    fn write<'a>(
        &'a self,
        kind: PullFile,
        name: &'a str,
        content: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        self.put(kind, name, content);
        Box::pin(std::future::ready(Ok(())))
    }

    fn remove<'a>(&'a self, kind: PullFile, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        lock(&self.files).remove(&(kind, name.to_owned()));
        Box::pin(std::future::ready(Ok(())))
    }

    fn list(&self, kind: PullFile) -> Fut<'_, Result<Vec<NamedFile>, HostError>> {
        let files = lock(&self.files);
        let of_kind = files.iter().filter(|((it, _), _)| *it == kind);
        let listed = of_kind
            .map(|((_, name), content)| (name.clone(), content.clone().into_bytes()))
            .collect();
        Box::pin(std::future::ready(Ok(listed)))
    }
}

type Answer = dyn Fn(&PluginCall) -> Result<String, String> + Send + Sync;

/// The node's logins: a docker configuration and plugins. Clones are handles to the same.
#[derive(Clone, Default)]
pub struct FakeLogins {
    state: Arc<Mutex<LoginState>>,
}

#[derive(Default)]
struct LoginState {
    config: Option<NodeDockerConfig>,
    answer: Option<Arc<Answer>>,
    takes: Duration,
    calls: Vec<PluginCall>,
}

impl FakeLogins {
    /// The node's `config.json`.
    pub fn set_config(&self, text: &str) {
        lock(&self.state).config = Some(NodeDockerConfig::Json(text.as_bytes().to_vec()));
    }

    /// What every plugin does when it is run, and how long that takes.
    pub fn set_plugin(
        &self,
        takes: Duration,
        answer: impl Fn(&PluginCall) -> Result<String, String> + Send + Sync + 'static,
    ) {
        let mut state = lock(&self.state);
        state.takes = takes;
        state.answer = Some(Arc::new(answer));
    }

    /// Every run so far.
    pub fn calls(&self) -> Vec<PluginCall> {
        lock(&self.state).calls.clone()
    }
}

impl RegistryLogins for FakeLogins {
    fn node_config(&self) -> Fut<'_, Option<NodeDockerConfig>> {
        let config = lock(&self.state).config.clone();
        Box::pin(std::future::ready(config))
    }

    fn ask_plugin<'a>(&'a self, call: &'a PluginCall) -> Fut<'a, Result<Vec<u8>, HostError>> {
        Box::pin(async move {
            let (answer, takes) = {
                let mut state = lock(&self.state);
                state.calls.push(call.clone());
                (state.answer.clone(), state.takes)
            };
            tokio::time::sleep(takes).await;
            let answered = match answer {
                Some(answer) => answer(call),
                None => Err("no such plugin".to_owned()),
            };
            answered.map(String::into_bytes).map_err(|cause| HostError {
                attempt: format!("run plugin {}", call.name),
                cause,
                retry: Retry::Later,
            })
        })
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
