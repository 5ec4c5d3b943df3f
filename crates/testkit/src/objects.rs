//! The fake of the port `ClusterObjects`: secrets, config maps and tokens that a test hands out and
//! takes back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use ferrolet_ports::{
    ApiError, ApiErrorKind, Clock, ClusterObjects, Fut, ObjectChange, ObjectKind, Token, TokenAsk,
};
use ferrolet_types::{Pod, PodUid, Timestamp, pod::PodView as _};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret, ServiceAccount},
};
use tokio::sync::broadcast;

const LIFE: Duration = Duration::from_secs(3600);

/// Objects and tokens in memory. Every change is announced, as the watch strategy does.
#[derive(Clone)]
pub struct FakeObjects {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    changes: broadcast::Sender<ObjectChange>,
}

#[derive(Default)]
struct State {
    secrets: BTreeMap<(String, String), Arc<Secret>>,
    config_maps: BTreeMap<(String, String), Arc<ConfigMap>>,
    accounts: BTreeMap<(String, String), ServiceAccount>,
    registered: BTreeSet<PodUid>,
    tokens: BTreeMap<TokenAsk, (Timestamp, Token)>,
    n_tokens: u32,
    outage: Option<ApiErrorKind>,
}

impl FakeObjects {
    /// Nothing there yet. Tokens are numbered and renewed at four fifths of their life on that
    /// clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Arc::default(), clock, changes: broadcast::channel(64).0 }
    }

    /// Tells of every change from now on.
    pub fn changes(&self) -> broadcast::Receiver<ObjectChange> {
        self.changes.subscribe()
    }

    /// Puts a config map in namespace `default`; `None` takes it away.
    pub fn set_config_map(&self, name: &str, data: Option<&[(&str, &str)]>) {
        let key = ("default".to_owned(), name.to_owned());
        let map = data.map(|data| ConfigMap { data: Some(owned(data)), ..ConfigMap::default() });
        let mut state = self.lock();
        match map {
            Some(map) => state.config_maps.insert(key, Arc::new(map)),
            None => state.config_maps.remove(&key),
        };
        drop(state);
        self.announce(ObjectKind::ConfigMap, name);
    }

    /// Puts a secret in namespace `default`; `None` takes it away.
    pub fn set_secret(&self, name: &str, data: Option<&[(&str, &str)]>) {
        let key = ("default".to_owned(), name.to_owned());
        let secret = data.map(|data| {
            let data = owned(data).into_iter();
            let data = data.map(|(key, value)| (key, ByteString(value.into_bytes())));
            Secret { data: Some(data.collect()), ..Secret::default() }
        });
        let mut state = self.lock();
        match secret {
            Some(secret) => state.secrets.insert(key, Arc::new(secret)),
            None => state.secrets.remove(&key),
        };
        drop(state);
        self.announce(ObjectKind::Secret, name);
    }

    /// Says that trust bundles changed; a test keeps those with the storage objects.
    pub fn announce_trust(&self) {
        self.announce(ObjectKind::TrustBundle, "");
    }

    /// Puts a service account with these annotations in namespace `default`.
    pub fn set_service_account(&self, name: &str, annotations: &[(&str, &str)]) {
        let key = ("default".to_owned(), name.to_owned());
        let mut account = ServiceAccount::default();
        account.metadata.uid = Some(format!("uid-{name}"));
        account.metadata.annotations = Some(owned(annotations));
        self.lock().accounts.insert(key, account);
    }

    /// Every request fails like this; `None` ends it.
    pub fn set_outage(&self, outage: Option<ApiErrorKind>) {
        self.lock().outage = outage;
    }

    /// Pods that are registered.
    pub fn registered(&self) -> BTreeSet<PodUid> {
        self.lock().registered.clone()
    }

    fn announce(&self, kind: ObjectKind, name: &str) {
        // Without a listener there is nobody to tell.
        self.changes
            .send(ObjectChange { kind, namespace: "default".to_owned(), name: name.to_owned() })
            .ok();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics in a change")
    }

    fn answer<T>(
        &self,
        what: &str,
        found: impl FnOnce(&mut State) -> Option<T>,
    ) -> Result<T, ApiError> {
        let mut state = self.lock();
        let kind = state.outage;
        let refused = |kind: ApiErrorKind, message: String| ApiError {
            attempt: format!("get {what}"),
            kind,
            message,
            code: None,
            causes: Vec::new(),
        };
        if let Some(kind) = kind {
            return Err(refused(kind, "the API server is away".to_owned()));
        }
        found(&mut state)
            .ok_or_else(|| refused(ApiErrorKind::NotFound, format!("{what} not found")))
    }
}

fn owned(data: &[(&str, &str)]) -> BTreeMap<String, String> {
    let data = data.iter();
    data.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

impl ClusterObjects for FakeObjects {
    fn register(&self, pod: &Pod) {
        self.lock().registered.insert(pod.uid());
    }

    fn unregister(&self, uid: &PodUid) {
        self.lock().registered.remove(uid);
    }

    fn get_secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Arc<Secret>, ApiError>> {
        let key = (namespace.to_owned(), name.to_owned());
        let answer = self.answer("secret", |state| state.secrets.get(&key).cloned());
        Box::pin(std::future::ready(answer))
    }

    fn get_config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Arc<ConfigMap>, ApiError>> {
        let key = (namespace.to_owned(), name.to_owned());
        let answer = self.answer("config map", |state| state.config_maps.get(&key).cloned());
        Box::pin(std::future::ready(answer))
    }

    fn get_service_account<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<ServiceAccount, ApiError>> {
        let key = (namespace.to_owned(), name.to_owned());
        let answer = self.answer("service account", |state| state.accounts.get(&key).cloned());
        Box::pin(std::future::ready(answer))
    }

    fn get_token<'a>(&'a self, ask: &'a TokenAsk) -> Fut<'a, Result<Token, ApiError>> {
        let now = self.clock.now();
        let answer = self.answer("token", |state| {
            let life = ask.lifetime.unwrap_or(LIFE);
            if let Some((since, token)) = state.tokens.get(ask)
                && now.since(*since) < life * 4 / 5
            {
                return Some(token.clone());
            }
            state.n_tokens += 1;
            let token =
                Token { text: format!("token-{}", state.n_tokens), expires: now.after(life) };
            state.tokens.insert(ask.clone(), (now, token.clone()));
            Some(token)
        });
        Box::pin(std::future::ready(answer))
    }
}
