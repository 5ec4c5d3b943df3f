//! What an earlier life of ours, or of a driver, left on the node: found, told to be in use, and
//! taken away when nobody has it.
//!
//! Looked for when the agent starts and whenever drivers come or something stays, and again after a
//! while until everything could be listed and went: a disk that cannot be read at this moment, or a
//! driver that is not ready yet, must not leave a volume on the node for ever. Until all that is here
//! is known, nobody may conclude that a volume is not in use ([`InUse`](crate::InUse)).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{NodeVolume, RegisteredDriver, Unstaged, VolumePlugin};
use futures::future::join_all;
use tokio::{sync::watch, time::sleep};

use crate::{VolumeEngine, renewal::back_off_to};

/// The longest time between two looks at what could not be listed or taken away.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Whether a search has found everything, and everything that nobody has is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    Done,
    Unfinished,
}

impl VolumeEngine {
    /// Finds what is in use, and takes away what nobody has, until no more drivers can come. Each
    /// plugin for itself: a disk or a program that hangs does not keep drivers from being asked.
    pub async fn follow_drivers(
        self: Arc<Self>,
        drivers: watch::Receiver<BTreeMap<String, RegisteredDriver>>,
    ) {
        let recalling = async {
            let mut n_tries = 0;
            while self.recall().await == Search::Unfinished {
                n_tries += 1;
                sleep(back_off_to(LONGEST_PAUSE, n_tries)).await;
            }
        };
        let plugins = self.plugins.iter();
        let sweeping = plugins.map(|plugin| self.keep_sweeping(plugin.as_ref(), drivers.clone()));
        futures::join!(recalling, join_all(sweeping));
    }

    async fn keep_sweeping(
        &self,
        plugin: &dyn VolumePlugin,
        mut drivers: watch::Receiver<BTreeMap<String, RegisteredDriver>>,
    ) {
        let mut left_over = self.left_over.subscribe();
        let mut n_tries = 0;
        loop {
            let names: BTreeSet<String> = drivers.borrow_and_update().keys().cloned().collect();
            match self.sweep(plugin, &names).await {
                Search::Done => n_tries = 0,
                Search::Unfinished => n_tries += 1,
            }
            tokio::select! {
                // Cancel-safe: what changed is read at the top of the loop.
                changed = drivers.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    n_tries = 0;
                }
                // Cancel-safe: what was left is found at the top of the loop.
                _ = left_over.changed() => {}
                // Cancel-safe: the pause begins anew.
                () = sleep(back_off_to(LONGEST_PAUSE, n_tries)), if n_tries > 0 => {}
            }
        }
    }

    /// Finds out what is in use, before anybody may conclude that something is not.
    pub(crate) async fn recall(&self) -> Search {
        let mut search = Search::Done;
        for plugin in &self.plugins {
            match plugin.on_node().await {
                Ok(found) => {
                    for it in found.into_iter().filter(|it| !it.unique_names.is_empty()) {
                        self.table.note_use(&it.volume, it.unique_names);
                    }
                }
                Err(fault) => {
                    let why = fault.message;
                    tracing::warn!(why, "Volumes that an earlier life left cannot be listed");
                    search = Search::Unfinished;
                }
            }
        }
        if search == Search::Done {
            self.table.complete_use();
        }
        search
    }

    /// Takes away what a plugin has for nobody, of these drivers and of whoever needs none.
    pub(crate) async fn sweep(
        &self,
        plugin: &dyn VolumePlugin,
        registered: &BTreeSet<String>,
    ) -> Search {
        let is_due = |volume: &NodeVolume| match volume {
            NodeVolume::Csi { driver, .. } | NodeVolume::CsiDevice { driver, .. } => {
                registered.contains(driver)
            }
            NodeVolume::Flex { .. } | NodeVolume::Disk(_) | NodeVolume::Local { .. } => true,
        };
        self.sweep_plugin(plugin, is_due).await
    }

    /// Takes away what a plugin has on the node for nobody; what is on its way to somebody is left
    /// alone.
    pub(crate) async fn sweep_plugin(
        &self,
        plugin: &dyn VolumePlugin,
        is_due: impl Fn(&NodeVolume) -> bool,
    ) -> Search {
        let found = match plugin.on_node().await {
            Ok(found) => found,
            Err(fault) => {
                let why = fault.message;
                tracing::warn!(why, "Volumes that nobody uses cannot be listed");
                return Search::Unfinished;
            }
        };
        let mut search = Search::Done;
        for it in found.into_iter().filter(|it| it.is_left_over && is_due(&it.volume)) {
            let turn = self.table.turn(&it.volume);
            let Ok(_turn) = turn.try_lock() else {
                continue;
            };
            if self.table.is_wanted(&it.volume, None) {
                continue;
            }
            match plugin.unstage(&it.volume).await {
                Ok(Unstaged::Gone) => self.table.left_node(&it.volume, None),
                Ok(Unstaged::Used) => {}
                Err(fault) => {
                    let (volume, why) = (it.volume, fault.message);
                    tracing::warn!(?volume, why, "Volume that nobody uses stays");
                    search = Search::Unfinished;
                }
            }
        }
        search
    }
}
