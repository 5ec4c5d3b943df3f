//! The ports only the server uses: reviews of callers, streams into containers, container logs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ferrolet_ports::{
    AccessAsk, AccessVerdict, ApiError, ApiErrorKind, Checkpoints, Detail, DiskUsage, FileRoom,
    Fut, HostError, LayerUsage, LogAsk, LogFiles, LogPieces, Retry, Reviews, RuntimeDisk,
    RuntimeError, RuntimeStores, Streams, Subject, TokenVerdict, Usage, UsageFigures,
    UsageSnapshot, WantedStreams,
};
use ferrolet_types::{ContainerId, PodUid, SandboxId};

/// An API server that knows some tokens and some rights, and remembers what it was asked.
#[derive(Clone, Default)]
pub struct FakeReviews {
    state: Arc<Mutex<ReviewState>>,
}

#[derive(Default)]
struct ReviewState {
    tokens: BTreeMap<String, Subject>,
    rights: BTreeSet<(String, String, String)>,
    asked: Vec<String>,
    is_away: bool,
}

impl FakeReviews {
    /// Makes a token somebody's.
    pub fn add_token(&self, token: &str, subject: Subject) {
        self.lock().tokens.insert(token.to_owned(), subject);
    }

    /// Lets a user do something to a subresource of the node.
    pub fn allow(&self, user: &str, verb: &str, subresource: &str) {
        let right = (user.to_owned(), verb.to_owned(), subresource.to_owned());
        self.lock().rights.insert(right);
    }

    /// Takes everything back that was allowed.
    pub fn allow_nothing(&self) {
        self.lock().rights.clear();
    }

    /// Answers nothing but errors while true.
    pub fn set_away(&self, is_away: bool) {
        self.lock().is_away = is_away;
    }

    /// What was asked so far: `token NAME-OF-TOKEN` or `USER VERB SUBRESOURCE`.
    pub fn asked(&self) -> Vec<String> {
        self.lock().asked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, ReviewState> {
        self.state.lock().expect("no panic under this lock")
    }

    fn ask(&self, what: String) -> Result<MutexGuard<'_, ReviewState>, ApiError> {
        let mut state = self.lock();
        state.asked.push(what.clone());
        if state.is_away {
            return Err(ApiError {
                attempt: what,
                kind: ApiErrorKind::Unavailable,
                message: "connection refused".to_owned(),
                code: None,
                causes: Vec::new(),
            });
        }
        Ok(state)
    }
}

impl Reviews for FakeReviews {
    fn token_review<'a>(&'a self, token: &'a str) -> Fut<'a, Result<TokenVerdict, ApiError>> {
        Box::pin(async move {
            let state = self.ask(format!("token {token}"))?;
            Ok(match state.tokens.get(token) {
                Some(subject) => TokenVerdict::Authenticated(subject.clone()),
                None => TokenVerdict::Refused { error: "invalid bearer token".to_owned() },
            })
        })
    }

    fn subject_access_review<'a>(
        &'a self,
        ask: &'a AccessAsk,
    ) -> Fut<'a, Result<AccessVerdict, ApiError>> {
        Box::pin(async move {
            let AccessAsk { subject, verb, subresource, .. } = ask;
            let state = self.ask(format!("{} {verb} {subresource}", subject.name))?;
            let right = (subject.name.clone(), verb.clone(), subresource.clone());
            Ok(match state.rights.contains(&right) {
                true => AccessVerdict::Allowed,
                false => AccessVerdict::Refused,
            })
        })
    }
}

/// A runtime that prepares every stream at the same address, or refuses all of them.
#[derive(Clone)]
pub struct FakeStreams {
    answer: Result<String, RuntimeError>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeStreams {
    /// Answers every ask like this.
    pub fn new(answer: Result<String, RuntimeError>) -> Self {
        Self { answer, asked: Arc::default() }
    }

    /// What was asked so far, in words.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic under this lock").clone()
    }

    fn answer(&self, asked: String) -> Fut<'_, Result<String, RuntimeError>> {
        self.asked.lock().expect("no panic under this lock").push(asked);
        Box::pin(async { self.answer.clone() })
    }
}

impl Streams for FakeStreams {
    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        wanted: WantedStreams,
    ) -> Fut<'a, Result<String, RuntimeError>> {
        self.answer(format!("exec {id} {command:?} {}", letters(wanted)))
    }

    fn attach<'a>(
        &'a self,
        id: &'a ContainerId,
        wanted: WantedStreams,
    ) -> Fut<'a, Result<String, RuntimeError>> {
        self.answer(format!("attach {id} {}", letters(wanted)))
    }

    fn port_forward<'a>(
        &'a self,
        id: &'a SandboxId,
        ports: &'a [i32],
    ) -> Fut<'a, Result<String, RuntimeError>> {
        self.answer(format!("forward {id} {ports:?}"))
    }
}

impl Checkpoints for FakeStreams {
    fn checkpoint<'a>(
        &'a self,
        id: &'a ContainerId,
        location: &'a Path,
        timeout: u32,
    ) -> Fut<'a, Result<(), RuntimeError>> {
        let written = self.answer(format!("checkpoint {id} {} {timeout}", location.display()));
        Box::pin(async { written.await.map(drop) })
    }
}

fn letters(wanted: WantedStreams) -> String {
    let all = [(wanted.tty, 't'), (wanted.stdin, 'i'), (wanted.stdout, 'o'), (wanted.stderr, 'e')];
    let on = all.iter().filter(|(is_on, _)| *is_on);
    on.map(|(_, letter)| letter).collect()
}

/// Logs by path, in pieces. A log that is followed goes on while its writer writes.
#[derive(Clone, Default)]
pub struct FakeLogs {
    files: Arc<Mutex<BTreeMap<String, Vec<Vec<u8>>>>>,
    asks: Arc<Mutex<Vec<LogAsk>>>,
}

impl FakeLogs {
    /// Adds a piece to a log, making it if need be.
    pub fn append(&self, path: &str, piece: &[u8]) {
        let mut files = self.files.lock().expect("no panic under this lock");
        files.entry(path.to_owned()).or_default().push(piece.to_vec());
    }

    /// What was asked so far.
    pub fn asks(&self) -> Vec<LogAsk> {
        self.asks.lock().expect("no panic under this lock").clone()
    }
}

impl LogFiles for FakeLogs {
    fn open<'a>(
        &'a self,
        path: &'a str,
        ask: LogAsk,
    ) -> Fut<'a, Result<Box<dyn LogPieces>, HostError>> {
        Box::pin(async move {
            self.asks.lock().expect("no panic under this lock").push(ask.clone());
            let files = self.files.lock().expect("no panic under this lock");
            if !files.contains_key(path) {
                return Err(HostError {
                    attempt: format!("open {path}"),
                    cause: "no such file".to_owned(),
                    retry: Retry::Later,
                });
            }
            Ok(Box::new(FakePieces { logs: self.clone(), path: path.to_owned(), next: 0, ask })
                as Box<dyn LogPieces>)
        })
    }
}

struct FakePieces {
    logs: FakeLogs,
    path: String,
    next: usize,
    ask: LogAsk,
}

impl LogPieces for FakePieces {
    fn next(&mut self) -> Fut<'_, Result<Option<Vec<u8>>, HostError>> {
        Box::pin(async move {
            loop {
                let piece = {
                    let files = self.logs.files.lock().expect("no panic under this lock");
                    let pieces = files.get(&self.path);
                    pieces.and_then(|pieces| pieces.get(self.next)).cloned()
                };
                if piece.is_some() {
                    self.next += 1;
                    return Ok(piece);
                }
                match &self.ask.follow {
                    Some(writer) if writer.is_written() => {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    _ => return Ok(None),
                }
            }
        })
    }
}

/// Usage as a test sets it.
#[derive(Clone, Default)]
pub struct FakeUsage {
    snapshot: Arc<Mutex<Option<Arc<UsageSnapshot>>>>,
    figures: Arc<Mutex<Option<Arc<UsageFigures>>>>,
    disk: Arc<Mutex<Option<Arc<DiskUsage>>>>,
    room: Arc<Mutex<Option<FileRoom>>>,
    n_readings: Arc<AtomicUsize>,
}

impl FakeUsage {
    /// How often anything was read.
    pub fn n_readings(&self) -> usize {
        self.n_readings.load(Ordering::Relaxed)
    }

    fn read<T: Clone>(&self, kept: &Mutex<Option<T>>) -> Result<T, HostError> {
        self.n_readings.fetch_add(1, Ordering::Relaxed);
        set(kept)
    }

    /// What is used from now on; none, and reading fails.
    pub fn set(&self, snapshot: Option<UsageSnapshot>) {
        *self.snapshot.lock().expect("no panic under this lock") = snapshot.map(Arc::new);
    }

    /// The whole view from now on; none, and reading fails.
    pub fn set_figures(&self, figures: Option<UsageFigures>) {
        *self.figures.lock().expect("no panic under this lock") = figures.map(Arc::new);
    }

    /// The room every store has from now on.
    pub fn set_room(&self, room: FileRoom) {
        *self.room.lock().expect("no panic under this lock") = Some(room);
    }

    /// What is on disk from now on, and the room every store has.
    pub fn set_disk(&self, disk: DiskUsage, room: FileRoom) {
        *self.disk.lock().expect("no panic under this lock") = Some(Arc::new(disk));
        self.set_room(room);
    }
}

/// What was set, or the error of a machine without cgroups.
fn set<T: Clone>(kept: &Mutex<Option<T>>) -> Result<T, HostError> {
    let kept = kept.lock().expect("no panic under this lock");
    kept.clone().ok_or_else(|| HostError {
        attempt: "read usage".to_owned(),
        cause: "no cgroups".to_owned(),
        retry: Retry::Later,
    })
}

impl Usage for FakeUsage {
    fn snapshot(&self, _: Duration) -> Fut<'_, Result<Arc<UsageSnapshot>, HostError>> {
        let found = self.read(&self.snapshot);
        Box::pin(async move { found })
    }

    fn figures(&self, _: Detail, _: Duration) -> Fut<'_, Result<Arc<UsageFigures>, HostError>> {
        let found = self.read(&self.figures);
        Box::pin(async move { found })
    }

    fn disk(&self) -> Fut<'_, Result<Arc<DiskUsage>, HostError>> {
        let found = self.read(&self.disk);
        Box::pin(async move { found })
    }

    fn disk_of<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<DiskUsage, HostError>> {
        let found = self.read(&self.disk).map(|disk| {
            let mut own = (*disk).clone();
            own.container_logs.retain(|(pod, _, _)| pod == uid);
            own.pod_files.retain(|(pod, _)| pod == uid);
            own.volumes.retain(|volume| volume.uid == *uid);
            own
        });
        Box::pin(async move { found })
    }

    fn room_at<'a>(&'a self, _: &'a str) -> Fut<'a, Result<FileRoom, HostError>> {
        let found = self.read(&self.room);
        Box::pin(async move { found })
    }
}

/// A runtime's stores as a test sets them.
#[derive(Clone, Default)]
pub struct FakeRuntimeDisk {
    layers: Arc<Mutex<Vec<LayerUsage>>>,
    stores: Arc<Mutex<RuntimeStores>>,
}

impl FakeRuntimeDisk {
    /// What containers have written, and what the stores take, from now on.
    pub fn set(&self, layers: Vec<LayerUsage>, stores: RuntimeStores) {
        *self.layers.lock().expect("no panic under this lock") = layers;
        *self.stores.lock().expect("no panic under this lock") = stores;
    }
}

impl RuntimeDisk for FakeRuntimeDisk {
    fn written_layers(&self) -> Fut<'_, Result<Vec<LayerUsage>, RuntimeError>> {
        let layers = self.layers.lock().expect("no panic under this lock").clone();
        Box::pin(async move { Ok(layers) })
    }

    fn stores(&self) -> Fut<'_, Result<RuntimeStores, RuntimeError>> {
        let stores = self.stores.lock().expect("no panic under this lock").clone();
        Box::pin(async move { Ok(stores) })
    }
}
