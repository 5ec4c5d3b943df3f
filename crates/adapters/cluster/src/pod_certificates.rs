//! Requests for certificates in pods' names: a key, the proof that it is ours, and the object that asks.
//!
//! The key is made here and handed to the caller alone. Refuses: kinds of keys that the library underneath cannot make.

use ferrolet_ports::{ApiError, ApiErrorKind, CertificateAsk, RequestedCertificate};
use k8s_openapi::{
    ByteString,
    api::{
        certificates::v1::{PodCertificateRequest, PodCertificateRequestSpec},
        core::v1::{Node, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::client::{Client, Place};

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
    let (key, proof) = key_and_proof(&ask.key_type).map_err(|message| ApiError {
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
    Ok(RequestedCertificate {
        name: made.metadata.name.unwrap_or_default(),
        key,
    })
}

/// A key (PEM), and an empty request (DER) signed with it.
fn key_and_proof(kind: &str) -> Result<(String, Vec<u8>), String> {
    let algorithm = match kind {
        "ECDSAP256" => &rcgen::PKCS_ECDSA_P256_SHA256,
        "ECDSAP384" => &rcgen::PKCS_ECDSA_P384_SHA384,
        "ED25519" => &rcgen::PKCS_ED25519,
        "RSA3072" | "RSA4096" | "ECDSAP521" => {
            return Err(format!("keys of type {kind:?} are not supported yet"));
        }
        _ => return Err(format!("unknown key type {kind:?}")),
    };
    let told = |error: rcgen::Error| error.to_string();
    let key = KeyPair::generate_for(algorithm).map_err(told)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let proof = params.serialize_request(&key).map_err(told)?;
    Ok((key.serialize_pem(), proof.der().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_as_they_are_asked_for_or_refused_in_words() {
        for kind in ["ECDSAP256", "ECDSAP384", "ED25519"] {
            let (key, proof) = key_and_proof(kind).unwrap();
            assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"), "{kind}");
            assert!(!proof.is_empty(), "{kind}");
            assert_ne!(key_and_proof(kind).unwrap().0, key, "{kind}");
        }
        assert_eq!(
            key_and_proof("DSA").unwrap_err(),
            "unknown key type \"DSA\""
        );
    }
}
