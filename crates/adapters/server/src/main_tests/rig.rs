//! A running main listener, and clients that speak to it in bytes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrolet_ports::{
    Checkpoints, Fut, GrantsView, HostError, JournalAsk, LogPieces, NodeView, PodsView, Profile,
    ProfileSample, Profiler, Runtime as _, SystemLog, SystemLogFiles, Threads,
};
use ferrolet_testkit::{
    FakeLogs, FakeReviews, FakeRuntimeDisk, FakeStreams, FakeUsage, World, container_spec, pod,
    sandbox_spec,
};
use ferrolet_types::{ContainerId, Pod, SandboxId};
use k8s_openapi::api::core::v1::Node;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{
    About, Authentication, Authorization, CheckpointDoors, ClientAuthorities, DebugDoors, Figures,
    Gate, Hidden, Limits, Machine, MainDoors, OldestTls, PageDoors, Pages, RecentEvents, Requests,
    Server, ServingCertificate, TlsOptions, Views, main_router, tls_setup,
};

/// Longer than anything here takes, shorter than anybody's patience.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// An authority that signs servers and clients.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    pub(super) fn server(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    pub(super) fn client(&self, name: &str, groups: &[&str]) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

/// Pods that a test can replace.
pub(super) struct Board(pub(super) std::sync::Mutex<Vec<Pod>>);

impl PodsView for Board {
    fn pods(&self) -> Vec<Pod> {
        self.0.lock().unwrap().clone()
    }
}

/// Pods that were granted half a processor each.
struct HalfGranted;

impl GrantsView for HalfGranted {
    fn granted(&self, pod: &Pod) -> Pod {
        let mut pod = Pod::unwrap_or_clone(pod.clone());
        let half = json!({"requests": {"cpu": "500m"}});
        for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
            container.resources = serde_json::from_value(half.clone()).unwrap();
        }
        Pod::new(pod)
    }
}

/// A node that only has a name.
struct NodeOne;

impl NodeView for NodeOne {
    fn node(&self) -> Fut<'_, Node> {
        let node = json!({"metadata": {"name": "node-1"}});
        Box::pin(async { serde_json::from_value(node).unwrap() })
    }
}

/// One file, `syslog`, and one service in the journal, `kubelet`.
struct OneSystemLog;

impl SystemLogFiles for OneSystemLog {
    fn look<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Option<SystemLog>, HostError>> {
        let found = match path {
            "" => Some(SystemLog::Directory(vec![("syslog".to_owned(), false)])),
            "syslog" => Some(SystemLog::File(Box::new(OnePiece(Some("a line\n"))))),
            _ => None,
        };
        Box::pin(async move { Ok(found) })
    }

    fn in_journal<'a>(&'a self, services: &'a [String]) -> Fut<'a, Vec<String>> {
        let known = services.iter().filter(|it| *it == "kubelet").cloned();
        Box::pin(std::future::ready(known.collect()))
    }

    fn journal<'a>(
        &'a self,
        ask: &'a JournalAsk,
    ) -> Fut<'a, Result<Box<dyn LogPieces>, HostError>> {
        let text = match (&ask.services[..], ask.tail_lines) {
            ([_], None) => "first\nlast\n",
            _ => "last\n",
        };
        Box::pin(async move { Ok(Box::new(OnePiece(Some(text))) as Box<dyn LogPieces>) })
    }
}

struct OnePiece(Option<&'static str>);

impl LogPieces for OnePiece {
    fn next(&mut self) -> Fut<'_, Result<Option<Vec<u8>>, HostError>> {
        let piece = self.0.take().map(|text| text.as_bytes().to_vec());
        Box::pin(async move { Ok(piece) })
    }
}

/// A process that spends all its time in one place.
struct OneStack;

impl Profiler for OneStack {
    fn cpu(&self, span: Duration) -> Fut<'_, Result<Profile, HostError>> {
        let seconds = i64::try_from(span.as_secs()).unwrap();
        Box::pin(async move { Ok(one_stack(vec![1, seconds])) })
    }

    fn heap(&self) -> Fut<'_, Result<Profile, HostError>> {
        Box::pin(async { Ok(one_stack(vec![4, 400, 1, 100])) })
    }

    fn threads(&self) -> Fut<'_, Result<Threads, HostError>> {
        Box::pin(async { Ok(vec![(7, "main".to_owned(), 'S')]) })
    }
}

fn one_stack(figures: Vec<i64>) -> Profile {
    let stack = vec![0x10];
    Profile { samples: vec![ProfileSample { stack, figures }], mappings: Vec::new(), period: 1 }
}

/// Everything around one listener.
pub(super) struct Rig {
    pub(super) authority: Authority,
    pub(super) authorities: Arc<ClientAuthorities>,
    pub(super) certificate: Arc<ServingCertificate>,
    pub(super) reviews: FakeReviews,
    pub(super) logs: FakeLogs,
    pub(super) usage: FakeUsage,
    pub(super) disk: FakeRuntimeDisk,
    pub(super) streams: FakeStreams,
    pub(super) verbosity: Arc<AtomicU32>,
    pub(super) board: Arc<Board>,
    pub(super) container: ContainerId,
    pub(super) sandbox: SandboxId,
    pub(super) log_path: String,
    pub(super) address: SocketAddr,
    _task: JoinHandle<()>,
}

/// What a test may want to be different.
pub(super) struct Wish {
    pub(super) has_certificate: bool,
    pub(super) anonymous: bool,
    pub(super) has_webhooks: bool,
    pub(super) is_always_allowed: bool,
    pub(super) has_debugging_handlers: bool,
    pub(super) has_profiler: bool,
    pub(super) options: TlsOptions,
    pub(super) limits: Limits,
    pub(super) stream_idle_timeout: Duration,
    pub(super) streams: FakeStreams,
    pub(super) usage: FakeUsage,
    pub(super) hidden: Hidden,
    /// Who writes checkpoints instead of the streams.
    pub(super) checkpoints: Option<Arc<dyn Checkpoints>>,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            has_certificate: true,
            anonymous: false,
            has_webhooks: true,
            is_always_allowed: false,
            has_debugging_handlers: true,
            has_profiler: true,
            options: TlsOptions {
                oldest: OldestTls::V12,
                cipher_suites: Vec::new(),
                curves: Vec::new(),
            },
            limits: Limits { drain: Duration::from_millis(300), ..Limits::MAIN },
            stream_idle_timeout: Duration::from_secs(3600),
            streams: FakeStreams::new(Ok("http://127.0.0.1:1/nobody".to_owned())),
            usage: FakeUsage::default(),
            hidden: Hidden::Away,
            checkpoints: None,
        }
    }
}

impl Rig {
    pub(super) async fn new(wish: Wish) -> Self {
        let authority = Authority::new("cluster");
        let own = authority.server("node");
        let certificate = ServingCertificate::none_yet();
        if wish.has_certificate {
            certificate.set_pem(own.certificate.as_bytes(), own.key.as_bytes()).unwrap();
        }
        let authorities = ClientAuthorities::none_yet();
        authorities.set_pem(authority.pem.as_bytes()).unwrap();
        let reviews = FakeReviews::default();
        let port = Arc::new(reviews.clone());
        let gate = Gate::new(
            "node-1",
            Authentication {
                anonymous: wish.anonymous,
                authorities: Some(authorities.clone()),
                tokens: wish.has_webhooks.then(|| (port.clone() as _, Duration::from_secs(60))),
            },
            if wish.is_always_allowed {
                Authorization::AlwaysAllow
            } else {
                Authorization::Webhook {
                    reviews: port,
                    authorized: Duration::from_secs(60),
                    unauthorized: Duration::from_secs(60),
                }
            },
        );
        let world = World::new();
        let (pod, container, sandbox) = run_pod(&world).await;
        let board = Arc::new(Board(std::sync::Mutex::new(vec![pod])));
        let observed = world.runtime().observe_pod(&"uid-web".into()).await.unwrap();
        let verbosity = Arc::new(AtomicU32::new(0));
        let logs = FakeLogs::default();
        let usage = wish.usage;
        let disk = FakeRuntimeDisk::default();
        let doors = MainDoors {
            views: Views { pods: board.clone(), checks: Arc::new([]) },
            runtime: world.runtime(),
            streams: Arc::new(wish.streams.clone()),
            logs: Arc::new(logs.clone()),
            system_logs: Arc::new(OneSystemLog),
            clock: world.clock(),
            configuration: watch::channel("{\"kubeletconfig\":{\"port\":10250}}".to_owned()).1,
            about: About { started: world.now(), version: "1.37.1".to_owned(), flags: Vec::new() },
            figures: Some(Figures {
                node_name: "node-1".to_owned(),
                began: world.now(),
                usage: Arc::new(usage.clone()),
                disk: Arc::new(disk.clone()),
                machine: Arc::new(Machine::default()),
                clock: world.clock(),
                sources: Arc::new([]),
                requests: Requests::default(),
                hidden: wish.hidden,
            }),
            page: Some(PageDoors::new(
                Arc::new(NodeOne),
                Arc::new(RecentEvents::new(world.events(), world.clock())),
            )),
            allocated: Some(Arc::new(HalfGranted)),
            checkpoints: Some(CheckpointDoors::new(
                wish.checkpoints.unwrap_or_else(|| Arc::new(wish.streams.clone())),
                "/var/lib/kubelet/checkpoints".into(),
            )),
            debugging: DebugDoors {
                profiler: wish.has_profiler.then(|| Arc::new(OneStack) as _),
                set_verbosity: wish.has_profiler.then(|| {
                    let verbosity = verbosity.clone();
                    Arc::new(move |level| verbosity.store(level, Ordering::Relaxed)) as _
                }),
                command_line: vec!["kubelet".to_owned(), "-v=2".to_owned()],
            },
            pages: Pages { has_flagz: true, has_statusz: true, has_cbor: true },
            has_debugging_handlers: wish.has_debugging_handlers,
            has_system_logs: true,
            has_system_log_query: true,
            has_split_log_streams: false,
            has_web_sockets: true,
            stream_idle_timeout: wish.stream_idle_timeout,
        };
        let tls = tls_setup(certificate.clone(), &wish.options).unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::bind(any).await.unwrap();
        let address = server.address();
        let router = main_router(Arc::new(doors), gate);
        let forever = std::future::pending();
        let task = tokio::spawn(server.serve_tls(router, tls.config, wish.limits, forever));
        Self {
            authority,
            authorities,
            certificate,
            reviews,
            logs,
            usage,
            disk,
            streams: wish.streams,
            verbosity,
            board,
            container,
            sandbox,
            log_path: observed.containers[0].log_path.clone(),
            address,
            _task: task,
        }
    }

    /// Somebody who may do everything.
    pub(super) fn admin(&self) -> Identity {
        for verb in ["get", "create", "update", "delete"] {
            for subresource in [
                "proxy",
                "pods",
                "stats",
                "metrics",
                "log",
                "healthz",
                "configz",
                "statusz",
                "checkpoint",
            ] {
                self.reviews.allow("admin", verb, subresource);
            }
        }
        self.authority.client("admin", &["system:masters"])
    }

    pub(super) async fn connect(
        &self,
        who: Option<&Identity>,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match who {
            None => builder.with_no_client_auth(),
            Some(who) => {
                let chain = CertificateDer::pem_slice_iter(who.certificate.as_bytes());
                let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
                let key = PrivateKeyDer::from_pem_slice(who.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// One request on a connection of its own: status code and body, chunks joined.
    pub(super) async fn ask(
        &self,
        who: Option<&Identity>,
        method: &str,
        path: &str,
        headers: &str,
    ) -> (u16, String) {
        let mut stream = self.connect(who, &["http/1.1"]).await.unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: node\r\n{headers}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let (status, _, body) = split(&read_all(&mut stream).await);
        (status, body)
    }
}

/// A pod that runs in the world, with a status that says so.
async fn run_pod(world: &World) -> (Pod, ContainerId, SandboxId) {
    world.add_image("busybox");
    let plain = pod("web").uid("uid-web").container("main", "busybox").build();
    let runtime = world.runtime();
    let sandbox_spec = sandbox_spec(&plain, 0);
    let sandbox = runtime.run_sandbox(&sandbox_spec).await.unwrap();
    let spec = container_spec(&plain, "main", 0);
    let container = runtime.create_container(&sandbox, &sandbox_spec, &spec).await.unwrap();
    runtime.start_container(&container).await.unwrap();
    let mut whole = (*plain).clone();
    whole.status = Some(
        serde_json::from_value(json!({"phase": "Running", "containerStatuses": [{
            "name": "main", "image": "busybox", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": format!("fake://{container}"), "state": {"running": {}},
        }]}))
        .unwrap(),
    );
    (Arc::new(whole), container, sandbox)
}

pub(super) async fn read_all(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await;
    // An end without goodbye is an end like any other.
    let _ = read.expect("the server ends the connection in time");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads up to the end of an answer's head; what was read beyond it comes too.
pub(super) async fn read_head(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|it| it == b"\r\n\r\n") {
        let mut byte = [0];
        let read = tokio::time::timeout(SOON, stream.read_exact(&mut byte)).await;
        read.expect("an answer comes in time").expect("an answer comes");
        bytes.push(byte[0]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Status, head and body of an answer.
pub(super) fn split(answer: &str) -> (u16, String, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        joined(body)
    } else {
        body.to_owned()
    };
    (status, head.to_owned(), body)
}

fn joined(body: &str) -> String {
    let (mut rest, mut text) = (body, String::new());
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        text += &tail[..size];
        rest = &tail[size + 2..];
    }
    text
}
