//! What has to happen so that the API's mirror pods are those of our static pods. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ferrolet_types::{
    Pod, PodKey, PodUid,
    pod::{HASH_ANNOTATION, MIRROR_ANNOTATION, PodView as _},
};
use k8s_openapi::{
    api::core::v1::{self as api, Node},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

/// The static pods of this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StaticPods {
    /// Those that files and URLs ask for.
    pub pods: Vec<Pod>,
    /// Names under which a static pod is still being stopped. Their mirrors show that end, so they
    /// stay.
    pub terminating: BTreeSet<PodKey>,
    /// True once every source has spoken; before that no mirror counts as orphaned.
    pub are_complete: bool,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum MirrorAction {
    /// Delete this mirror at once.
    Delete {
        /// Its name.
        key: PodKey,
        /// Its identity: whatever took its name since stays.
        uid: PodUid,
    },
    /// Create this mirror.
    Create(Pod),
}

/// Which API object stands for which static pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translations {
    to_static: BTreeMap<PodUid, PodUid>,
    to_mirror: BTreeMap<PodUid, PodUid>,
}

impl Translations {
    /// The pod of ours that an identity from the API means: a mirror's static pod, else the pod
    /// itself.
    pub fn to_local(&self, uid: &PodUid) -> PodUid {
        self.to_static.get(uid).unwrap_or(uid).clone()
    }

    /// The mirror of a static pod.
    pub fn mirror_of(&self, uid: &PodUid) -> Option<&PodUid> {
        self.to_mirror.get(uid)
    }
}

/// Plans what to do, deletions before creations. `api_pods` may hold other pods too; only mirrors
/// count.
pub fn plan_mirrors(
    statics: &StaticPods,
    api_pods: &[Pod],
    node: Option<&Node>,
) -> Vec<MirrorAction> {
    let mirrors: BTreeMap<PodKey, &Pod> = mirrors(api_pods).map(|pod| (pod.key(), pod)).collect();
    let delete = |mirror: &Pod| MirrorAction::Delete { key: mirror.key(), uid: mirror.uid() };
    let mut deletions = Vec::new();
    let mut creations = Vec::new();
    let mut wanted = BTreeSet::new();
    for pod in &statics.pods {
        let key = pod.key();
        wanted.insert(key.clone());
        // The successor of a pod that still ends gets its mirror when it gets its turn.
        if statics.terminating.contains(&key) {
            continue;
        }
        let mirror = mirrors.get(&key);
        let is_right = |mirror: &&&Pod| {
            mirror.deletion_time().is_none() && mirror.annotation(MIRROR_ANNOTATION) == hash(pod)
        };
        if mirror.filter(is_right).is_some() {
            continue;
        }
        deletions.extend(mirror.map(|mirror| delete(mirror)));
        creations.extend(node.and_then(|node| mirror_pod(pod, node)));
    }
    if statics.are_complete {
        let is_orphan = |key: &PodKey| !wanted.contains(key) && !statics.terminating.contains(key);
        let orphans = mirrors.iter().filter(|(key, _)| is_orphan(key));
        deletions.extend(orphans.map(|(_, mirror)| delete(mirror)));
    }
    deletions.extend(creations.into_iter().map(MirrorAction::Create));
    deletions
}

/// The mirror of a static pod; `None` while the node has no identity or is being deleted, since its
/// owner must exist.
pub fn mirror_pod(pod: &Pod, node: &Node) -> Option<Pod> {
    let uid = node.metadata.uid.clone().filter(|uid| !uid.is_empty())?;
    if node.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut mirror = api::Pod::clone(pod);
    let hash = hash(pod).unwrap_or_default().to_owned();
    let metadata = &mut mirror.metadata;
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(MIRROR_ANNOTATION.to_owned(), hash);
    metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid,
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    // What the API gives out itself.
    metadata.uid = None;
    metadata.resource_version = None;
    metadata.creation_timestamp = None;
    mirror.status = None;
    Some(Arc::new(mirror))
}

/// Which identities mean each other now.
pub fn plan_translations(statics: &StaticPods, api_pods: &[Pod]) -> Translations {
    // A pod that still ends is no longer asked for, but its mirror names it.
    let known: BTreeMap<PodKey, PodUid> =
        statics.pods.iter().map(|pod| (pod.key(), pod.uid())).collect();
    let mut translations = Translations::default();
    for mirror in mirrors(api_pods) {
        let named = mirror.annotation(MIRROR_ANNOTATION).map(PodUid::new);
        let is_ending = statics.terminating.contains(&mirror.key());
        let local = known.get(&mirror.key()).cloned();
        let local = if is_ending { named } else { local.or(named) };
        if let Some(local) = local {
            translations.to_static.insert(mirror.uid(), local.clone());
            translations.to_mirror.insert(local, mirror.uid());
        }
    }
    translations
}

fn mirrors(api_pods: &[Pod]) -> impl Iterator<Item = &Pod> {
    api_pods.iter().filter(|pod| pod.is_mirror())
}

fn hash(pod: &Pod) -> Option<&str> {
    pod.annotation(HASH_ANNOTATION)
}
