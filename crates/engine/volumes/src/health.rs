//! What drivers say of their volumes' health, and of all that they store: asked from time to time,
//! where gate `CSIVolumeHealth` is on (CSI 1.13: `NodeGetVolumeHealth`, `NodeGetStorageHealth`).
//!
//! ```text
//!  volumes that pods have or want ─┐                      ┌─► VolumeHealthReport, when it is news ─► the pod's status
//!  who is registered ──────────────┴─ a task per driver ──┴─► CSINode.status.storageHealth, and gauges
//! ```
//!
//! What a driver said stands until it says something else; an error says nothing. A driver that
//! hangs keeps nobody else waiting, and is not asked again before it has answered. Of what it says
//! only that is passed on which the API takes: a refused status would keep everything else in it
//! from being told. Refuses: doing anything about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{
    ApiError, ApiErrorKind, CsiAilment, RegisteredDriver, StorageObjects,
    metrics::{CSI_NODE_STORAGE_HEALTH_STATUS, process},
};
use ferrolet_types::{PodUid, VolumeHealthReport};
use futures::future::join_all;
use k8s_openapi::api::{
    core::v1::VolumeHealthCondition,
    storage::v1::{CSINode, StorageHealth, StorageHealthCondition},
};
use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinSet},
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{VolumeEngine, usage::LastingVolume};

/// The API's bounds.
const MOST_CONDITIONS: usize = 16;
const LONGEST_REASON: usize = 256;
const LONGEST_MESSAGE: usize = 1024;
/// Attempts at an object that somebody else changes at the same time, and the pause before each.
const PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
];

/// What following needs.
pub struct HealthDoors {
    /// Whose volumes are asked about.
    pub engine: Arc<VolumeEngine>,
    /// Who is registered.
    pub registered: watch::Receiver<BTreeMap<String, RegisteredDriver>>,
    /// How often drivers are asked.
    pub period: Duration,
    /// Who is told of volumes.
    pub told: mpsc::Sender<VolumeHealthReport>,
}

/// What was told last, by pod and volume.
type Told = BTreeMap<(PodUid, String), Vec<VolumeHealthCondition>>;

/// Asks until nobody registers any more.
pub async fn follow_health(doors: HealthDoors) {
    let mut registered = doors.registered.clone();
    let mut ticks = interval(doors.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked: JoinSet<Vec<VolumeHealthReport>> = JoinSet::new();
    let mut busy: BTreeMap<Id, String> = BTreeMap::new();
    let mut told = Told::new();
    loop {
        tokio::select! {
            // Cancel-safe: a tick that was not waited for comes the next time.
            _ = ticks.tick() => {
                let volumes = doors.engine.lasting_volumes();
                let names: BTreeSet<String> = registered.borrow().keys().cloned().collect();
                forget_gauges(|driver| !names.contains(driver));
                told.retain(|(uid, volume), _| {
                    volumes.iter().any(|it| it.uid == *uid && it.volume == *volume)
                });
                for driver in names {
                    if busy.values().any(|it| *it == driver) {
                        continue;
                    }
                    let own = volumes.iter().filter(|it| it.driver == driver);
                    let own: Vec<LastingVolume> = own.cloned().collect();
                    let work = ask(Arc::clone(&doors.engine), driver.clone(), own);
                    busy.insert(asked.spawn(work).id(), driver);
                }
            }
            // Cancel-safe: a finished task stays in the set until it is taken.
            Some(ended) = asked.join_next_with_id() => match ended {
                Ok((id, reports)) => {
                    busy.remove(&id);
                    tell(&doors.told, &mut told, reports);
                }
                Err(panic) => {
                    busy.remove(&panic.id());
                    tracing::error!(%panic, "Asking a driver for health broke off");
                }
            },
            // Cancel-safe: the set is read at each tick.
            changed = registered.changed() => if changed.is_err() { return },
        }
    }
}

/// Passes on what is news. What finds no room in the channel is news again the next time.
fn tell(
    door: &mpsc::Sender<VolumeHealthReport>,
    told: &mut Told,
    reports: Vec<VolumeHealthReport>,
) {
    for report in reports {
        let key = (report.uid.clone(), report.volume.clone());
        if told.get(&key) == Some(&report.conditions) {
            continue;
        }
        let conditions = report.conditions.clone();
        if door.try_send(report).is_ok() {
            told.insert(key, conditions);
        }
    }
}

/// Asks one driver everything: of all its volumes side by side, and of what it stores.
async fn ask(
    engine: Arc<VolumeEngine>,
    driver: String,
    volumes: Vec<LastingVolume>,
) -> Vec<VolumeHealthReport> {
    let drivers = &engine.doors.drivers;
    let abilities = match drivers.abilities(&driver).await {
        Ok(abilities) => abilities,
        Err(error) => {
            tracing::debug!(driver, %error, "Driver does not say what it can tell of health");
            return Vec::new();
        }
    };
    let volumes = volumes.into_iter();
    let asked = volumes.filter(|_| abilities.tells_volume_health);
    let asked = asked.map(async |it| {
        let mut ask = it.ask;
        if !abilities.stages {
            // Nothing was ever there.
            ask.staging_path = String::new();
        }
        match drivers.volume_health(&driver, &ask).await {
            Ok(ailments) => Some(VolumeHealthReport {
                uid: it.uid,
                volume: it.volume,
                conditions: fit(ailments).into_iter().map(of_volume).collect(),
            }),
            Err(error) => {
                tracing::debug!(driver, volume = it.volume, %error, "Driver does not say how a volume is");
                None
            }
        }
    });
    let storage = async {
        if abilities.tells_storage_health {
            ask_storage(&engine, &driver).await;
        }
    };
    let (reports, ()) = futures::join!(join_all(asked), storage);
    reports.into_iter().flatten().collect()
}

/// Asks a driver how all that it stores is, and tells the cluster.
async fn ask_storage(engine: &VolumeEngine, driver: &str) {
    let ailments = match engine.doors.drivers.storage_health(driver).await {
        Ok(ailments) => fit(ailments),
        Err(error) => {
            return tracing::debug!(driver, %error, "Driver does not say how its storage is");
        }
    };
    forget_gauges(|it| it == driver);
    for it in &ailments {
        process().set(CSI_NODE_STORAGE_HEALTH_STATUS, [driver, it.reason.as_str(), it.kind], 1.0);
    }
    let Some(storage) = &engine.doors.storage else {
        return;
    };
    let conditions: Vec<StorageHealthCondition> = ailments.into_iter().map(of_storage).collect();
    if let Err(error) = publish(storage.as_ref(), driver, &conditions).await {
        tracing::warn!(driver, %error, "Health of a driver's storage cannot be published");
    }
}

/// Brings the node's object up to date. Others write to it too, so a conflict is tried again.
async fn publish(
    storage: &dyn StorageObjects,
    driver: &str,
    conditions: &[StorageHealthCondition],
) -> Result<(), ApiError> {
    let mut outcome = Ok(());
    for pause in PAUSES {
        sleep(pause).await;
        let existing = storage.get_csi_node().await?;
        let Some(wanted) = with_storage_health(existing, driver, conditions) else {
            return Ok(());
        };
        outcome = storage.replace_csi_node_status(&wanted).await.map(drop);
        match &outcome {
            Err(error) if error.kind == ApiErrorKind::Conflict => {}
            _ => break,
        }
    }
    outcome
}

/// The object with what a driver says; `None` when it says so already.
fn with_storage_health(
    mut node: CSINode,
    driver: &str,
    conditions: &[StorageHealthCondition],
) -> Option<CSINode> {
    let mut health = node.status.take().unwrap_or_default();
    let all = health.storage_health.get_or_insert_default();
    let own = all.iter().find(|it| it.name == driver);
    let before = own.and_then(|it| it.health_conditions.as_deref());
    if identities(before.unwrap_or_default()) == identities(conditions) {
        return None;
    }
    all.retain(|it| it.name != driver);
    if !conditions.is_empty() {
        all.push(StorageHealth {
            name: driver.to_owned(),
            health_conditions: Some(conditions.to_vec()),
        });
    }
    node.status = Some(health);
    Some(node)
}

/// What makes a condition this one and not another. Sentences and times do not.
type Identity<'a> = (&'a str, &'a str, Option<&'a str>, Option<&'a str>);

fn identities(conditions: &[StorageHealthCondition]) -> BTreeSet<Identity<'_>> {
    conditions.iter().map(identity).collect()
}

fn identity(it: &StorageHealthCondition) -> Identity<'_> {
    let modes = (it.access_mode.as_deref(), it.volume_mode.as_deref());
    (it.status.as_str(), it.reason.as_str(), modes.0, modes.1)
}

fn forget_gauges(mut is_over: impl FnMut(&str) -> bool) {
    process().forget(CSI_NODE_STORAGE_HEALTH_STATUS, |labels| is_over(&labels[0]));
}

/// Of what a driver says, that which the API takes.
fn fit(ailments: Vec<CsiAilment>) -> Vec<CsiAilment> {
    let mut known = BTreeSet::new();
    let (taken, left): (Vec<CsiAilment>, Vec<CsiAilment>) = ailments.into_iter().partition(|it| {
        let identity = (it.kind, it.reason.clone(), it.concerns);
        known.len() < MOST_CONDITIONS && is_reason(&it.reason) && known.insert(identity)
    });
    if !left.is_empty() {
        tracing::debug!(n = left.len(), "Driver says things of health that the API does not take");
    }
    let short = taken.into_iter().map(|mut it| {
        let end = it.message.floor_char_boundary(LONGEST_MESSAGE);
        it.message.truncate(end);
        it
    });
    short.collect()
}

/// The API's rule for reasons: a word that begins with a letter and does not end with a mark.
fn is_reason(text: &str) -> bool {
    let is_inside = |it: char| it.is_ascii_alphanumeric() || "_,:".contains(it);
    text.len() <= LONGEST_REASON
        && text.starts_with(|it: char| it.is_ascii_alphabetic())
        && text.chars().all(is_inside)
        && !text.ends_with([',', ':'])
}

fn sentence(text: String) -> Option<String> {
    Some(text).filter(|it| !it.is_empty())
}

fn of_volume(ailment: CsiAilment) -> VolumeHealthCondition {
    VolumeHealthCondition {
        status: ailment.kind.to_owned(),
        reason: ailment.reason,
        message: sentence(ailment.message),
    }
}

fn of_storage(ailment: CsiAilment) -> StorageHealthCondition {
    let (access_mode, volume_mode) = ailment.concerns.unzip();
    StorageHealthCondition {
        status: ailment.kind.to_owned(),
        reason: ailment.reason,
        message: sentence(ailment.message),
        access_mode: access_mode.map(str::to_owned),
        volume_mode: volume_mode.map(str::to_owned),
        last_transition_time: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ailment(kind: &'static str, reason: &str) -> CsiAilment {
        CsiAilment { kind, reason: reason.to_owned(), message: String::new(), concerns: None }
    }

    #[test]
    fn only_what_the_api_takes_is_passed_on() {
        let check = |said: &[&str], expected: &[&str]| {
            let said = said.iter().map(|it| ailment("Degraded", it)).collect();
            let found: Vec<String> = fit(said).into_iter().map(|it| it.reason).collect();
            assert_eq!(found, expected);
        };
        check(&["Slow", "A,b:c_9", "x"], &["Slow", "A,b:c_9", "x"]);
        check(&["", "9x", "_x", "x,", "x:", "a b", "é", "a\nb"], &[]);
        check(&["Twice", "Twice"], &["Twice"]);
        check(&["a".repeat(257).as_str()], &[]);
        let many: Vec<String> = (0..20).map(|n| format!("R{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(&many, &many[..16]);
        let long = CsiAilment { message: "é".repeat(600), ..ailment("Degraded", "Long") };
        assert_eq!(fit(vec![long])[0].message.len(), 1024);
    }

    #[test]
    fn the_nodes_object_changes_when_a_driver_says_something_else() {
        let check = |before: Value, said: &[CsiAilment], expected: Option<Value>| {
            let node =
                json!({"metadata": {"name": "n"}, "spec": {"drivers": []}, "status": before});
            let node = serde_json::from_value(node).unwrap();
            let said: Vec<_> = said.iter().cloned().map(of_storage).collect();
            let found = with_storage_health(node, "d", &said);
            let found = found.map(|it| serde_json::to_value(it.status).unwrap());
            assert_eq!(found, expected);
        };
        let slow = ailment("StorageDegraded", "Slow");
        let raw = CsiAilment { concerns: Some(("ReadWriteOnce", "Block")), ..slow.clone() };
        let shown = json!({"status": "StorageDegraded", "reason": "Slow", "message": "once"});
        let other = json!({"name": "e", "healthConditions": [shown]});
        let own = json!({"name": "d", "healthConditions": [shown]});
        check(json!(null), &[], None);
        check(json!({"storageHealth": [other]}), &[], None);
        // Another sentence is no news.
        check(json!({"storageHealth": [own, other]}), std::slice::from_ref(&slow), None);
        check(json!({"storageHealth": [own, other]}), &[], Some(json!({"storageHealth": [other]})));
        check(
            json!({"storageHealth": [other]}),
            &[raw],
            Some(json!({"storageHealth": [other, {"name": "d", "healthConditions": [{
                "status": "StorageDegraded", "reason": "Slow",
                "accessMode": "ReadWriteOnce", "volumeMode": "Block",
            }]}]})),
        );
    }
}
