//! Keeps the book true and on disk: what plugins say, the end of their grace, the checkpoint.
//!
//! A checkpoint that cannot be read is set aside and begun anew, as other records are (ADR 0015);
//! upstream's kubelet goes on without it, too.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ferrolet_devices::{Checkpoint, DeviceBook};
use ferrolet_node::DeviceResources;
use ferrolet_ports::{DevicePlugins, PluginNews, StateFiles};
use ferrolet_types::PodUid;
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use crate::{Devices, Doors};

pub(crate) const CHECKPOINT: &str = "kubelet_internal_checkpoint";
const UNREADABLE: &str = "kubelet_internal_checkpoint.unreadable";

/// The book as an earlier life of the agent left it, and whether it left none.
pub(crate) async fn load(doors: &Doors) -> (DeviceBook, bool) {
    let (now, plugins) = (doors.clock.now(), doors.plugins.as_ref());
    let content = match doors.files.read(CHECKPOINT).await {
        Ok(Some(content)) => content,
        Ok(None) => return (DeviceBook::default(), true),
        Err(error) => {
            tracing::error!(%error, "The record of devices cannot be read and begins anew");
            return (DeviceBook::default(), false);
        }
    };
    let checkpoint = match Checkpoint::decode(&content) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            tracing::error!(file = CHECKPOINT, %error, aside = UNREADABLE, "The record of devices cannot be read and begins anew");
            if let Err(error) = doors.files.write(UNREADABLE, content).await {
                tracing::error!(%error, "The unreadable record cannot be kept");
            }
            return (DeviceBook::default(), false);
        }
    };
    let (book, unreadable) = DeviceBook::recalled(checkpoint, now, |entry| {
        DevicePlugins::read_answer(plugins, &entry.answer)
    });
    for (entry, error) in unreadable {
        tracing::error!(pod_uid = %entry.uid, container = entry.container, resource = entry.resource, %error, "What a plugin once answered cannot be read");
    }
    (book, false)
}

/// Runs for ever.
pub(crate) async fn run(
    devices: Arc<Devices>,
    doors: Doors,
    amounts: watch::Sender<DeviceResources>,
    changed: mpsc::Sender<PodUid>,
) {
    let Doors { mut news, files, clock, .. } = doors;
    let mut written = Vec::new();
    loop {
        let due = devices.look(DeviceBook::expires_at);
        let due = due.map(|due| due.since(clock.now()).max(Duration::from_millis(1)));
        let touched = tokio::select! {
            // Receiving is cancel-safe: a message is taken only when it is returned.
            said = news.recv() => match said {
                Some(said) => devices.edit(|book| take(book, said, clock.now())),
                None => return std::future::pending().await,
            },
            // What was noted and not waited for is remembered.
            () = devices.copy.touched() => BTreeSet::new(),
            // A timer loses nothing.
            () = async { match due { Some(due) => sleep(due).await, None => std::future::pending().await } } => {
                devices.edit(|book| book.expire(clock.now()));
                BTreeSet::new()
            }
        };
        devices.show(&amounts);
        write(&devices, files.as_ref(), &mut written).await;
        for uid in touched {
            // A sync loop that ended needs no news.
            let _ = changed.send(uid).await;
        }
    }
}

/// Takes one message; answers with the pods that it concerns.
fn take(
    book: &mut DeviceBook,
    said: PluginNews,
    now: ferrolet_types::Timestamp,
) -> BTreeSet<PodUid> {
    match said {
        PluginNews::Connected { resource, plugin, options } => {
            tracing::info!(resource, "Device plugin is connected");
            book.connect(&resource, plugin, options);
            BTreeSet::new()
        }
        PluginNews::Listed { resource, devices, .. } => {
            let n_healthy = devices.values().filter(|it| it.is_healthy).count();
            tracing::info!(
                resource,
                n_devices = devices.len(),
                n_healthy,
                "Device plugin lists its devices"
            );
            // Whoever waits for its plugin has no device that feels different.
            let awaited =
                book.is_awaited(&resource).then(|| book.owners_of_any().cloned().collect());
            let touched = book.list(&resource, devices);
            awaited.unwrap_or(touched)
        }
        PluginNews::Gone { resource, plugin } => {
            tracing::info!(resource, "Device plugin is gone");
            book.disconnect(&resource, plugin, now)
        }
    }
}

/// Writes the checkpoint where it says something new, and tells whoever waits for that.
async fn write(devices: &Devices, files: &dyn StateFiles, written: &mut Vec<u8>) {
    let content = devices.look(|book| book.checkpoint().encode());
    let mut outcome = Ok(());
    if content != *written {
        match files.write(CHECKPOINT, content.clone()).await {
            Ok(()) => *written = content,
            Err(error) => {
                tracing::error!(%error, "The record of devices cannot be written");
                outcome = Err(error.to_string());
            }
        }
    }
    devices.copy.note(outcome);
}
