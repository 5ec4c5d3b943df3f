//! The book behind its lock, and the port by which workers reach it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use ferrolet_devices::DeviceBook;
use ferrolet_node::DeviceResources;
use ferrolet_ports::{DeviceError, DevicePlugins, DiskCopy, Fut, PodDevices};
use ferrolet_spec::PluginResources;
use ferrolet_types::{Pod, PodUid};
use k8s_openapi::api::core::v1::ResourceStatus;
use tokio::sync::watch;

use crate::{Settings, allocate, shown};

/// Devices of pods.
pub struct Devices {
    book: Mutex<DeviceBook>,
    /// The book on disk.
    pub(crate) copy: DiskCopy,
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
        Self { book: Mutex::new(book), copy: DiskCopy::default(), plugins, settings, is_new }
    }

    /// Looks into the book.
    pub(crate) fn look<T>(&self, of: impl FnOnce(&DeviceBook) -> T) -> T {
        of(&self.book.lock().expect("no panic while the lock is held"))
    }

    /// Changes the book.
    pub(crate) fn edit<T>(&self, edit: impl FnOnce(&mut DeviceBook) -> T) -> T {
        edit(&mut self.book.lock().expect("no panic while the lock is held"))
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
            self.copy.touch();
        }
    }

    fn retain(&self, is_known: &dyn Fn(&PodUid) -> bool) {
        if self.edit(|book| book.retain(is_known)) {
            self.copy.touch();
        }
    }

    fn health(&self, uid: &PodUid, container: &str) -> Vec<ResourceStatus> {
        match self.settings.shows_health {
            true => self.look(|book| shown::health(book, uid, container)),
            false => Vec::new(),
        }
    }
}
