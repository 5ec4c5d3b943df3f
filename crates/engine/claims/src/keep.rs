//! Keeps the books true and on disk: what drivers say, and the two files of state.
//!
//! A file that cannot be read is set aside and begun anew, as other records are (ADR 0015), where
//! upstream's kubelet refuses to start. What pods use that run already is prepared again, which
//! drivers must stand, when one of their containers starts.

use std::{collections::BTreeSet, sync::Arc};

use ferrolet_claims::{
    ClaimBook, HealthBook, decode, decode_health, encode, encode_health, shortened,
};
use ferrolet_ports::{DriverNews, StateFiles};
use ferrolet_types::{PodUid, Timestamp};
use tokio::sync::mpsc;

use crate::{Claims, Doors};

pub(crate) const CLAIMS: &str = "dra_manager_state";
pub(crate) const HEALTH: &str = "dra_health_state";

/// Both books as an earlier life of the agent left them.
pub(crate) async fn load(doors: &Doors) -> (ClaimBook, HealthBook) {
    let book = read(doors.files.as_ref(), CLAIMS, decode).await;
    let health = read(doors.files.as_ref(), HEALTH, decode_health).await;
    (book, health)
}

async fn read<T: Default, E: std::fmt::Display>(
    files: &dyn StateFiles,
    name: &str,
    decode: impl Fn(&[u8]) -> Result<T, E>,
) -> T {
    let content = match files.read(name).await {
        Ok(Some(content)) => content,
        Ok(None) => return T::default(),
        Err(error) => {
            tracing::error!(file = name, %error, "The record of claims cannot be read and begins anew");
            return T::default();
        }
    };
    match decode(&content) {
        Ok(book) => book,
        Err(error) => {
            let aside = format!("{name}.unreadable");
            tracing::error!(file = name, %error, aside, "The record of claims cannot be read and begins anew");
            if let Err(error) = files.write(&aside, content).await {
                tracing::error!(%error, "The unreadable record cannot be kept");
            }
            T::default()
        }
    }
}

/// Runs for ever.
pub(crate) async fn run(claims: Arc<Claims>, doors: Doors, changed: mpsc::Sender<PodUid>) {
    let Doors { mut news, files, clock, .. } = doors;
    let mut written = Vec::new();
    loop {
        let touched = tokio::select! {
            // Receiving is cancel-safe: a message is taken only when it is returned.
            said = news.recv() => match said {
                Some(said) => take(&claims, said, files.as_ref(), clock.now()).await,
                None => return std::future::pending().await,
            },
            // What was noted and not waited for is remembered.
            () = claims.copy.touched() => {
                write(&claims, files.as_ref(), &mut written).await;
                BTreeSet::new()
            }
        };
        for uid in touched {
            // A sync loop that ended needs no news.
            let _ = changed.send(uid).await;
        }
    }
}

/// Takes one message; answers with the pods that it concerns.
async fn take(
    claims: &Claims,
    said: DriverNews,
    files: &dyn StateFiles,
    now: Timestamp,
) -> BTreeSet<PodUid> {
    let (driver, changed) = match said {
        DriverNews::Usable { driver } => {
            tracing::info!(driver, "Driver of dynamic resources can be reached");
            claims.wiping.usable(&driver);
            return claims.take_waiting();
        }
        DriverNews::Unusable { driver } => {
            tracing::info!(driver, "Driver of dynamic resources cannot be reached");
            claims.wiping.unusable(&driver);
            return BTreeSet::new();
        }
        DriverNews::Feels { driver, mut devices } => {
            devices.iter_mut().for_each(|it| it.message = shortened(&it.message));
            let (changed, n_left_out) =
                claims.edit_health(|book| book.report(&driver, devices, now));
            if n_left_out > 0 {
                tracing::error!(
                    driver,
                    n_left_out,
                    "Driver speaks of more devices than are remembered"
                );
            }
            (driver, changed)
        }
        DriverNews::Silent { driver } => {
            let changed = claims.edit_health(|book| book.forget(&driver));
            (driver, changed)
        }
    };
    if changed.is_empty() {
        return BTreeSet::new();
    }
    write_health(claims, files).await;
    let changed: BTreeSet<(String, String)> = changed.into_iter().collect();
    claims.look(|book| {
        let users = book
            .users(&driver)
            .filter(|(_, device)| changed.contains(&(device.pool.clone(), device.device.clone())));
        users.map(|(uid, _)| uid.clone()).collect()
    })
}

/// Writes the record of claims where it says something new, and tells whoever waits for that.
async fn write(claims: &Claims, files: &dyn StateFiles, written: &mut Vec<u8>) {
    let content = match claims.look(encode) {
        Ok(content) => content,
        Err(error) => return claims.copy.note(Err(error.to_string())),
    };
    let mut outcome = Ok(());
    if content != *written {
        match files.write(CLAIMS, content.clone()).await {
            Ok(()) => *written = content,
            Err(error) => {
                tracing::error!(%error, "The record of claims cannot be written");
                outcome = Err(error.to_string());
            }
        }
    }
    claims.copy.note(outcome);
}

/// Writes how devices feel. Nobody depends on it: after a restart drivers say it again.
async fn write_health(claims: &Claims, files: &dyn StateFiles) {
    let content = claims.edit_health(|book| encode_health(book));
    let written = match content {
        Ok(content) => files.write(HEALTH, content).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = written {
        tracing::warn!(error, "The record of devices' health cannot be written");
    }
}
