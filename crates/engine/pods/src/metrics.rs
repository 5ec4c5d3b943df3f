//! Metrics of pods' lives: sandboxes, containers, images, cgroups, turns of workers, starts and
//! ends.
//!
//! Counted in the tally of the process. In: what the shell did and how long it took. Refuses: label values without bound; the time that pulls took is kept
//! by pod until the pod has started or is gone.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ferrolet_lifecycle::{PodState, StartError};
use ferrolet_ports::metrics::{self, Counter, Gauge, process};
use ferrolet_resources::ClassBounds;
use ferrolet_types::{
    Pod, PodUid, Timestamp,
    pod::{ContainerKind, Phase, PodSource, PodView, SEEN_ANNOTATION, is_sidecar},
};
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use tokio::time::Instant;

use crate::{
    requested::{Change, levels},
    resizing::Waited,
};

/// Sizes of images above these many megabytes have these names.
const SIZES: [(u64, &str); 12] = [
    (0, "0-10MB"),
    (10, "10MB-100MB"),
    (100, "100MB-500MB"),
    (500, "500MB-1GB"),
    (1 << 10, "1GB-5GB"),
    (5 << 10, "5GB-10GB"),
    (10 << 10, "10GB-20GB"),
    (20 << 10, "20GB-30GB"),
    (30 << 10, "30GB-40GB"),
    (40 << 10, "40GB-60GB"),
    (60 << 10, "60GB-100GB"),
    (100 << 10, "GT100GB"),
];

/// Counters that are shown before anything was counted.
const FROM_NOTHING: [Counter<0>; 6] = [
    metrics::KUBELET_IMAGE_VOLUME_MOUNTED_ERRORS_TOTAL,
    metrics::KUBELET_IMAGE_VOLUME_MOUNTED_SUCCEED_TOTAL,
    metrics::KUBELET_IMAGE_VOLUME_REQUESTED_TOTAL,
    metrics::KUBELET_ORPHANED_RUNTIME_PODS_TOTAL,
    metrics::KUBELET_STARTED_USER_NAMESPACED_PODS_ERRORS_TOTAL,
    metrics::KUBELET_STARTED_USER_NAMESPACED_PODS_TOTAL,
];

/// What guaranteed and burstable pods have of memory that is reserved.
const MEMORY_MIN: Gauge<0> = metrics::KUBELET_MEMORY_QOS_NODE_MEMORY_MIN_BYTES;
const MEMORY_LOW: Gauge<0> = metrics::KUBELET_MEMORY_QOS_NODE_MEMORY_LOW_BYTES;

/// How long pulls took for pods that have not started yet.
static PULLS: Mutex<BTreeMap<PodUid, Duration>> = Mutex::new(BTreeMap::new());

/// Shows from the start what upstream shows from the start.
pub(crate) fn begin() {
    for counter in FROM_NOTHING {
        process().add(counter, [], 0.0);
    }
    for is_static in ["", "true"] {
        process().add(metrics::KUBELET_RESTARTED_PODS_TOTAL, [is_static], 0.0);
    }
    for gauge in [MEMORY_MIN, MEMORY_LOW] {
        process().adjust(gauge, [], 0.0);
    }
}

/// Memory is reserved for pods, or not.
pub(crate) fn memory_reserved(bounds: &ClassBounds) {
    let low = bounds.burstable.memory_low.unwrap_or(0);
    let min = bounds.all.memory_min.unwrap_or(0).saturating_sub(low);
    for (gauge, bytes) in [(MEMORY_MIN, min), (MEMORY_LOW, low)] {
        #[expect(
            clippy::cast_precision_loss,
            reason = "figures are floating point; exact bytes do not matter"
        )]
        process().set(gauge, [], bytes as f64);
    }
}

/// A sandbox is made with this handler.
pub(crate) async fn sandbox<T, E>(
    handler: &str,
    has_own_users: bool,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let began = Instant::now();
    let made = work.await;
    let took = began.elapsed().as_secs_f64();
    process().observe(metrics::KUBELET_RUN_PODSANDBOX_DURATION_SECONDS, [handler], took);
    if has_own_users {
        process().add(metrics::KUBELET_STARTED_USER_NAMESPACED_PODS_TOTAL, [], 1.0);
    }
    if made.is_err() {
        process().add(metrics::KUBELET_RUN_PODSANDBOX_ERRORS_TOTAL, [handler], 1.0);
        if has_own_users {
            process().add(metrics::KUBELET_STARTED_USER_NAMESPACED_PODS_ERRORS_TOTAL, [], 1.0);
        }
    }
    made
}

/// A container is started.
pub(crate) async fn container(
    kind: ContainerKind,
    work: impl Future<Output = Result<(), StartError>>,
) -> Result<(), StartError> {
    let kind = word(kind);
    process().add(metrics::KUBELET_STARTED_CONTAINERS_TOTAL, [kind], 1.0);
    let started = work.await;
    if let Err(failure) = &started {
        process().add(
            metrics::KUBELET_STARTED_CONTAINERS_ERRORS_TOTAL,
            [failure.reason.as_str(), kind],
            1.0,
        );
    }
    started
}

/// Something is done with a pod's cgroup: `create` or `destroy`.
pub(crate) async fn cgroup<T>(operation: &str, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let done = work.await;
    let took = began.elapsed().as_secs_f64();
    process().observe(metrics::KUBELET_CGROUP_MANAGER_DURATION_SECONDS, [operation], took);
    done
}

/// The runtime is asked about one pod.
pub(crate) async fn looked<T>(ask: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let answer = ask.await;
    let took = began.elapsed().as_secs_f64();
    process().observe(metrics::KUBELET_PLEG_POD_RELIST_DURATION_SECONDS, [], took);
    answer
}

/// Granted resources are put in force.
pub(crate) async fn resized<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let began = Instant::now();
    let done = work.await;
    let took = began.elapsed().as_millis() as f64;
    let is_done = if done.is_ok() { "true" } else { "false" };
    process().observe(metrics::KUBELET_POD_RESIZE_DURATION_MILLISECONDS, [is_done], took);
    done
}

/// A new version of a pod asks for other resources.
pub(crate) fn resizes_requested(changes: &[Change]) {
    let counter = metrics::KUBELET_CONTAINER_REQUESTED_RESIZES_TOTAL;
    changes.iter().for_each(|change| process().add(counter, *change, 1.0));
}

/// A resize can never happen on this node.
pub(crate) fn resize_refused(detail: &str) {
    process().add(metrics::KUBELET_POD_INFEASIBLE_RESIZES_TOTAL, [detail], 1.0);
}

/// Resizes that had to wait were granted, after something that may have made room.
pub(crate) fn resizes_late(trigger: &str, n: usize) {
    process().add(metrics::KUBELET_POD_DEFERRED_ACCEPTED_RESIZES_TOTAL, [trigger], n as f64);
}

/// A resize waits no longer.
pub(crate) fn resize_waited(pod: &Pod, waited: &Waited) {
    let labels = [pod.priority_word(), waited.end.word()];
    let took = waited.took.as_secs_f64();
    process().observe(metrics::KUBELET_POD_DEFERRED_RESIZE_DURATION_SECONDS, labels, took);
}

/// A pod was taken, with resources at some level.
pub(crate) fn taken(pod: &Pod) {
    let (level, class) = levels(pod);
    process().add(metrics::KUBELET_POD_LEVEL_RESOURCES_ADMISSION_TOTAL, [level, &class], 1.0);
}

/// A credential plugin was run, and had something to say or failed.
pub(crate) fn plugin_ran(name: &str, took: Duration, is_well: bool) {
    process().observe(
        metrics::KUBELET_CREDENTIAL_PROVIDER_PLUGIN_DURATION,
        [name],
        took.as_secs_f64(),
    );
    if !is_well {
        process().add(metrics::KUBELET_CREDENTIAL_PROVIDER_PLUGIN_ERRORS_TOTAL, [name], 1.0);
    }
}

/// A pod wanted an image that is here, and this came of it.
pub(crate) fn use_checked(result: &str) {
    process().add(metrics::KUBELET_IMAGEMANAGER_IMAGE_MUSTPULL_CHECKS_TOTAL, [result], 1.0);
}

/// A pod came back under its old identity and starts once more.
pub(crate) fn restarted(pod: &Pod) {
    process().add(metrics::KUBELET_RESTARTED_PODS_TOTAL, [static_word(pod)], 1.0);
}

fn static_word(pod: &Pod) -> &'static str {
    if pod.is_static() { "true" } else { "" }
}

/// An image was wanted: the policy, whether it was here, whether it had to be pulled.
pub(crate) fn image_wanted(policy: &str, is_here: &str, must_pull: &str) {
    process().add(
        metrics::KUBELET_IMAGE_MANAGER_ENSURE_IMAGE_REQUESTS_TOTAL,
        [is_here, policy, must_pull],
        1.0,
    );
}

/// An image was pulled for a pod.
pub(crate) fn pulled(uid: &PodUid, size: u64, took: Duration) {
    process().observe(
        metrics::KUBELET_IMAGE_PULL_DURATION_SECONDS,
        [size_word(size)],
        took.as_secs_f64(),
    );
    let mut pulls = PULLS.lock().unwrap_or_else(PoisonError::into_inner);
    *pulls.entry(uid.clone()).or_default() += took;
}

/// An image was wanted as a volume, and is here or not.
pub(crate) fn image_volume<T, E>(outcome: &Result<T, E>) {
    process().add(metrics::KUBELET_IMAGE_VOLUME_REQUESTED_TOTAL, [], 1.0);
    let counter = match outcome {
        Ok(_) => metrics::KUBELET_IMAGE_VOLUME_MOUNTED_SUCCEED_TOTAL,
        Err(_) => metrics::KUBELET_IMAGE_VOLUME_MOUNTED_ERRORS_TOTAL,
    };
    process().add(counter, [], 1.0);
}

/// A pod was refused.
pub(crate) fn rejected(reason: &str) {
    // Reasons are ours; what one says about an amount of a resource is kept, and nothing that a pod
    // could make up.
    let known = ["OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage"];
    let shown = match reason {
        known_amount if known.contains(&known_amount) => known_amount,
        amount if amount.starts_with("OutOf") => "OutOfExtendedResources",
        other => other,
    };
    process().add(metrics::KUBELET_ADMISSION_REJECTIONS_TOTAL, [shown], 1.0);
}

/// A pod has to make room for a critical one, because so much of this was missing.
pub(crate) fn preempted(missing: &str) {
    process().add(metrics::KUBELET_PREEMPTIONS, [missing], 1.0);
}

/// A pod gets a worker, so long after it was first seen.
pub(crate) fn worker_began(pod: &Pod, now: Timestamp) {
    let n_containers = pod.spec_ref().containers.len() as f64;
    process().observe(metrics::KUBELET_CONTAINERS_PER_POD_COUNT, [], n_containers);
    if let Some(seen) = first_seen(pod) {
        let took = now.since(seen).as_secs_f64();
        process().observe(metrics::KUBELET_POD_WORKER_START_DURATION_SECONDS, [], took);
    }
}

/// One turn of a worker, without its waiting.
pub(crate) fn turn(operation: &str, took: Duration) {
    process().observe(
        metrics::KUBELET_POD_WORKER_DURATION_SECONDS,
        [operation],
        took.as_secs_f64(),
    );
}

/// What a turn is called.
pub(crate) fn operation(state: PodState, is_first: bool, is_update: bool) -> &'static str {
    match state {
        PodState::Running if is_first => "create",
        PodState::Running if is_update => "update",
        PodState::Running => "sync",
        PodState::Stopping { .. } => "kill",
        PodState::Stopped | PodState::Settled | PodState::Gone => "terminated",
    }
}

/// What nobody asked for is taken down.
pub(crate) fn orphan() {
    process().add(metrics::KUBELET_ORPHANED_RUNTIME_PODS_TOTAL, [], 1.0);
}

/// A pod is gone for good.
pub(crate) fn gone(uid: &PodUid) {
    PULLS.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
}

/// A status takes the place of another.
pub(crate) fn published(pod: &Pod, before: Option<&PodStatus>, after: &PodStatus, now: Timestamp) {
    for (kind, status) in newly_ended(before, after) {
        let Some(end) = status.state.as_ref().and_then(|it| it.terminated.as_ref()) else {
            continue;
        };
        let (code, reason) = (end.exit_code.to_string(), end.reason.as_deref());
        let labels = [kind, code.as_str(), reason.unwrap_or_default()];
        process().add(metrics::KUBELET_TERMINATED_CONTAINERS_TOTAL, labels, 1.0);
    }
    let was_pending = before.and_then(Phase::of) == Some(Phase::Pending);
    if !was_pending || Phase::of(after) == Some(Phase::Pending) {
        return;
    }
    if let Some(seen) = first_seen(pod) {
        let took = now.since(seen).as_secs_f64();
        process().observe(metrics::KUBELET_POD_START_DURATION_SECONDS, [], took);
    }
    let pulls = PULLS.lock().unwrap_or_else(PoisonError::into_inner).remove(&pod.uid());
    let created = pod.metadata.creation_timestamp.as_ref();
    if let (PodSource::Api, Some(created)) = (pod.source(), created) {
        let total = now.since(Timestamp(created.0));
        process().observe(
            metrics::KUBELET_POD_START_TOTAL_DURATION_SECONDS,
            [],
            total.as_secs_f64(),
        );
        let own =
            total.saturating_sub(pulls.unwrap_or_default()).saturating_sub(in_init(pod, after));
        process().observe(metrics::KUBELET_POD_START_SLI_DURATION_SECONDS, [], own.as_secs_f64());
    }
}

fn word(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init | ContainerKind::Sidecar => "init_container",
        ContainerKind::Regular => "container",
        ContainerKind::Ephemeral => "ephemeral_container",
    }
}

fn size_word(bytes: u64) -> &'static str {
    let above = |(megabytes, _): &&(u64, &str)| bytes > megabytes << 20;
    SIZES.iter().rev().find(above).map_or("N/A", |(_, name)| name)
}

fn first_seen(pod: &Pod) -> Option<Timestamp> {
    let annotations = pod.metadata.annotations.as_ref()?;
    let seen = annotations.get(SEEN_ANNOTATION)?.parse().ok()?;
    Some(Timestamp(seen))
}

/// Containers that have an end which they did not have before, with the word for their kind.
fn newly_ended<'a>(
    before: Option<&'a PodStatus>,
    after: &'a PodStatus,
) -> impl Iterator<Item = (&'static str, &'a ContainerStatus)> {
    type Of = fn(&PodStatus) -> Option<&Vec<ContainerStatus>>;
    let kinds: [(&'static str, Of); 3] = [
        ("container", |it| it.container_statuses.as_ref()),
        ("init_container", |it| it.init_container_statuses.as_ref()),
        ("ephemeral_container", |it| it.ephemeral_container_statuses.as_ref()),
    ];
    let has_ended =
        |it: &ContainerStatus| it.state.as_ref().is_some_and(|it| it.terminated.is_some());
    kinds.into_iter().flat_map(move |(kind, of)| {
        let known: Vec<&ContainerStatus> = before.and_then(of).into_iter().flatten().collect();
        let now = of(after).into_iter().flatten();
        // Nothing is known of what happened before the first look.
        now.filter(move |it| {
            let old = known.iter().find(|old| old.name == it.name);
            let was_there =
                old.is_some_and(|old| has_ended(old) && old.container_id == it.container_id);
            before.is_some() && has_ended(it) && !was_there
        })
        .map(move |it| (kind, it))
    })
}

/// How long the pod's init containers ran.
fn in_init(pod: &Pod, status: &PodStatus) -> Duration {
    let is_plain = |name: &str| {
        let mut all = pod.spec_ref().init_containers.iter().flatten();
        all.any(|it| it.name == name && !is_sidecar(it))
    };
    let spans = status.init_container_statuses.iter().flatten();
    let spans = spans.filter(|it| is_plain(&it.name)).filter_map(|it| {
        let end = it.state.as_ref()?.terminated.as_ref()?;
        let (from, to) = (end.started_at.as_ref()?, end.finished_at.as_ref()?);
        Some(Timestamp(to.0).since(Timestamp(from.0)))
    });
    spans.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_have_upstreams_names() {
        let check = |bytes: u64, expected: &str| assert_eq!(size_word(bytes), expected, "{bytes}");
        check(0, "N/A");
        check(1, "0-10MB");
        check(10 << 20, "0-10MB");
        check((10 << 20) + 1, "10MB-100MB");
        check(700 << 20, "500MB-1GB");
        check(2 << 30, "1GB-5GB");
        check(500 << 30, "GT100GB");
    }

    #[test]
    fn turns_are_named_for_what_they_are_about() {
        let check = |state, first, update, expected: &str| {
            assert_eq!(operation(state, first, update), expected);
        };
        check(PodState::Running, true, true, "create");
        check(PodState::Running, false, true, "update");
        check(PodState::Running, false, false, "sync");
        check(PodState::Stopped, true, true, "terminated");
    }

    #[test]
    fn an_end_counts_once_and_none_counts_before_the_first_look() {
        let status = |id: &str, is_over: bool| -> PodStatus {
            let state = if is_over {
                json!({"terminated": {"exitCode": 3, "reason": "Error"}})
            } else {
                json!({"running": {}})
            };
            serde_json::from_value(json!({"containerStatuses": [{"name": "main", "image": "",
                "imageID": "", "ready": false, "restartCount": 0, "containerID": id, "state": state}]}))
            .unwrap()
        };
        let check = |before: Option<&PodStatus>, after: &PodStatus, expected: usize| {
            assert_eq!(newly_ended(before, after).count(), expected);
        };
        check(None, &status("a", true), 0);
        check(Some(&status("a", false)), &status("a", true), 1);
        check(Some(&status("a", true)), &status("a", true), 0);
        check(Some(&status("a", true)), &status("b", true), 1);
        check(Some(&status("a", true)), &status("b", false), 0);
    }

    #[test]
    fn a_start_is_counted_without_what_it_waited_for() {
        // Labels and families are this test's own through an image of a size that nobody else has
        // here.
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "metrics-a", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"kubernetes.io/config.seen": "2026-01-01T00:00:01Z",
                    "kubernetes.io/config.source": "api"}},
            "spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "first"}]},
        }))
        .unwrap();
        let pod = Pod::new(pod);
        let phase = |word: &str| -> PodStatus {
            serde_json::from_value(json!({"phase": word, "initContainerStatuses": [{"name": "first",
                "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"terminated":
                {"exitCode": 0, "startedAt": "2026-01-01T00:00:02Z", "finishedAt": "2026-01-01T00:00:04Z"}}}]}))
            .unwrap()
        };
        let now = Timestamp("2026-01-01T00:00:30Z".parse().unwrap());
        let sums = || {
            [
                metrics::KUBELET_POD_START_DURATION_SECONDS,
                metrics::KUBELET_POD_START_TOTAL_DURATION_SECONDS,
                metrics::KUBELET_POD_START_SLI_DURATION_SECONDS,
            ]
            .map(|histogram| -> f64 {
                process().samples_of(histogram).iter().map(|it| it.value.total()).sum()
            })
        };
        let before = sums();
        pulled(&pod.uid(), 200 << 30, Duration::from_secs(10));
        published(&pod, Some(&phase("Pending")), &phase("Running"), now);
        let after = sums();
        let grown: Vec<f64> = after.iter().zip(before).map(|(now, then)| now - then).collect();
        assert_eq!(grown, [29.0, 30.0, 18.0]);
        assert!(!PULLS.lock().unwrap().contains_key(&pod.uid()));
    }
}
