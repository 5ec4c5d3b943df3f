//! One certificate signing request, from its creation to the certificate.

use std::time::Duration;

use ferrolet_ports::{ApiError, ApiErrorKind};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use rcgen::{KeyPair, PublicKeyData as _};
use tokio::{sync::mpsc, time::timeout};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

use super::Wanted;
use crate::{
    client::{Client, Place, Selector},
    watch::{self, Scope, WatchEvent},
};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The request could not be made.
    #[error("make certificate request")]
    Make(#[source] rcgen::Error),
    /// The request could not be sent.
    #[error("send certificate request")]
    Send(#[source] ApiError),
    /// There is one of that name for another key.
    #[error("certificate request {name} is there already, for another key or signer")]
    Foreign {
        /// Its name.
        name: String,
    },
    /// Somebody said no, or the signer could not.
    #[error("certificate request {name} was {outcome}: {message}")]
    Refused {
        /// Its name.
        name: String,
        /// `denied` or `failed`.
        outcome: &'static str,
        /// Why.
        message: String,
    },
    /// It was deleted while we waited.
    #[error("certificate request {name} is gone")]
    Gone {
        /// Its name.
        name: String,
    },
    /// Nobody signed it in time.
    #[error("certificate request {name} was not signed within {patience:?}")]
    Unsigned {
        /// Its name.
        name: String,
        /// How long we waited.
        patience: Duration,
    },
}

/// How the request is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// By its key: asking twice is asking once.
    ByKey,
    /// By the server.
    Generated,
}

/// Asks for a certificate and waits for it. Answers with the certificate (PEM).
pub(super) async fn issue(
    client: &Client,
    wanted: &Wanted,
    key: &KeyPair,
    naming: Naming,
    patience: Duration,
) -> Result<String, IssueError> {
    let name = submit(client, wanted, key, naming).await?;
    tracing::info!(
        request = name,
        signer = wanted.signer(),
        "waiting for a certificate request to be approved and signed"
    );
    match timeout(patience, signed(client, &name)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(IssueError::Unsigned { name, patience }),
    }
}

async fn submit(
    client: &Client,
    wanted: &Wanted,
    key: &KeyPair,
    naming: Naming,
) -> Result<String, IssueError> {
    let request = wanted.request(key).map_err(IssueError::Make)?;
    let (name, prefix) = match naming {
        Naming::ByKey => (Some(wanted.request_name(key)), None),
        Naming::Generated => (None, Some("csr-".to_owned())),
    };
    let object = CertificateSigningRequest {
        metadata: ObjectMeta { name: name.clone(), generate_name: prefix, ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: wanted.signer().to_owned(),
            usages: Some(wanted.usages().map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let all = Place::all::<CertificateSigningRequest>(None);
    let created = client.create::<_, CertificateSigningRequest>(&all, &object);
    match (created.await, name) {
        (Ok(created), _) => Ok(created.metadata.name.unwrap_or_default()),
        (Err(error), Some(name)) if error.kind == ApiErrorKind::AlreadyExists => {
            let place = Place::one::<CertificateSigningRequest>(None, &name);
            let found = client.get(&place).await.map_err(IssueError::Send)?;
            if is_ours(&found, wanted, key) { Ok(name) } else { Err(IssueError::Foreign { name }) }
        }
        (Err(error), _) => Err(IssueError::Send(error)),
    }
}

/// True when the request is for the same key and signer.
fn is_ours(found: &CertificateSigningRequest, wanted: &Wanted, key: &KeyPair) -> bool {
    if found.spec.signer_name != wanted.signer() {
        return false;
    }
    let Ok((_, block)) = x509_parser::pem::parse_x509_pem(&found.spec.request.0) else {
        return false;
    };
    match X509CertificationRequest::from_der(&block.contents) {
        Ok((_, request)) => {
            let theirs = request.certification_request_info.subject_pki;
            theirs.raw == key.subject_public_key_info()
        }
        Err(_) => false,
    }
}

/// Waits until the request is decided.
async fn signed(client: &Client, name: &str) -> Result<String, IssueError> {
    let scope = Scope { namespace: None, selector: Selector::named(name) };
    let (sink, mut events) = mpsc::channel(1);
    let mut watch =
        std::pin::pin!(watch::run::<CertificateSigningRequest>(client.clone(), scope, sink));
    let gone = || IssueError::Gone { name: name.to_owned() };
    loop {
        let event = tokio::select! {
            // Both futures stay where they are between rounds.
            () = &mut watch => None,
            event = events.recv() => event,
        };
        let request = match event {
            Some(WatchEvent::Restarted { objects, .. }) => {
                objects.into_iter().next().ok_or_else(gone)?
            }
            Some(WatchEvent::Applied(request)) => request,
            Some(WatchEvent::Deleted(_)) | None => return Err(gone()),
        };
        if let Some(outcome) = decided(name, &request) {
            return outcome;
        }
    }
}

/// What became of the request; `None` while nobody has decided, or it is approved and not yet
/// signed.
fn decided(name: &str, request: &CertificateSigningRequest) -> Option<Result<String, IssueError>> {
    let status = request.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|it| it.type_ == kind);
    for (kind, outcome) in [("Denied", "denied"), ("Failed", "failed")] {
        if let Some(condition) = find(kind) {
            let message = condition.message.as_ref().or(condition.reason.as_ref());
            return Some(Err(IssueError::Refused {
                name: name.to_owned(),
                outcome,
                message: message.cloned().unwrap_or_default(),
            }));
        }
    }
    find("Approved")?;
    let certificate = status.certificate.as_ref().filter(|it| !it.0.is_empty())?;
    String::from_utf8(certificate.0.clone()).ok().map(Ok)
}
