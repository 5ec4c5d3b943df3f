//! The thread that changes the kernel's network: it owns the sockets and everything that is known of pods' addresses.
//!
//! A thread of its own, because the sockets belong to the namespace of whoever opens them, because the calls block (for
//! about a millisecond a pod), and because the kernel does one after the other anyway. A call that nobody waits for any
//! more is done all the same: half a pod's network is worse than a whole one, which `teardown` removes.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot};

use crate::attachment::Attachment;
use crate::netlink::route::Counters;
use crate::netlink::socket::NetlinkError;
use crate::network::Restored;
use crate::plan::names::Names;
use crate::plan::pool::PoolError;
use crate::plan::range::Range;
use crate::routed::Routed;

/// Calls that wait; more wait in their callers.
const N_WAITING: usize = 64;

enum Job {
    Work(Box<dyn FnOnce(&mut Worker) + Send>),
    /// By itself, because those that wait are done together.
    Teardown(Attachment, oneshot::Sender<Result<(), NetlinkError>>),
}

/// A way to the thread; it ends with the last one.
#[derive(Clone, Debug)]
pub(crate) struct Handle(mpsc::Sender<Job>);

impl Handle {
    /// Has something done there. None if the thread is gone.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        let job = move |worker: &mut Worker| {
            let _unheard = sender.send(work(worker));
        };
        self.0.send(Job::Work(Box::new(job))).await.ok()?;
        answer.await.ok()
    }

    /// Has a sandbox's network taken away.
    pub(crate) async fn teardown(
        &self,
        attachment: Attachment,
    ) -> Option<Result<(), NetlinkError>> {
        let (sender, answer) = oneshot::channel();
        self.0.send(Job::Teardown(attachment, sender)).await.ok()?;
        answer.await.ok()
    }
}

/// The built-in network, from the moment somebody needs it.
#[derive(Debug)]
pub(crate) struct Worker {
    names: Names,
    ranges: Vec<Range>,
    unmasked: Vec<Range>,
    /// What is to be restored when it is opened.
    records: Vec<Attachment>,
    routed: Option<Routed>,
}

pub(crate) fn start(
    name: &str,
    ranges: Vec<Range>,
    unmasked: Vec<Range>,
) -> std::io::Result<Handle> {
    let names = Names::of(name);
    let (sender, mut jobs) = mpsc::channel::<Job>(N_WAITING);
    let mut worker = Worker { names, ranges, unmasked, records: Vec::new(), routed: None };
    std::thread::Builder::new().name("network".to_owned()).spawn(move || {
        while let Some(job) = jobs.blocking_recv() {
            let mut next = Some(job);
            let mut ends = Vec::new();
            while let Some(job) = next {
                match job {
                    Job::Teardown(attachment, answer) => ends.push((attachment, answer)),
                    Job::Work(work) => {
                        worker.teardown(std::mem::take(&mut ends));
                        work(&mut worker);
                    }
                }
                next = jobs.try_recv().ok();
            }
            worker.teardown(ends);
        }
    })?;
    Ok(Handle(sender))
}

type End = (Attachment, oneshot::Sender<Result<(), NetlinkError>>);

impl Worker {
    /// The network, opened and restored.
    pub(crate) fn routed(&mut self) -> Result<&mut Routed, NetlinkError> {
        if self.routed.is_none() {
            self.open()?;
        }
        Ok(self.routed.as_mut().expect("it was just opened"))
    }

    fn open(&mut self) -> Result<Restored, NetlinkError> {
        let mut routed = Routed::open(&self.names, &self.ranges, &self.unmasked)?;
        let restored = routed.restore(&self.records)?;
        self.records.clear();
        self.routed = Some(routed);
        Ok(restored)
    }

    pub(crate) fn restore(&mut self, records: Vec<Attachment>) -> Result<Restored, NetlinkError> {
        // A second time starts from nothing too: what there is follows from the records alone.
        self.records = records;
        self.routed = None;
        self.open()
    }

    fn teardown(&mut self, ends: Vec<End>) {
        if ends.is_empty() {
            return;
        }
        if let Ok(routed) = self.routed()
            && ends.len() > 1
        {
            routed.prepare_teardown(&ends.iter().map(|it| &it.0).collect::<Vec<_>>());
        }
        for (attachment, answer) in ends {
            let _unheard = answer.send(self.routed().and_then(|it| it.teardown(&attachment)));
        }
    }

    pub(crate) fn set_ranges(&mut self, ranges: Vec<Range>) -> Result<(), NetlinkError> {
        self.ranges = ranges;
        match &mut self.routed {
            Some(routed) => routed.set_ranges(&self.ranges),
            None => Ok(()),
        }
    }

    /// Why no pod can be connected, if so.
    pub(crate) fn trouble(&mut self) -> Option<String> {
        if self.ranges.is_empty() {
            return Some(PoolError::NoRange.to_string());
        }
        self.routed().err().map(|error| error.to_string())
    }

    pub(crate) fn usage(&mut self) -> Result<BTreeMap<String, Counters>, NetlinkError> {
        self.routed.as_mut().map_or_else(|| Ok(BTreeMap::new()), Routed::usage)
    }
}
