//! Requests for certificates in pods' names: a key, the proof that it is ours, and the object that
//! asks.
//!
//! The key is made for the request and handed to the caller alone. Refuses: keeping it.

use crate::{
    client::{Client, Place},
    pod_keys::key_and_proof,
};
use ferrolet_ports::{ApiError, ApiErrorKind, CertificateAsk, RequestedCertificate};
use k8s_openapi::{
    ByteString,
    api::{
        certificates::v1::{PodCertificateRequest, PodCertificateRequestSpec},
        core::v1::{Node, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

/// Makes a key and asks for a certificate for it.
pub(crate) async fn request(
    client: &Client,
    node_name: &str,
    ask: &CertificateAsk,
) -> Result<RequestedCertificate, ApiError> {
    let (pod, uid) = &ask.pod;
    let namespace = pod.namespace.as_ref();
    let account = Place::one::<ServiceAccount>(Some(namespace), &ask.service_account);
    let account: ServiceAccount = client.get(&account).await?;
    let node: Node = client.get(&Place::one::<Node>(None, node_name)).await?;
    let kind = ask.key_type.clone();
    let made = tokio::task::spawn_blocking(move || key_and_proof(&kind)).await;
    let made = made.unwrap_or_else(|broken| Err(broken.to_string()));
    let (key, proof) = made.map_err(|message| ApiError {
        attempt: "make a key".to_owned(),
        kind: ApiErrorKind::Invalid,
        message,
        code: None,
        causes: Vec::new(),
    })?;
    let request = PodCertificateRequest {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            generate_name: Some("req-".to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: pod.name.to_string(),
                uid: uid.to_string(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: PodCertificateRequestSpec {
            signer_name: ask.signer.clone(),
            pod_name: pod.name.to_string(),
            pod_uid: uid.to_string(),
            service_account_name: ask.service_account.clone(),
            service_account_uid: account.metadata.uid.unwrap_or_default(),
            node_name: node_name.to_owned(),
            node_uid: node.metadata.uid.unwrap_or_default(),
            max_expiration_seconds: ask.longest_life,
            stub_pkc_s10_request: ByteString(proof),
            unverified_user_annotations: Some(ask.annotations.clone()).filter(|it| !it.is_empty()),
        },
        status: None,
    };
    let place = Place::all::<PodCertificateRequest>(Some(namespace));
    let made: PodCertificateRequest = client.create(&place, &request).await?;
    Ok(RequestedCertificate { name: made.metadata.name.unwrap_or_default(), key })
}
