//! The certificate that the main server shows, and what keeps it current.
//!
//! ```text
//!  serverTLSBootstrap ──────────────► requested from the cluster, for the node's addresses, rotated
//!  tlsCertFile, tlsPrivateKeyFile ──► read, and read again when they change
//!  neither ─────────────────────────► kubelet.crt, kubelet.key in the certificate directory, made once by ourselves
//! ```
//!
//! The first line that applies wins, as with upstream. Out: a [`ServingCertificate`] that always holds the newest pair; with
//! the first line it may hold none for a while, and then handshakes fail. Refuses: showing a pair that does not fit together.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use ferrolet_cluster::{
    certificates::{
        CertStore, CertificateFacts, Pair, PairName, Rotation, RotationOutcome, Wanted,
        self_signed, serving_for,
    },
    client::Client,
    tls::certified_key,
};
use ferrolet_config::Loaded;
use ferrolet_host::watch::DirectoryWatch;
use ferrolet_ports::Clock;
use ferrolet_server::ServingCertificate;
use k8s_openapi::api::core::v1::Node;
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use super::cert_store::FileStore;

/// Files are read again this often even if no change is seen, as upstream does.
pub(super) const READ_AGAIN: Duration = Duration::from_secs(60);
/// A directory that never rests is looked at no more often than this.
pub(super) const AT_MOST: Duration = Duration::from_secs(1);
const OWN_CERTIFICATE: &str = "kubelet.crt";
const OWN_KEY: &str = "kubelet.key";

/// Who can be asked for a certificate, and for which addresses.
pub(super) struct Signer {
    /// Speaks in the node's name.
    pub(super) client: Client,
    /// The node as the cluster knows it.
    pub(super) known: watch::Receiver<Option<Arc<Node>>>,
}

/// Finds the certificate, starts what keeps it current, and answers where it is shown.
pub(super) fn start(
    loaded: &Loaded,
    node_name: &str,
    signer: Option<Signer>,
    clock: &Arc<dyn Clock>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Arc<ServingCertificate>> {
    let tls = &loaded.config.tls;
    let open = || FileStore::open(&loaded.flags.cert_dir);
    let files = Files::configured(tls.cert_file.as_deref(), tls.private_key_file.as_deref())?;
    let pairs = match (tls.server_bootstrap, files) {
        (true, files) => requested(open()?, files, node_name, signer, clock, tasks),
        (false, Some(files)) => {
            let first = files.read()?;
            let (shown, pairs) = watch::channel(Some(first));
            if loaded.config.gates.enabled("ReloadKubeletServerCertificateFile") {
                tasks.spawn(files.follow(shown));
            }
            pairs
        }
        (false, None) => {
            let own = own(&open()?, node_name, clock.as_ref())?;
            watch::channel(Some(own)).1
        }
    };
    let certificate = ServingCertificate::none_yet();
    show(&certificate, &pairs).context("use the serving certificate")?;
    let shown = certificate.clone();
    tasks.spawn(keep_showing(shown, pairs));
    Ok(certificate)
}

fn show(
    certificate: &ServingCertificate,
    pairs: &watch::Receiver<Option<Pair>>,
) -> Result<(), ferrolet_server::PemError> {
    match &*pairs.borrow() {
        Some(pair) => certificate.set_pem(pair.certificate.as_bytes(), pair.key.as_bytes()),
        None => Ok(()),
    }
}

async fn keep_showing(
    certificate: Arc<ServingCertificate>,
    mut pairs: watch::Receiver<Option<Pair>>,
) {
    while pairs.changed().await.is_ok() {
        match show(&certificate, &pairs) {
            Ok(()) => tracing::info!("Serving with a new certificate"),
            Err(error) => tracing::error!(%error, "The new serving certificate cannot be used"),
        }
    }
    // A certificate that nobody renews any more is shown as long as the agent lives.
    std::future::pending().await
}

/// Starts asking the cluster. What was obtained before is shown until there is something newer.
fn requested(
    store: FileStore,
    files: Option<Files>,
    node_name: &str,
    signer: Option<Signer>,
    clock: &Arc<dyn Clock>,
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<Option<Pair>> {
    let kept = store.current(PairName::Server).unwrap_or_else(|error| {
        tracing::warn!(%error, "The serving certificate in the certificate directory cannot be read");
        None
    });
    let given = || files.and_then(|files| files.read().ok());
    let first = kept.or_else(given).filter(|pair| {
        let facts = CertificateFacts::read(&pair.certificate);
        facts.is_ok_and(|facts| !facts.is_expired(clock.now()))
    });
    let (current, pairs) = watch::channel(first);
    let Some(Signer { client, mut known }) = signer else {
        tracing::warn!(
            "serverTLSBootstrap needs a cluster: there is nobody to sign the serving certificate"
        );
        return pairs;
    };
    let (wish, wanted) = watch::channel(None);
    let rotation = Rotation {
        client,
        store: Arc::new(store),
        clock: clock.clone(),
        name: PairName::Server,
        wanted,
        current,
        outcome: watch::Sender::new(RotationOutcome::default()),
    };
    tasks.spawn(rotation.run());
    let node_name = node_name.to_owned();
    tasks.spawn(async move {
        loop {
            let now = wish_of(&node_name, known.borrow_and_update().as_deref());
            wish.send_if_modified(|wish| {
                // A node that lost its addresses for a moment keeps the certificate for those it had.
                let is_news = now.is_some() && *wish != now;
                if is_news {
                    *wish = now;
                }
                is_news
            });
            if known.changed().await.is_err() {
                return;
            }
        }
    });
    pairs
}

fn wish_of(node_name: &str, node: Option<&Node>) -> Option<Wanted> {
    let addresses = node?.status.as_ref()?.addresses.as_deref()?;
    serving_for(node_name, addresses)
}

/// The node's own pair: found, or made.
fn own(store: &FileStore, host: &str, clock: &dyn Clock) -> anyhow::Result<Pair> {
    let read = |file: &str| store.read(file).with_context(|| format!("read {file} in --cert-dir"));
    match (read(OWN_CERTIFICATE)?, read(OWN_KEY)?) {
        (Some(certificate), Some(key)) => Ok(Pair { certificate, key }),
        (None, None) => {
            let pair = self_signed(host, &BTreeSet::new(), clock.now())
                .context("make a serving certificate")?;
            store
                .write(OWN_KEY, &pair.key, 0o600)
                .and_then(|()| store.write(OWN_CERTIFICATE, &pair.certificate, 0o644))
                .context("store the serving certificate")?;
            tracing::info!("Made a serving certificate of our own");
            Ok(pair)
        }
        (certificate, _) => {
            let (there, missing) = match certificate {
                Some(_) => (OWN_CERTIFICATE, OWN_KEY),
                None => (OWN_KEY, OWN_CERTIFICATE),
            };
            bail!("{there} is in --cert-dir, but {missing} is not: add it, or remove both")
        }
    }
}

/// Watches a file. Its directory and not its name, because mounted secrets change behind a link beside them.
pub(super) fn watch_around(file: &Path) -> DirectoryWatch {
    let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
    DirectoryWatch::directory(parent.unwrap_or(Path::new(".")))
}

/// The configured files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn configured(certificate: Option<&Path>, key: Option<&Path>) -> anyhow::Result<Option<Self>> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(Self { certificate: certificate.to_owned(), key: key.to_owned() }))
            }
            (None, None) => Ok(None),
            _ => bail!("tlsCertFile and tlsPrivateKeyFile need each other"),
        }
    }

    /// Both files, if they fit together.
    fn read(&self) -> anyhow::Result<Pair> {
        let text = |field: &str, path: &Path| {
            fs::read_to_string(path).with_context(|| format!("read {field} {}", path.display()))
        };
        let pair = Pair {
            certificate: text("tlsCertFile", &self.certificate)?,
            key: text("tlsPrivateKeyFile", &self.key)?,
        };
        certified_key(pair.certificate.as_bytes(), pair.key.as_bytes())
            .context("use tlsCertFile with tlsPrivateKeyFile")?;
        Ok(pair)
    }

    /// Sends each new pair.
    async fn follow(self, shown: watch::Sender<Option<Pair>>) {
        let (mut one, mut other) = (watch_around(&self.certificate), watch_around(&self.key));
        let mut told = None;
        loop {
            let hint = async {
                tokio::select! {
                    // Cancel-safe: a watch keeps what it has gathered.
                    _ = one.next() => {}
                    _ = other.next() => {}
                }
            };
            // A change that is not seen is found by looking again.
            let _ = timeout(READ_AGAIN, hint).await;
            let files = self.clone();
            let read = spawn_blocking(move || files.read()).await;
            let news = match read.map_err(anyhow::Error::from).and_then(|read| read) {
                Ok(pair) => {
                    told = None;
                    Some(pair)
                }
                // Usually one of two files that are being replaced; the old pair stays.
                Err(error) => {
                    let error = Some(format!("{error:#}"));
                    if error != told {
                        tracing::warn!(error, "The serving certificate's files cannot be used now");
                        told = error;
                    }
                    None
                }
            };
            shown.send_if_modified(|shown| {
                let is_news = news.is_some() && *shown != news;
                if is_news {
                    *shown = news;
                }
                is_news
            });
            sleep(AT_MOST).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_host::SystemClock;
    use ferrolet_types::Timestamp;

    use super::*;

    fn pair(host: &str) -> Pair {
        let now = Timestamp::from_second(1_800_000_000);
        self_signed(host, &BTreeSet::new(), now).unwrap()
    }

    #[test]
    fn a_node_makes_its_certificate_once_and_half_of_one_is_told() {
        let root = tempfile::tempdir().unwrap();
        let store = FileStore::open(root.path()).unwrap();
        let made = own(&store, "me", &SystemClock).unwrap();
        let facts = CertificateFacts::read(&made.certificate).unwrap();
        assert_eq!(facts.dns_names, BTreeSet::from(["me".to_owned()]));
        assert!(own(&store, "me", &SystemClock).unwrap() == made);
        fs::remove_file(root.path().join(OWN_KEY)).unwrap();
        let error = own(&store, "me", &SystemClock).err().unwrap();
        assert!(error.to_string().starts_with("kubelet.crt is in"), "{error}");
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let check = |certificate: Option<&str>, key: Option<&str>, is_fine: bool| {
            let path = |it: Option<&'static str>| it.map(Path::new);
            let certificate = certificate.map(|_| "/tls.crt");
            let key = key.map(|_| "/tls.key");
            let configured = Files::configured(path(certificate), path(key));
            assert_eq!(configured.is_ok(), is_fine, "{certificate:?} {key:?}");
        };
        check(None, None, true);
        check(Some("c"), Some("k"), true);
        check(Some("c"), None, false);
        check(None, Some("k"), false);
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_shown_once_they_fit_together() {
        let root = tempfile::tempdir().unwrap();
        let files =
            Files { certificate: root.path().join("tls.crt"), key: root.path().join("tls.key") };
        let (first, second) = (pair("first"), pair("second"));
        fs::write(&files.certificate, &first.certificate).unwrap();
        assert!(files.read().is_err(), "there is no key");
        fs::write(&files.key, &first.key).unwrap();
        let (shown, mut pairs) = watch::channel(Some(files.read().unwrap()));
        let following = tokio::spawn(files.clone().follow(shown));
        fs::write(&files.certificate, &second.certificate).unwrap();
        let early = timeout(Duration::from_secs(200), pairs.changed()).await;
        assert!(early.is_err(), "a certificate was shown with another's key");
        fs::write(&files.key, &second.key).unwrap();
        pairs.changed().await.unwrap();
        assert!(*pairs.borrow() == Some(second));
        following.abort();
    }

    #[test]
    fn addresses_of_the_node_make_the_wish() {
        let node = |addresses: &[(&str, &str)]| -> Node {
            let addresses: Vec<_> = addresses
                .iter()
                .map(|(kind, address)| serde_json::json!({"type": kind, "address": address}))
                .collect();
            let node = serde_json::json!({"metadata": {}, "status": {"addresses": addresses}});
            serde_json::from_value(node).unwrap()
        };
        let check = |node: Option<Node>, expected: Option<usize>| {
            let wish = wish_of("me", node.as_ref());
            assert_eq!(wish.map(|it| it.addresses.len()), expected);
        };
        check(None, None);
        check(Some(node(&[])), None);
        check(Some(node(&[("Hostname", "me")])), None);
        check(Some(node(&[("Hostname", "me"), ("InternalIP", "10.0.0.1")])), Some(1));
    }
}
