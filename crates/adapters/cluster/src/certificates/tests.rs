use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_ports::{
    Clock as _, Measured as _,
    metrics::{self, process},
};
use ferrolet_types::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::NodeAddress};
use rcgen::{CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;
use tokio::sync::watch;

use super::{
    rotate::{Plan, plan},
    *,
};
use crate::fake::{FakeApi, TokioClock};

const ROOT: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[derive(Default)]
pub(super) struct Store {
    pairs: Mutex<Vec<(String, Pair)>>,
    pending: Mutex<Option<String>>,
    files: Mutex<BTreeMap<String, String>>,
}

impl Store {
    pub(super) fn remove(&self, file: &str) {
        self.files.lock().unwrap().remove(file);
    }
}

impl CertStore for Store {
    fn prepare(&self) -> io::Result<()> {
        Ok(())
    }
    fn read(&self, file: &str) -> io::Result<Option<String>> {
        Ok(self.files.lock().unwrap().get(file).cloned())
    }
    fn write(&self, file: &str, text: &str, _mode: u32) -> io::Result<()> {
        self.files.lock().unwrap().insert(file.to_owned(), text.to_owned());
        Ok(())
    }
    fn current(&self, name: PairName) -> io::Result<Option<Pair>> {
        let pairs = self.pairs.lock().unwrap();
        let found = pairs.iter().rfind(|(file, _)| file.starts_with(name.prefix()));
        Ok(found.map(|(_, pair)| pair.clone()))
    }
    fn update(&self, name: PairName, pair: &Pair, now: Timestamp) -> io::Result<()> {
        let entry = (name.file_at(now), pair.clone());
        self.pairs.lock().unwrap().push(entry);
        Ok(())
    }
    fn current_path(&self, name: PairName) -> PathBuf {
        PathBuf::from("/pki").join(name.current_file())
    }
    fn pending_key(&self) -> io::Result<Option<String>> {
        Ok(self.pending.lock().unwrap().clone())
    }
    fn set_pending_key(&self, key: Option<&str>) -> io::Result<()> {
        *self.pending.lock().unwrap() = key.map(str::to_owned);
        Ok(())
    }
}

/// Signs every request that comes, like a controller would; names are kept as asked.
fn start_signer(api: &FakeApi) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "signer");
    let issuer = Issuer::new(params, key);
    let api = api.clone();
    tokio::spawn(async move {
        loop {
            let is_open = |it: &serde_json::Value| it["status"].is_null();
            api.until("a request to sign", |api| api.objects_under(ROOT).iter().any(is_open)).await;
            for mut request in api.objects_under(ROOT).into_iter().filter(is_open) {
                let text: ByteString =
                    serde_json::from_value(request["spec"]["request"].clone()).unwrap();
                let text = String::from_utf8(text.0).unwrap();
                let mut asked = CertificateSigningRequestParams::from_pem(&text).unwrap();
                asked.params.not_before = rcgen::date_time_ymd(2027, 1, 1);
                asked.params.not_after = rcgen::date_time_ymd(2028, 1, 1);
                let signed = asked.signed_by(&issuer).unwrap().pem();
                let signed = serde_json::to_value(ByteString(signed.into_bytes())).unwrap();
                request["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}], "certificate": signed});
                let name = request["metadata"]["name"].as_str().unwrap().to_owned();
                api.put(&format!("{ROOT}/{name}"), request);
            }
        }
    });
}

#[test]
fn file_names_are_upstreams() {
    let now = Timestamp("2026-11-05T07:08:09Z".parse().unwrap());
    assert_eq!(PairName::Client.file_at(now), "kubelet-client-2026-11-05-07-08-09.pem");
    assert_eq!(PairName::Server.current_file(), "kubelet-server-current.pem");
}

#[test]
fn a_self_signed_certificate_says_what_it_should_and_fits_its_key() {
    let now = TokioClock.now();
    let addresses = BTreeSet::from(["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]);
    let pair = self_signed("node.example", &addresses, now).unwrap();
    let facts = CertificateFacts::read(&pair.certificate).unwrap();
    assert_eq!(facts.dns_names, BTreeSet::from(["node.example".to_owned()]));
    assert_eq!(facts.addresses, addresses);
    assert!(
        facts.not_before < now && facts.not_after > now.after(Duration::from_secs(364 * 86_400))
    );
    crate::tls::certified_key(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
    let text = pair.to_pem();
    assert!(Pair::from_pem(&text) == Some(pair));
    assert!(Pair::from_pem("nothing").is_none());
}

#[test]
fn serving_certificates_are_for_the_nodes_addresses_once_it_has_an_ip() {
    let check = |addresses: &[(&str, &str)], expected: Option<(&[&str], &[&str])>| {
        let addresses: Vec<NodeAddress> = addresses
            .iter()
            .map(|(kind, address)| NodeAddress {
                type_: (*kind).to_owned(),
                address: (*address).to_owned(),
            })
            .collect();
        let wanted = serving_for("n", &addresses, Least::Address);
        let expected = expected.map(|(dns, ips)| Wanted {
            name: PairName::Server,
            common_name: "system:node:n".to_owned(),
            dns_names: dns.iter().map(|it| (*it).to_owned()).collect(),
            addresses: ips.iter().map(|it| it.parse().unwrap()).collect(),
        });
        assert_eq!(wanted, expected);
    };
    check(&[], None);
    check(&[("Hostname", "h")], None);
    check(&[("Hostname", "h"), ("InternalIP", "1.2.3.4")], Some((&["h"], &["1.2.3.4"])));
    check(
        &[("Hostname", "1.2.3.4"), ("ExternalDNS", "d"), ("ExternalIP", "::1"), ("InternalIP", "")],
        Some((&["d"], &["1.2.3.4", "::1"])),
    );
}

#[test]
fn certificates_are_rotated_late_in_life_or_when_they_do_not_fit() {
    let born = Timestamp::from_second(1_000_000);
    let at = |secs: u64| born.after(Duration::from_secs(secs));
    let facts = |common_name: &str| CertificateFacts {
        not_before: born,
        not_after: at(1000),
        common_name: common_name.to_owned(),
        organizations: BTreeSet::from(["system:nodes".to_owned()]),
        dns_names: BTreeSet::new(),
        addresses: BTreeSet::new(),
    };
    let wanted = Wanted::client("n");
    let good = facts("system:node:n");
    let check = |wanted: Option<&Wanted>,
                 current: Option<&CertificateFacts>,
                 now: u64,
                 jitter: f64,
                 expected: Plan| {
        assert_eq!(plan(wanted, current, at(now), jitter), expected, "{now} {jitter}");
    };
    check(None, Some(&good), 0, 0.0, Plan::Nothing);
    check(Some(&wanted), None, 0, 0.0, Plan::Ask);
    check(Some(&wanted), Some(&good), 0, 0.0, Plan::WaitUntil(at(700)));
    check(Some(&wanted), Some(&good), 699, 1.0, Plan::WaitUntil(at(900)));
    check(Some(&wanted), Some(&good), 700, 0.0, Plan::Ask);
    check(Some(&wanted), Some(&good), 2000, 1.0, Plan::Ask);
    check(Some(&wanted), Some(&facts("system:node:m")), 0, 0.0, Plan::Ask);
}

#[tokio::test(start_paused = true)]
async fn a_node_joins_with_a_request_that_survives_a_restart() {
    let api = FakeApi::new();
    let store = Arc::new(Store::default());
    let door: Arc<dyn CertStore> = store.clone();
    let client = api.client();
    let first = bootstrap(&client, &door, &TokioClock, "me");
    let cut_off = tokio::time::timeout(Duration::from_secs(60), first).await;
    assert!(cut_off.is_err());
    assert!(store.pending.lock().unwrap().is_some());
    let request = api.objects_under(ROOT).remove(0);
    assert_eq!(request["spec"]["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!(request["spec"]["usages"], json!(["digital signature", "client auth"]));
    start_signer(&api);
    let pair = bootstrap(&client, &door, &TokioClock, "me").await.unwrap();
    assert_eq!(api.objects_under(ROOT).len(), 1);
    let facts = CertificateFacts::read(&pair.certificate).unwrap();
    assert!(Wanted::client("me").is_satisfied_by(&facts));
    assert!(store.current(PairName::Client).unwrap() == Some(pair));
    assert_eq!(*store.pending.lock().unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_says_so() {
    let api = FakeApi::new();
    let (denied, store) = (api.clone(), Arc::new(Store::default()) as Arc<dyn CertStore>);
    tokio::spawn(async move {
        denied.until("request", |api| !api.objects_under(ROOT).is_empty()).await;
        let mut request = denied.objects_under(ROOT).remove(0);
        request["status"] =
            json!({"conditions": [{"type": "Denied", "status": "True", "message": "not you"}]});
        let name = request["metadata"]["name"].as_str().unwrap().to_owned();
        denied.put(&format!("{ROOT}/{name}"), request);
    });
    let error = bootstrap(&api.client(), &store, &TokioClock, "me").await.err();
    let BootstrapError::Issue(error) = error.unwrap() else { panic!("another error") };
    assert!(error.to_string().ends_with("was denied: not you"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_serving_certificate_follows_the_nodes_addresses() {
    let api = FakeApi::new();
    start_signer(&api);
    let (wish, wanted) = watch::channel(None);
    let (current, mut pairs) = watch::channel(None);
    let store = Arc::new(Store::default());
    let rotation = Rotation {
        client: api.client(),
        store: Arc::clone(&store) as Arc<dyn CertStore>,
        clock: Arc::new(TokioClock),
        name: PairName::Server,
        wanted,
        current,
        outcome: watch::Sender::new(RotationOutcome::default()),
    };
    let outcome = rotation.outcome.subscribe();
    tokio::spawn(rotation.run());
    let addresses = |ip: &str| {
        let address = NodeAddress { type_: "InternalIP".to_owned(), address: ip.to_owned() };
        serving_for("me", &[address], Least::Address)
    };
    for ip in ["10.0.0.1", "10.0.0.2"] {
        wish.send_replace(addresses(ip));
        pairs.changed().await.unwrap();
        let text = pairs.borrow_and_update().clone().unwrap().certificate;
        let facts = CertificateFacts::read(&text).unwrap();
        assert!(facts.addresses.contains(&ip.parse().unwrap()), "{ip}");
    }
    assert_eq!(outcome.borrow().n_rotated, 2);
    assert_eq!(store.pairs.lock().unwrap().len(), 2);
    let shown = CertificateMetrics::new(Arc::new(TokioClock)).samples();
    let ttl =
        shown.iter().find(|it| it.is_of(metrics::KUBELET_CERTIFICATE_MANAGER_SERVER_TTL_SECONDS));
    assert!(ttl.is_some_and(|it| it.value.total() > 0.0), "{shown:?}");
    let errors = metrics::KUBELET_SERVER_EXPIRATION_RENEW_ERRORS;
    assert_eq!(process().samples_of(errors), [errors.sample([], 0.0)]);
    let ages = process().samples_of(metrics::KUBELET_CERTIFICATE_MANAGER_SERVER_ROTATION_SECONDS);
    assert_eq!(ages.len(), 1, "the first was replaced");
    drop(wish);
}
