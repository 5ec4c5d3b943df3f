//! Mirrors: what the plan says of every case, and the loop that follows it.

use std::{sync::Arc, time::Duration};

use ferrolet_node::NodeState;
use ferrolet_testkit::{FakeClusterApi, pod};
use ferrolet_types::{
    Pod, PodUid, Timestamp,
    pod::{HASH_ANNOTATION, MIRROR_ANNOTATION, PodView as _},
};
use k8s_openapi::{
    api::core::v1::{self as api, Node},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::json;
use tokio::{sync::watch, time::sleep};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn static_pod(name: &str) -> Pod {
    pod(name).static_file().label("app", name).container("main", "image").build()
}

fn node() -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some("node".to_owned()),
            uid: Some("node-uid".to_owned()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}

/// The API's copy of a static pod.
fn stored(pod: &Pod, uid: &str, edit: impl FnOnce(&mut api::Pod)) -> Pod {
    let mut mirror = api::Pod::clone(&mirror_pod(pod, &node()).unwrap());
    mirror.metadata.uid = Some(uid.to_owned());
    edit(&mut mirror);
    Arc::new(mirror)
}

#[test]
fn a_mirror_is_its_pod_owned_by_the_node() {
    let pod = static_pod("a");
    let mirror = mirror_pod(&pod, &node()).unwrap();
    assert_eq!(mirror.spec, pod.spec);
    assert_eq!(mirror.status, None);
    let metadata = serde_json::to_value(&mirror.metadata).unwrap();
    let hash = pod.uid();
    let hash = hash.as_str();
    assert_eq!(
        metadata,
        json!({
            "name": "a", "namespace": "default", "labels": { "app": "a" },
            "annotations": {
                "kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash,
                "kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z", "kubernetes.io/config.source": "file",
            },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "node", "uid": "node-uid", "controller": true }],
        })
    );
    let mut unborn = node();
    unborn.metadata.uid = None;
    assert_eq!(mirror_pod(&pod, &unborn), None);
    let mut dying = node();
    dying.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1).0));
    assert_eq!(mirror_pod(&pod, &dying), None);
}

#[test]
fn the_plan_knows_every_case() {
    let (pod, other) = (static_pod("a"), static_pod("b"));
    let right = || stored(&pod, "m", |_| {});
    let wrong = stored(&pod, "m", |mirror| {
        let annotations = mirror.metadata.annotations.get_or_insert_default();
        annotations.insert(MIRROR_ANNOTATION.to_owned(), "old".to_owned());
    });
    let dying = stored(&pod, "m", |mirror| {
        mirror.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1).0));
    });
    let ordinary = ferrolet_testkit::pod("plain").build();
    let complete = |pods: &[&Pod], terminating: &[&Pod]| StaticPods {
        pods: pods.iter().map(|pod| (*pod).clone()).collect(),
        terminating: terminating.iter().map(|pod| pod.key()).collect(),
        are_complete: true,
    };
    let check = |says: &str, statics: StaticPods, api_pods: &[Pod], expected: &[&str]| {
        let node = node();
        let plan = plan_mirrors(&statics, api_pods, Some(&node));
        let in_words = |action: &MirrorAction| match action {
            MirrorAction::Create(pod) => format!("create {}", pod.key()),
            MirrorAction::Delete { key, uid } => format!("delete {key} {uid}"),
        };
        let plan: Vec<String> = plan.iter().map(in_words).collect();
        assert_eq!(plan, expected, "{says}");
    };
    let replace = ["delete default/a m", "create default/a"];
    let only = |mirror: &Pod| vec![mirror.clone()];
    check("missing", complete(&[&pod], &[]), &[], &["create default/a"]);
    check("right", complete(&[&pod], &[]), &only(&right()), &[]);
    check("different", complete(&[&pod], &[]), &only(&wrong), &replace);
    check("deleted by hand", complete(&[&pod], &[]), &only(&dying), &replace);
    check("the predecessor still ends", complete(&[&pod], &[&pod]), &only(&wrong), &[]);
    let both = [right(), stored(&other, "o", |_| {})];
    check("orphan", complete(&[&other], &[]), &both, &["delete default/a m"]);
    check("orphan that still ends", complete(&[], &[&pod]), &only(&right()), &[]);
    let early = StaticPods { are_complete: false, ..complete(&[], &[]) };
    check("a source has not spoken", early, &only(&right()), &[]);
    check("not a mirror", complete(&[], &[]), &only(&ordinary), &[]);
    assert_eq!(plan_mirrors(&complete(&[&pod], &[]), &[], None), [], "no node yet");
}

#[test]
fn identities_translate_both_ways() {
    let pod = static_pod("a");
    let statics = StaticPods { pods: vec![pod.clone()], ..StaticPods::default() };
    let translations = plan_translations(&statics, &[stored(&pod, "m", |_| {})]);
    let (mirror, plain) = (PodUid::new("m"), PodUid::new("plain"));
    assert_eq!(translations.to_local(&mirror), pod.uid());
    assert_eq!(translations.to_local(&plain), plain);
    assert_eq!(translations.mirror_of(&pod.uid()), Some(&mirror));
    assert_eq!(translations.mirror_of(&plain), None);
}

#[tokio::test(start_paused = true)]
async fn mirrors_are_made_remade_replaced_and_taken_away() {
    let api = FakeClusterApi::new("node");
    let (statics, statics_seen) = watch::channel(StaticPods {
        pods: vec![static_pod("a")],
        terminating: std::collections::BTreeSet::new(),
        are_complete: true,
    });
    let (listed, api_pods) = watch::channel(None);
    let mut pods = api.watch_pods();
    let relay = tokio::spawn(async move {
        loop {
            let set = pods.borrow_and_update().clone();
            listed.send_replace(Some(set));
            if pods.changed().await.is_err() {
                return;
            }
        }
    });
    let (known, this_node) = watch::channel(Arc::new(NodeState::example()));
    let (translations, translated) = watch::channel(Translations::default());
    let task = tokio::spawn(run(MirrorDoors {
        api: Arc::new(api.clone()),
        statics: statics_seen,
        api_pods,
        node: this_node,
        translations,
    }));
    let key = static_pod("a").key();
    let made = |api: &FakeClusterApi| api.pod(&key).map(|pod| pod.uid());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(made(&api), None, "no node, no mirror");

    // The node registers while the server is shaky.
    api.refuse_next(ferrolet_ports::ApiErrorKind::Server);
    known.send_modify(|known| {
        Arc::make_mut(known).learn(Arc::new(node()));
    });
    api.until("a mirror", PATIENCE, |api| made(api).is_some()).await;
    let first = made(&api).unwrap();
    sleep(Duration::from_millis(10)).await;
    assert_eq!(translated.borrow().to_local(&first), static_pod("a").uid());

    // kubectl delete asks with a grace; the mirror is deleted for good and made again.
    api.edit_pod(&key, |pod| {
        pod.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1).0))
    });
    api.until("another mirror", PATIENCE, |api| made(api).is_some_and(|uid| uid != first)).await;
    api.remove_pod(&key);
    api.until("a third mirror", PATIENCE, |api| made(api).is_some()).await;

    // The manifest changes: another identity under the same name.
    let next = pod("a").uid("next").static_file().container("main", "other").build();
    statics.send_modify(|it| it.pods = vec![next.clone()]);
    let is_next = |api: &FakeClusterApi| {
        api.pod(&key).is_some_and(|pod| pod.annotation(HASH_ANNOTATION) == Some("next"))
    };
    api.until("the successor's mirror", PATIENCE, is_next).await;

    // The manifest goes; the mirror stays until the pod has ended.
    statics.send_modify(|it| {
        it.pods.clear();
        it.terminating.insert(key.clone());
    });
    sleep(Duration::from_secs(60)).await;
    assert!(is_next(&api));
    statics.send_modify(|it| it.terminating.clear());
    api.until("the end", PATIENCE, |api| made(api).is_none()).await;
    task.abort();
    relay.abort();
}
