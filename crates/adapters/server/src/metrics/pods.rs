//! Metrics that follow from the pods themselves: how many there are, and what their logs and claims
//! take on disk. Pure.

use std::collections::BTreeMap;

use ferrolet_ports::{
    DiskUsage, FileRoom, Sample,
    metrics::{self, Gauge},
};
use ferrolet_types::{
    Pod,
    pod::{Phase, PodView as _},
};

const SOURCE: &str = "kubernetes.io/config.source";

/// Counts pods whose resize is under way or waits.
pub(super) fn resizes(pods: &[Pod]) -> Vec<Sample> {
    let mut n_under_way = 0;
    let mut waiting: BTreeMap<(&str, String), u32> = BTreeMap::new();
    for pod in pods {
        let conditions = pod.status.iter().flat_map(|it| &it.conditions).flatten();
        for condition in conditions.filter(|it| it.status == "True") {
            match condition.type_.as_str() {
                "PodResizeInProgress" => n_under_way += 1,
                "PodResizePending" => {
                    let reason = condition.reason.as_deref().unwrap_or_default();
                    let key = (pod.priority_word(), reason.to_lowercase());
                    *waiting.entry(key).or_default() += 1;
                }
                _ => {}
            }
        }
    }
    let under_way = metrics::KUBELET_POD_IN_PROGRESS_RESIZES.sample([], f64::from(n_under_way));
    let waiting = waiting.into_iter().map(|((priority, reason), n)| {
        metrics::KUBELET_POD_PENDING_RESIZES.sample([priority, &reason], f64::from(n))
    });
    let mut samples = vec![under_way];
    samples.extend(waiting);
    samples
}

/// Counts pods and containers.
pub(super) fn counted(pods: &[Pod]) -> Vec<Sample> {
    let (mut n_running, mut n_ephemeral, mut n_mirrored) = (0, 0, 0);
    let mut desired = BTreeMap::from([("", 0), ("true", 0)]);
    let mut active = desired.clone();
    let mut states = BTreeMap::from([("created", 0), ("exited", 0), ("running", 0)]);
    for pod in pods {
        let source = pod.metadata.annotations.as_ref().and_then(|it| it.get(SOURCE));
        let is_static = source.is_some_and(|source| source != "api");
        let label = if is_static { "true" } else { "" };
        *desired.entry(label).or_default() += 1;
        n_mirrored += i32::from(is_static);
        let status = pod.status.as_ref();
        if !pod.api_phase().is_some_and(Phase::is_terminal) {
            *active.entry(label).or_default() += 1;
        }
        let spec = pod.spec.as_ref();
        n_ephemeral += spec.and_then(|spec| spec.ephemeral_containers.as_ref()).map_or(0, Vec::len);
        let Some(status) = status else { continue };
        let all = [
            &status.container_statuses,
            &status.init_container_statuses,
            &status.ephemeral_container_statuses,
        ];
        let mut is_running = false;
        for status in all.into_iter().flatten().flatten() {
            let Some(state) = &status.state else { continue };
            let state = if state.running.is_some() {
                is_running = true;
                "running"
            } else if state.terminated.is_some() {
                "exited"
            } else {
                // One that waits has no container yet, or none any more.
                continue;
            };
            *states.entry(state).or_default() += 1;
        }
        n_running += i32::from(is_running);
    }
    let mut samples = vec![
        metrics::KUBELET_MANAGED_EPHEMERAL_CONTAINERS.sample([], n_ephemeral as f64),
        metrics::KUBELET_MIRROR_PODS.sample([], f64::from(n_mirrored)),
        metrics::KUBELET_RUNNING_PODS.sample([], f64::from(n_running)),
    ];
    for (gauge, by_label) in [
        (metrics::KUBELET_ACTIVE_PODS, active),
        (metrics::KUBELET_DESIRED_PODS, desired),
        (metrics::KUBELET_RUNNING_CONTAINERS, states),
    ] {
        let by_label = by_label.into_iter();
        samples.extend(by_label.map(|(label, n)| gauge.sample([label], f64::from(n))));
    }
    samples
}

type Pick = fn(&FileRoom) -> u64;

const CLAIMS: [(Gauge<2>, Pick); 6] = [
    (metrics::KUBELET_VOLUME_STATS_AVAILABLE_BYTES, |room| room.available),
    (metrics::KUBELET_VOLUME_STATS_CAPACITY_BYTES, |room| room.capacity),
    (metrics::KUBELET_VOLUME_STATS_INODES, |room| room.inodes),
    (metrics::KUBELET_VOLUME_STATS_INODES_FREE, |room| room.inodes_free),
    (metrics::KUBELET_VOLUME_STATS_INODES_USED, |room| room.inodes_used),
    (metrics::KUBELET_VOLUME_STATS_USED_BYTES, |room| room.used),
];

/// What logs and claims take on disk. A claim that several pods use is shown once.
pub(super) fn on_disk(pods: &[Pod], disk: &DiskUsage) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut claims = BTreeMap::new();
    for pod in pods {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let meta = &pod.metadata;
        let (namespace, name) = (text(&meta.namespace), text(&meta.name));
        let uid = text(&meta.uid);
        let logs = disk.container_logs.iter().filter(|it| it.0.as_str() == uid);
        for (_, container, used) in logs {
            let gauge = metrics::KUBELET_CONTAINER_LOG_FILESYSTEM_USED_BYTES;
            let labels = [container.as_str(), &namespace, &name, &uid];
            samples.push(gauge.sample(labels, used.bytes as f64));
        }
        for (claim, room) in crate::summary::claims(pod, disk) {
            claims.insert((namespace.clone(), claim), room);
        }
    }
    for ((namespace, claim), room) in claims {
        for (gauge, pick) in CLAIMS {
            samples.push(gauge.sample([&namespace, &claim], pick(&room) as f64));
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ferrolet_ports::{InUse, VolumeUsage};
    use ferrolet_types::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn shown(samples: &[Sample]) -> Vec<String> {
        let lines = samples
            .iter()
            .map(|it| format!("{} {} {}", it.family.name, it.labels.join(","), it.value.total()));
        lines.collect()
    }

    #[test]
    fn pods_and_containers_are_counted_by_what_they_are() {
        let running = json!({"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}}});
        let over = json!({"name": "b", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0}}});
        let pods = [
            pod(json!({"metadata": {"annotations": {"kubernetes.io/config.source": "file"}},
                "status": {"phase": "Running", "containerStatuses": [running, over]}})),
            pod(json!({"metadata": {"annotations": {"kubernetes.io/config.source": "api"}},
                "status": {"phase": "Succeeded", "containerStatuses": [over]}})),
        ];
        let lines = shown(&counted(&pods));
        for line in [
            "kubelet_mirror_pods  1",
            "kubelet_running_pods  1",
            "kubelet_active_pods  0",
            "kubelet_active_pods true 1",
            "kubelet_desired_pods  1",
            "kubelet_desired_pods true 1",
            "kubelet_running_containers exited 2",
            "kubelet_running_containers running 1",
        ] {
            assert!(lines.iter().any(|it| it == line), "{line} in {lines:?}");
        }
    }

    #[test]
    fn resizes_are_counted_by_how_far_they_are_and_whose_they_are() {
        let one = |priority: i32, kind: &str, reason: &str| {
            pod(json!({"spec": {"containers": [], "priority": priority}, "status": {"conditions": [
                {"type": kind, "status": "True", "reason": reason}, {"type": "Ready", "status": "True"}]}}))
        };
        let pods = [
            one(0, "PodResizePending", "Deferred"),
            one(0, "PodResizePending", "Deferred"),
            one(2_000_000_000, "PodResizePending", "Infeasible"),
            one(500, "PodResizeInProgress", ""),
        ];
        let expected = [
            "kubelet_pod_in_progress_resizes  1",
            "kubelet_pod_pending_resizes normal,deferred 2",
            "kubelet_pod_pending_resizes system-critical,infeasible 1",
        ];
        assert_eq!(shown(&resizes(&pods)), expected);
        for (priority, word) in
            [(100_000, "high"), (99_999, "medium"), (-999, "low"), (-1000, "very-low")]
        {
            assert_eq!(one(priority, "", "").priority_word(), word, "{priority}");
        }
    }

    #[test]
    fn claims_are_shown_once_with_their_room() {
        let room = FileRoom { capacity: 100, used: 40, ..FileRoom::default() };
        let at = Timestamp::from_second(1);
        let disk = DiskUsage {
            at,
            node: room,
            logs: room,
            container_logs: vec![("u".into(), "main".to_owned(), InUse { bytes: 7, inodes: 1 })],
            pod_files: Vec::new(),
            volumes: vec![VolumeUsage {
                uid: "u".into(),
                name: "pv-1".to_owned(),
                volume: Some("data".to_owned()),
                at,
                room,
                is_on_node: false,
            }],
        };
        let one = pod(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "volumes": [
                {"name": "other", "persistentVolumeClaim": {"claimName": "another"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]}}));
        let lines = shown(&on_disk(&[one.clone(), one], &disk));
        let of_claims = lines.iter().filter(|it| it.contains("volume_stats"));
        assert_eq!(of_claims.count(), 6);
        for line in [
            "kubelet_volume_stats_used_bytes n,claim 40",
            "kubelet_container_log_filesystem_used_bytes main,n,p,u 7",
        ] {
            assert!(lines.iter().any(|it| it == line), "{line} in {lines:?}");
        }
    }
}
