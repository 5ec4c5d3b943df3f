//! Keys of pods, each with the proof that whoever shows it has the key: an empty certificate
//! request, signed with it.
//!
//! ring makes and uses most kinds. It signs with RSA keys but makes none, and has never heard of
//! P-521: those come from libraries of their own. Making an RSA key takes seconds of a core, so
//! callers do not wait for it on a thread of the runtime. Refuses: kinds that upstream does not
//! know.

use p521::{
    ecdsa::{Signature, SigningKey, signature::Signer as _},
    elliptic_curve::{Generate as _, common::getrandom::SysRng, rand_core::UnwrapErr},
    pkcs8::{EncodePrivateKey as _, EncodePublicKey as _, LineEnding},
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, SignatureAlgorithm};
use rsa::RsaPrivateKey;
use rustls_pki_types::PrivatePkcs8KeyDer;

/// A key (PEM), and an empty request (DER) signed with it.
pub(crate) type KeyAndProof = (String, Vec<u8>);

/// Makes a key of that kind, in the API's words. Blocking.
pub(crate) fn key_and_proof(kind: &str) -> Result<KeyAndProof, String> {
    match kind {
        "RSA3072" => rsa_key(3072),
        "RSA4096" => rsa_key(4096),
        "ECDSAP256" => ring_key(&rcgen::PKCS_ECDSA_P256_SHA256),
        "ECDSAP384" => ring_key(&rcgen::PKCS_ECDSA_P384_SHA384),
        "ECDSAP521" => p521_key(),
        "ED25519" => ring_key(&rcgen::PKCS_ED25519),
        _ => Err(format!("unknown key type {kind:?}")),
    }
}

fn ring_key(algorithm: &'static SignatureAlgorithm) -> Result<KeyAndProof, String> {
    let key = KeyPair::generate_for(algorithm).map_err(|error| error.to_string())?;
    proven(&key)
}

fn rsa_key(bits: usize) -> Result<KeyAndProof, String> {
    let told = |what: &str| format!("while generating RSA {bits} key: {what}");
    let key = RsaPrivateKey::new(&mut UnwrapErr(SysRng), bits);
    let key = key.map_err(|error| told(&error.to_string()))?;
    let der = key.to_pkcs8_der();
    let der = der.map_err(|error| told(&error.to_string()))?;
    let der = PrivatePkcs8KeyDer::from(der.as_bytes());
    // From here on it is ring's: which looks the key over before it takes it.
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_RSA_SHA256);
    proven(&key.map_err(|error| told(&error.to_string()))?)
}

fn proven(key: &KeyPair) -> Result<KeyAndProof, String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let proof = params.serialize_request(key);
    let proof = proof.map_err(|error| error.to_string())?;
    Ok((key.serialize_pem(), proof.der().to_vec()))
}

fn p521_key() -> Result<KeyAndProof, String> {
    /// `ecdsa-with-SHA512`.
    const ALGORITHM: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04];
    let told = |what: String| format!("while generating ECDSA P521 key: {what}");
    let key = SigningKey::try_generate().map_err(|error| told(error.to_string()))?;
    let public = key.verifying_key().to_public_key_der();
    let public = public.map_err(|error| told(error.to_string()))?;
    // Version 0, nobody's name, the key, and nothing else that is asked for.
    let parts: [&[u8]; 4] = [&[0x02, 1, 0], &[0x30, 0], public.as_bytes(), &[0xa0, 0]];
    let request = der(0x30, &parts.concat());
    let signature: Signature = key.sign(&request);
    let mut bits = vec![0];
    bits.extend_from_slice(signature.to_der().as_bytes());
    let parts = [request, der(0x30, &ALGORITHM), der(0x03, &bits)];
    let proof = der(0x30, &parts.concat());
    let text = key.to_pkcs8_pem(LineEnding::LF);
    let text = text.map_err(|error| told(error.to_string()))?;
    Ok((text.to_string(), proof))
}

/// One value as DER writes it: what it is, how long, and its content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let n_zeros = length.iter().take_while(|byte| **byte == 0).count();
    let digits = &length[n_zeros..];
    let mut made = vec![tag];
    match digits {
        [] => made.push(0),
        [short] if *short < 0x80 => made.push(*short),
        long => {
            made.push(0x80 | u8::try_from(long.len()).unwrap_or(u8::MAX));
            made.extend_from_slice(long);
        }
    }
    made.extend_from_slice(content);
    made
}

#[cfg(test)]
mod tests {
    use p521::ecdsa::{DerSignature, VerifyingKey, signature::Verifier as _};
    use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer as _};

    use super::*;

    #[test]
    fn keys_are_made_as_they_are_asked_for_or_refused_in_words() {
        // Four thousand bits are made like three thousand, and take longer.
        for (kind, algorithm) in [
            ("RSA3072", "1.2.840.113549.1.1.1"),
            ("ECDSAP256", "1.2.840.10045.2.1"),
            ("ECDSAP384", "1.2.840.10045.2.1"),
            ("ECDSAP521", "1.2.840.10045.2.1"),
            ("ED25519", "1.3.101.112"),
        ] {
            let (key, proof) = key_and_proof(kind).unwrap();
            assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{kind}");
            assert!(key.trim_end().ends_with("-----END PRIVATE KEY-----"));
            let (rest, request) = X509CertificationRequest::from_der(&proof).unwrap();
            let info = &request.certification_request_info;
            assert!(rest.is_empty() && info.subject.as_raw() == [0x30, 0]);
            let found = info.subject_pki.algorithm.algorithm.to_id_string();
            assert_eq!(found, algorithm, "{kind}");
        }
        assert_eq!(key_and_proof("DSA").unwrap_err(), "unknown key type \"DSA\"");
    }

    #[test]
    fn no_key_is_made_twice() {
        for kind in ["ECDSAP256", "ECDSAP521", "ED25519"] {
            let (one, other) = (key_and_proof(kind).unwrap(), key_and_proof(kind).unwrap());
            assert_ne!(one.0, other.0, "{kind}");
        }
    }

    #[test]
    fn the_proof_of_our_own_making_is_signed_with_the_key_that_it_shows() {
        let (_, proof) = key_and_proof("ECDSAP521").unwrap();
        let (_, request) = X509CertificationRequest::from_der(&proof).unwrap();
        let info = &request.certification_request_info;
        let public = info.subject_pki.subject_public_key.data.as_ref();
        let public = VerifyingKey::from_sec1_bytes(public).unwrap();
        let signature = DerSignature::try_from(request.signature_value.data.as_ref()).unwrap();
        public.verify(info.raw, &signature).unwrap();
        assert_eq!(request.signature_algorithm.algorithm.to_id_string(), "1.2.840.10045.4.3.4");
    }

    #[test]
    fn lengths_are_as_short_as_they_can_be() {
        let check = |n: usize, expected: &[u8]| {
            let made = der(0x30, &vec![7; n]);
            assert_eq!(made[..expected.len()], *expected);
            assert_eq!(made.len(), expected.len() + n);
        };
        check(0, &[0x30, 0]);
        check(1, &[0x30, 1]);
        check(127, &[0x30, 127]);
        check(128, &[0x30, 0x81, 128]);
        check(300, &[0x30, 0x82, 1, 44]);
    }
}
