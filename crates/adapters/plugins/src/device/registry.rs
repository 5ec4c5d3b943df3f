//! Who is connected, and the task that listens to each.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ferrolet_devices::{Device, PluginId, PluginOptions, is_extended_resource};
use ferrolet_ports::{HealthCheck, PluginNews};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::transport::Channel;

use crate::{
    codes::words,
    endpoint::connect,
    proto::device::{
        DevicePluginOptions, Empty, ListAndWatchResponse, device_plugin_client::DevicePluginClient,
    },
};

/// Upstream's version of the interface.
pub(super) const VERSION: &str = "v1beta1";
/// A device that may be given to somebody.
const HEALTHY: &str = "Healthy";
/// A plugin is given this long to answer on its socket, and as long to say what it wants.
const GREETING: Duration = Duration::from_secs(10);
/// Plugins that are connected at once; there are far fewer kinds of devices on any machine.
const MOST_PLUGINS: usize = 256;
/// A plugin that lists without end is heard this often.
const BETWEEN_LISTS: Duration = Duration::from_millis(50);
/// A plugin that was restarted may register before its end was noticed: it is waited for so long.
const PREDECESSOR: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// News on their way to the engine, and plugins on their way to their task.
const WAITING: usize = 16;

pub(super) type Client = DevicePluginClient<Channel>;

/// One plugin that is connected, or about to be.
struct Connection {
    resource: String,
    socket: PathBuf,
    /// Only once it is connected.
    client: Option<Client>,
    /// Somebody wants it gone.
    leave: Arc<Notify>,
}

/// A plugin that was connected and is to be listened to.
struct Opened {
    plugin: PluginId,
    resource: String,
    options: PluginOptions,
    client: Client,
    leave: Arc<Notify>,
}

/// The device plugins of this node.
pub struct DeviceRegistry {
    pub(super) directory: PathBuf,
    connections: Mutex<BTreeMap<PluginId, Connection>>,
    next: AtomicU64,
    opened: mpsc::Sender<Opened>,
    /// Why nobody can register any more.
    fault: Mutex<Option<String>>,
}

/// The loop that listens to plugins.
pub struct DeviceWatch {
    opened: mpsc::Receiver<Opened>,
    news: mpsc::Sender<PluginNews>,
}

impl DeviceRegistry {
    /// A registry for plugins whose sockets are in that directory, its loop, and what it tells.
    pub fn new(directory: PathBuf) -> (Arc<Self>, DeviceWatch, mpsc::Receiver<PluginNews>) {
        let (opened_sender, opened) = mpsc::channel(WAITING);
        let (news_sender, news) = mpsc::channel(WAITING);
        let registry = Self {
            directory,
            connections: Mutex::default(),
            next: AtomicU64::new(1),
            opened: opened_sender,
            fault: Mutex::default(),
        };
        (Arc::new(registry), DeviceWatch { opened, news: news_sender }, news)
    }

    /// Connects to a plugin that offers devices of a resource on that socket.
    pub(crate) async fn connect(&self, resource: &str, socket: &Path) -> Result<(), String> {
        if !is_extended_resource(resource) {
            return Err(format!("the ResourceName {resource:?} is invalid"));
        }
        let is_free = async {
            while self.is_connected(resource, socket) {
                sleep(LOOK_AGAIN).await;
            }
        };
        if timeout(PREDECESSOR, is_free).await.is_err() {
            return Err(format!("device plugin already connected: {}", socket.display()));
        }
        let plugin = self.add(resource, socket)?;
        let greeted = self.greet(plugin, resource, socket).await;
        if greeted.is_err() {
            self.connections().remove(&plugin);
        }
        greeted
    }

    async fn greet(&self, plugin: PluginId, resource: &str, socket: &Path) -> Result<(), String> {
        let dialled = timeout(GREETING, connect(socket)).await;
        let channel = match dialled {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => {
                return Err(format!("failed to dial device plugin: {}", chain(&error)));
            }
            Err(_elapsed) => {
                return Err("failed to dial device plugin: context deadline exceeded".to_owned());
            }
        };
        let mut client = DevicePluginClient::new(channel);
        let asked = timeout(GREETING, client.get_device_plugin_options(Empty {})).await;
        let options = match asked {
            Ok(Ok(options)) => options.into_inner(),
            Ok(Err(status)) => {
                return Err(format!("failed to get device plugin options: {}", words(&status)));
            }
            Err(_elapsed) => {
                return Err(
                    "failed to get device plugin options: context deadline exceeded".to_owned()
                );
            }
        };
        let leave = {
            let mut connections = self.connections();
            let Some(connection) = connections.get_mut(&plugin) else {
                return Err("device plugin was taken away meanwhile".to_owned());
            };
            connection.client = Some(client.clone());
            connection.leave.clone()
        };
        let (resource, options) = (resource.to_owned(), understood(&options));
        let opened = Opened { plugin, resource, options, client, leave };
        self.opened.send(opened).await.map_err(|_| "nobody listens to device plugins".to_owned())
    }

    /// Takes a plugin's leave: its socket is gone.
    pub(crate) fn disconnect(&self, socket: &Path) {
        let connections = self.connections();
        for connection in connections.values().filter(|it| it.socket == socket) {
            connection.leave.notify_one();
        }
    }

    /// The client of a plugin; else upstream's words for one that is not there.
    pub(super) fn client(&self, plugin: PluginId) -> Result<Client, String> {
        let connections = self.connections();
        let client = connections.get(&plugin).and_then(|it| it.client.clone());
        client.ok_or_else(|| format!("endpoint {} has been stopped", plugin.0))
    }

    /// Notes that nobody can register any more.
    pub(super) fn fail(&self, why: &str) {
        *self.fault.lock().expect("no panic while the lock is held") = Some(why.to_owned());
    }

    fn add(&self, resource: &str, socket: &Path) -> Result<PluginId, String> {
        let mut connections = self.connections();
        if connections.len() >= MOST_PLUGINS {
            return Err(format!("more than {MOST_PLUGINS} device plugins are connected"));
        }
        let plugin = PluginId(self.next.fetch_add(1, Ordering::Relaxed));
        let connection = Connection {
            resource: resource.to_owned(),
            socket: socket.to_owned(),
            client: None,
            leave: Arc::default(),
        };
        connections.insert(plugin, connection);
        Ok(plugin)
    }

    fn is_connected(&self, resource: &str, socket: &Path) -> bool {
        let connections = self.connections();
        connections.values().any(|it| it.resource == resource && it.socket == socket)
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, BTreeMap<PluginId, Connection>> {
        self.connections.lock().expect("no panic while the lock is held")
    }
}

/// Registration is open until the socket cannot be served any more.
impl HealthCheck for DeviceRegistry {
    fn name(&self) -> &'static str {
        "device-plugin"
    }

    fn check(&self) -> Result<(), String> {
        let fault = self.fault.lock().expect("no panic while the lock is held");
        match fault.as_ref() {
            None => Ok(()),
            Some(why) => Err(format!(
                "device registration error: device plugin registration gRPC server failed and no device plugins can register: {why}"
            )),
        }
    }
}

impl DeviceWatch {
    /// Listens to every plugin until nobody can register any more.
    pub async fn run(mut self, registry: Arc<DeviceRegistry>) {
        let mut plugins: JoinSet<()> = JoinSet::new();
        loop {
            tokio::select! {
                // Receiving is cancel-safe: a message is taken only when it is returned.
                opened = self.opened.recv() => match opened {
                    Some(opened) => {
                        plugins.spawn(listen(registry.clone(), opened, self.news.clone()));
                    }
                    None => return,
                },
                // Cancel-safe: a task that ended stays in the set until it is taken.
                Some(_) = plugins.join_next() => {}
            }
        }
    }
}

/// Listens to one plugin until its stream ends or its socket goes.
async fn listen(registry: Arc<DeviceRegistry>, opened: Opened, news: mpsc::Sender<PluginNews>) {
    let Opened { plugin, resource, options, client, leave } = opened;
    let name = resource.clone();
    // An engine that ended needs no news.
    let _ = news.send(PluginNews::Connected { resource: name, plugin, options }).await;
    let hearing = hear(client, (&resource, plugin), &news);
    let why = tokio::select! {
        // Nothing is lost by not hearing on: the plugin is to go.
        why = hearing => why,
        () = leave.notified() => "its socket is gone".to_owned(),
    };
    tracing::info!(resource, why, "Device plugin is heard no longer");
    registry.connections().remove(&plugin);
    let _ = news.send(PluginNews::Gone { resource, plugin }).await;
}

/// Passes on what a plugin lists; answers why that ended.
async fn hear(
    mut client: Client,
    (resource, plugin): (&str, PluginId),
    news: &mpsc::Sender<PluginNews>,
) -> String {
    let mut lists = match client.list_and_watch(Empty {}).await {
        Ok(lists) => lists.into_inner(),
        Err(status) => return words(&status),
    };
    loop {
        match lists.message().await {
            Ok(Some(list)) => {
                let (resource, devices) = (resource.to_owned(), listed(list));
                let said = PluginNews::Listed { resource, plugin, devices };
                if news.send(said).await.is_err() {
                    return "nobody listens".to_owned();
                }
                sleep(BETWEEN_LISTS).await;
            }
            Ok(None) => return "EOF".to_owned(),
            Err(status) => return words(&status),
        }
    }
}

fn listed(list: ListAndWatchResponse) -> BTreeMap<String, Device> {
    let devices = list.devices.into_iter().map(|device| {
        let nodes = device.topology.map(|it| it.nodes).unwrap_or_default();
        let known = Device {
            is_healthy: device.health == HEALTHY,
            numa_nodes: nodes.into_iter().map(|it| it.id).collect(),
        };
        (device.id, known)
    });
    devices.collect()
}

fn understood(options: &DevicePluginOptions) -> PluginOptions {
    PluginOptions {
        pre_start: options.pre_start_required,
        preferred: options.get_preferred_allocation_available,
    }
}

/// An error with everything under it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut under = error.source();
    while let Some(cause) = under {
        text = format!("{text}: {cause}");
        under = cause.source();
    }
    text
}
