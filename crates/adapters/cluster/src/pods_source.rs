//! The pods that the API has for this node, as one of the agent's sources.
//!
//! In: a watch on pods by node name. Out: the whole current set each time something changed; the
//! first one as soon as the list has been read. A pod that did not change keeps its `Arc`, so a
//! later comparison is one of pointers. Changes that arrive together are passed on together.
//! A pod that cannot be read is neither there nor gone: the copy that is known stays, and one that
//! was never known is named, so that nobody takes it for gone.
//! Refuses: judging pods, and starting before the caller says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ferrolet_ports::Clock;
use ferrolet_types::{
    Pod, PodUid, SourceUpdate, SourcedPod, Timestamp,
    pod::{PodSource, PodView as _, SEEN_ANNOTATION, SOURCE_ANNOTATION},
};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use tokio::sync::mpsc;

use crate::{
    client::{Client, Selector},
    watch::{self, Scope, WatchEvent},
};

/// The set as it was last told.
#[derive(Debug, Default)]
pub struct PodSet {
    pods: BTreeMap<PodUid, Pod>,
    /// Pods that the API has and that could never be read.
    unreadable: BTreeSet<PodUid>,
}

impl PodSet {
    /// Takes in what happened.
    pub fn apply(&mut self, event: WatchEvent<ApiPod>, now: Timestamp) {
        match event {
            WatchEvent::Restarted { objects, unreadable } => {
                let mut before = std::mem::take(&mut self.pods);
                self.unreadable.clear();
                for bad in unreadable {
                    // Whatever is wrong with it now, it is no reason to end what runs.
                    match before.remove_entry(&PodUid::new(bad.uid.as_str())) {
                        Some((uid, pod)) => drop(self.pods.insert(uid, pod)),
                        None => drop(self.unreadable.insert(PodUid::new(bad.uid.as_str()))),
                    }
                }
                for pod in objects {
                    let uid = pod.uid();
                    let kept = before.remove(&uid).filter(|it| is_same(it, &pod));
                    let pod = kept.unwrap_or_else(|| Arc::new(marked(pod, now)));
                    self.pods.insert(uid, pod);
                }
            }
            WatchEvent::Applied(pod) => {
                let uid = pod.uid();
                self.unreadable.remove(&uid);
                if self.pods.get(&uid).is_some_and(|it| is_same(it, &pod)) {
                    return;
                }
                self.pods.insert(uid, Arc::new(marked(pod, now)));
            }
            WatchEvent::Deleted(pod) => {
                self.pods.remove(&pod.uid());
                self.unreadable.remove(&pod.uid());
            }
        }
    }

    /// The whole set.
    pub fn update(&self) -> SourceUpdate {
        let origin: Arc<str> = Arc::from(PodSource::Api.as_str());
        let pods = self
            .pods
            .values()
            .map(|pod| SourcedPod { origin: Arc::clone(&origin), pod: Arc::clone(pod) });
        SourceUpdate {
            source: PodSource::Api,
            pods: pods.collect(),
            unreadable: self.unreadable.clone(),
            is_provisional: false,
        }
    }
}

/// Runs until the receiver is gone.
pub async fn run(
    client: Client,
    node_name: &str,
    clock: Arc<dyn Clock>,
    updates: mpsc::Sender<SourceUpdate>,
) {
    let scope =
        Scope { namespace: None, selector: Selector::fields(format!("spec.nodeName={node_name}")) };
    let (sink, mut events) = mpsc::channel(64);
    let consume = async move {
        let mut set = PodSet::default();
        while let Some(event) = events.recv().await {
            set.apply(event, clock.now());
            while let Ok(event) = events.try_recv() {
                set.apply(event, clock.now());
            }
            if updates.send(set.update()).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(watch::run::<ApiPod>(client, scope, sink), consume);
}

fn is_same(before: &ApiPod, now: &ApiPod) -> bool {
    before.metadata.resource_version == now.metadata.resource_version
}

/// The pod with the two annotations that only the node sees.
fn marked(mut pod: ApiPod, now: Timestamp) -> ApiPod {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(SOURCE_ANNOTATION.to_owned(), "api".to_owned());
    annotations.insert(SEEN_ANNOTATION.to_owned(), now.to_string());
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::{FakeApi, TokioClock};

    fn pod(name: &str, node: &str) -> serde_json::Value {
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"nodeName": node, "containers": []}})
    }

    fn names(update: &SourceUpdate) -> Vec<String> {
        let pods = update.pods.iter();
        pods.map(|it| it.pod.metadata.name.clone().unwrap()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_brings_the_whole_set_and_unchanged_pods_keep_their_place_in_memory() {
        let api = FakeApi::new();
        api.put("/api/v1/namespaces/n/pods/a", pod("a", "me"));
        api.put("/api/v1/namespaces/n/pods/x", pod("x", "other"));
        let (sender, mut updates) = mpsc::channel(4);
        let client = api.client();
        tokio::spawn(async move { run(client, "me", Arc::new(TokioClock), sender).await });
        let first = updates.recv().await.unwrap();
        assert_eq!(names(&first), ["a"]);
        assert_eq!(first.pods[0].pod.annotation(SOURCE_ANNOTATION), Some("api"));
        assert!(first.pods[0].pod.annotation(SEEN_ANNOTATION).is_some());
        api.put("/api/v1/namespaces/n/pods/b", pod("b", "me"));
        let second = updates.recv().await.unwrap();
        assert_eq!(names(&second), ["a", "b"]);
        assert!(Arc::ptr_eq(&first.pods[0].pod, &second.pods[0].pod));
        api.compact();
        api.go_away();
        api.put("/api/v1/namespaces/n/pods/c", pod("c", "me"));
        api.compact();
        api.come_back();
        let third = updates.recv().await.unwrap();
        assert_eq!(names(&third), ["a", "b", "c"]);
        assert!(Arc::ptr_eq(&first.pods[0].pod, &third.pods[0].pod));
        api.remove("/api/v1/namespaces/n/pods/a");
        assert_eq!(names(&updates.recv().await.unwrap()), ["b", "c"]);
    }

    fn start(api: &FakeApi) -> mpsc::Receiver<SourceUpdate> {
        let (sender, updates) = mpsc::channel(4);
        let client = api.client();
        tokio::spawn(async move { run(client, "me", Arc::new(TokioClock), sender).await });
        updates
    }

    /// A pod that the list lacks is taken down with its volumes, so the list must be the newest.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_lags_does_not_make_pods_vanish_when_the_agent_starts() {
        let api = FakeApi::new();
        api.put("/api/v1/namespaces/n/pods/a", pod("a", "me"));
        api.freeze_cache();
        api.put("/api/v1/namespaces/n/pods/b", pod("b", "me"));
        let mut updates = start(&api);
        assert_eq!(names(&updates.recv().await.unwrap()), ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_lags_behind_the_watch_does_not_make_pods_vanish() {
        let api = FakeApi::new();
        api.put("/api/v1/namespaces/n/pods/a", pod("a", "me"));
        api.freeze_cache();
        api.put("/api/v1/namespaces/n/pods/b", pod("b", "me"));
        let mut updates = start(&api);
        assert_eq!(names(&updates.recv().await.unwrap()), ["a", "b"]);
        // The watch is refused as too new until the cache is there; each answer to that is a whole
        // set, and none lacks a pod.
        api.until("refused", |api| api.lines().len() > 6).await;
        api.put("/api/v1/namespaces/n/pods/c", pod("c", "me"));
        api.thaw_cache();
        loop {
            let names = names(&updates.recv().await.unwrap());
            assert!(names.starts_with(&["a".to_owned(), "b".to_owned()]), "{names:?}");
            if names.len() == 3 {
                return;
            }
        }
    }

    fn unreadable(name: &str) -> serde_json::Value {
        let mut bad = pod(name, "me");
        bad["spec"]["terminationGracePeriodSeconds"] = json!("soon");
        bad
    }

    #[tokio::test(start_paused = true)]
    async fn one_pod_that_makes_no_sense_keeps_no_other_from_being_heard_of() {
        let api = FakeApi::new();
        api.put("/api/v1/namespaces/n/pods/a", pod("a", "me"));
        api.put("/api/v1/namespaces/n/pods/bad", unreadable("bad"));
        let mut updates = start(&api);
        let first = updates.recv().await.unwrap();
        assert_eq!(names(&first), ["a"]);
        assert_eq!(first.unreadable, BTreeSet::from([PodUid::new("bad")]));
        // One that made sense before stays as it was.
        api.put("/api/v1/namespaces/n/pods/a", unreadable("a"));
        let second = updates.recv().await.unwrap();
        assert!(Arc::ptr_eq(&first.pods[0].pod, &second.pods[0].pod));
        api.put("/api/v1/namespaces/n/pods/bad", pod("bad", "me"));
        let third = updates.recv().await.unwrap();
        assert_eq!((names(&third).len(), third.unreadable.len()), (2, 0));
        api.remove("/api/v1/namespaces/n/pods/a");
        assert_eq!(names(&updates.recv().await.unwrap()), ["bad"]);
    }
}
