//! Getting into the cluster, and staying in.
//!
//! ```text
//!  kubeconfig usable ───────────────────────────────┐
//!  otherwise --bootstrap-kubeconfig ─► request ─► ───┴─► entered ─► rotation ─► Clients::adopt
//!               ▲   server away, denied, unsigned │                    └─ expired for 5 minutes, server answers: the end
//!               └──────────── again later ────────┘
//! ```
//!
//! The loops that talk to the cluster begin when [`Joining::enter`] returns. Until then nothing is
//! asked of the API server in the node's name; static pods, probes and health go on without it.
//! Refuses: giving up while the server is away or nobody has approved yet.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{CertStore, Clock, CredentialFiles, Pair, PairName, ReadFile};
use ferrolet_types::Timestamp;
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{Instant, interval, sleep},
};

use crate::{
    api::Clients,
    certificates::{self, BootstrapError, CertificateFacts, Rotation, RotationOutcome, Wanted},
    client::{AddressError, Client, ClientOptions, Place, Rate},
    exec::ExecKeeper,
    kubeconfig::{self, Access, Credentials, KubeconfigError},
    tls::{Identity, TlsError},
};

/// How long the bootstrap client waits for an answer.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LAST_PAUSE: Duration = Duration::from_secs(32);
/// How often the certificate in use is looked at, and how long the node goes on without a good one.
/// Both as upstream.
const LOOK: Duration = Duration::from_secs(10);
const EXPIRED_FOR: Duration = Duration::from_secs(5 * 60);
/// How often certificates that somebody else renews are read again, as upstream's client does.
const READ_AGAIN: Duration = Duration::from_secs(5 * 60);

/// How a node joins, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinSettings {
    /// Where the kubeconfig is, or will be.
    pub kubeconfig: PathBuf,
    /// What a node without a usable kubeconfig asks with.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// The client certificate is renewed before it expires.
    pub rotates: bool,
}

/// Why a node cannot even begin to join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The certificate directory cannot be used.
    #[error("prepare the certificate directory")]
    Directory(#[source] io::Error),
    /// The kubeconfig is of no use.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The certificate in the kubeconfig is of no use.
    #[error("use the kubeconfig's client certificate")]
    Certificate(#[source] TlsError),
    /// The bootstrap kubeconfig is of no use.
    #[error("read the bootstrap kubeconfig")]
    Bootstrap(#[source] KubeconfigError),
    /// The certificate in the bootstrap kubeconfig is of no use.
    #[error("use the bootstrap kubeconfig's client certificate")]
    BootstrapCertificate(#[source] TlsError),
    /// The server's address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// A node on its way into the cluster.
pub struct Joining {
    /// Where the server is, and who we are as far as that is known.
    pub access: Access,
    /// The certificate that is shown to it.
    pub identity: Identity,
    files: Arc<dyn CredentialFiles>,
    store: Arc<dyn CertStore>,
    clock: Arc<dyn Clock>,
    node_name: String,
    kubeconfig: PathBuf,
    rotates: bool,
    /// The pair that rotation begins with came inside the kubeconfig.
    is_borrowed: bool,
    way: Way,
}

enum Way {
    /// With what the kubeconfig says.
    Known,
    /// With a certificate that has to be asked for first.
    Bootstrap(Client),
}

/// The pair that rotation begins with.
struct Beginning {
    pair: Option<Pair>,
    /// It came inside a kubeconfig, usually with more rights than a node needs: the node gets its
    /// own at once.
    is_borrowed: bool,
}

impl Joining {
    /// Reads the kubeconfig, or the bootstrap kubeconfig when that is missing or of no use. Nothing
    /// is asked of the server.
    pub fn read(
        settings: JoinSettings,
        node_name: &str,
        (files, store): (Arc<dyn CredentialFiles>, Arc<dyn CertStore>),
        clock: Arc<dyn Clock>,
    ) -> Result<Self, JoinError> {
        let JoinSettings { kubeconfig, bootstrap_kubeconfig, rotates } = settings;
        // A node that is given its certificate may have a certificate directory that cannot be
        // written.
        if rotates || bootstrap_kubeconfig.is_some() {
            store.prepare().map_err(JoinError::Directory)?;
        }
        let known = kubeconfig::load(&kubeconfig, &*files);
        let (access, way) = match &bootstrap_kubeconfig {
            None => (known?, Way::Known),
            Some(bootstrap) => match usable(known, clock.now()) {
                Ok(access) => (access, Way::Known),
                Err(reason) => {
                    tracing::info!(
                        kubeconfig = %kubeconfig.display(),
                        reason,
                        "Joining with the bootstrap kubeconfig"
                    );
                    let files: Arc<dyn ReadFile> = files.clone();
                    let (access, client) = bootstrap_client(bootstrap, &files)?;
                    (access, Way::Bootstrap(client))
                }
            },
        };
        let mut joining = Self {
            access,
            identity: Identity::default(),
            files,
            store,
            clock,
            node_name: node_name.to_owned(),
            kubeconfig,
            rotates,
            is_borrowed: false,
            way,
        };
        match joining.way {
            Way::Known => joining.show_known()?,
            // What we are is not yet known: until then we are nobody, and not the bearer of the
            // bootstrap token.
            Way::Bootstrap(_) => joining.access.credentials = Credentials::Anonymous,
        }
        Ok(joining)
    }

    /// Returns once the node has an identity, and starts what keeps it.
    pub async fn enter(self, clients: &Clients, tasks: &mut JoinSet<()>) {
        if let Credentials::Exec(plugin) = &self.access.credentials {
            let keeper = ExecKeeper {
                plugin: plugin.clone(),
                files: self.files.clone(),
                identity: self.identity.clone(),
                clock: self.clock.clone(),
            };
            let expires = keeper.first().await;
            tasks.spawn(keeper.keep(expires, clients.clone()));
            return;
        }
        let beginning = match &self.way {
            Way::Known => Beginning { is_borrowed: self.is_borrowed, ..self.beginning() },
            Way::Bootstrap(client) => {
                Beginning { pair: Some(self.bootstrap(client).await), is_borrowed: false }
            }
        };
        let has_certificate = beginning.pair.is_some();
        if self.rotates && has_certificate {
            self.rotate(beginning, clients, tasks);
        } else if has_certificate {
            tasks.spawn(self.follow_files(clients.clone()));
        } else if self.rotates {
            tracing::info!("The kubeconfig has no client certificate: nothing to rotate");
        }
    }

    /// What reads the files that the kubeconfig names.
    pub fn files(&self) -> Arc<dyn ReadFile> {
        self.files.clone()
    }

    fn show_known(&mut self) -> Result<(), JoinError> {
        let Beginning { pair, is_borrowed } = self.beginning();
        let Some(pair) = pair else {
            return Ok(());
        };
        self.is_borrowed = is_borrowed;
        if self.rotates && is_borrowed {
            // Where others look for it, kubeadm among them: it takes rotation to be off otherwise.
            let kept = self.store.update(PairName::Client, &pair, self.clock.now());
            if let Err(error) = kept {
                tracing::error!(%error, "The kubeconfig's client certificate cannot be put into the certificate directory");
            }
        }
        self.identity
            .replace(pair.certificate.as_bytes(), pair.key.as_bytes())
            .map_err(JoinError::Certificate)
    }

    /// What a node with a usable kubeconfig begins with: with rotation, what rotation has left
    /// behind comes first.
    fn beginning(&self) -> Beginning {
        let given = match &self.access.credentials {
            Credentials::Certificate { certificate, key, file } => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (certificate, key) = (text(certificate), text(key));
                Some((Pair { certificate, key }, file.is_none()))
            }
            Credentials::Anonymous
            | Credentials::Token(_)
            | Credentials::TokenFile(_)
            | Credentials::Exec(_) => None,
        };
        let Some((given, is_inline)) = given else {
            return Beginning { pair: None, is_borrowed: false };
        };
        match self.kept().filter(|_| self.rotates) {
            Some(kept) => Beginning { pair: Some(kept), is_borrowed: false },
            None => Beginning { pair: Some(given), is_borrowed: is_inline },
        }
    }

    /// The pair in the certificate directory, when it is this node's and still good.
    fn kept(&self) -> Option<Pair> {
        let kept = self.store.current(PairName::Client).unwrap_or_else(|error| {
            tracing::warn!(%error, "The client certificate in the certificate directory cannot be read");
            None
        })?;
        let facts = CertificateFacts::read(&kept.certificate).ok()?;
        let is_good = !facts.is_expired(self.clock.now())
            && Wanted::client(&self.node_name).is_satisfied_by(&facts);
        is_good.then_some(kept)
    }

    /// Asks until there is a certificate, then leaves a kubeconfig for the next start.
    async fn bootstrap(&self, client: &Client) -> Pair {
        tracing::info!(
            server = self.access.server,
            "Asking for a client certificate; the node joins once the request is approved"
        );
        let mut pause = FIRST_PAUSE;
        let pair = loop {
            let asked =
                certificates::bootstrap(client, &self.store, self.clock.as_ref(), &self.node_name);
            match asked.await.map_err(AskError::Bootstrap).and_then(|pair| self.show(pair)) {
                Ok(pair) => break pair,
                Err(error) => {
                    let error = chain(&error);
                    tracing::error!(error, "The node could not join, trying again");
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        };
        let current = self.store.current_path(PairName::Client);
        let text = kubeconfig::write_bootstrapped(&self.access, &current.display().to_string());
        match self.files.write_private(&self.kubeconfig, &text) {
            Ok(()) => {
                tracing::info!(kubeconfig = %self.kubeconfig.display(), "Joined, and wrote the kubeconfig");
            }
            Err(error) => {
                tracing::error!(%error, kubeconfig = %self.kubeconfig.display(), "Joined, but the kubeconfig cannot be written: the next start has to join again");
            }
        }
        pair
    }

    fn show(&self, pair: Pair) -> Result<Pair, AskError> {
        self.identity.replace(pair.certificate.as_bytes(), pair.key.as_bytes())?;
        Ok(pair)
    }

    fn rotate(self, beginning: Beginning, clients: &Clients, tasks: &mut JoinSet<()>) {
        let Beginning { pair, is_borrowed } = beginning;
        let (wish, wanted) = watch::channel(Some(Wanted::client(&self.node_name)));
        let (current, pairs) = watch::channel(pair.clone().filter(|_| !is_borrowed));
        tasks.spawn(clients.clone().adopt(self.identity, pairs.clone()));
        let rotation = Rotation {
            client: clients.work.clone(),
            store: self.store,
            clock: self.clock.clone(),
            name: PairName::Client,
            wanted,
            current,
            outcome: watch::Sender::new(RotationOutcome::default()),
        };
        tasks.spawn(rotation.run());
        let (client, clock) = (clients.heartbeat.clone(), self.clock);
        tasks.spawn(async move {
            let is_good = || {
                let current = pairs.borrow();
                let shown = current.as_ref().or(pair.as_ref());
                shown.is_some_and(|pair| holds(pair, clock.now()))
            };
            until_expired(is_good, || answers(&client)).await;
            // The wish lives as long as rotation should.
            drop(wish);
        });
    }

    /// Without rotation of our own somebody else may renew the files that the kubeconfig names.
    async fn follow_files(self, clients: Clients) {
        let read = || {
            let (path, files) = (self.kubeconfig.clone(), self.files.clone());
            // Where nobody else waits for the disk.
            let read = spawn_blocking(move || {
                let access = kubeconfig::load(&path, &*files);
                access.ok().map(|access| access.credentials)
            });
            async { read.await.ok().flatten() }
        };
        let mut seen = read().await;
        loop {
            sleep(READ_AGAIN).await;
            let now = read().await;
            if now == seen {
                continue;
            }
            if let Some(Credentials::Certificate { certificate, key, .. }) = &now {
                match self.identity.replace(certificate, key) {
                    Ok(()) => clients.reconnect(),
                    Err(error) => {
                        tracing::warn!(%error, "The renewed client certificate cannot be used");
                    }
                }
            }
            seen = now;
        }
    }
}

/// The kubeconfig, or why it is of no use.
fn usable(known: Result<Access, KubeconfigError>, now: Timestamp) -> Result<Access, String> {
    match known {
        Ok(access) if certificates::is_usable(&access, now) => Ok(access),
        Ok(_) => Err("it has no client certificate that still holds".to_owned()),
        Err(error) => Err(chain(&error)),
    }
}

/// Why there is no certificate yet.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Certificate(#[from] TlsError),
}

/// An error with everything behind it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn bootstrap_client(file: &Path, files: &Arc<dyn ReadFile>) -> Result<(Access, Client), JoinError> {
    let access = kubeconfig::load(file, files.as_ref()).map_err(JoinError::Bootstrap)?;
    if let Credentials::Exec(plugin) = &access.credentials {
        return Err(JoinError::Bootstrap(KubeconfigError::Unsupported {
            file: file.display().to_string(),
            field: "exec".to_owned(),
            value: plugin.command().to_owned(),
            instead: "give --bootstrap-kubeconfig a token or a client certificate",
        }));
    }
    let identity = Identity::default();
    if let Credentials::Certificate { certificate, key, .. } = &access.credentials {
        identity.replace(certificate, key).map_err(JoinError::BootstrapCertificate)?;
    }
    let options = ClientOptions { rate: Rate::Unlimited, timeout: BOOTSTRAP_TIMEOUT };
    let client = Client::new(&access, &identity, files, options)?;
    Ok((access, client))
}

fn holds(pair: &Pair, now: Timestamp) -> bool {
    CertificateFacts::read(&pair.certificate).is_ok_and(|facts| !facts.is_expired(now))
}

/// Whether anybody is there: a refusal is an answer too.
async fn answers(client: &Client) -> bool {
    match client.get_text(&Place::raw("/healthz")).await {
        Ok(_) => true,
        Err(error) => error.code.is_some(),
    }
}

/// Returns when there has been no good certificate for five minutes and the server answers: then a
/// new start, which may bootstrap, is the better chance. While the server is away, a new start
/// would not help.
async fn until_expired<Answer>(is_good: impl Fn() -> bool, answers: impl Fn() -> Answer)
where
    Answer: Future<Output = bool>,
{
    let mut good_at = Instant::now();
    let mut looks = interval(LOOK);
    loop {
        looks.tick().await;
        if is_good() {
            good_at = Instant::now();
        } else if good_at.elapsed() >= EXPIRED_FOR {
            if answers().await {
                tracing::error!(
                    "The client certificate has expired and the API server answers: leaving"
                );
                return;
            }
            tracing::warn!(
                "The client certificate has expired, but the API server does not answer"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Mutex};

    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use ferrolet_ports::ChangeHints;

    use super::*;

    /// Seconds after which the agent leaves, for a certificate good until one moment and a server
    /// back at another.
    async fn leaves_after(good_until: u64, answers_from: u64) -> u64 {
        let began = Instant::now();
        let n_asked = Cell::new(0);
        let is_past = |second: u64| began.elapsed() >= Duration::from_secs(second);
        let answering = || {
            n_asked.set(n_asked.get() + 1);
            std::future::ready(is_past(answers_from))
        };
        until_expired(|| !is_past(good_until), answering).await;
        assert!(n_asked.get() > 0);
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_certificate_ends_the_agent_once_the_server_answers() {
        for (good_until, answers_from, leaves) in
            [(0, 0, 300), (100, 0, 390), (3600, 0, 3890), (0, 1000, 1000)]
        {
            assert_eq!(
                leaves_after(good_until, answers_from).await,
                leaves,
                "{good_until} {answers_from}"
            );
        }
    }

    /// A certificate directory with room for the client's pair.
    #[derive(Default)]
    struct Directory(Mutex<Option<Pair>>);

    impl CertStore for Directory {
        fn prepare(&self) -> io::Result<()> {
            Ok(())
        }
        fn read(&self, _: &str) -> io::Result<Option<String>> {
            Ok(None)
        }
        fn write(&self, _: &str, _: &str, _: u32) -> io::Result<()> {
            Ok(())
        }
        fn current(&self, _: PairName) -> io::Result<Option<Pair>> {
            Ok(self.0.lock().unwrap().clone())
        }
        fn update(&self, name: PairName, pair: &Pair, _: Timestamp) -> io::Result<()> {
            assert_eq!(name, PairName::Client);
            *self.0.lock().unwrap() = Some(pair.clone());
            Ok(())
        }
        fn current_path(&self, name: PairName) -> PathBuf {
            PathBuf::from("/pki").join(name.current_file())
        }
        fn pending_key(&self) -> io::Result<Option<String>> {
            Ok(None)
        }
        fn set_pending_key(&self, _: Option<&str>) -> io::Result<()> {
            Ok(())
        }
    }

    struct OneKubeconfig(String);

    impl ReadFile for OneKubeconfig {
        fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
            Ok(self.0.clone().into_bytes())
        }
    }

    impl CredentialFiles for OneKubeconfig {
        fn write_private(&self, _: &Path, _: &str) -> io::Result<()> {
            Ok(())
        }
        fn watch(&self, _: &Path) -> Box<dyn ChangeHints> {
            panic!("nobody watches")
        }
    }

    #[test]
    fn a_certificate_inside_the_kubeconfig_is_put_where_others_look_for_it() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        let encoded = |text: &str| STANDARD.encode(text);
        let text = format!(
            "clusters: [{{name: k, cluster: {{server: 'http://a:1'}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             current-context: c\nusers: [{{name: u, user: {{client-certificate-data: {}, client-key-data: {}}}}}]\n",
            encoded(&certificate),
            encoded(&key.serialize_pem()),
        );
        for rotates in [true, false] {
            let store = Arc::new(Directory::default());
            let files = Arc::new(OneKubeconfig(text.clone()));
            let settings =
                JoinSettings { kubeconfig: "/etc/k".into(), bootstrap_kubeconfig: None, rotates };
            let clock = Arc::new(crate::fake::TokioClock);
            let joining = Joining::read(settings, "n", (files, store.clone()), clock).ok().unwrap();
            let kept = store.0.lock().unwrap().clone().map(|pair| pair.certificate);
            assert_eq!(kept, rotates.then(|| certificate.clone()));
            assert!(joining.is_borrowed, "the node gets one of its own all the same");
        }
    }
}
