//! What is left on a node, the kernel's alarm and what gives back, as a test sets them.

use std::sync::{Arc, Mutex};

use ferrolet_ports::{
    AlarmLine, Clock, Collectors, Fut, HostError, MeansReading, MemoryAlarm, NodeMeans, Retry,
    RuntimeError, StorePlaces,
};
use tokio::sync::Notify;

/// What is left, as a test sets it. Clones are handles to the same node.
#[derive(Clone)]
pub struct FakeMeans {
    reading: Arc<Mutex<Option<MeansReading>>>,
    clock: Arc<dyn Clock>,
}

impl FakeMeans {
    /// A node of which nothing can be read yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { reading: Arc::default(), clock }
    }

    /// What is left from now on; none, and reading fails.
    pub fn set(&self, reading: Option<MeansReading>) {
        *self.reading.lock().expect("no panic under this lock") = reading;
    }

    /// Changes what is left.
    pub fn change(&self, edit: impl FnOnce(&mut MeansReading)) {
        let mut reading = self.reading.lock().expect("no panic under this lock");
        edit(reading.as_mut().expect("something is set"));
    }
}

impl NodeMeans for FakeMeans {
    fn read_means<'a>(&'a self, _: &'a StorePlaces) -> Fut<'a, Result<MeansReading, HostError>> {
        let reading = self.reading.lock().expect("no panic under this lock").clone();
        let at = self.clock.now();
        Box::pin(async move {
            let reading = reading.ok_or_else(|| refused("read what is left"))?;
            Ok(MeansReading { at, ..reading })
        })
    }
}

/// An alarm that rings when a test says so.
#[derive(Clone, Default)]
pub struct FakeAlarm {
    lines: Arc<Mutex<Option<Vec<AlarmLine>>>>,
    is_refused: Arc<Mutex<bool>>,
    rung: Arc<Notify>,
}

impl FakeAlarm {
    /// Rings.
    pub fn ring(&self) {
        self.rung.notify_one();
    }

    /// The kernel takes no alarms from now on.
    pub fn refuse(&self) {
        *self.is_refused.lock().expect("no panic under this lock") = true;
    }

    /// The lines that were set last.
    pub fn lines(&self) -> Option<Vec<AlarmLine>> {
        self.lines.lock().expect("no panic under this lock").clone()
    }
}

impl MemoryAlarm for FakeAlarm {
    fn arm(&self, lines: Vec<AlarmLine>) -> Fut<'_, Result<(), HostError>> {
        let is_refused = *self.is_refused.lock().expect("no panic under this lock");
        if !is_refused {
            *self.lines.lock().expect("no panic under this lock") = Some(lines);
        }
        Box::pin(async move { if is_refused { Err(refused("set an alarm")) } else { Ok(()) } })
    }

    fn rings(&self) -> Fut<'_, ()> {
        Box::pin(self.rung.notified())
    }
}

/// What gives back: each call changes what is left as the test says.
#[derive(Clone)]
pub struct FakeCollectors {
    means: FakeMeans,
    calls: Arc<Mutex<Vec<&'static str>>>,
    frees: Arc<Mutex<u64>>,
}

impl FakeCollectors {
    /// Collectors that give back nothing yet.
    pub fn new(means: FakeMeans) -> Self {
        Self { means, calls: Arc::default(), frees: Arc::default() }
    }

    /// Each call frees so many bytes on the node's file systems from now on.
    pub fn free(&self, bytes: u64) {
        *self.frees.lock().expect("no panic under this lock") = bytes;
    }

    /// What was asked for, in order.
    pub fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().expect("no panic under this lock").clone()
    }

    fn collect(&self, what: &'static str) -> Fut<'_, Result<usize, RuntimeError>> {
        self.calls.lock().expect("no panic under this lock").push(what);
        let bytes = *self.frees.lock().expect("no panic under this lock");
        self.means.change(|reading| {
            let all = [&mut reading.node_fs, &mut reading.image_fs, &mut reading.container_fs];
            for disk in all.into_iter().flatten() {
                disk.room.available += bytes;
            }
        });
        Box::pin(async { Ok(1) })
    }
}

impl Collectors for FakeCollectors {
    fn remove_dead_containers(&self) -> Fut<'_, Result<usize, RuntimeError>> {
        self.collect("containers")
    }

    fn remove_unused_images(&self) -> Fut<'_, Result<usize, RuntimeError>> {
        self.collect("images")
    }
}

fn refused(attempt: &str) -> HostError {
    let cause = "as the test says".to_owned();
    HostError { attempt: attempt.to_owned(), cause, retry: Retry::Later }
}
