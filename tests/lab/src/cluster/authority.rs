//! The cluster's certificate authority: made at start, forgotten at the end.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// Signs certificates for one cluster.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, both PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// A new authority with a key of its own.
    pub fn new(name: &str) -> Result<Authority> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = subject(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        Ok(Authority { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// The authority's own certificate, PEM.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// The authority's key, PEM: the controller manager signs with it too.
    #[must_use]
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A user of the cluster, by name and groups.
    pub fn client(&self, name: &str, groups: &[&str]) -> Result<Identity> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = subject(name, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// A server that is reached under these names and addresses.
    pub fn server(&self, name: &str, reached_as: &[String]) -> Result<Identity> {
        let mut params = CertificateParams::new(reached_as)?;
        params.distinguished_name = subject(name, &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn subject(name: &str, groups: &[&str]) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    // rcgen keeps one value per type, which is all that our users need.
    for group in groups {
        subject.push(DnType::OrganizationName, *group);
    }
    subject
}
