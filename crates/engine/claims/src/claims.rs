//! The books behind their locks, and the port by which workers reach them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use ferrolet_claims::{ClaimBook, HealthBook, cdi_devices, health_of, wanted};
use ferrolet_ports::{ClaimDrivers, ClaimObjects, Clock, DiskCopy, Fut, PodClaims};
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use k8s_openapi::api::core::v1::{Container, ResourceStatus};

use crate::{Settings, metrics::timed, prepare::prepare, unprepare::unprepare, wipe::Wiping};

/// Claims of pods.
pub struct Claims {
    book: Mutex<ClaimBook>,
    health: Mutex<HealthBook>,
    /// Pods for which something could not be done. They are told when a driver comes.
    waiting: Mutex<BTreeSet<PodUid>>,
    /// The book on disk.
    pub(crate) copy: DiskCopy,
    pub(crate) wiping: Wiping,
    pub(crate) drivers: Arc<dyn ClaimDrivers>,
    /// A node on its own has none.
    pub(crate) objects: Option<Arc<dyn ClaimObjects>>,
    clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
}

impl Claims {
    pub(crate) fn new(
        settings: Settings,
        (book, health): (ClaimBook, HealthBook),
        (drivers, objects): (Arc<dyn ClaimDrivers>, Option<Arc<dyn ClaimObjects>>),
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            book: Mutex::new(book),
            health: Mutex::new(health),
            waiting: Mutex::default(),
            copy: DiskCopy::default(),
            wiping: Wiping::default(),
            drivers,
            objects,
            clock,
            settings,
        }
    }

    /// Looks into the book.
    pub(crate) fn look<T>(&self, of: impl FnOnce(&ClaimBook) -> T) -> T {
        of(&self.book.lock().expect("no panic while the lock is held"))
    }

    /// Changes the book.
    pub(crate) fn edit<T>(&self, edit: impl FnOnce(&mut ClaimBook) -> T) -> T {
        edit(&mut self.book.lock().expect("no panic while the lock is held"))
    }

    /// Changes what is known of devices.
    pub(crate) fn edit_health<T>(&self, edit: impl FnOnce(&mut HealthBook) -> T) -> T {
        edit(&mut self.health.lock().expect("no panic while the lock is held"))
    }

    /// Notes who waits for a driver, or does not any longer.
    fn note_waiting(&self, uid: &PodUid, outcome: &Result<(), String>) {
        let mut waiting = self.waiting.lock().expect("no panic while the lock is held");
        match outcome {
            Ok(()) => waiting.remove(uid),
            Err(_) => waiting.insert(uid.clone()),
        };
    }

    /// Everybody who waits, once.
    pub(crate) fn take_waiting(&self) -> BTreeSet<PodUid> {
        std::mem::take(&mut *self.waiting.lock().expect("no panic while the lock is held"))
    }
}

impl PodClaims for Claims {
    fn prepare<'a>(&'a self, pod: &'a Pod) -> Fut<'a, Result<(), String>> {
        Box::pin(async move {
            let prepared = timed("PrepareResources", prepare(self, pod)).await;
            let prepared = prepared.map_err(|fault| format!("prepare dynamic resources: {fault}"));
            self.note_waiting(&pod.uid(), &prepared);
            prepared
        })
    }

    fn ensure<'a>(&'a self, pod: &'a Pod) -> Fut<'a, Result<(), String>> {
        let names = wanted(pod).map(|it| it.into_iter().map(|it| it.name).collect::<Vec<_>>());
        let is_known = |names: Vec<String>| self.look(|book| book.has_all(pod, &names));
        match names.is_ok_and(is_known) {
            true => Box::pin(async { Ok(()) }),
            false => self.prepare(pod),
        }
    }

    fn cdi_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, String> {
        self.look(|book| cdi_devices(book, pod, container)).map_err(|refusal| refusal.to_string())
    }

    fn holds(&self, uid: &PodUid) -> bool {
        self.look(|book| book.has_pod(uid))
    }

    fn unprepare<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), String>> {
        Box::pin(async move {
            let taken = timed("UnprepareResources", unprepare(self, uid)).await;
            let taken = taken.map_err(|fault| format!("unprepare dynamic resources: {fault}"));
            self.note_waiting(uid, &taken);
            taken
        })
    }

    fn holders(&self) -> BTreeSet<PodUid> {
        self.look(ClaimBook::pods)
    }

    fn health(&self, pod: &Pod, container: &Container) -> Vec<ResourceStatus> {
        if !self.settings.shows_health {
            return Vec::new();
        }
        let health = self.health.lock().expect("no panic while the lock is held");
        let mut shown =
            self.look(|book| health_of((book, &health), pod, container, self.clock.now()));
        if !self.settings.shows_messages {
            let all = shown.iter_mut().flat_map(|it| it.resources.iter_mut().flatten());
            all.for_each(|it| it.message = None);
        }
        shown
    }
}
