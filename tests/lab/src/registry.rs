//! A registry on loopback: serves images made here, with or without a password, slowly, or only
//! half of what it promised.
//!
//! Reading only: `GET` and `HEAD` of manifests and blobs, as the OCI distribution specification has
//! them. Which name a containerd finds it under is
//! [`Containerd::point_registry`](crate::Containerd::point_registry). Remembers every request. Ends
//! with the process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::image::{ImageSpec, MANIFEST, PackedImage, pack};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A running registry. Clones are handles to the same one.
#[derive(Clone)]
pub struct Registry {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Manifests by `repository:tag` and `repository@digest`.
    manifests: BTreeMap<String, Vec<u8>>,
    blobs: BTreeMap<String, Vec<u8>>,
    account: Option<Account>,
    mood: Mood,
    requests: Vec<Request>,
}

/// Who may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub user: String,
    pub password: String,
}

/// How requests for blobs are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mood {
    /// At once and whole.
    #[default]
    Well,
    /// Not before the mood changes.
    Holding,
    /// The connection breaks in the middle.
    HalfWay,
    /// With a server error; manifests too.
    Broken,
}

/// A request that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Who asked, by the name that was given with the password, right or wrong.
    pub user: Option<String>,
    pub status: u16,
}

impl Registry {
    /// Starts an open registry with these images; the names' registry part does not matter.
    pub fn start(images: &[ImageSpec]) -> Result<Registry> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listen for pulls")?;
        let registry = Registry {
            port: listener.local_addr()?.port(),
            shared: Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() }),
        };
        for image in images {
            registry.push(image)?;
        }
        let shared = Arc::clone(&registry.shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // A client that goes away half-way is its own problem.
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Ok(registry)
    }

    /// `http://127.0.0.1:port`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Adds an image, or replaces what its tag means.
    pub fn push(&self, image: &ImageSpec) -> Result<()> {
        let PackedImage { manifest, config, layer } = pack(image)?;
        let (repository, tag) = split(&image.name);
        let mut state = self.lock();
        for blob in [config, layer] {
            state.blobs.insert(blob.digest(), blob.content);
        }
        let by_digest = format!("{repository}@{}", manifest.digest());
        state.manifests.insert(by_digest, manifest.content.clone());
        let by_tag = format!("{repository}:{tag}");
        state.manifests.insert(by_tag, manifest.content);
        Ok(())
    }

    /// Lets only this account read; `None` lets everybody.
    pub fn set_account(&self, account: Option<(&str, &str)>) {
        self.lock().account = account.map(|(user, password)| Account {
            user: user.to_owned(),
            password: password.to_owned(),
        });
    }

    /// Changes how requests are answered, also those that are being held.
    pub fn set_mood(&self, mood: Mood) {
        self.lock().mood = mood;
        self.shared.changed.notify_all();
    }

    /// Every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    /// How often the manifest of a tag was asked for by its name, successfully or not: about once
    /// per pull.
    #[must_use]
    pub fn resolutions(&self, repository: &str, tag: &str) -> usize {
        let path = format!("/v2/{repository}/manifests/{tag}");
        let requests = self.requests();
        let asked = requests.iter().filter(|it| it.path == path);
        asked.filter(|it| it.method == "HEAD").count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

/// The repository without its registry, and the tag.
fn split(name: &str) -> (String, String) {
    let (rest, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
    let repository = rest.split_once('/').map_or(rest, |(_, path)| path);
    (repository.to_owned(), tag.to_owned())
}

/// What is sent for a request.
struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Whether the body may be cut or held.
    is_blob: bool,
}

fn reply(status: u16) -> Reply {
    Reply { status, headers: Vec::new(), body: Vec::new(), is_blob: false }
}

fn serve(stream: TcpStream, shared: &Shared) -> Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while reader.read_line(&mut head)? > 2 {}
        if head.trim().is_empty() {
            return Ok(());
        }
        if !answer(&stream, &head, shared)? {
            return Ok(());
        }
    }
}

/// Answers one request; false when the connection is over.
fn answer(mut stream: &TcpStream, head: &str, shared: &Shared) -> Result<bool> {
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let account = given_account(head);
    let (reply, mood) = {
        let mut state = shared.lock();
        let reply = state.reply(path, account.as_ref());
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            user: account.map(|it| it.user),
            status: reply.status,
        };
        state.requests.push(request);
        let is_held = |state: &mut State| reply.is_blob && state.mood == Mood::Holding;
        let waited = shared
            .changed
            .wait_timeout_while(state, TIMEOUT, is_held)
            .map_err(|_| anyhow::anyhow!("a holder of the registry's lock panicked"))?;
        (reply, waited.0.mood)
    };
    let mut text = format!("HTTP/1.1 {} Lab\r\n", reply.status);
    for (name, value) in &reply.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n", reply.body.len()));
    stream.write_all(text.as_bytes())?;
    if method == "HEAD" {
        return Ok(true);
    }
    if reply.is_blob && mood == Mood::HalfWay {
        stream.write_all(&reply.body[..reply.body.len() / 2])?;
        return Ok(false);
    }
    stream.write_all(&reply.body)?;
    Ok(true)
}

fn given_account(head: &str) -> Option<Account> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization:"))?;
    let encoded = line.split_whitespace().nth(2)?;
    let text = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Account { user: user.to_owned(), password: password.to_owned() })
}

impl State {
    fn reply(&self, path: &str, given: Option<&Account>) -> Reply {
        if self.account.is_some() && self.account.as_ref() != given {
            let mut refusal = reply(401);
            let challenge = "Basic realm=\"lab\"".to_owned();
            refusal.headers.push(("WWW-Authenticate", challenge));
            return refusal;
        }
        if path == "/v2/" {
            return reply(200);
        }
        if self.mood == Mood::Broken {
            return reply(503);
        }
        let Some(rest) = path.strip_prefix("/v2/") else {
            return reply(404);
        };
        if let Some((repository, wanted)) = rest.split_once("/manifests/") {
            let separator = if wanted.contains(':') { '@' } else { ':' };
            let key = format!("{repository}{separator}{wanted}");
            return match self.manifests.get(&key) {
                Some(manifest) => Reply {
                    headers: vec![
                        ("Content-Type", MANIFEST.to_owned()),
                        ("Docker-Content-Digest", crate::image::digest_of(manifest)),
                    ],
                    body: manifest.clone(),
                    ..reply(200)
                },
                None => reply(404),
            };
        }
        let blob = rest.split_once("/blobs/").and_then(|(_, digest)| self.blobs.get(digest));
        match blob {
            Some(blob) => Reply {
                headers: vec![("Content-Type", "application/octet-stream".to_owned())],
                body: blob.clone(),
                is_blob: true,
                ..reply(200)
            },
            None => reply(404),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Entry;

    fn image() -> ImageSpec {
        ImageSpec {
            name: "example.test/team/app:1".to_owned(),
            entries: vec![Entry::text("/etc/motd", "hi")],
            ..ImageSpec::default()
        }
    }

    #[test]
    fn a_manifest_is_found_by_tag_and_names_blobs_that_are_there() {
        let registry = Registry::start(&[image()]).unwrap();
        let state = registry.lock();
        let manifest = state.reply("/v2/team/app/manifests/1", None);
        assert_eq!(manifest.status, 200);
        let parsed: serde_json::Value = serde_json::from_slice(&manifest.body).unwrap();
        for digest in [&parsed["config"]["digest"], &parsed["layers"][0]["digest"]] {
            let path = format!("/v2/team/app/blobs/{}", digest.as_str().unwrap());
            assert_eq!(state.reply(&path, None).status, 200);
        }
        assert_eq!(state.reply("/v2/team/app/manifests/2", None).status, 404);
    }

    #[test]
    fn only_the_account_may_read_when_there_is_one() {
        let registry = Registry::start(&[image()]).unwrap();
        registry.set_account(Some(("ann", "secret")));
        let account =
            |password: &str| Account { user: "ann".to_owned(), password: password.to_owned() };
        let state = registry.lock();
        let path = "/v2/team/app/manifests/1";
        assert_eq!(state.reply(path, None).status, 401);
        assert_eq!(state.reply(path, Some(&account("wrong"))).status, 401);
        assert_eq!(state.reply(path, Some(&account("secret"))).status, 200);
    }

    #[test]
    fn a_request_names_its_user() {
        let head = "GET /v2/ HTTP/1.1\r\nauthorization: Basic YW5uOnNlY3JldA==\r\n\r\n";
        let account = given_account(head).unwrap();
        assert_eq!((account.user.as_str(), account.password.as_str()), ("ann", "secret"));
        assert_eq!(given_account("GET /v2/ HTTP/1.1\r\n\r\n"), None);
    }
}
