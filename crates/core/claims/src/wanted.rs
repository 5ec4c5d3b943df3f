//! Which claims a pod uses, under which names, and whether one is the pod's to use.

use ferrolet_types::{Pod, pod::PodView as _};
use k8s_openapi::api::{core::v1::PodResourceClaim, resource::v1::ResourceClaim};

const SCHEDULING: &str = "scheduling.k8s.io";

/// What gates say about claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRules {
    /// A claim of the pod's group is the pod's, too (`DRAWorkloadResourceClaims`).
    pub groups: bool,
    /// A claim may say that its drivers have nothing to do (`DRAOptionalNodeOperations`).
    pub skipping: bool,
}

/// A claim that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedClaim {
    /// The object's name.
    pub name: String,
    /// It was made for this pod from a template, and must say so.
    pub is_generated: bool,
}

/// Why a claim cannot be used, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its object is not there yet.
    #[error("pod \"{0}\": ResourceClaim not created yet")]
    NotCreated(String),
    /// Neither a name nor a template.
    #[error("pod \"{pod}\", spec.resourceClaim {claim:?}: none of the supported fields are set")]
    Unsupported {
        /// Namespace and name.
        pod: String,
        /// The pod's name for it.
        claim: String,
    },
    /// It is of another namespace.
    #[error("ResourceClaim {claim} is not in the same namespace as Pod {pod}")]
    Elsewhere {
        /// Namespace and name.
        claim: String,
        /// Namespace and name.
        pod: String,
    },
    /// It was made for somebody else.
    #[error("ResourceClaim {claim} was not created for Pod {pod} ({who})")]
    NotOwner {
        /// Namespace and name.
        claim: String,
        /// Namespace and name.
        pod: String,
        /// Who is not its owner.
        who: String,
    },
    /// Nobody reserved it for the pod.
    #[error("pod {pod} ({pod_uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})")]
    NotReserved {
        /// Its name.
        pod: String,
        /// Who it is.
        pod_uid: String,
        /// Its name.
        claim: String,
        /// Which one.
        claim_uid: String,
    },
    /// Nothing was given to it.
    #[error("ResourceClaim {0}: not allocated")]
    NotAllocated(String),
    /// It asks for what a gate forbids.
    #[error("ResourceClaim {0}: DRAOptionalNodeOperations feature gate is disabled on kubelet")]
    Skips(String),
    /// Another claim had this name, and somebody still has it.
    #[error(
        "old ResourceClaim with same name {name} and different UID {uid} still exists (previous pod force-deleted?!)"
    )]
    Replaced {
        /// The name of both.
        name: String,
        /// Who the old one is.
        uid: String,
    },
    /// Its last user has just gone.
    #[error("ResourceClaim {0} is being unprepared")]
    Unpreparing(String),
    /// It was never prepared.
    #[error(
        "internal error: unable to get claim info for ResourceClaim {name} in namespace {namespace}"
    )]
    Unknown {
        /// Its name.
        name: String,
        /// Where.
        namespace: String,
    },
}

/// The claim that the scheduler made for the pod's extended resources.
pub(crate) fn extended_claim(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?.extended_resource_claim_status.as_ref()?;
    Some(status.resource_claim_name.as_str())
}

/// The claims that the pod uses, in the order of its specification, then the one for its extended
/// resources. A template whose claim is not needed has none.
pub fn wanted(pod: &Pod) -> Result<Vec<WantedClaim>, Refusal> {
    let mut all = Vec::new();
    for claim in pod.spec_ref().resource_claims.iter().flatten() {
        all.extend(object_name(pod, claim)?);
    }
    let extended = extended_claim(pod);
    all.extend(extended.map(|it| WantedClaim { name: it.to_owned(), is_generated: false }));
    Ok(all)
}

/// The object that the pod's claim is, if it is one.
pub(crate) fn object_name(
    pod: &Pod,
    claim: &PodResourceClaim,
) -> Result<Option<WantedClaim>, Refusal> {
    if let Some(name) = &claim.resource_claim_name {
        return Ok(Some(WantedClaim { name: name.clone(), is_generated: false }));
    }
    if claim.resource_claim_template_name.is_none() {
        let (pod, claim) = (pod.key().to_string(), claim.name.clone());
        return Err(Refusal::Unsupported { pod, claim });
    }
    let statuses = pod.status.iter().flat_map(|it| it.resource_claim_statuses.iter().flatten());
    let status = statuses.into_iter().find(|it| it.name == claim.name);
    let status = status.ok_or_else(|| Refusal::NotCreated(pod.key().to_string()))?;
    let name = status.resource_claim_name.clone();
    Ok(name.map(|name| WantedClaim { name, is_generated: true }))
}

/// Whether the pod may use the claim that was found under the name.
pub fn check(
    pod: &Pod,
    wanted: &WantedClaim,
    claim: &ResourceClaim,
    rules: ClaimRules,
) -> Result<(), Refusal> {
    if wanted.is_generated {
        check_owner(pod, claim, rules)?;
    }
    if !is_reserved(pod, claim, rules) {
        return Err(Refusal::NotReserved {
            pod: pod.metadata.name.clone().unwrap_or_default(),
            pod_uid: pod.uid().to_string(),
            claim: wanted.name.clone(),
            claim_uid: claim.metadata.uid.clone().unwrap_or_default(),
        });
    }
    Ok(())
}

fn group_of(pod: &Pod, rules: ClaimRules) -> Option<&str> {
    let group = pod.spec_ref().scheduling_group.as_ref().filter(|_| rules.groups)?;
    group.pod_group_name.as_deref()
}

fn check_owner(pod: &Pod, claim: &ResourceClaim, rules: ClaimRules) -> Result<(), Refusal> {
    let of = |it: &Option<String>| it.clone().unwrap_or_default();
    let name = format!("{}/{}", of(&claim.metadata.namespace), of(&claim.metadata.name));
    if claim.metadata.namespace != pod.metadata.namespace {
        return Err(Refusal::Elsewhere { claim: name, pod: pod.key().to_string() });
    }
    let owners = claim.metadata.owner_references.iter().flatten();
    let owner = owners.into_iter().find(|it| it.controller == Some(true));
    if owner.is_some_and(|it| it.uid == pod.uid().as_str()) {
        return Ok(());
    }
    let who = match group_of(pod, rules) {
        None => "Pod is not owner".to_owned(),
        Some(group) => {
            let is_groups = owner.is_some_and(|it| {
                let of_api = it.api_version.strip_prefix(SCHEDULING);
                it.name == group
                    && it.kind == "PodGroup"
                    && of_api.is_some_and(|rest| rest.starts_with('/'))
            });
            if is_groups {
                return Ok(());
            }
            format!("neither Pod nor PodGroup {group} is the owner")
        }
    };
    Err(Refusal::NotOwner { claim: name, pod: pod.key().to_string(), who })
}

fn is_reserved(pod: &Pod, claim: &ResourceClaim, rules: ClaimRules) -> bool {
    let group = group_of(pod, rules);
    let reserved = claim.status.iter().flat_map(|it| it.reserved_for.iter().flatten());
    reserved.into_iter().any(|it| {
        let is_groups = it.api_group.as_deref() == Some(SCHEDULING)
            && it.resource == "podgroups"
            && group == Some(it.name.as_str());
        it.uid == pod.uid().as_str() || is_groups
    })
}
