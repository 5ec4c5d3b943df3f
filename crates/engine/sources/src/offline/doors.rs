//! The cluster's doors with the books behind them: what passes is noted, and what the server does
//! not answer is answered from the notes.
//!
//! Objects and tokens are answered from the notes whenever the server gives no answer; its own no
//! counts. Services and runtime classes only before its first set: later pods may name more than
//! any copy knows.

use std::{future::Future, sync::Arc, time::Duration};

use ferrolet_ports::{
    ApiError, ApiErrorKind, ClusterLookups, ClusterObjects, Fut, Retry, StatusSink, StatusUpdate,
    Token, TokenAsk,
};
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};

use super::run::Shared;

/// How long a server that has not been heard of yet is waited for when the notes have an answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Objects {
    pub(super) inner: Arc<dyn ClusterObjects>,
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Lookups {
    pub(super) inner: Arc<dyn ClusterLookups>,
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Sink {
    pub(super) inner: Arc<dyn StatusSink>,
    pub(super) shared: Arc<Shared>,
}

impl Objects {
    /// The server's answer, or the noted one when it has none.
    async fn prefer<T>(
        &self,
        asked: impl Future<Output = Result<T, ApiError>>,
        noted: Option<Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let Some(noted) = noted else {
            return asked.await;
        };
        let answer = if self.shared.look(|ledger| ledger.has_api_set()) {
            asked.await
        } else {
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(answer) => answer,
                Err(_elapsed) => return noted,
            }
        };
        match answer {
            Err(error) if error.retry() == Retry::Later => noted,
            conclusive => conclusive,
        }
    }
}

impl ClusterObjects for Objects {
    fn register(&self, pod: &Pod) {
        self.inner.register(pod);
    }

    fn unregister(&self, uid: &PodUid) {
        self.inner.unregister(uid);
    }

    fn get_secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Arc<Secret>, ApiError>> {
        let noted = self.shared.look(|ledger| ledger.secret(namespace, name));
        let asked = async move {
            let answer = self.inner.get_secret(namespace, name).await;
            if let Some(told) = conclusive(&answer) {
                self.shared.change(|ledger| ledger.note_secret(namespace, name, told));
            }
            answer
        };
        let noted = noted.map(|it| it.ok_or_else(|| absent("secrets", name)));
        Box::pin(self.prefer(asked, noted))
    }

    fn get_config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Arc<ConfigMap>, ApiError>> {
        let noted = self.shared.look(|ledger| ledger.config_map(namespace, name));
        let asked = async move {
            let answer = self.inner.get_config_map(namespace, name).await;
            if let Some(told) = conclusive(&answer) {
                self.shared.change(|ledger| ledger.note_config_map(namespace, name, told));
            }
            answer
        };
        let noted = noted.map(|it| it.ok_or_else(|| absent("configmaps", name)));
        Box::pin(self.prefer(asked, noted))
    }

    /// Not noted: without a server there is no fresh token to pull with either.
    fn get_service_account<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<ServiceAccount, ApiError>> {
        self.inner.get_service_account(namespace, name)
    }

    /// A noted token may have expired: a pod with an old token file is better than none, and who
    /// holds it asks again soon.
    fn get_token<'a>(&'a self, ask: &'a TokenAsk) -> Fut<'a, Result<Token, ApiError>> {
        let noted = self.shared.look(|ledger| ledger.token(ask));
        let asked = async move {
            let answer = self.inner.get_token(ask).await;
            if let Ok(token) = &answer {
                self.shared.change(|ledger| ledger.note_token(ask, token));
            }
            answer
        };
        Box::pin(self.prefer(asked, noted.map(Ok)))
    }
}

impl ClusterLookups for Lookups {
    fn services(&self) -> Option<Vec<Arc<Service>>> {
        self.inner.services().or_else(|| {
            self.shared.look(|ledger| {
                let is_alone = !ledger.has_api_set();
                is_alone.then(|| ledger.services()).flatten()
            })
        })
    }

    fn runtime_handler(&self, class: &str) -> Option<String> {
        self.inner.runtime_handler(class).or_else(|| {
            self.shared.look(|ledger| {
                let is_alone = !ledger.has_api_set();
                is_alone.then(|| ledger.runtime_handler(class)).flatten()
            })
        })
    }
}

impl StatusSink for Sink {
    fn publish(&self, update: StatusUpdate) {
        let (uid, status) = (update.pod.uid(), update.pod.status.as_ref());
        self.shared.change(|ledger| ledger.note_status(&uid, status));
        self.inner.publish(update);
    }

    fn forget(&self, uid: &PodUid) {
        self.inner.forget(uid);
    }
}

/// What the server said about the object, if it said anything: it is there, or it is not.
fn conclusive<T>(answer: &Result<Arc<T>, ApiError>) -> Option<Option<Arc<T>>> {
    match answer {
        Ok(object) => Some(Some(Arc::clone(object))),
        Err(error) if error.is_not_found() => Some(None),
        Err(_) => None,
    }
}

fn absent(kind: &str, name: &str) -> ApiError {
    ApiError {
        attempt: format!("read the copy of {kind} {name:?}"),
        kind: ApiErrorKind::NotFound,
        message: format!("{kind} {name:?} not found"),
        code: None,
        causes: Vec::new(),
    }
}
