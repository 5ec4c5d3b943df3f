use k8s_openapi::api::core::v1::{PodSpec, PodStatus};

use super::*;

type ApiPod = k8s_openapi::api::core::v1::Pod;

const NOW: i64 = 1_700_000_000;

fn pod(name: &str, uid: &str) -> ApiPod {
    let mut pod = ApiPod::default();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    pod.metadata.uid = Some(uid.to_owned());
    pod.spec = Some(PodSpec::default());
    pod
}

fn from_file(pods: Vec<(&str, ApiPod)>) -> SourceUpdate {
    SourceUpdate {
        source: PodSource::File,
        pods: pods
            .into_iter()
            .map(|(origin, pod)| SourcedPod { origin: origin.into(), pod: Arc::new(pod) })
            .collect(),
        unreadable: BTreeSet::new(),
        is_provisional: false,
    }
}

fn apply(merger: &mut Merger, update: SourceUpdate) -> Merged {
    merger.apply(update, Timestamp::from_second(NOW))
}

/// The changes as words: `+a` added, `~a` updated, `!a` deleting, `-a` removed, `?a` reconcile; by
/// UID.
fn words(merged: &Merged) -> Vec<String> {
    let word = |change: &PodChange| {
        let sign = match change {
            PodChange::Added(_) => '+',
            PodChange::Updated(_) => '~',
            PodChange::Deleting(_) => '!',
            PodChange::Removed(_) => '-',
            PodChange::Reconcile(_) => '?',
        };
        format!("{sign}{}", change.pod().uid())
    };
    merged.changes.changes.iter().map(word).collect()
}

#[test]
fn pods_come_change_and_go() {
    let mut merger = Merger::new([PodSource::File]);
    let merged = apply(&mut merger, from_file(vec![("1", pod("a", "a")), ("2", pod("b", "b"))]));
    assert_eq!(words(&merged), ["+a", "+b"]);
    let same = apply(&mut merger, from_file(vec![("1", pod("a", "a")), ("2", pod("b", "b"))]));
    assert_eq!((words(&same).len(), same.is_first), (0, false));

    let mut relabelled = pod("b", "b");
    relabelled.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
    let merged = apply(&mut merger, from_file(vec![("2", relabelled), ("3", pod("c", "c"))]));
    assert_eq!(words(&merged), ["-a", "+c", "~b"]);
}

#[test]
fn a_pod_told_again_is_the_one_that_was_held() {
    let mut merger = Merger::new([PodSource::File]);
    let told = from_file(vec![("1", pod("a", "a"))]);
    let first = apply(&mut merger, told.clone());
    assert_eq!(words(&apply(&mut merger, told)).len(), 0);
    let gone = apply(&mut merger, from_file(vec![]));
    assert_eq!(words(&gone), ["-a"]);
    assert!(Arc::ptr_eq(first.changes.changes[0].pod(), gone.changes.changes[0].pod()));
}

#[test]
fn new_pods_are_marked_with_source_and_time_and_keep_their_time() {
    let mut merger = Merger::new([PodSource::File]);
    let merged = apply(&mut merger, from_file(vec![("1", pod("a", "a"))]));
    let first = merged.changes.changes[0].pod().clone();
    assert_eq!(first.source(), PodSource::File);
    assert_eq!(first.annotation(SEEN_ANNOTATION), Some("2023-11-14T22:13:20Z"));
    let mut edited = pod("a", "a");
    edited.spec.as_mut().unwrap().hostname = Some("h".to_owned());
    let later = merger.apply(from_file(vec![("1", edited)]), Timestamp::from_second(NOW + 9));
    assert_eq!(words(&later), ["~a"]);
    let seen = later.changes.changes[0].pod().annotation(SEEN_ANNOTATION).map(str::to_owned);
    assert_eq!(seen.as_deref(), Some("2023-11-14T22:13:20Z"));
}

#[test]
fn deletion_and_status_are_told_apart_from_updates() {
    let mut merger = Merger::new([PodSource::Api]);
    let api = |pods: Vec<ApiPod>| SourceUpdate {
        source: PodSource::Api,
        ..from_file(pods.into_iter().map(|pod| ("api", pod)).collect())
    };
    apply(&mut merger, api(vec![pod("a", "a"), pod("b", "b")]));
    let mut leaving = pod("a", "a");
    let time = serde_json::from_str("\"2024-01-01T00:00:00Z\"").unwrap();
    leaving.metadata.deletion_timestamp = Some(time);
    let mut reported = pod("b", "b");
    reported.status = Some(PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() });
    let merged = apply(&mut merger, api(vec![leaving.clone(), reported.clone()]));
    assert_eq!(words(&merged), ["!a", "?b"]);
    assert!(words(&apply(&mut merger, api(vec![leaving, reported]))).is_empty());
}

#[test]
fn an_edited_manifest_is_another_pod() {
    let mut merger = Merger::new([PodSource::File]);
    apply(&mut merger, from_file(vec![("1", pod("a", "old"))]));
    let merged = apply(&mut merger, from_file(vec![("1", pod("a", "new"))]));
    assert_eq!(words(&merged), ["-old", "+new"]);
}

#[test]
fn of_two_pods_with_one_name_the_first_file_wins_and_the_other_is_reported_once() {
    let mut merger = Merger::new([PodSource::File]);
    let both = || from_file(vec![("/m/1.yaml", pod("a", "x")), ("/m/2.yaml", pod("a", "y"))]);
    let merged = apply(&mut merger, both());
    assert_eq!(words(&merged), ["+x"]);
    assert_eq!(
        merged.notices,
        [Notice::new(
            PodSource::File,
            "/m/2.yaml",
            "pod default/a is ignored: /m/1.yaml has a pod of the same name already"
        )]
    );
    assert_eq!(apply(&mut merger, both()).notices, []);
    // When the winner goes, the other takes its place; when the clash comes back it is news again.
    let alone = apply(&mut merger, from_file(vec![("/m/2.yaml", pod("a", "y"))]));
    assert_eq!(words(&alone), ["-x", "+y"]);
    assert_eq!(apply(&mut merger, both()).notices[0].origin, "/m/1.yaml".into());
}

#[test]
fn the_pod_that_is_there_already_keeps_its_name_even_when_its_file_is_edited() {
    let mut merger = Merger::new([PodSource::File]);
    apply(&mut merger, from_file(vec![("2", pod("a", "y"))]));
    let merged = apply(&mut merger, from_file(vec![("1", pod("a", "x")), ("2", pod("a", "y"))]));
    assert_eq!((words(&merged).len(), merged.notices.len()), (0, 1));
    let edited = apply(&mut merger, from_file(vec![("1", pod("a", "x")), ("2", pod("a", "y2"))]));
    assert_eq!(words(&edited), ["-y", "+y2"]);
}

#[test]
fn of_a_set_that_holds_the_same_pods_only_what_is_held_and_was_edited_changes() {
    let labelled = |name: &str, uid: &str| {
        let mut pod = pod(name, uid);
        pod.metadata.labels = Some([("edited".to_owned(), "yes".to_owned())].into());
        pod
    };
    let mut merger = Merger::new([PodSource::File]);
    let set =
        |a: ApiPod, loser: ApiPod, b: ApiPod| from_file(vec![("1", a), ("2", loser), ("3", b)]);
    apply(&mut merger, set(pod("a", "a"), pod("a", "loser"), pod("b", "b")));
    let merged = apply(&mut merger, set(pod("a", "a"), labelled("a", "loser"), labelled("b", "b")));
    assert_eq!((words(&merged), merged.notices), (vec!["~b".to_owned()], vec![]));
    let merged = apply(&mut merger, set(labelled("a", "a"), pod("a", "loser"), labelled("b", "b")));
    assert_eq!(words(&merged), ["~a"]);
    // Its file gone, the name goes to the other one, as it was told last.
    let merged =
        apply(&mut merger, from_file(vec![("2", pod("a", "loser")), ("3", labelled("b", "b"))]));
    assert_eq!(words(&merged), ["-a", "+loser"]);
}

#[test]
fn a_field_that_is_not_read_is_neither_there_nor_a_change() {
    let mut merger = Merger::new([PodSource::File]).ignoring(vec![IgnoredField::EnvFiles]);
    let reading = |key: &str| {
        let source = serde_json::json!({"volumeName": "v", "path": "f", "key": key});
        let variable = serde_json::json!({"name": "E", "valueFrom": {"fileKeyRef": source}});
        let container = serde_json::json!({"name": "c", "env": [variable]});
        let mut pod = pod("a", "a");
        pod.spec = serde_json::from_value(serde_json::json!({"containers": [container]})).unwrap();
        pod
    };
    let merged = apply(&mut merger, from_file(vec![("1", reading("K"))]));
    assert_eq!(words(&merged), ["+a"]);
    let seen = serde_json::to_value(&**merged.changes.changes[0].pod()).unwrap();
    let variable = seen.pointer("/spec/containers/0/env/0").unwrap();
    assert_eq!(variable, &serde_json::json!({"name": "E", "valueFrom": {}}));
    let edited = apply(&mut merger, from_file(vec![("1", reading("L"))]));
    assert_eq!(words(&edited), [""; 0]);
    let joined = from_file(vec![("1", reading("M")), ("2", pod("b", "b"))]);
    assert_eq!(words(&apply(&mut merger, joined)), ["+b"]);
}

#[test]
fn one_uid_twice_is_a_clash_too() {
    let mut merger = Merger::new([PodSource::File]);
    let merged = apply(&mut merger, from_file(vec![("1", pod("a", "u")), ("2", pod("b", "u"))]));
    assert_eq!(words(&merged), ["+u"]);
    assert!(merged.notices[0].message.contains("same uid"));
}

#[test]
fn sources_are_ready_when_each_has_spoken() {
    let mut merger = Merger::new([PodSource::File, PodSource::Http]);
    assert!(!merger.sources_ready());
    let merged = apply(&mut merger, from_file(vec![]));
    assert!(merged.is_first && !merged.changes.all_sources_ready);
    let http = SourceUpdate { source: PodSource::Http, ..from_file(vec![]) };
    let merged = apply(&mut merger, http);
    assert!(merged.is_first && merged.changes.all_sources_ready && merger.sources_ready());
}

#[test]
fn a_stand_in_runs_pods_without_making_its_source_ready() {
    let mut merger = Merger::new([PodSource::File]);
    let provisional = |pods| SourceUpdate { is_provisional: true, ..from_file(pods) };
    let (a, b) = (|| ("1", pod("a", "a")), || ("2", pod("b", "b")));
    let merged = apply(&mut merger, provisional(vec![a(), b()]));
    assert_eq!(words(&merged), ["+a", "+b"]);
    assert!(!merged.is_first && !merged.changes.all_sources_ready);
    // The source itself: what it has goes on untouched, what it lacks goes.
    let merged = apply(&mut merger, from_file(vec![b()]));
    assert_eq!(words(&merged), ["-a"]);
    assert!(merged.is_first && merged.changes.all_sources_ready);
    // A stand-in that comes too late is not listened to.
    let merged = apply(&mut merger, provisional(vec![a()]));
    assert!(words(&merged).is_empty() && merged.changes.all_sources_ready);
}

#[test]
fn a_pod_that_cannot_be_read_is_not_taken_for_gone() {
    let unreadable = |pods, uids: &[&str]| SourceUpdate {
        unreadable: uids.iter().map(|uid| PodUid::new(*uid)).collect(),
        ..from_file(pods)
    };
    let (a, b) = (|| ("1", pod("a", "a")), || ("2", pod("b", "b")));
    let mut merger = Merger::new([PodSource::File]);
    let stand_in = SourceUpdate { is_provisional: true, ..from_file(vec![a()]) };
    assert_eq!(words(&apply(&mut merger, stand_in)), ["+a"]);
    // The one that a stand-in told of goes on; of the other nothing is known, so that nothing may be
    // cleaned away.
    let merged = apply(&mut merger, unreadable(vec![b()], &["a", "c"]));
    assert_eq!(words(&merged), ["+b"]);
    assert!(!merged.is_first && !merged.changes.all_sources_ready);
    let late = SourceUpdate { is_provisional: true, ..from_file(vec![]) };
    assert!(words(&apply(&mut merger, late)).is_empty());
    let merged = apply(&mut merger, unreadable(vec![b()], &["a"]));
    assert!(words(&merged).is_empty());
    assert!(merged.is_first && merged.changes.all_sources_ready);
    // A new one that never ran here holds up nobody any more.
    let merged = apply(&mut merger, unreadable(vec![b()], &["a", "d"]));
    assert!(words(&merged).is_empty() && merged.changes.all_sources_ready);
    let merged = apply(&mut merger, from_file(vec![b()]));
    assert_eq!(words(&merged), ["-a"]);
}

#[test]
fn sources_do_not_see_each_others_pods() {
    let mut merger = Merger::new([PodSource::File, PodSource::Http]);
    apply(&mut merger, from_file(vec![("1", pod("a", "a"))]));
    let http = SourceUpdate { source: PodSource::Http, ..from_file(vec![]) };
    assert!(words(&apply(&mut merger, http)).is_empty());
}

struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(NOW)
    }
}

#[tokio::test]
async fn the_loop_passes_on_changes_and_first_sets_and_nothing_else() {
    let (to_merge, updates) = mpsc::channel(8);
    let (changes, mut merged) = mpsc::channel(8);
    let merger = Merger::new([PodSource::File]);
    for update in [
        from_file(vec![]),
        from_file(vec![]),
        from_file(vec![("1", pod("a", "a"))]),
        from_file(vec![("1", pod("a", "a"))]),
    ] {
        to_merge.send(update).await.unwrap();
    }
    drop(to_merge);
    run(merger, updates, changes, None, Arc::new(StoppedClock)).await;
    assert_eq!(merged.recv().await.unwrap().changes.len(), 0);
    assert_eq!(merged.recv().await.unwrap().changes.len(), 1);
    assert!(merged.recv().await.is_none());
}
