//! The certificate that the main server shows, and what keeps it current.
//!
//! ```text
//!  serverTLSBootstrap ──────────────► requested from the cluster, for the node's addresses, rotated
//!  tlsCertFile, tlsPrivateKeyFile ──► read, and read again when they change
//!  neither ─────────────────────────► kubelet.crt, kubelet.key in the certificate directory, made once by ourselves
//! ```
//!
//! The first line that applies wins, as with upstream. Out: a channel that always holds the newest
//! pair; with the first line it may hold none for a while, and then handshakes fail. Refuses:
//! showing a pair that does not fit together.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ferrolet_node::NodeState;
use ferrolet_ports::{CertStore, Clock, CredentialFiles, Pair, PairName};
use k8s_openapi::api::core::v1::Node;
use rcgen::KeyPair;
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use super::{
    CertificateFacts, Least, Rotation, RotationOutcome, Wanted, self_signed, serving_for,
    wanted::certificate_for,
};
use crate::{
    client::Client,
    joining::chain,
    tls::{TlsError, certified_key},
};

/// Files are read again this often even if no change is seen, as upstream does.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// A directory that never rests is looked at no more often than this.
const AT_MOST: Duration = Duration::from_secs(1);
const OWN_CERTIFICATE: &str = "kubelet.crt";
const OWN_KEY: &str = "kubelet.key";

/// Where the serving certificate comes from, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingSettings {
    /// `serverTLSBootstrap`: the cluster is asked for it.
    pub is_requested: bool,
    /// `tlsCertFile`.
    pub certificate: Option<PathBuf>,
    /// `tlsPrivateKeyFile`.
    pub key: Option<PathBuf>,
    /// The two files are read again when they change.
    pub follows_files: bool,
    /// From when on the cluster is asked.
    pub least: Least,
}

/// What the search for the certificate needs.
pub struct ServingDoors {
    /// The certificate directory.
    pub store: Arc<dyn CertStore>,
    /// The configured files.
    pub files: Arc<dyn CredentialFiles>,
    /// Who signs; a node on its own has nobody.
    pub signer: Option<Signer>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// Who can be asked for a certificate, and for which addresses.
pub struct Signer {
    /// Speaks in the node's name.
    pub client: Client,
    /// The node as the cluster knows it.
    pub node: watch::Receiver<Arc<NodeState>>,
}

/// Why there is no serving certificate to begin with.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// One of the two files is not configured.
    #[error("tlsCertFile and tlsPrivateKeyFile need each other")]
    HalfConfigured,
    /// A configured file cannot be read.
    #[error("read {field} {}", path.display())]
    Read {
        /// The field that names it.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The two files do not fit together.
    #[error("use tlsCertFile with tlsPrivateKeyFile")]
    Unusable(#[source] TlsError),
    /// The certificate directory cannot be used.
    #[error("prepare the certificate directory")]
    Directory(#[source] io::Error),
    /// A file of the certificate directory cannot be read.
    #[error("read {file} in --cert-dir")]
    ReadOwn {
        /// Which.
        file: &'static str,
        /// Why.
        source: io::Error,
    },
    /// One of our own two files is missing.
    #[error("{there} is in --cert-dir, but {missing} is not: add it, or remove both")]
    HalfThere {
        /// The one that is there.
        there: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// Our own cannot be made.
    #[error("make a serving certificate")]
    Make(#[source] rcgen::Error),
    /// Our own cannot be kept.
    #[error("store the serving certificate")]
    Store(#[source] io::Error),
}

/// Finds the certificate, starts what keeps it current, and answers where it is shown.
pub fn serving_pair(
    settings: ServingSettings,
    node_name: &str,
    doors: ServingDoors,
    tasks: &mut JoinSet<()>,
) -> Result<watch::Receiver<Option<Pair>>, ServingError> {
    let prepare = || doors.store.prepare().map_err(ServingError::Directory);
    let ServingSettings { is_requested, certificate, key, follows_files, least } = settings;
    let files = Files::configured(certificate, key, &doors.files)?;
    match (is_requested, files) {
        (true, files) => {
            prepare()?;
            Ok(requested(doors, files, (node_name, least), tasks))
        }
        (false, Some(files)) => {
            let first = files.read()?;
            let (shown, pairs) = watch::channel(Some(first));
            if follows_files {
                tasks.spawn(files.follow(shown));
            }
            Ok(pairs)
        }
        (false, None) => {
            prepare()?;
            let own = own(doors.store.as_ref(), node_name, doors.clock.as_ref())?;
            Ok(watch::channel(Some(own)).1)
        }
    }
}

/// Starts asking the cluster. What was obtained before is shown until there is something newer.
fn requested(
    doors: ServingDoors,
    files: Option<Files>,
    (node_name, least): (&str, Least),
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<Option<Pair>> {
    let ServingDoors { store, signer, clock, .. } = doors;
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
    let Some(Signer { client, mut node }) = signer else {
        tracing::warn!(
            "serverTLSBootstrap needs a cluster: there is nobody to sign the serving certificate"
        );
        return pairs;
    };
    let (wish, wanted) = watch::channel(None);
    let rotation = Rotation {
        client,
        store,
        clock,
        name: PairName::Server,
        wanted,
        current,
        outcome: watch::Sender::new(RotationOutcome::default()),
    };
    tasks.spawn(rotation.run());
    let node_name = node_name.to_owned();
    tasks.spawn(async move {
        loop {
            let now = wish_of(&node_name, node.borrow_and_update().object.as_deref(), least);
            wish.send_if_modified(|wish| {
                // A node that lost its addresses for a moment keeps the certificate for those it
                // had.
                let is_news = now.is_some() && *wish != now;
                if is_news {
                    *wish = now;
                }
                is_news
            });
            if node.changed().await.is_err() {
                return;
            }
        }
    });
    pairs
}

fn wish_of(node_name: &str, node: Option<&Node>, least: Least) -> Option<Wanted> {
    let addresses = node?.status.as_ref()?.addresses.as_deref()?;
    serving_for(node_name, addresses, least)
}

/// The node's own pair: found, or made.
fn own(store: &dyn CertStore, host: &str, clock: &dyn Clock) -> Result<Pair, ServingError> {
    let read = |file: &'static str| {
        store.read(file).map_err(|source| ServingError::ReadOwn { file, source })
    };
    match (read(OWN_CERTIFICATE)?, read(OWN_KEY)?) {
        (Some(certificate), Some(key)) => Ok(Pair { certificate, key }),
        (None, None) => {
            let pair =
                self_signed(host, &BTreeSet::new(), clock.now()).map_err(ServingError::Make)?;
            store
                .write(OWN_KEY, &pair.key, 0o600)
                .and_then(|()| store.write(OWN_CERTIFICATE, &pair.certificate, 0o644))
                .map_err(ServingError::Store)?;
            tracing::info!("Made a serving certificate of our own");
            Ok(pair)
        }
        // A crash or a full disk between the two writes: the key is good for another certificate.
        (None, Some(key)) => {
            let half = ServingError::HalfThere { there: OWN_KEY, missing: OWN_CERTIFICATE };
            let Ok(pair) = KeyPair::from_pem(&key) else {
                return Err(half);
            };
            let certificate = certificate_for(&pair, host, &BTreeSet::new(), clock.now())
                .map_err(ServingError::Make)?;
            store.write(OWN_CERTIFICATE, &certificate, 0o644).map_err(ServingError::Store)?;
            tracing::warn!("Made a serving certificate for the key that had none");
            Ok(Pair { certificate, key })
        }
        (Some(_), None) => {
            Err(ServingError::HalfThere { there: OWN_CERTIFICATE, missing: OWN_KEY })
        }
    }
}

/// The configured files.
#[derive(Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    disk: Arc<dyn CredentialFiles>,
}

impl Files {
    fn configured(
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
        disk: &Arc<dyn CredentialFiles>,
    ) -> Result<Option<Self>, ServingError> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(Self { certificate, key, disk: disk.clone() }))
            }
            (None, None) => Ok(None),
            (Some(_), None) | (None, Some(_)) => Err(ServingError::HalfConfigured),
        }
    }

    /// Both files, if they fit together.
    fn read(&self) -> Result<Pair, ServingError> {
        let text = |field: &'static str, path: &Path| {
            let read = self.disk.read(path);
            let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
            text.map_err(|source| ServingError::Read { field, path: path.to_owned(), source })
        };
        let pair = Pair {
            certificate: text("tlsCertFile", &self.certificate)?,
            key: text("tlsPrivateKeyFile", &self.key)?,
        };
        certified_key(pair.certificate.as_bytes(), pair.key.as_bytes())
            .map_err(ServingError::Unusable)?;
        Ok(pair)
    }

    /// Sends each new pair.
    async fn follow(self, shown: watch::Sender<Option<Pair>>) {
        let (mut one, mut other) = (self.disk.watch(&self.certificate), self.disk.watch(&self.key));
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
            let read = match read {
                Ok(read) => read.map_err(|error| chain(&error)),
                Err(error) => Err(chain(&error)),
            };
            let news = match read {
                Ok(pair) => {
                    told = None;
                    Some(pair)
                }
                // Usually one of two files that are being replaced; the old pair stays.
                Err(error) => {
                    let error = Some(error);
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
    use std::{collections::BTreeMap, sync::Mutex};

    use ferrolet_ports::{ChangeHints, Fut, Gone, ReadFile};
    use ferrolet_types::Timestamp;

    use super::{super::tests::Store, *};
    use crate::fake::TokioClock;

    /// Files in memory, of whose changes nobody tells.
    #[derive(Default)]
    struct Disk(Mutex<BTreeMap<PathBuf, String>>);

    impl Disk {
        fn put(&self, path: &Path, text: &str) {
            self.0.lock().unwrap().insert(path.to_owned(), text.to_owned());
        }
    }

    impl ReadFile for Disk {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            let found = self.0.lock().unwrap().get(path).cloned();
            found.map(String::into_bytes).ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    impl CredentialFiles for Disk {
        fn write_private(&self, path: &Path, text: &str) -> io::Result<()> {
            self.put(path, text);
            Ok(())
        }

        fn watch(&self, _path: &Path) -> Box<dyn ChangeHints> {
            Box::new(Silent)
        }
    }

    struct Silent;

    impl ChangeHints for Silent {
        fn next(&mut self) -> Fut<'_, Option<Gone>> {
            Box::pin(std::future::pending())
        }
    }

    fn pair(host: &str) -> Pair {
        let now = Timestamp::from_second(1_800_000_000);
        self_signed(host, &BTreeSet::new(), now).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_makes_its_certificate_once_and_half_of_one_is_told() {
        let (store, clock) = (Store::default(), TokioClock);
        let made = own(&store, "me", &clock).unwrap();
        let facts = CertificateFacts::read(&made.certificate).unwrap();
        assert_eq!(facts.dns_names, BTreeSet::from(["me".to_owned()]));
        assert!(own(&store, "me", &clock).unwrap() == made);
        // The first start ended between the two files.
        store.remove(OWN_CERTIFICATE);
        let again = own(&store, "me", &clock).unwrap();
        assert_eq!(again.key, made.key);
        certified_key(again.certificate.as_bytes(), again.key.as_bytes()).unwrap();
        assert!(own(&store, "me", &clock).unwrap() == again);
        store.remove(OWN_KEY);
        let error = own(&store, "me", &clock).err().unwrap();
        assert!(error.to_string().starts_with("kubelet.crt is in"), "{error}");
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let check = |certificate: Option<&str>, key: Option<&str>, is_fine: bool| {
            let disk: Arc<dyn CredentialFiles> = Arc::new(Disk::default());
            let path = |it: Option<&str>| it.map(PathBuf::from);
            let configured = Files::configured(path(certificate), path(key), &disk);
            assert_eq!(configured.is_ok(), is_fine, "{certificate:?} {key:?}");
        };
        check(None, None, true);
        check(Some("c"), Some("k"), true);
        check(Some("c"), None, false);
        check(None, Some("k"), false);
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_shown_once_they_fit_together() {
        let disk = Arc::new(Disk::default());
        let files =
            Files { certificate: "tls.crt".into(), key: "tls.key".into(), disk: disk.clone() };
        let (first, second) = (pair("first"), pair("second"));
        disk.put(&files.certificate, &first.certificate);
        assert!(files.read().is_err(), "there is no key");
        disk.put(&files.key, &first.key);
        let (shown, mut pairs) = watch::channel(Some(files.read().unwrap()));
        let following = tokio::spawn(files.clone().follow(shown));
        disk.put(&files.certificate, &second.certificate);
        let early = timeout(Duration::from_secs(200), pairs.changed()).await;
        assert!(early.is_err(), "a certificate was shown with another's key");
        disk.put(&files.key, &second.key);
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
        let found = |node: Option<&Node>, least: Least| {
            wish_of("me", node, least).map(|it| it.addresses.len())
        };
        let check = |node: Option<Node>, expected: Option<usize>| {
            assert_eq!(found(node.as_ref(), Least::Address), expected);
        };
        assert_eq!(found(Some(&node(&[("Hostname", "me")])), Least::Name), Some(0));
        assert_eq!(found(Some(&node(&[])), Least::Name), None);
        check(None, None);
        check(Some(node(&[])), None);
        check(Some(node(&[("Hostname", "me")])), None);
        check(Some(node(&[("Hostname", "me"), ("InternalIP", "10.0.0.1")])), Some(1));
    }
}
