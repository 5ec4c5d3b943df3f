//! Which certificate is wanted: its subject, names and usages; and requests and self-signed ones
//! made from that. Pure but for the randomness of keys.

use std::{collections::BTreeSet, net::IpAddr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ferrolet_types::Timestamp;
use k8s_openapi::api::core::v1::NodeAddress;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType, date_time_ymd,
};
use sha2::{Digest as _, Sha512_256};

use super::{CertificateFacts, Pair, PairName};

const ORGANIZATION: &str = "system:nodes";

/// A certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which of the node's two.
    pub name: PairName,
    /// `system:node:NAME`.
    pub common_name: String,
    /// Host names it must be good for.
    pub dns_names: BTreeSet<String>,
    /// Addresses it must be good for.
    pub addresses: BTreeSet<IpAddr>,
}

impl Wanted {
    /// The client certificate of this node.
    pub fn client(node_name: &str) -> Self {
        Self {
            name: PairName::Client,
            common_name: format!("system:node:{node_name}"),
            dns_names: BTreeSet::new(),
            addresses: BTreeSet::new(),
        }
    }

    /// Who signs it.
    pub fn signer(&self) -> &'static str {
        match self.name {
            PairName::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            PairName::Server => "kubernetes.io/kubelet-serving",
        }
    }

    /// What it is for. Keys are elliptic, so none is for enciphering.
    pub fn usages(&self) -> [&'static str; 2] {
        match self.name {
            PairName::Client => ["digital signature", "client auth"],
            PairName::Server => ["digital signature", "server auth"],
        }
    }

    /// True when a certificate is good for all that is wanted; more does no harm.
    pub fn is_satisfied_by(&self, facts: &CertificateFacts) -> bool {
        facts.common_name == self.common_name
            && facts.organizations.contains(ORGANIZATION)
            && self.dns_names.is_subset(&facts.dns_names)
            && self.addresses.is_subset(&facts.addresses)
    }

    /// The request for it (PEM), signed with this key.
    pub(super) fn request(&self, key: &KeyPair) -> Result<String, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, ORGANIZATION);
        params.distinguished_name.push(DnType::CommonName, self.common_name.as_str());
        params.subject_alt_names = alternative_names(&self.dns_names, &self.addresses)?;
        params.serialize_request(key)?.pem()
    }

    /// A name for the request that is the same for the same key, so that a restart finds it again.
    pub(super) fn request_name(&self, key: &KeyPair) -> String {
        let mut digest = Sha512_256::new();
        let mut write = |part: &[u8]| {
            digest.update(URL_SAFE_NO_PAD.encode(part));
            digest.update(b"|");
        };
        write(&key.subject_public_key_info());
        write(self.common_name.as_bytes());
        write(ORGANIZATION.as_bytes());
        for usage in self.usages() {
            write(usage.as_bytes());
        }
        format!("node-csr-{}", URL_SAFE_NO_PAD.encode(digest.finalize()))
    }
}

/// What a node must have before it asks for a serving certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Least {
    /// An IP address, as a rule.
    Address,
    /// A name will do (gate `AllowDNSOnlyNodeCSR`).
    Name,
}

/// The serving certificate for a node with these addresses; `None` until it has what it must have.
pub fn serving_for(node_name: &str, addresses: &[NodeAddress], least: Least) -> Option<Wanted> {
    let mut wanted = Wanted { name: PairName::Server, ..Wanted::client(node_name) };
    for address in addresses.iter().filter(|it| !it.address.is_empty()) {
        match (address.type_.as_str(), address.address.parse::<IpAddr>()) {
            ("Hostname" | "InternalIP" | "ExternalIP", Ok(ip)) => {
                wanted.addresses.insert(ip);
            }
            ("Hostname" | "InternalDNS" | "ExternalDNS", _) => {
                wanted.dns_names.insert(address.address.clone());
            }
            _ => {}
        }
    }
    let is_enough =
        !wanted.addresses.is_empty() || (least == Least::Name && !wanted.dns_names.is_empty());
    is_enough.then_some(wanted)
}

/// A serving certificate that only says who we are, for a node without a signer: good for a year
/// from now.
pub fn self_signed(
    host: &str,
    addresses: &BTreeSet<IpAddr>,
    now: Timestamp,
) -> Result<Pair, rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = certificate_for(&key, host, addresses, now)?;
    Ok(Pair { certificate, key: key.serialize_pem() })
}

/// The certificate of such a pair, for a key that is there.
pub(super) fn certificate_for(
    key: &KeyPair,
    host: &str,
    addresses: &BTreeSet<IpAddr>,
    now: Timestamp,
) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let subject = format!("{host}@{}", now.0.as_second());
    params.distinguished_name.push(DnType::CommonName, subject);
    let (mut dns_names, mut addresses) = (BTreeSet::new(), addresses.clone());
    match host.parse::<IpAddr>() {
        Ok(ip) => {
            addresses.insert(ip);
        }
        Err(_) => {
            dns_names.insert(host.to_owned());
        }
    }
    params.subject_alt_names = alternative_names(&dns_names, &addresses)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Whole days: a day back for clocks that are late, a year ahead.
    let day = |days: i64| {
        let moment = now.0 + jiff::SignedDuration::from_hours(24 * days);
        let date = moment.to_zoned(jiff::tz::TimeZone::UTC).date();
        let part = |part: i8| u8::try_from(part).unwrap_or(1);
        date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
    };
    params.not_before = day(-1);
    params.not_after = day(365);
    Ok(params.self_signed(key)?.pem())
}

fn alternative_names(
    dns_names: &BTreeSet<String>,
    addresses: &BTreeSet<IpAddr>,
) -> Result<Vec<SanType>, rcgen::Error> {
    let mut names = Vec::new();
    for name in dns_names {
        names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    names.extend(addresses.iter().copied().map(SanType::IpAddress));
    Ok(names)
}
