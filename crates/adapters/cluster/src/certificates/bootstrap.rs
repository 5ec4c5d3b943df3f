//! The first certificate of a node: asked for with a bootstrap token, before the node has an
//! identity.

use std::{io, sync::Arc, time::Duration};

use ferrolet_ports::Clock;
use ferrolet_types::Timestamp;
use rcgen::KeyPair;
use tokio::time::{Instant, sleep};

use super::{
    CertStore, CertificateFacts, IssueError, Pair, PairName, Wanted,
    issue::{Naming, issue},
    off_thread,
};
use crate::{
    client::{Client, Place},
    kubeconfig::{Access, Credentials},
};

/// How long an administrator may take to approve.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How long the server may take to come up before we ask regardless.
const SERVER_UP: Duration = Duration::from_secs(60);

/// Why a node could not join.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The key or the certificate could not be stored.
    #[error("store the node's key and certificate")]
    Store(#[source] io::Error),
    /// A key could not be made.
    #[error("make a key")]
    Key(#[source] rcgen::Error),
    /// The certificate was not issued.
    #[error("get the node's certificate")]
    Issue(#[source] IssueError),
}

/// True when a kubeconfig's own certificate can be used as it is, so that no bootstrap is needed.
pub fn is_usable(access: &Access, now: Timestamp) -> bool {
    let Credentials::Certificate { certificate, .. } = &access.credentials else {
        return false;
    };
    let text = String::from_utf8_lossy(certificate);
    CertificateFacts::read(&text).is_ok_and(|facts| !facts.is_expired(now))
}

/// Gets the first client certificate and stores it. The caller writes the kubeconfig that points to
/// it.
pub async fn bootstrap(
    client: &Client,
    store: &Arc<dyn CertStore>,
    clock: &dyn Clock,
    node_name: &str,
) -> Result<Pair, BootstrapError> {
    let key = pending_key(store).await?;
    wait_for_server(client).await;
    let wanted = Wanted::client(node_name);
    let certificate = issue(client, &wanted, &key, Naming::ByKey, PATIENCE)
        .await
        .map_err(BootstrapError::Issue)?;
    let pair = Pair { certificate, key: key.serialize_pem() };
    let (store, now) = (Arc::clone(store), clock.now());
    let kept = off_thread(move || {
        store.update(PairName::Client, &pair, now)?;
        if let Err(error) = store.set_pending_key(None) {
            tracing::warn!(%error, "the key of the finished request stays behind");
        }
        Ok(pair)
    });
    kept.await.map_err(BootstrapError::Store)
}

/// The key of a request under way, or a new one, kept so that a restart does not begin again.
async fn pending_key(store: &Arc<dyn CertStore>) -> Result<KeyPair, BootstrapError> {
    let at_work = Arc::clone(store);
    let kept = off_thread(move || at_work.pending_key()).await.map_err(BootstrapError::Store)?;
    if let Some(key) = kept.and_then(|text| KeyPair::from_pem(&text).ok()) {
        return Ok(key);
    }
    let key = KeyPair::generate().map_err(BootstrapError::Key)?;
    let (at_work, text) = (Arc::clone(store), key.serialize_pem());
    let noted = off_thread(move || at_work.set_pending_key(Some(&text))).await;
    noted.map_err(BootstrapError::Store)?;
    Ok(key)
}

/// A request to a server that is not up yet would only fail; after a minute its error is the better
/// message.
async fn wait_for_server(client: &Client) {
    let deadline = Instant::now() + SERVER_UP;
    let place = Place::raw("/healthz");
    while Instant::now() < deadline {
        match client.get_text(&place).await {
            Ok(_) => return,
            // Any answer will do: the server is there.
            Err(error) if error.code.is_some() => return,
            Err(error) => tracing::info!(%error, "waiting for the API server"),
        }
        sleep(Duration::from_secs(2).mul_f64(1.0 + 0.2 * fastrand::f64())).await;
    }
}
