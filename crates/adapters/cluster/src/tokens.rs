//! Service-account tokens in the name of pods: requested, kept, and renewed before they end.
//!
//! One request at a time for the same token; others wait for its answer. A renewal that fails
//! leaves the old token in use while it lasts. Memory: one entry for each token in use, dropped
//! with its pod or when it has expired.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_ports::{ApiError, ApiErrorKind, Clock, Token, TokenAsk};
use ferrolet_types::{PodUid, Timestamp};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use tokio::{sync::Mutex as AsyncMutex, time::sleep};

use crate::{
    client::{Client, Place},
    early::patiently,
};

const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
const MAX_JITTER: Duration = Duration::from_secs(10);
/// The server may not find a pod yet that we know already; a pod's start should not wait for its
/// next round because of that.
const EARLY: [Duration; 4] = [
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// Where one token lives; the lock is held while it is being requested.
type Slot = Arc<AsyncMutex<Option<Kept>>>;

/// The tokens in use.
pub struct Tokens {
    client: Client,
    clock: Arc<dyn Clock>,
    slots: Mutex<BTreeMap<TokenAsk, Slot>>,
}

#[derive(Clone, Debug)]
struct Kept {
    token: Token,
    lifetime: Duration,
}

impl Kept {
    /// True from 80 % of its life on, or from its 24th hour, or a little before.
    fn is_due(&self, now: Timestamp, jitter: Duration) -> bool {
        let left = self.token.expires.since(now);
        let age = self.lifetime.saturating_sub(left);
        left <= self.lifetime / 5 + jitter || age >= MAX_AGE.saturating_sub(jitter)
    }
}

impl Tokens {
    /// None yet.
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock, slots: Mutex::default() }
    }

    /// The token, from memory or from the server.
    pub async fn get(&self, ask: &TokenAsk) -> Result<Token, ApiError> {
        let slot = self.slot(ask);
        let mut kept = slot.lock().await;
        let now = self.clock.now();
        let jitter = MAX_JITTER.mul_f64(fastrand::f64());
        if let Some(kept) = kept.as_ref()
            && !kept.is_due(now, jitter)
        {
            return Ok(kept.token.clone());
        }
        match self.request_early(ask).await {
            Ok(fresh) => {
                let token = fresh.token.clone();
                *kept = Some(fresh);
                Ok(token)
            }
            Err(error) => match kept.as_ref().filter(|kept| kept.token.expires > now) {
                Some(kept) => {
                    tracing::warn!(%error, account = ask.service_account, "token not renewed; the old one still holds");
                    Ok(kept.token.clone())
                }
                None => Err(error),
            },
        }
    }

    /// Drops the tokens of a pod that is gone.
    pub fn forget(&self, uid: &PodUid) {
        self.lock().retain(|ask, _| {
            let bound = ask.bound_pod.as_ref();
            bound.is_none_or(|(_, bound)| bound != uid)
        });
    }

    fn slot(&self, ask: &TokenAsk) -> Slot {
        let now = self.clock.now();
        let mut slots = self.lock();
        if let Some(slot) = slots.get(ask) {
            return Arc::clone(slot);
        }
        // A new token is a good moment to drop those that have run out; a slot in use cannot be
        // looked into and stays.
        slots.retain(|_, slot| match slot.try_lock() {
            Ok(kept) => kept.as_ref().is_none_or(|kept| kept.token.expires > now),
            Err(_) => true,
        });
        Arc::clone(slots.entry(ask.clone()).or_default())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<TokenAsk, Slot>> {
        self.slots.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Asks, and asks again soon if the server may not know the pod yet.
    async fn request_early(&self, ask: &TokenAsk) -> Result<Kept, ApiError> {
        for pause in EARLY {
            match patiently(|| self.request(ask)).await {
                Err(error) if ask.bound_pod.is_some() && error.is_not_found() => {
                    sleep(pause).await;
                }
                outcome => return outcome,
            }
        }
        patiently(|| self.request(ask)).await
    }

    async fn request(&self, ask: &TokenAsk) -> Result<Kept, ApiError> {
        let place = Place::one::<ServiceAccount>(Some(&ask.namespace), &ask.service_account);
        let place = place.under("token");
        let lifetime = ask.lifetime;
        let wanted = TokenRequest {
            spec: Some(TokenRequestSpec {
                // Said even when empty: the server takes that for itself.
                audiences: Some(ask.audiences.clone()),
                expiration_seconds: lifetime
                    .map(|it| i64::try_from(it.as_secs()).unwrap_or(i64::MAX)),
                bound_object_ref: ask.bound_pod.as_ref().map(|(key, uid)| BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(key.name.to_string()),
                    uid: Some(uid.to_string()),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let answer: TokenRequest = self.client.create(&place, &wanted).await?;
        let granted = answer.spec.and_then(|spec| spec.expiration_seconds);
        let granted = granted.and_then(|secs| u64::try_from(secs).ok());
        let status = answer.status.unwrap_or_default();
        let (Some(text), Some(expires)) = (status.token, status.expiration_timestamp) else {
            return Err(ApiError {
                attempt: format!("POST {}", place.path()),
                kind: ApiErrorKind::Malformed,
                message: "the answer has no token".to_owned(),
                code: None,
                causes: Vec::new(),
            });
        };
        let expires = Timestamp(expires.0);
        Ok(Kept {
            token: Token { text, expires },
            lifetime: granted
                .map(Duration::from_secs)
                .or(lifetime)
                .unwrap_or_else(|| expires.since(self.clock.now())),
        })
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_types::PodKey;

    use super::*;
    use crate::fake::{FakeApi, TokioClock};

    fn ask(pod: &str) -> TokenAsk {
        TokenAsk {
            namespace: "n".to_owned(),
            service_account: "default".to_owned(),
            audiences: Vec::new(),
            lifetime: Some(Duration::from_secs(3607)),
            bound_pod: Some((PodKey::new("n", pod), PodUid::new(pod))),
        }
    }

    #[test]
    fn tokens_are_due_late_in_life_or_after_a_day() {
        let check = |lifetime: u64, age: u64, jitter: u64, is_due: bool| {
            let born = Timestamp::from_second(1_000_000);
            let lifetime = Duration::from_secs(lifetime);
            let token = Token { text: String::new(), expires: born.after(lifetime) };
            let kept = Kept { token, lifetime };
            let now = born.after(Duration::from_secs(age));
            let got = kept.is_due(now, Duration::from_secs(jitter));
            assert_eq!(got, is_due, "{lifetime:?} at {age}");
        };
        check(3600, 0, 10, false);
        check(3600, 2869, 10, false);
        check(3600, 2870, 10, true);
        check(3600, 2879, 0, false);
        check(3600, 2880, 0, true);
        check(3600, 5000, 0, true);
        check(10 * 86_400, 86_399, 0, false);
        check(10 * 86_400, 86_400, 0, true);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_asked_for_once_renewed_in_time_and_kept_through_an_outage() {
        let api = FakeApi::new();
        let tokens = Tokens::new(api.client(), Arc::new(TokioClock));
        let (wanted, other) = (ask("a"), ask("b"));
        let (one, two) = tokio::join!(tokens.get(&wanted), tokens.get(&wanted));
        let first = one.unwrap();
        assert_eq!(Ok(first.clone()), two);
        assert_eq!(api.lines().len(), 1);
        let body = &api.seen()[0].body["spec"];
        assert_eq!(body["boundObjectRef"]["uid"], "a");
        assert_ne!(tokens.get(&other).await.unwrap(), first);
        tokio::time::advance(Duration::from_secs(2900)).await;
        let renewed = tokens.get(&wanted).await.unwrap();
        assert_ne!(renewed, first);
        api.go_away();
        tokio::time::advance(Duration::from_secs(3500)).await;
        assert_eq!(tokens.get(&wanted).await.unwrap(), renewed);
        tokio::time::advance(Duration::from_secs(200)).await;
        let error = tokens.get(&wanted).await.unwrap_err();
        assert_eq!(error.kind, ApiErrorKind::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_know_the_pod_yet_is_asked_again_soon() {
        let check = async |n_refusals: usize, kind: Option<ApiErrorKind>| {
            let api = FakeApi::new();
            for _ in 0..n_refusals {
                let body = serde_json::json!({"status": "Failure", "reason": "NotFound"});
                api.refuse_next(404, body);
            }
            let tokens = Tokens::new(api.client(), Arc::new(TokioClock));
            let began = tokio::time::Instant::now();
            let got = tokens.get(&ask("a")).await;
            assert_eq!(got.err().map(|error| error.kind), kind, "{n_refusals}");
            assert!(began.elapsed() < Duration::from_secs(1));
        };
        check(3, None).await;
        check(9, Some(ApiErrorKind::NotFound)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_early_refusal_is_asked_again_and_a_lasting_one_is_told() {
        let check = async |n_refusals: usize, kind: Option<ApiErrorKind>| {
            let api = FakeApi::new();
            for _ in 0..n_refusals {
                let body = serde_json::json!({"status": "Failure", "reason": "Forbidden"});
                api.refuse_next(403, body);
            }
            let tokens = Tokens::new(api.client(), Arc::new(TokioClock));
            let got = tokens.get(&ask("a")).await;
            assert_eq!(got.err().map(|error| error.kind), kind, "{n_refusals}");
        };
        for n_refusals in 0..=17 {
            check(n_refusals, None).await;
        }
        check(18, Some(ApiErrorKind::Forbidden)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_gone_takes_its_tokens_along() {
        let api = FakeApi::new();
        let tokens = Tokens::new(api.client(), Arc::new(TokioClock));
        tokens.get(&ask("a")).await.unwrap();
        tokens.get(&ask("b")).await.unwrap();
        tokens.forget(&PodUid::new("a"));
        assert_eq!(tokens.lock().len(), 1);
    }
}
