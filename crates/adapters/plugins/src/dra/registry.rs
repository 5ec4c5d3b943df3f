//! Which plugins drivers have, and which of them are connected.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use ferrolet_ports::DriverNews;
use tokio::sync::{Notify, mpsc};
use tonic::transport::Channel;

use super::listen::{DriverWatch, Opened};
use crate::endpoint::channel;

/// Plugins that are registered at once; there are far fewer kinds of devices on any machine.
const MOST_PLUGINS: usize = 256;
/// News on their way to the engine, and plugins on their way to their task.
const WAITING: usize = 16;

/// The service by which a plugin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    V1,
    V1Beta1,
}

/// The service by which a plugin says how its devices feel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthService {
    V1,
    V1Alpha1,
}

const SERVICES: [(&str, Service); 2] =
    [("v1.DRAPlugin", Service::V1), ("v1beta1.DRAPlugin", Service::V1Beta1)];
const HEALTH_SERVICES: [(&str, HealthService); 2] = [
    ("v1.DRAResourceHealth", HealthService::V1),
    ("v1alpha1.DRAResourceHealth", HealthService::V1Alpha1),
];

/// What of a plugin's services we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Services {
    pub(super) calls: Service,
    pub(super) health: Option<HealthService>,
}

impl Services {
    /// The first of a plugin's services that we know, in its own order; else upstream's words.
    pub(crate) fn of(driver: &str, socket: &Path, offered: &[String]) -> Result<Self, String> {
        let refused = |why: String| {
            let socket = socket.display();
            format!(
                "invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {socket}: {why}"
            )
        };
        if offered.is_empty() {
            let why = "empty list of supported gRPC services (aka supported versions)";
            return Err(refused(why.to_owned()));
        }
        let known = |name: &String| SERVICES.iter().find(|(known, _)| known == name);
        let Some((_, calls)) = offered.iter().find_map(known) else {
            let ours: Vec<&str> = SERVICES.iter().map(|(name, _)| *name).collect();
            return Err(refused(format!(
                "none of services supported by the plugin ({}) are supported by the kubelet ({})",
                quoted(offered),
                quoted(&ours),
            )));
        };
        let is_offered = |(name, _): &&(&str, HealthService)| offered.iter().any(|it| it == name);
        let health = HEALTH_SERVICES.iter().find(is_offered).map(|(_, health)| *health);
        Ok(Self { calls: *calls, health })
    }
}

/// A list as Go prints it with `%q`.
fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<String> = names.iter().map(|it| format!("{:?}", it.as_ref())).collect();
    format!("[{}]", names.join(" "))
}

/// One plugin of a driver.
struct Plugin {
    id: u64,
    socket: PathBuf,
    services: Services,
    /// While it is connected.
    channel: Option<Channel>,
    /// Its socket is gone.
    leave: Arc<Notify>,
}

/// The drivers of dynamic resources of this node.
pub struct DriverRegistry {
    /// By driver, in the order in which they came.
    plugins: Mutex<BTreeMap<String, Vec<Plugin>>>,
    next: AtomicU64,
    opened: mpsc::Sender<Opened>,
}

impl DriverRegistry {
    /// A registry, its loop, and what it tells. Drivers are asked how devices feel where
    /// `asks_health` says so.
    pub fn new(asks_health: bool) -> (Arc<Self>, DriverWatch, mpsc::Receiver<DriverNews>) {
        let (opened_sender, opened) = mpsc::channel(WAITING);
        let (news_sender, news) = mpsc::channel(WAITING);
        let registry = Arc::new(Self {
            plugins: Mutex::default(),
            next: AtomicU64::new(1),
            opened: opened_sender,
        });
        let watch = DriverWatch::new(registry.clone(), opened, news_sender, asks_health);
        (registry, watch, news)
    }

    /// Takes a plugin in.
    pub(crate) async fn add(
        &self,
        driver: &str,
        socket: &Path,
        services: Services,
    ) -> Result<(), String> {
        let opened = {
            let mut all = self.lock();
            let n: usize = all.values().map(Vec::len).sum();
            if n >= MOST_PLUGINS {
                return Err(format!("more than {MOST_PLUGINS} plugins of DRA drivers are there"));
            }
            let own = all.entry(driver.to_owned()).or_default();
            if own.iter().any(|it| it.socket == socket) {
                let socket = socket.display();
                return Err(format!(
                    "endpoint {socket} already registered for DRA driver plugin {driver}"
                ));
            }
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let leave = Arc::<Notify>::default();
            let (driver, socket) = (driver.to_owned(), socket.to_owned());
            let plugin = Plugin {
                id,
                socket: socket.clone(),
                services,
                channel: None,
                leave: leave.clone(),
            };
            own.push(plugin);
            Opened { id, driver, socket, services, leave }
        };
        self.opened.send(opened).await.map_err(|_| "nobody listens to DRA drivers".to_owned())
    }

    /// A plugin's registration is gone: it is asked no more.
    pub(crate) fn remove(&self, driver: &str, socket: &Path) {
        let mut all = self.lock();
        let Some(own) = all.get_mut(driver) else { return };
        own.retain(|it| {
            if it.socket == socket {
                it.leave.notify_one();
            }
            it.socket != socket
        });
        if own.is_empty() {
            all.remove(driver);
        }
    }

    /// Notes that a plugin is connected, or no longer.
    pub(super) fn note(&self, (driver, id): (&str, u64), channel: Option<Channel>) {
        let mut all = self.lock();
        let own = all.get_mut(driver).into_iter().flatten();
        if let Some(plugin) = own.into_iter().find(|it| it.id == id) {
            plugin.channel = channel;
        }
    }

    /// True while some plugin of the driver is connected.
    pub(super) fn is_usable(&self, driver: &str) -> bool {
        self.lock().get(driver).is_some_and(|own| own.iter().any(|it| it.channel.is_some()))
    }

    /// True for a driver with a plugin, connected or not.
    pub(super) fn is_known(&self, driver: &str) -> bool {
        self.lock().contains_key(driver)
    }

    /// Where to ask a driver: its newest plugin that is connected, else the newest of all.
    pub(super) fn way_to(&self, driver: &str) -> Option<(Channel, Service)> {
        let all = self.lock();
        let own = all.get(driver)?;
        let connected = own.iter().rev().find(|it| it.channel.is_some());
        let plugin = connected.or_else(|| own.last())?;
        let way = plugin.channel.clone().unwrap_or_else(|| channel(&plugin.socket));
        Some((way, plugin.services.calls))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Plugin>>> {
        self.plugins.lock().expect("no panic while the lock is held")
    }
}
