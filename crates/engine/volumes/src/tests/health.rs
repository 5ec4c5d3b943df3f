//! Health that drivers tell, on fakes: who is asked, and what is news.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_ports::{CsiAilment, PodVolumes as _, RegisteredDriver};
use ferrolet_types::{PodUid, VolumeHealthReport};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::csi::{bench, claimant, fault};
use crate::{HealthDoors, follow_health};

const MINUTE: Duration = Duration::from_secs(60);

fn registered() -> RegisteredDriver {
    RegisteredDriver { node_id: "n".to_owned(), max_volumes: 0, topology: BTreeMap::new() }
}

#[tokio::test(start_paused = true)]
async fn what_ails_volumes_and_storage_is_told_when_it_changes() {
    let bench = bench();
    let node = json!({"metadata": {"name": "node"}, "spec": {"drivers": []}});
    let node = serde_json::from_value(node).unwrap();
    bench.storage.change(|state| state.csi_node = Some(node));
    let drivers = BTreeMap::from([("d".to_owned(), registered())]);
    let (_register, registered) = watch::channel(drivers);
    let (told, mut reports) = mpsc::channel(8);
    tokio::spawn(follow_health(HealthDoors {
        engine: bench.engine.clone(),
        registered,
        period: MINUTE,
        told,
    }));
    let ailment = |kind| CsiAilment {
        kind,
        reason: "Slow".to_owned(),
        message: "very".to_owned(),
        concerns: None,
    };
    bench.drivers.change(|state| {
        let ailing = BTreeMap::from([("h".to_owned(), vec![ailment("Inaccessible")])]);
        state.ailing = ailing;
        state.faults.insert("stage".to_owned(), fault(true));
    });
    // Nobody has a volume: nobody is asked of one.
    tokio::time::sleep(MINUTE).await;
    assert_eq!(bench.drivers.look().last_health, None);
    // One that cannot be made ready is asked about, because that may be why.
    bench.engine.ensure(&claimant("uid-1")).await.unwrap_err();
    let report = reports.recv().await.unwrap();
    assert_eq!((report.uid.as_str(), report.volume.as_str()), ("uid-1", "data"));
    let said = |report: VolumeHealthReport| -> Vec<String> {
        let conditions = report.conditions.into_iter();
        conditions.map(|it| it.status).collect()
    };
    assert_eq!(said(report), ["Inaccessible"]);
    let ask = bench.drivers.look().last_health.unwrap();
    assert_eq!((ask.volume.as_str(), ask.path.as_str()), ("h", ""));

    bench.drivers.change(|state| state.faults.clear());
    tokio::time::sleep(MINUTE * 3).await;
    let mounts = bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    tokio::time::sleep(MINUTE * 2).await;
    let ask = bench.drivers.look().last_health.unwrap();
    assert_eq!(ask.path, mounts["data"].host_path);
    assert!(ask.staging_path.ends_with("/globalmount"), "{ask:?}");
    assert!(reports.try_recv().is_err(), "the same is no news");
    // An error says nothing.
    bench.drivers.change(|state| drop(state.faults.insert("health".to_owned(), fault(true))));
    tokio::time::sleep(MINUTE * 2).await;
    assert!(reports.try_recv().is_err());
    bench.drivers.change(|state| {
        state.faults.clear();
        state.ailing.clear();
        let ailing = vec![ailment("StorageDegraded")];
        state.storage_ailing.insert("d".to_owned(), ailing);
    });
    assert!(said(reports.recv().await.unwrap()).is_empty());
    tokio::time::sleep(MINUTE * 5).await;
    let stored = bench.storage.look();
    let status = stored.csi_node.unwrap().status.unwrap();
    let shown = serde_json::to_value(status).unwrap();
    let condition = json!({"status": "StorageDegraded", "reason": "Slow", "message": "very"});
    assert_eq!(shown, json!({"storageHealth": [{"name": "d", "healthConditions": [condition]}]}));
    assert_eq!(stored.n_csi_statuses, 1, "the same is not written twice");
    // Gone with its pod.
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    bench.drivers.change(|state| state.last_health = None);
    tokio::time::sleep(MINUTE * 2).await;
    assert_eq!(bench.drivers.look().last_health, None);
}
