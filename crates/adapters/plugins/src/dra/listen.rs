//! The loop that follows each plugin's connection, and tells which drivers can be reached.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::DriverNews;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::transport::Channel;

use super::{DriverRegistry, health::watch_health, registry::Services};
use crate::endpoint::connect_watched;

/// A plugin that cannot be dialled is dialled again after this, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const DIALLING: Duration = Duration::from_secs(10);
/// Words that a connection changed, on their way to the loop.
const MOVES: usize = 16;

/// A plugin that is to be followed.
pub(super) struct Opened {
    pub(super) id: u64,
    pub(super) driver: String,
    pub(super) socket: PathBuf,
    pub(super) services: Services,
    /// Its registration is gone.
    pub(super) leave: Arc<Notify>,
}

/// The loop that follows plugins of drivers.
pub struct DriverWatch {
    registry: Arc<DriverRegistry>,
    opened: mpsc::Receiver<Opened>,
    news: mpsc::Sender<DriverNews>,
    asks_health: bool,
}

impl DriverWatch {
    pub(super) fn new(
        registry: Arc<DriverRegistry>,
        opened: mpsc::Receiver<Opened>,
        news: mpsc::Sender<DriverNews>,
        asks_health: bool,
    ) -> Self {
        Self { registry, opened, news, asks_health }
    }

    /// Follows every plugin for ever.
    pub async fn run(mut self) {
        let (moved_sender, mut moved) = mpsc::channel(MOVES);
        let mut plugins: JoinSet<()> = JoinSet::new();
        let mut told: BTreeMap<String, bool> = BTreeMap::new();
        loop {
            let driver = tokio::select! {
                // Receiving is cancel-safe: a message is taken only when it is returned.
                opened = self.opened.recv() => {
                    let Some(opened) = opened else { return };
                    let follower = Follower {
                        registry: self.registry.clone(),
                        moved: moved_sender.clone(),
                        news: self.news.clone(),
                        asks_health: self.asks_health,
                    };
                    plugins.spawn(follower.follow(opened));
                    continue;
                }
                Some(driver) = moved.recv() => driver,
                // Cancel-safe: a task that ended stays in the set until it is taken.
                Some(_) = plugins.join_next() => continue,
            };
            self.tell(driver, &mut told).await;
        }
    }

    /// Tells whether a driver can be reached, where that is news.
    async fn tell(&self, driver: String, told: &mut BTreeMap<String, bool>) {
        let is_usable = self.registry.is_usable(&driver);
        let is_news = told.get(&driver) != Some(&is_usable);
        if is_usable || self.registry.is_known(&driver) {
            told.insert(driver.clone(), is_usable);
        } else {
            told.remove(&driver);
        }
        if is_news {
            let said = match is_usable {
                true => DriverNews::Usable { driver },
                false => DriverNews::Unusable { driver },
            };
            // An engine that ended needs no news.
            let _ = self.news.send(said).await;
        }
    }
}

/// Follows one plugin.
struct Follower {
    registry: Arc<DriverRegistry>,
    moved: mpsc::Sender<String>,
    news: mpsc::Sender<DriverNews>,
    asks_health: bool,
}

impl Follower {
    /// Keeps the plugin connected until its registration goes.
    async fn follow(self, plugin: Opened) {
        let leave = plugin.leave.clone();
        tokio::select! {
            // Whatever is under way is dropped: the plugin is asked no more.
            () = leave.notified() => {}
            () = self.keep_connected(&plugin) => {}
        }
        self.registry.note((&plugin.driver, plugin.id), None);
        let driver = plugin.driver.clone();
        if self.asks_health && plugin.services.health.is_some() {
            let _ = self.news.send(DriverNews::Silent { driver: driver.clone() }).await;
        }
        // A loop that ended needs no word.
        let _ = self.moved.send(driver).await;
    }

    /// Never returns while anybody listens.
    async fn keep_connected(&self, plugin: &Opened) {
        let mut pause = FIRST_PAUSE;
        loop {
            match dial(&plugin.socket).await {
                Ok((channel, ended)) => {
                    pause = FIRST_PAUSE;
                    self.registry.note((&plugin.driver, plugin.id), Some(channel.clone()));
                    if self.moved.send(plugin.driver.clone()).await.is_err() {
                        return;
                    }
                    self.stay(plugin, channel, ended).await;
                    self.registry.note((&plugin.driver, plugin.id), None);
                }
                Err(error) => {
                    tracing::debug!(driver = plugin.driver, socket = %plugin.socket.display(), error, "Plugin of a DRA driver cannot be reached");
                }
            }
            if self.moved.send(plugin.driver.clone()).await.is_err() {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Stays as long as the connection, and listens to how devices feel.
    async fn stay(&self, plugin: &Opened, channel: Channel, ended: oneshot::Receiver<()>) {
        let health = plugin.services.health.filter(|_| self.asks_health);
        let listening = async {
            if let Some(service) = health {
                watch_health(&plugin.driver, channel, service, &self.news).await;
            }
            // A plugin that does not tell is as good as any other.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // A report that is under way came too late.
            _ = ended => {}
            () = listening => {}
        }
    }
}

async fn dial(socket: &Path) -> Result<(Channel, oneshot::Receiver<()>), String> {
    match timeout(DIALLING, connect_watched(socket)).await {
        Ok(dialled) => dialled.map_err(|error| error.to_string()),
        Err(_elapsed) => Err("it does not answer".to_owned()),
    }
}
