//! Pulls from a registry of the tests' own: honest, broken, slow to say, lying.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io::Read as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::{
    manifest::{self, Platform},
    pull::{PullProgress, Puller},
    store::{BootId, Image, Store},
    unpack::tests::{Layer, gzip},
};

const LIMITS: Limits = Limits { reserved_bytes: 0, ..Limits::USUAL };

/// What the registry holds and how it behaves.
#[derive(Default)]
struct State {
    /// By path below `/v2/`: content type and content.
    served: BTreeMap<String, (String, Vec<u8>)>,
    behaviour: Behaviour,
    /// Every request: method, path, and what it said of itself.
    log: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Behaviour {
    #[default]
    Honest,
    /// Wants a token of its own service, which wants this name and password.
    Token {
        login: Option<(String, String)>,
    },
    Basic {
        user: String,
        password: String,
    },
    /// Breaks the connection after so many bytes of a blob, each time.
    Breaks {
        after: usize,
        knows_ranges: bool,
    },
    /// Sends blobs somewhere else.
    Redirects {
        to: String,
    },
    /// Sends one byte too many, or another one.
    Lies {
        with: Vec<u8>,
    },
}

#[derive(Clone)]
struct FakeRegistry {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

type Body = BoxBody<Bytes, std::io::Error>;

impl FakeRegistry {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let registry = Self { address, state: state.clone() };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = state.clone();
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let answer = answer(&state, &request, address);
                        async { Ok::<_, Infallible>(answer) }
                    });
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        registry
    }

    fn behave(&self, behaviour: Behaviour) {
        self.state.lock().unwrap().behaviour = behaviour;
    }

    fn put(&self, path: &str, content_type: &str, content: &[u8]) {
        self.state
            .lock()
            .unwrap()
            .served
            .insert(path.to_owned(), (content_type.to_owned(), content.to_vec()));
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    fn blob(&self, repository: &str, media_type: &str, content: &[u8]) -> Value {
        let digest = Digest::of(content);
        self.put(&format!("{repository}/blobs/{digest}"), "application/octet-stream", content);
        json!({ "mediaType": media_type, "digest": digest, "size": content.len() })
    }

    /// Pushes an image of these layers; its manifest's digest.
    fn push(&self, repository: &str, tag: &str, layers: &[Vec<u8>]) -> Digest {
        let diff_ids: Vec<Digest> = layers.iter().map(|it| Digest::of(it)).collect();
        let config = json!({ "os": "linux", "rootfs": { "type": "layers", "diff_ids": diff_ids } });
        let config = self.blob(repository, manifest::OCI_CONFIG, config.to_string().as_bytes());
        let layers: Vec<Value> = layers
            .iter()
            .map(|it| {
                self.blob(repository, "application/vnd.oci.image.layer.v1.tar+gzip", &gzip(it))
            })
            .collect();
        let image = json!({
            "schemaVersion": 2, "mediaType": manifest::OCI_MANIFEST, "config": config, "layers": layers,
        });
        self.push_manifest(repository, tag, manifest::OCI_MANIFEST, &image)
    }

    fn push_manifest(
        &self,
        repository: &str,
        tag: &str,
        media_type: &str,
        document: &Value,
    ) -> Digest {
        let bytes = document.to_string().into_bytes();
        let digest = Digest::of(&bytes);
        for name in [tag, &digest.to_string()] {
            self.put(&format!("{repository}/manifests/{name}"), media_type, &bytes);
        }
        digest
    }

    fn name(&self, rest: &str) -> Reference {
        Reference::parse(&format!("{}/{rest}", self.address)).unwrap()
    }
}

fn plain(status: StatusCode, content: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(content.into()).map_err(|never| match never {}).boxed();
    Response::builder().status(status).body(body).unwrap()
}

fn answer(
    state: &Mutex<State>,
    request: &Request<Incoming>,
    address: SocketAddr,
) -> Response<Body> {
    let mut state = state.lock().unwrap();
    let text = |name| request.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
    let (authorization, range) = (text(header::AUTHORIZATION), text(header::RANGE));
    let mut line = request.uri().path().to_owned();
    line.extend(range.iter().map(|it| format!(" {it}")));
    line.extend(authorization.iter().map(|it| format!(" as {it}")));
    state.log.push(line);
    let encoded = |user: &str, password: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
    };
    if request.uri().path() == "/token" {
        let Behaviour::Token { login } = &state.behaviour else {
            return plain(StatusCode::NOT_FOUND, "");
        };
        let expected =
            login.as_ref().map(|(user, password)| format!("Basic {}", encoded(user, password)));
        return match expected == authorization {
            true => plain(StatusCode::OK, r#"{"token":"opened","expires_in":300}"#),
            false => plain(StatusCode::UNAUTHORIZED, ""),
        };
    }
    let wanted = match &state.behaviour {
        Behaviour::Token { .. } => {
            let challenge = format!("Bearer realm=\"http://{address}/token\",service=\"test\"");
            Some(("Bearer opened".to_owned(), challenge))
        }
        Behaviour::Basic { user, password } => {
            Some((format!("Basic {}", encoded(user, password)), "Basic realm=\"test\"".to_owned()))
        }
        _ => None,
    };
    if let Some((credential, challenge)) = wanted
        && authorization != Some(credential)
    {
        let mut answer = plain(StatusCode::UNAUTHORIZED, "");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.parse().unwrap());
        return answer;
    }
    let path = request.uri().path().trim_start_matches("/v2/").to_owned();
    let Some((content_type, content)) = state.served.get(&path) else {
        return plain(StatusCode::NOT_FOUND, "");
    };
    if !path.contains("/blobs/") {
        let mut answer = plain(StatusCode::OK, content.clone());
        answer.headers_mut().insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        return answer;
    }
    serve_blob(&state.behaviour, &path, content, range.as_deref())
}

fn serve_blob(
    behaviour: &Behaviour,
    path: &str,
    content: &[u8],
    range: Option<&str>,
) -> Response<Body> {
    match behaviour {
        Behaviour::Redirects { to } => {
            let mut answer = plain(StatusCode::TEMPORARY_REDIRECT, "");
            answer
                .headers_mut()
                .insert(header::LOCATION, format!("{to}/v2/{path}").parse().unwrap());
            answer
        }
        Behaviour::Lies { with } => plain(StatusCode::OK, with.clone()),
        Behaviour::Breaks { after, knows_ranges } => {
            let from = range.filter(|_| *knows_ranges).map_or(0, |it| {
                it.trim_start_matches("bytes=").trim_end_matches('-').parse::<usize>().unwrap()
            });
            // Without ranges each connection must come further than the last, or nothing would ever end.
            let asked = range.map_or(0, |it| {
                it.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap()
            });
            let end = content.len().min(asked + after);
            let mut frames = vec![Ok(Frame::data(Bytes::copy_from_slice(&content[from..end])))];
            if end < content.len() {
                frames.push(Err(std::io::Error::other("broken")));
            }
            let mut answer = Response::new(StreamBody::new(in_turns(frames)).boxed());
            if range.is_some() && *knows_ranges {
                *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
                let told = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
                answer.headers_mut().insert(header::CONTENT_RANGE, told.parse().unwrap());
            }
            answer
        }
        _ => plain(StatusCode::OK, content.to_vec()),
    }
}

/// A frame now and then: what was sent before a fault must be on its way.
fn in_turns<T: Send>(frames: Vec<T>) -> impl futures::Stream<Item = T> + Send {
    futures::stream::unfold(frames.into_iter(), async |mut frames| {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        Some((frames.next()?, frames))
    })
}

struct Node {
    place: tempfile::TempDir,
    store: Store,
    puller: Puller,
}

impl Node {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(hosts: Option<PathBuf>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let store =
            Store::open(&place.path().join("store"), BootId("now".to_owned()), &LIMITS).unwrap();
        let settings = RegistrySettings {
            hosts,
            roots_pem: Vec::new(),
            patience: Duration::from_secs(20),
            stall: Duration::from_secs(20),
        };
        let puller = Puller::new(store.clone(), Registry::new(settings, &LIMITS), &LIMITS);
        Self { place, store, puller }
    }

    async fn pull(&self, reference: &Reference) -> Result<Image, String> {
        self.pull_as(reference, Credentials::Anonymous).await
    }

    async fn pull_as(
        &self,
        reference: &Reference,
        credentials: Credentials,
    ) -> Result<Image, String> {
        let (progress, seen) = watch::channel(PullProgress::default());
        let pull = self.puller.pull(reference, &credentials, &progress);
        // A server moves calls between threads.
        let pull: std::pin::Pin<Box<dyn Future<Output = _> + Send + '_>> = Box::pin(pull);
        let pulled = pull.await;
        let image = pulled.map_err(|error| {
            let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
                error.source()
            });
            causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
        })?;
        let seen = *seen.borrow();
        assert_eq!((seen.n_done, seen.fetched), (seen.n_layers, seen.bytes));
        Ok(image)
    }

    fn text(&self, image: &Image, layer: usize, name: &str) -> String {
        let mut text = String::new();
        let directory = self.store.open_layer(&image.layers[layer]).unwrap();
        directory.read(name.as_bytes()).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Nothing half made is left where it counts.
    fn is_clean(&self) -> bool {
        let count = |part: &str| {
            std::fs::read_dir(self.place.path().join("store").join(part)).unwrap().count()
        };
        self.store.images().is_empty() && count("staging") == 0 && count("images") == 0
    }
}

fn layer(content: &str) -> Vec<u8> {
    Layer::default().file("a", content).bytes()
}

/// One that does not shrink.
fn large_layer() -> Vec<u8> {
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    })
    .take(300_000)
    .collect();
    Layer::default().entry(b'0', "large", "", &noise).bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_by_tag_and_by_digest() {
    let (registry, node) = (FakeRegistry::start().await, Node::new());
    let lower = Layer::default().directory("d").file("d/f", "below").bytes();
    let upper = Layer::default().file("d/new", "x").hard_link("same", "d/f").bytes();
    let digest = registry.push("team/app", "1", &[lower, upper]);
    let image = node.pull(&registry.name("team/app:1")).await.unwrap();
    assert_eq!(image.tags, BTreeSet::from([registry.name("team/app:1").to_string()]));
    assert_eq!(image.digests, BTreeSet::from([format!("{}/team/app@{digest}", registry.address)]));
    assert_eq!(node.text(&image, 1, "same"), "below");
    registry.log();
    let again = node.pull(&registry.name(&format!("team/app@{digest}"))).await.unwrap();
    assert_eq!(again, image);
    // Layers are not fetched twice.
    assert_eq!(registry.log().iter().filter(|line| line.contains("/blobs/")).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_leads_to_this_machines_image() {
    let (registry, node) = (FakeRegistry::start().await, Node::new());
    let own = Platform::own();
    let digest = registry.push("app", "own", &[layer("own")]);
    let other = registry.push("app", "other", &[layer("other")]);
    let entry = |digest: &Digest, architecture: &str| {
        json!({ "mediaType": manifest::OCI_MANIFEST, "digest": digest, "size": 1,
                "platform": { "os": "linux", "architecture": architecture } })
    };
    let kind = "application/vnd.oci.image.index.v1+json";
    let index = json!({ "schemaVersion": 2, "mediaType": kind,
                        "manifests": [entry(&other, "sparc"), entry(&digest, &own.architecture)] });
    let listed = registry.push_manifest("app", "1", kind, &index);
    let image = node.pull(&registry.name("app:1")).await.unwrap();
    assert_eq!(node.text(&image, 0, "a"), "own");
    assert_eq!(image.digests, BTreeSet::from([format!("{}/app@{listed}", registry.address)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_asked_for_once_and_kept() {
    let (registry, node) = (FakeRegistry::start().await, Node::new());
    registry.push("app", "1", &[layer("a"), layer("b")]);
    let login = Some(("me".to_owned(), "secret".to_owned()));
    registry.behave(Behaviour::Token { login });
    let refused = node.pull(&registry.name("app:1")).await.unwrap_err();
    assert!(refused.contains("401") && refused.contains("a token"), "{refused}");
    registry.log();
    let credentials = Credentials::Basic { user: "me".to_owned(), password: "secret".to_owned() };
    node.pull_as(&registry.name("app:1"), credentials.clone()).await.unwrap();
    let log = registry.log();
    assert_eq!(log.iter().filter(|line| line.starts_with("/token")).count(), 1);
    // The password goes to the token service only.
    assert!(log.iter().all(|line| line.starts_with("/token") || !line.contains("as Basic")));
    assert_eq!(format!("{credentials:?}"), "Basic");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_wants_a_password_gets_it() {
    let (registry, node) = (FakeRegistry::start().await, Node::new());
    registry.push("app", "1", &[layer("a")]);
    registry.behave(Behaviour::Basic { user: "me".to_owned(), password: "secret".to_owned() });
    let refused = node.pull(&registry.name("app:1")).await.unwrap_err();
    assert_eq!(refused, format!("{} answered 401 Unauthorized for manifests/1", registry.address));
    let credentials = Credentials::Basic { user: "me".to_owned(), password: "secret".to_owned() };
    node.pull_as(&registry.name("app:1"), credentials).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_download_goes_on_where_it_stopped() {
    for knows_ranges in [true, false] {
        let (registry, node) = (FakeRegistry::start().await, Node::new());
        registry.push("app", "1", &[large_layer()]);
        registry.behave(Behaviour::Breaks { after: 100_000, knows_ranges });
        let image = node.pull(&registry.name("app:1")).await.unwrap();
        assert_eq!(image.layers.len(), 1);
        let log = registry.log();
        let resumed: Vec<&String> = log.iter().filter(|line| line.contains("bytes=")).collect();
        assert!(resumed.len() >= 2, "{log:?}");
        assert!(resumed[0].contains("bytes=100000-"), "{log:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_followed_without_credentials() {
    let (registry, storage, node) =
        (FakeRegistry::start().await, FakeRegistry::start().await, Node::new());
    registry.push("app", "1", &[layer("a")]);
    storage.state.lock().unwrap().served = registry.state.lock().unwrap().served.clone();
    registry.behave(Behaviour::Redirects { to: format!("http://{}", storage.address) });
    let credentials = Credentials::RegistryToken("secret".to_owned());
    node.pull_as(&registry.name("app:1"), credentials).await.unwrap();
    assert!(registry.log().iter().all(|line| line.ends_with("as Bearer secret")));
    let log = storage.log();
    assert!(log.len() == 2 && log.iter().all(|line| !line.contains(" as ")), "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_is_refused_and_leaves_nothing() {
    let (registry, node) = (FakeRegistry::start().await, Node::new());
    registry.push("app", "1", &[layer("a")]);
    let wrong = gzip(&layer("another"));
    registry.behave(Behaviour::Lies { with: wrong });
    assert!(node.pull(&registry.name("app:1")).await.is_err());
    // A configuration that is right, layers that are not.
    registry.behave(Behaviour::Honest);
    let digest = Digest::of(&gzip(&layer("a")));
    registry.put(&format!("app/blobs/{digest}"), "", &gzip(&layer("b")));
    let refused = node.pull(&registry.name("app:1")).await.unwrap_err();
    assert!(refused.contains(&format!("for {digest}")), "{refused}");
    let mut longer = gzip(&layer("a"));
    longer.push(0);
    registry.put(&format!("app/blobs/{digest}"), "", &longer);
    let refused = node.pull(&registry.name("app:1")).await.unwrap_err();
    assert!(refused.contains("more than its"), "{refused}");
    // A manifest that is not the one of its digest.
    let asked = registry.push("app", "2", &[layer("a")]);
    registry.put(&format!("app/manifests/{asked}"), manifest::OCI_MANIFEST, b"{}");
    let refused = node.pull(&registry.name(&format!("app@{asked}"))).await.unwrap_err();
    assert!(refused.contains(&format!("for {asked}")), "{refused}");
    assert!(node.is_clean());
    // The next attempt succeeds.
    registry.push("app", "1", &[layer("a")]);
    node.pull(&registry.name("app:1")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_layer_is_told_by_its_own_fault() {
    let (registry, node) = (FakeRegistry::start().await, Node::new());
    registry.push("app", "1", &[Layer::default().file("../outside", "x").bytes(), large_layer()]);
    let refused = node.pull(&registry.name("app:1")).await.unwrap_err();
    assert!(refused.ends_with("\"../outside\" leads out of the layer"), "{refused}");
    assert_eq!(node.store.images(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_is_asked_first_and_gets_no_credentials() {
    let (registry, mirror) = (FakeRegistry::start().await, FakeRegistry::start().await);
    registry.push("app", "1", &[layer("a")]);
    registry.push("app", "2", &[layer("b")]);
    mirror.push("app", "1", &[layer("a")]);
    let hosts = tempfile::tempdir().unwrap();
    let place = hosts.path().join(registry.address.to_string());
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("hosts.toml"), format!("[host.\"http://{}\"]", mirror.address))
        .unwrap();
    let node = Node::with(Some(hosts.path().to_owned()));
    let credentials = || Credentials::RegistryToken("secret".to_owned());
    node.pull_as(&registry.name("app:1"), credentials()).await.unwrap();
    assert!(registry.log().is_empty());
    assert!(mirror.log().iter().all(|line| !line.contains("secret")));
    // What the mirror does not have comes from the registry itself.
    node.pull_as(&registry.name("app:2"), credentials()).await.unwrap();
    assert!(registry.log().iter().all(|line| line.contains("secret")));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pulls_of_one_layer_share_it() {
    let (registry, node) = (FakeRegistry::start().await, Node::new());
    registry.push("one", "1", &[large_layer(), layer("one")]);
    registry.push("two", "1", &[large_layer(), layer("two")]);
    let (one, two) = (registry.name("one:1"), registry.name("two:1"));
    let (one, two) = tokio::join!(node.pull(&one), node.pull(&two));
    assert_eq!(one.unwrap().layers[0], two.unwrap().layers[0]);
    let shared = Digest::of(&gzip(&large_layer())).to_string();
    assert_eq!(registry.log().iter().filter(|line| line.contains(&shared)).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_at_home_and_nothing_there_are_told() {
    let (registry, node) = (FakeRegistry::start().await, Node::new());
    let refused = node.pull(&registry.name("absent:1")).await.unwrap_err();
    assert_eq!(refused, format!("{} answered 404 Not Found for manifests/1", registry.address));
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused =
        node.pull(&Reference::parse(&format!("{closed}/app")).unwrap()).await.unwrap_err();
    assert!(refused.starts_with(&format!("ask {closed}")), "{refused}");
    registry.push_manifest("html", "1", "text/html", &json!({ "schemaVersion": 2 }));
    let refused = node.pull(&registry.name("html:1")).await.unwrap_err();
    assert!(refused.ends_with("\"text/html\" is not the media type of an image"), "{refused}");
}
