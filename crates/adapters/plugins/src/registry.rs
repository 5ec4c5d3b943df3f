//! Who is registered: one task per socket that asks who is there and tells it how that went.
//!
//! ```text
//!  socket appears ─► GetInfo ─► is it ours? ─► NodeGetInfo ─► registered, told ─ socket goes or is replaced ─► forgotten
//!       ▲               └ fails: again after 500 ms, doubled up to 2 min 2 s ┘
//! ```
//!
//! Owns the set of drivers. A driver whose socket is replaced is asked anew; one whose registration
//! fails is told why.

use std::{
    any::Any,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ferrolet_devices::is_extended_resource;
use ferrolet_ports::{
    CsiError, Measured, RegisteredDriver, Sample, metrics::PLUGIN_MANAGER_TOTAL_PLUGINS,
};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::sleep,
};
use tonic::Request;

use crate::{
    DeviceRegistry, DriverRegistry,
    csi::{counted, refused, timed},
    dra::Services,
    endpoint::{channel, socket_path},
    proto::{
        csi::{NodeGetInfoRequest, node_client::NodeClient},
        registration::{
            InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient,
        },
    },
};

/// The sockets that are there, each with something that changes when it is replaced.
pub type Sockets = BTreeMap<PathBuf, (u64, i64)>;

const CSI: &str = "CSIPlugin";
const DEVICES: &str = "DevicePlugin";
const CLAIMS: &str = "DRAPlugin";
/// The version of device plugins that we speak.
const DEVICE_VERSION: &str = "v1beta1";
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(122);
/// A plugin that cannot say its name in this time is asked again later.
const GREETING: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Driver {
    registration: PathBuf,
    socket: PathBuf,
    info: RegisteredDriver,
}

/// Who was found behind a socket.
enum Plugin {
    Csi(String, Driver),
    /// Somebody else took it, and takes care of it for as long as this lives.
    Taken(Box<dyn Any + Send + Sync>),
}

/// A plugin that offers devices, for as long as somebody remembers it: whoever is interrupted while
/// it registers, or forgets its socket, takes its leave.
struct ConnectedDevices {
    devices: Arc<DeviceRegistry>,
    socket: PathBuf,
}

impl Drop for ConnectedDevices {
    fn drop(&mut self) {
        self.devices.disconnect(&self.socket);
    }
}

/// A plugin of a driver of dynamic resources, for as long as somebody remembers it.
struct AddedDriver {
    drivers: Arc<DriverRegistry>,
    name: String,
    socket: PathBuf,
}

impl Drop for AddedDriver {
    fn drop(&mut self) {
        self.drivers.remove(&self.name, &self.socket);
    }
}

/// Who takes plugins that are not drivers of volumes; kinds that nobody takes are refused.
#[derive(Clone, Default)]
pub struct Takers {
    /// Plugins that offer devices.
    pub devices: Option<Arc<DeviceRegistry>>,
    /// Drivers of dynamic resources.
    pub claims: Option<Arc<DriverRegistry>>,
}

/// The plugins of this node.
#[derive(Default)]
pub struct Registry {
    takers: Takers,
    /// Plugins that somebody took, by their registration.
    taken: watch::Sender<BTreeMap<PathBuf, Box<dyn Any + Send + Sync>>>,
    drivers: watch::Sender<BTreeMap<String, Driver>>,
    shown: watch::Sender<BTreeMap<String, RegisteredDriver>>,
    /// Every socket that is there, whoever is behind it.
    sockets: watch::Sender<Vec<PathBuf>>,
}

/// A registration that did not succeed.
enum Refusal {
    /// Asking again may help.
    Later(String),
    /// The plugin is not for us, whatever happens.
    Never(String),
}

impl Registry {
    /// A registry of more than drivers of volumes.
    pub fn with_takers(takers: Takers) -> Self {
        Self { takers, ..Self::default() }
    }

    /// The drivers that are registered, and every change of them.
    pub fn registered(&self) -> watch::Receiver<BTreeMap<String, RegisteredDriver>> {
        self.shown.subscribe()
    }

    pub(crate) fn socket_of(&self, driver: &str) -> Option<PathBuf> {
        let drivers = self.drivers.borrow();
        drivers.get(driver).map(|it| it.socket.clone())
    }

    /// Asks a registered driver again what it says of this node.
    pub(crate) async fn ask_again(&self, name: &str, socket: &Path) -> Result<(), CsiError> {
        let info = node_info(name, socket).await?;
        let is_changed = self.drivers.send_if_modified(|drivers| {
            // One that has registered anew meanwhile has just said it.
            let known = drivers.get_mut(name).filter(|it| it.socket == socket);
            let Some(known) = known.filter(|it| it.info != info) else {
                return false;
            };
            known.info = info;
            true
        });
        if is_changed {
            self.show();
        }
        Ok(())
    }

    /// Follows the sockets until nobody names them any more.
    pub async fn run(&self, mut sockets: watch::Receiver<Sockets>) {
        let mut known: BTreeMap<PathBuf, ((u64, i64), AbortHandle)> = BTreeMap::new();
        let mut greetings: JoinSet<(PathBuf, Plugin)> = JoinSet::new();
        loop {
            let there = sockets.borrow_and_update().clone();
            self.sockets.send_replace(there.keys().cloned().collect());
            known.retain(|path, (stamp, greeting)| {
                let is_same = there.get(path) == Some(stamp);
                if !is_same {
                    greeting.abort();
                    self.forget(path);
                }
                is_same
            });
            for (path, stamp) in there {
                let takers = self.takers.clone();
                known.entry(path).or_insert_with_key(|path| {
                    (stamp, greetings.spawn(greet(path.clone(), takers)))
                });
            }
            tokio::select! {
                // Cancel-safe: the latest set is read again at the top.
                changed = sockets.changed() => if changed.is_err() { return },
                // Cancel-safe: a finished task stays in the set until it is taken. An aborted one
                // has nothing to say.
                Some(Ok((path, plugin))) = greetings.join_next() => {
                    if known.contains_key(&path) {
                        self.note(path, plugin);
                    }
                }
            }
        }
    }

    fn note(&self, registration: PathBuf, plugin: Plugin) {
        match plugin {
            Plugin::Csi(name, driver) => {
                tracing::info!(driver = name, endpoint = %driver.socket.display(), "CSI driver is registered");
                self.drivers.send_modify(|drivers| {
                    drivers.insert(name, driver);
                });
                self.show();
            }
            Plugin::Taken(keeper) => self.taken.send_modify(|taken| {
                taken.insert(registration, keeper);
            }),
        }
    }

    fn forget(&self, registration: &Path) {
        self.taken.send_if_modified(|taken| taken.remove(registration).is_some());
        let is_changed = self.drivers.send_if_modified(|drivers| {
            let before = drivers.len();
            drivers.retain(|name, driver| {
                let stays = driver.registration != registration;
                if !stays {
                    tracing::info!(driver = name, "CSI driver is gone");
                }
                stays
            });
            drivers.len() != before
        });
        if is_changed {
            self.show();
        }
    }

    fn show(&self) {
        let drivers = self.drivers.borrow().clone().into_iter();
        let shown = drivers.map(|(name, driver)| (name, driver.info)).collect();
        self.shown.send_replace(shown);
    }
}

/// Plugins that are there and plugins that are registered, in upstream's words.
impl Measured for Registry {
    fn samples(&self) -> Vec<Sample> {
        let sample = |path: &Path, state: &str| {
            PLUGIN_MANAGER_TOTAL_PLUGINS.sample([&path.display().to_string(), state], 1.0)
        };
        let drivers = self.drivers.borrow();
        let taken = self.taken.borrow();
        let actual = drivers.values().map(|it| &it.registration).chain(taken.keys());
        let actual = actual.map(|path| sample(path, "actual_state_of_world"));
        let sockets = self.sockets.borrow();
        let desired = sockets.iter().map(|path| sample(path, "desired_state_of_world"));
        actual.chain(desired).collect()
    }
}

/// Asks who is behind the socket until there is an answer that will not change.
async fn greet(registration: PathBuf, takers: Takers) -> (PathBuf, Plugin) {
    let mut pause = FIRST_PAUSE;
    loop {
        match register(&registration, &takers).await {
            Ok(plugin) => {
                tell(&registration, None).await;
                return (registration, plugin);
            }
            Err(Refusal::Never(why)) => {
                tracing::warn!(socket = %registration.display(), why, "Plugin is refused");
                tell(&registration, Some(why)).await;
                // Until the socket goes or is replaced, which ends this task.
                std::future::pending::<()>().await;
            }
            Err(Refusal::Later(why)) => {
                tracing::warn!(socket = %registration.display(), why, "Plugin cannot be registered yet");
                tell(&registration, Some(why)).await;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn register(registration: &Path, takers: &Takers) -> Result<Plugin, Refusal> {
    let later = |error: CsiError| Refusal::Later(error.message);
    let mut client = RegistrationClient::new(channel(registration));
    let asked = timed(InfoRequest {}, |it| client.get_info(it));
    let info = match tokio::time::timeout(GREETING, asked).await {
        Ok(info) => info.map_err(|status| later(refused(&status)))?,
        Err(_elapsed) => return Err(Refusal::Later("it does not say who it is".to_owned())),
    };
    let socket = match info.endpoint.as_str() {
        "" => registration.to_owned(),
        endpoint => socket_path(endpoint),
    };
    if let Some(drivers) = takers.claims.as_ref().filter(|_| info.r#type == CLAIMS) {
        if info.name.is_empty() {
            return Err(Refusal::Never("DRA driver name is empty".to_owned()));
        }
        let services = Services::of(&info.name, &socket, &info.supported_versions);
        let services = services.map_err(Refusal::Never)?;
        drivers.add(&info.name, &socket, services).await.map_err(Refusal::Later)?;
        let (drivers, name) = (drivers.clone(), info.name);
        return Ok(Plugin::Taken(Box::new(AddedDriver { drivers, name, socket })));
    }
    if let Some(devices) = takers.devices.as_ref().filter(|_| info.r#type == DEVICES) {
        check_devices(&info).map_err(Refusal::Never)?;
        devices.connect(&info.name, &socket).await.map_err(Refusal::Later)?;
        let devices = devices.clone();
        return Ok(Plugin::Taken(Box::new(ConnectedDevices { devices, socket })));
    }
    check(&info, registration).map_err(Refusal::Never)?;
    let driver = Driver {
        registration: registration.to_owned(),
        info: node_info(&info.name, &socket).await.map_err(later)?,
        socket,
    };
    Ok(Plugin::Csi(info.name, driver))
}

/// Why a plugin's devices are not for us.
fn check_devices(info: &PluginInfo) -> Result<(), String> {
    let versions = &info.supported_versions;
    if !versions.iter().any(|it| it == DEVICE_VERSION) {
        let versions = versions.join(" ");
        return Err(format!(
            "manager version, {DEVICE_VERSION}, is not among plugin supported versions [{versions}]"
        ));
    }
    if !is_extended_resource(&info.name) {
        let name = &info.name;
        return Err(format!(
            "invalid name of device plugin socket: the ResourceName {name:?} is invalid"
        ));
    }
    Ok(())
}

/// What a driver says of this node.
async fn node_info(name: &str, socket: &Path) -> Result<RegisteredDriver, CsiError> {
    let mut driver = NodeClient::new(channel(socket));
    let node = timed(NodeGetInfoRequest {}, |it| driver.node_get_info(it));
    let node = counted(name, "NodeGetInfo", node).await?;
    let topology = node.accessible_topology.unwrap_or_default();
    Ok(RegisteredDriver {
        node_id: node.node_id,
        max_volumes: node.max_volumes_per_node,
        topology: topology.segments,
    })
}

/// Why a plugin is not for us.
fn check(info: &PluginInfo, registration: &Path) -> Result<(), String> {
    if info.r#type != CSI {
        return Err(format!(
            "no handler registered for plugin type: {} at socket {}",
            info.r#type,
            registration.display()
        ));
    }
    if info.name.is_empty() || info.name.len() > 63 || info.name.contains('/') {
        return Err(format!("{:?} is not the name of a driver", info.name));
    }
    let is_ours = |version: &String| {
        let number = version.trim_start_matches('v');
        number == "1" || number.starts_with("1.")
    };
    if !info.supported_versions.iter().any(is_ours) {
        return Err(format!(
            "None of the versions specified {:?} are supported",
            info.supported_versions
        ));
    }
    Ok(())
}

/// Tells a plugin how its registration went. Whether it listens is its own business.
async fn tell(registration: &Path, fault: Option<String>) {
    let mut client = RegistrationClient::new(channel(registration));
    let status =
        RegistrationStatus { plugin_registered: fault.is_none(), error: fault.unwrap_or_default() };
    let told = client.notify_registration_status(Request::new(status));
    if let Ok(Err(status)) = tokio::time::timeout(GREETING, told).await {
        tracing::debug!(socket = %registration.display(), %status, "Plugin does not hear how its registration went");
    }
}
