//! The book behind its lock, and the port by which workers reach it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use ferrolet_devices::DeviceBook;
use ferrolet_node::DeviceResources;
use ferrolet_ports::{DeviceError, DevicePlugins, Fut, PodDevices};
use ferrolet_spec::PluginResources;
use ferrolet_types::{Pod, PodUid};
use k8s_openapi::api::core::v1::ResourceStatus;
use tokio::sync::{Notify, watch};

use crate::{Settings, allocate, shown};

/// What became of the newest copy of the book on disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Which copy.
    pub(crate) copy: u64,
    /// Why it could not be written.
    pub(crate) fault: Option<String>,
}

/// Devices of pods.
pub struct Devices {
    book: Mutex<DeviceBook>,
    /// The book says something new that is to be written.
    pub(crate) changed: Notify,
    /// How often the disk was asked to keep the book, and how that went last.
    pub(crate) kept: watch::Sender<Kept>,
    pub(crate) plugins: Arc<dyn DevicePlugins>,
    settings: Settings,
    /// There was no checkpoint: what an existing node claims is not to be believed.
    is_new: bool,
}

impl Devices {
    pub(crate) fn new(
        settings: Settings,
        book: DeviceBook,
        plugins: Arc<dyn DevicePlugins>,
        is_new: bool,
    ) -> Self {
        Self {
            book: Mutex::new(book),
            changed: Notify::new(),
            kept: watch::Sender::new(Kept::default()),
            plugins,
            settings,
            is_new,
        }
    }

    /// Looks into the book.
    pub(crate) fn look<T>(&self, of: impl FnOnce(&DeviceBook) -> T) -> T {
        of(&self.book.lock().expect("no panic while the lock is held"))
    }

    /// Changes the book.
    pub(crate) fn edit<T>(&self, edit: impl FnOnce(&mut DeviceBook) -> T) -> T {
        edit(&mut self.book.lock().expect("no panic while the lock is held"))
    }

    /// Waits until what was noted so far is on disk: a container that has a device which nobody
    /// remembers would share it after a restart.
    pub(crate) async fn await_kept(&self) -> Result<(), String> {
        let mut kept = self.kept.subscribe();
        // One that is being written may be older than what was noted; the one after it is not.
        let wanted = kept.borrow_and_update().copy + 2;
        self.changed.notify_one();
        loop {
            let known = kept.borrow_and_update().clone();
            match known.fault {
                Some(fault) if known.copy >= wanted => return Err(fault),
                None if known.copy >= wanted => return Ok(()),
                _ => {}
            }
            self.changed.notify_one();
            if kept.changed().await.is_err() {
                return Err("nobody keeps the record of devices any more".to_owned());
            }
        }
    }

    /// Shows what the node has.
    pub(crate) fn show(&self, amounts: &watch::Sender<DeviceResources>) {
        let new = DeviceResources { is_reset: self.is_new, ..self.look(DeviceBook::amounts) };
        amounts.send_if_modified(|old| std::mem::replace(old, new.clone()) != new);
    }
}

impl PodDevices for Devices {
    fn allocate<'a>(
        &'a self,
        pod: &'a Pod,
        running: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<(), DeviceError>> {
        Box::pin(allocate::allocate(self, pod, running))
    }

    fn for_container<'a>(
        &'a self,
        uid: &'a PodUid,
        container: &'a str,
    ) -> Fut<'a, Result<PluginResources, String>> {
        Box::pin(allocate::for_container(self, uid, container))
    }

    fn release(&self, uid: &PodUid) {
        if self.edit(|book| book.release(uid)) {
            self.changed.notify_one();
        }
    }

    fn retain(&self, is_known: &dyn Fn(&PodUid) -> bool) {
        if self.edit(|book| book.retain(is_known)) {
            self.changed.notify_one();
        }
    }

    fn health(&self, uid: &PodUid, container: &str) -> Vec<ResourceStatus> {
        match self.settings.shows_health {
            true => self.look(|book| shown::health(book, uid, container)),
            false => Vec::new(),
        }
    }
}
