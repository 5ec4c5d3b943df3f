//! Credentials from plugins: who is asked about an image, with which token, and how long an answer
//! is remembered.
//!
//! Pods that want the same at the same time share one run. Memory: at most [`MOST_KEPT`] answers,
//! each with its end. A plugin that fails costs its own credentials only; the pull goes on with
//! what else there is.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use ferrolet_images::{
    Coordinates, Credential, DockerConfig, Keyring, Source,
    provider::{AccountPart, AccountToken, CacheKey, CacheScope, Provider, Request, parse_answer},
};
use ferrolet_ports::{ApiError, ClusterObjects, PluginCall, RegistryLogins, TokenAsk};
use ferrolet_types::{Pod, pod::PodView as _};
use tokio::{sync::Mutex as AsyncMutex, time::Instant};

use crate::metrics;

/// More answers than this are not remembered.
const MOST_KEPT: usize = 1000;
/// How long a token lives that a plugin is given: the API's default.
const TOKEN_LIFE: Duration = Duration::from_secs(3600);

/// A plugin's place in the configuration, and what it was asked.
type Key = (usize, CacheKey);

/// An answer that came while others waited for the same.
type Flight = Arc<AsyncMutex<Option<(Instant, DockerConfig)>>>;

/// The plugins and what they answered.
pub(super) struct Plugins {
    providers: Vec<Provider>,
    logins: Arc<dyn RegistryLogins>,
    kept: Mutex<BTreeMap<Key, (Instant, DockerConfig)>>,
    flights: Mutex<BTreeMap<Key, Flight>>,
}

/// Why a plugin has nothing to say.
#[derive(Debug, thiserror::Error)]
enum Silence {
    /// It is not meant for this pod.
    #[error("not meant for this pod")]
    NotForPod,
    #[error("failed to get service account: {0}")]
    Account(ApiError),
    #[error("failed to get service account token: {0}")]
    Token(ApiError),
    #[error("failed to get credential from external registry credential provider: {0}")]
    Failed(String),
}

impl Plugins {
    pub(super) fn new(providers: Vec<Provider>, logins: Arc<dyn RegistryLogins>) -> Self {
        Self { providers, logins, kept: Mutex::default(), flights: Mutex::default() }
    }

    /// What the plugins have for an image's place, for this pod.
    pub(super) async fn credentials(
        &self,
        objects: Option<&dyn ClusterObjects>,
        pod: &Pod,
        place: &str,
    ) -> Vec<Credential> {
        let mut keyring = Keyring::default();
        for (index, provider) in self.providers.iter().enumerate() {
            if !provider.is_for(place) {
                continue;
            }
            match self.ask(index, provider, objects, pod, place).await {
                Ok((config, account)) => {
                    let source = account.map_or(Source::Node, Source::ServiceAccount);
                    keyring.add(&source, config);
                }
                Err(Silence::NotForPod) => {
                    tracing::debug!(provider = provider.name, pod = %pod.key(), image = place, "Credential provider is not meant for this pod");
                }
                Err(error) => {
                    tracing::error!(provider = provider.name, pod = %pod.key(), image = place, %error, "Failed to provide credentials for image");
                }
            }
        }
        keyring.lookup(place)
    }

    async fn ask(
        &self,
        index: usize,
        provider: &Provider,
        objects: Option<&dyn ClusterObjects>,
        pod: &Pod,
        place: &str,
    ) -> Result<(DockerConfig, Option<Coordinates>), Silence> {
        let account = match &provider.token {
            Some(token) => account_part(token, objects, pod).await?,
            None => None,
        };
        let request = Request { image: place.to_owned(), account };
        let whose = request.account.as_ref().map(|part| part.account.clone());
        if let Some(config) = self.remembered(index, provider, &request) {
            return Ok((config, whose));
        }
        let config = self.ask_once(index, provider, &request).await?;
        Ok((config, whose))
    }

    /// Runs the plugin, or waits for somebody else's run of the same.
    async fn ask_once(
        &self,
        index: usize,
        provider: &Provider,
        request: &Request,
    ) -> Result<DockerConfig, Silence> {
        let asked = Instant::now();
        let key = (index, request.key(provider, CacheScope::Image));
        let flight = {
            let mut flights = lock(&self.flights);
            flights.retain(|_, flight| Arc::strong_count(flight) > 1);
            flights.entry(key).or_default().clone()
        };
        let mut landed = flight.lock().await;
        if let Some((at, config)) = landed.as_ref()
            && *at >= asked
        {
            return Ok(config.clone());
        }
        let call = PluginCall {
            name: provider.name.clone(),
            args: provider.args.clone(),
            env: provider.env.clone(),
            input: request.encode(&provider.api_version),
        };
        let began = Instant::now();
        let output = self.logins.ask_plugin(&call).await;
        // What is counted is the run; an answer that nobody understands is another matter.
        metrics::plugin_ran(&provider.name, began.elapsed(), output.is_ok());
        let failed = |error: String| Silence::Failed(error);
        let output = output.map_err(|error| failed(error.to_string()))?;
        let answer = parse_answer(provider, request, &output);
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        let now = Instant::now();
        if !answer.keep.is_zero() {
            let key = (index, request.key(provider, answer.scope));
            self.remember(key, now + answer.keep, answer.config.clone());
        }
        *landed = Some((now, answer.config.clone()));
        Ok(answer.config)
    }

    fn remembered(
        &self,
        index: usize,
        provider: &Provider,
        request: &Request,
    ) -> Option<DockerConfig> {
        let kept = lock(&self.kept);
        let now = Instant::now();
        let mut found =
            request.keys(provider).into_iter().filter_map(|key| kept.get(&(index, key)));
        let config = found.find(|(until, _)| now <= *until);
        config.map(|(_, config)| config.clone())
    }

    fn remember(&self, key: Key, until: Instant, config: DockerConfig) {
        let mut kept = lock(&self.kept);
        let now = Instant::now();
        kept.retain(|_, (until, _)| now <= *until);
        if kept.len() < MOST_KEPT || kept.contains_key(&key) {
            kept.insert(key, (until, config));
        }
    }
}

/// The service account's part of a request; `None` for a pod without one.
async fn account_part(
    wanted: &AccountToken,
    objects: Option<&dyn ClusterObjects>,
    pod: &Pod,
) -> Result<Option<AccountPart>, Silence> {
    let name = pod.spec_ref().service_account_name.as_deref();
    let (Some(name), Some(objects)) = (name.filter(|name| !name.is_empty()), objects) else {
        return if wanted.is_account_required { Err(Silence::NotForPod) } else { Ok(None) };
    };
    let key = pod.key();
    let account = objects.get_service_account(&key.namespace, name).await;
    let account = account.map_err(Silence::Account)?;
    let given = account.metadata.annotations.unwrap_or_default();
    let mut annotations = BTreeMap::new();
    for wanted in &wanted.required_annotations {
        // Without it the account has not asked for this plugin.
        let value = given.get(wanted).ok_or(Silence::NotForPod)?;
        annotations.insert(wanted.clone(), value.clone());
    }
    for wanted in &wanted.optional_annotations {
        if let Some(value) = given.get(wanted) {
            annotations.insert(wanted.clone(), value.clone());
        }
    }
    let ask = TokenAsk {
        namespace: key.namespace.to_string(),
        service_account: name.to_owned(),
        audiences: vec![wanted.audience.clone()],
        lifetime: Some(TOKEN_LIFE),
        bound_pod: Some((key.clone(), pod.uid())),
    };
    let token = objects.get_token(&ask).await.map_err(Silence::Token)?;
    Ok(Some(AccountPart {
        account: Coordinates {
            namespace: key.namespace.to_string(),
            name: name.to_owned(),
            uid: account.metadata.uid.unwrap_or_default(),
        },
        token: token.text,
        annotations,
    }))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("no panic while the lock is held")
}
