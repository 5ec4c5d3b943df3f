//! The fake probes and hooks: probes remember what they were told, hooks succeed unless a test says
//! otherwise. And the end of connections, which are only counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::BorrowedFd,
};

use ferrolet_ports::{Fut, HookCall, HookError, Hooks, HostError, Outbound, Probing, Retry};
use ferrolet_types::probe::PodProbes;
use ferrolet_types::{PodUid, pod::PodView as _};

/// Probes that never run: a test sends the reports itself and asks what the probes were told.
#[derive(Default)]
pub struct FakeProbing {
    told: Mutex<BTreeMap<PodUid, PodProbes>>,
}

impl FakeProbing {
    /// What the probes last heard of a pod; `None` when they never did, or were told to forget it.
    pub fn told(&self, uid: &PodUid) -> Option<PodProbes> {
        self.told.lock().expect("no panic while the lock is held").get(uid).cloned()
    }
}

impl Probing for FakeProbing {
    fn watch_pod(&self, pod: PodProbes) {
        let mut told = self.told.lock().expect("no panic while the lock is held");
        told.insert(pod.pod.uid(), pod);
    }

    fn hurry(&self, _: &PodUid) {}

    fn forget(&self, uid: &PodUid) {
        let mut told = self.told.lock().expect("no panic while the lock is held");
        told.remove(uid);
    }
}

/// Hooks that succeed at once, except for containers a test names.
#[derive(Default)]
pub struct FakeHooks {
    failing: Mutex<BTreeSet<String>>,
    endless: Mutex<BTreeSet<String>>,
    n_under_way: AtomicUsize,
}

/// A hook that does not end by itself.
struct Endless<'a>(&'a AtomicUsize);

impl Drop for Endless<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FakeHooks {
    /// How many endless hooks nobody has given up yet.
    pub fn n_under_way(&self) -> usize {
        self.n_under_way.load(Ordering::Relaxed)
    }

    /// Hooks of containers of this name fail from now on.
    pub fn fail_for(&self, container: &str) {
        let mut failing = self.failing.lock().expect("no panic while the lock is held");
        failing.insert(container.to_owned());
    }

    /// Hooks of containers of this name never end from now on.
    pub fn hang_for(&self, container: &str) {
        let mut endless = self.endless.lock().expect("no panic while the lock is held");
        endless.insert(container.to_owned());
    }
}

impl Hooks for FakeHooks {
    fn run<'a>(&'a self, call: &'a HookCall) -> Fut<'a, Result<(), HookError>> {
        let failing = self.failing.lock().expect("no panic while the lock is held");
        let fails = failing.contains(&call.container.name);
        let endless = self.endless.lock().expect("no panic while the lock is held");
        let hangs = endless.contains(&call.container.name);
        Box::pin(async move {
            if hangs {
                self.n_under_way.fetch_add(1, Ordering::Relaxed);
                let _endless = Endless(&self.n_under_way);
                std::future::pending::<()>().await;
            }
            if !fails {
                return Ok(());
            }
            Err(HookError::Invalid { handler: "a hook that fails".to_owned() })
        })
    }
}

/// Counts the connections that are to be forgotten soon, and leaves them as they are.
#[derive(Debug, Default)]
pub struct FakeOutbound {
    n_told: AtomicUsize,
}

impl FakeOutbound {
    /// How many connections it was told of.
    pub fn n_told(&self) -> usize {
        self.n_told.load(Ordering::Relaxed)
    }
}

impl Outbound for FakeOutbound {
    /// This machine is all there is.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> Fut<'a, Result<Vec<SocketAddr>, HostError>> {
        let unknown = || HostError {
            attempt: format!("resolve {host}"),
            cause: "no such host".to_owned(),
            retry: Retry::Later,
        };
        let own = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let found = (host == "localhost").then(|| vec![own]).ok_or_else(unknown);
        Box::pin(std::future::ready(found))
    }

    fn skip_time_wait(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        self.n_told.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
