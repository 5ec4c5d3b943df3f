//! Kernel calls off the async threads, with a deadline, and how their refusals become port errors.
//!
//! In: a blocking closure, a sentence about the attempt, and whose threads do it ([`Pool`]). Out: its
//! answer, or a [`HostError`] that says when to try again. A call that outlives its deadline keeps
//! its thread until the kernel lets go, and its caller does not wait for it. So threads come in
//! pools: a dead server under one kind of work leaves the others theirs. Of work with a key
//! ([`Job::alone`]) one piece runs at a time, so that trying again at something that hangs takes no
//! second thread. A piece that still waits for its turn when its caller goes away never runs.
//!
//! ```text
//!  caller ─► key's turn ─► pool's turn ─► thread (tokio's) ─► answer
//!              └ both are held by the work itself, until it is really over ┘
//! ```
//!
//! Refuses: deciding what to do about a full pool; [`PoolHealth`] tells.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
    time::Duration,
};

use ferrolet_ports::{HealthCheck, HostError, Retry};
use rustix::io::Errno;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// How long one touch of a file system may take before its caller is told to come back later.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Whose threads do a piece of work: what can hang together shares a pool, what must go on has
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Cgroups, `/proc`, and the agent's own small files.
    State,
    /// Pods' directories, logs, and volumes on the node's own disks.
    PodFiles,
    /// Whatever may be another machine's: mounts, devices, paths that somebody else chose.
    Mounts,
    /// Taking down trees, a slice at a time ([`crate::rooted::Rooted::remove_some`]).
    Removals,
    /// Walks over volumes that their pod waits for.
    Walks,
    /// What takes long and nobody's pod waits for: measuring disks, compression, profiles.
    Background,
    /// Names of hosts, which another machine resolves.
    Names,
}

/// The pools, with what each is called in [`PoolHealth`] and how many threads it may have. A thread
/// exists only while it is needed, and costs little while it hangs.
const POOLS: [(Pool, &str, usize); 7] = [
    (Pool::State, "cgroups and state files", 8),
    (Pool::PodFiles, "files of pods", 16),
    (Pool::Mounts, "mounts", 32),
    (Pool::Removals, "removals", 8),
    (Pool::Walks, "walks over volumes", 16),
    (Pool::Background, "work in the background", 8),
    (Pool::Names, "names of hosts", 16),
];

/// Threads for all pools together, which the async runtime must allow for.
pub const ALL_THREADS: usize = {
    let (mut sum, mut at) = (0, 0);
    while at < POOLS.len() {
        sum += POOLS[at].2;
        at += 1;
    }
    sum
};

/// The threads of this process, as the async runtime's own are.
static OF_PROCESS: LazyLock<[Threads; POOLS.len()]> =
    LazyLock::new(|| POOLS.map(|(_, _, size)| Threads::new(size)));

/// One piece of blocking work, before it runs.
#[must_use = "nothing happens before `run`"]
pub struct Job {
    pool: Pool,
    attempt: String,
    key: Option<String>,
    deadline: Option<Duration>,
}

impl Job {
    /// Work for a pool; the sentence says what is attempted.
    pub fn on(pool: Pool, attempt: impl fmt::Display) -> Self {
        Self { pool, attempt: attempt.to_string(), key: None, deadline: Some(DEADLINE) }
    }

    /// Of work with the same key, in the same pool, only one piece runs at a time.
    pub fn alone(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Another deadline than [`DEADLINE`].
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// However long it takes: for callers who can see how far it is.
    pub fn without_deadline(self) -> Self {
        Self { deadline: None, ..self }
    }

    /// Waits for its turn and its end, for at most the deadline.
    pub async fn run<T, F>(self, work: F) -> Result<T, HostError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, HostError> + Send + 'static,
    {
        let at = POOLS.iter().position(|(pool, ..)| *pool == self.pool);
        let threads = &OF_PROCESS[at.expect("every pool is in the table")];
        self.run_on(threads, work).await
    }

    async fn run_on<T, F>(self, threads: &Threads, work: F) -> Result<T, HostError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, HostError> + Send + 'static,
    {
        let Self { attempt, key, deadline, .. } = self;
        // Far enough away to be never; tokio refuses times that it cannot add.
        let deadline = deadline.unwrap_or(Duration::from_secs(365 * 24 * 3600));
        let until = Instant::now() + deadline;
        let later =
            |cause: String| HostError { attempt: attempt.clone(), cause, retry: Retry::Later };
        let overdue = |what: &str| later(format!("{what} within {} s", deadline.as_secs()));
        let turn = match &key {
            Some(key) => match timeout_at(until, threads.turn_of(key)).await {
                Ok(turn) => Some(turn),
                Err(_elapsed) => return Err(overdue("an earlier attempt did not end")),
            },
            None => None,
        };
        let Ok(thread) = timeout_at(until, threads.thread()).await else {
            return Err(overdue("no thread was free"));
        };
        let running = tokio::task::spawn_blocking(move || {
            let answer = work();
            drop((thread, turn));
            answer
        });
        match timeout_at(until, running).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(join)) => Err(later(join.to_string())),
            Err(_elapsed) => Err(overdue("no answer")),
        }
    }
}

/// The turns of one pool.
struct Threads {
    free: Arc<Semaphore>,
    /// Keys that somebody holds or waits for.
    turns: Mutex<BTreeMap<String, Weak<Semaphore>>>,
    /// When the last free thread was taken, while none has come back.
    full_since: Arc<Mutex<Option<Instant>>>,
}

/// The turn of a key, held until it is dropped.
struct Turn {
    _permit: OwnedSemaphorePermit,
    /// Keeps the key known.
    _turns: Arc<Semaphore>,
}

/// A thread of a pool, held until it is dropped.
struct Thread {
    _permit: OwnedSemaphorePermit,
    full_since: Arc<Mutex<Option<Instant>>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        *self.full_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Threads {
    fn new(size: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(size)),
            turns: Mutex::default(),
            full_since: Arc::default(),
        }
    }

    async fn turn_of(&self, key: &str) -> Turn {
        let turns = self.turns_of(key);
        let permit = Arc::clone(&turns).acquire_owned().await;
        Turn { _permit: permit.expect("turns are never closed"), _turns: turns }
    }

    fn turns_of(&self, key: &str) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, it| it.strong_count() > 0);
        if let Some(known) = turns.get(key).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Semaphore::new(1));
        turns.insert(key.to_owned(), Arc::downgrade(&new));
        new
    }

    async fn thread(&self) -> Thread {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        let permit = permit.expect("pools are never closed");
        if self.free.available_permits() == 0 {
            let mut since = self.full_since.lock().unwrap_or_else(PoisonError::into_inner);
            *since = Some(Instant::now());
        }
        Thread { _permit: permit, full_since: Arc::clone(&self.full_since) }
    }

    /// True when it has been full, and no thread came back, for as long as one touch of a file
    /// system may take.
    fn is_stuck(&self) -> bool {
        let since = *self.full_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() >= DEADLINE)
    }
}

/// Tells when every thread of a pool hangs.
pub struct PoolHealth;

impl HealthCheck for PoolHealth {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn check(&self) -> Result<(), String> {
        let pools = POOLS.iter().zip(OF_PROCESS.iter());
        let stuck = pools.filter(|(_, threads)| threads.is_stuck());
        let stuck: Vec<&str> = stuck.map(|((_, name, _), _)| *name).collect();
        if stuck.is_empty() {
            return Ok(());
        }
        let seconds = DEADLINE.as_secs();
        Err(format!("no thread has come back for {seconds} s from: {}", stuck.join(", ")))
    }
}

/// The kernel's refusal as the port's error.
pub fn refused(attempt: impl fmt::Display, cause: &io::Error) -> HostError {
    HostError { attempt: attempt.to_string(), cause: cause.to_string(), retry: retry_of(cause) }
}

/// Our own refusal of an input that will never be acceptable.
pub fn never(attempt: impl fmt::Display, cause: impl fmt::Display) -> HostError {
    HostError { attempt: attempt.to_string(), cause: cause.to_string(), retry: Retry::Never }
}

fn retry_of(cause: &io::Error) -> Retry {
    match cause.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::INTR | Errno::AGAIN) => Retry::Now,
        Some(Errno::INVAL | Errno::NAMETOOLONG | Errno::NOSYS) => Retry::Never,
        _ if cause.kind() == io::ErrorKind::InvalidInput => Retry::Never,
        _ => Retry::Later,
    }
}

#[cfg(test)]
mod tests;
