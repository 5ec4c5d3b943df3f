//! Reading what a pod's volumes refer to: every object and token once, all at the same time.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_ports::{
    ApiError, CertificateAsk, ClusterObjects, ObjectKind, StorageObjects, TokenAsk, TrustAsk,
    VolumeSpec,
};
use ferrolet_resources::is_selected;
use ferrolet_types::Timestamp;
use futures::future::join_all;
use k8s_openapi::api::core::v1::PersistentVolume;

use crate::{
    certificates::{Bundle, Said, advance},
    claims::{Claimant, bound_volume, claimed_spec},
    payload::{Gathered, Got, Missing},
    plan::{ClaimUse, Desired, PlannedVolume, PodPlan, Source},
    table::VolumeTable,
};

/// What upstream says about objects on a node without a cluster.
const STANDALONE: &str = "not supported due to running kubelet in standalone mode";

/// What volumes refer to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) objects: BTreeSet<(ObjectKind, String)>,
    pub(crate) tokens: BTreeSet<TokenAsk>,
    pub(crate) trust: BTreeSet<TrustAsk>,
    /// By volume and index of the source.
    pub(crate) certificates: Vec<((String, usize), CertificateAsk)>,
}

/// What the volumes refer to, each thing once.
pub(crate) fn needs_of<'a>(volumes: impl IntoIterator<Item = &'a PlannedVolume>) -> Needs {
    let mut needs = Needs::default();
    for volume in volumes {
        let Desired::Files { sources, .. } = &volume.desired else {
            continue;
        };
        for source in sources {
            match source {
                Source::Object { kind, name, .. } => {
                    needs.objects.insert((*kind, name.clone()));
                }
                Source::Token { ask, .. } => {
                    needs.tokens.insert(ask.clone());
                }
                Source::Trust { ask, .. } => {
                    needs.trust.insert(ask.clone());
                }
                Source::Certificate { index, ask, .. } => {
                    let place = (volume.name.clone(), *index);
                    needs.certificates.push((place, (**ask).clone()));
                }
                Source::OfPod(_) => {}
            }
        }
    }
    needs
}

/// Reads it all; what cannot be read is kept as the reason why.
pub(crate) async fn gather(
    objects: Option<&dyn ClusterObjects>,
    namespace: &str,
    needs: &Needs,
) -> Gathered {
    let names = |wanted: ObjectKind| {
        let names = needs.objects.iter().filter(move |(kind, _)| *kind == wanted);
        names.map(|(_, name)| name)
    };
    let config_maps = names(ObjectKind::ConfigMap).map(async |name| {
        let got = match objects {
            Some(objects) => objects.get_config_map(namespace, name).await,
            None => return (name.clone(), standalone()),
        };
        (name.clone(), got.map_err(|error| missing("configmap", name, error)))
    });
    let secrets = names(ObjectKind::Secret).map(async |name| {
        let got = match objects {
            Some(objects) => objects.get_secret(namespace, name).await,
            None => return (name.clone(), standalone()),
        };
        (name.clone(), got.map_err(|error| missing("secret", name, error)))
    });
    let tokens = needs.tokens.iter().map(async |ask| {
        let got = match objects {
            Some(objects) => objects.get_token(ask).await,
            None => return (ask.clone(), standalone()),
        };
        let got = got.map_err(|error| Missing {
            // An account that is missing now is not announced when it appears: ask again.
            is_absent: false,
            message: format!("failed to fetch token: {}", error.message),
        });
        (ask.clone(), got)
    });
    let (config_maps, secrets, tokens) =
        futures::join!(join_all(config_maps), join_all(secrets), join_all(tokens));
    Gathered {
        config_maps: config_maps.into_iter().collect(),
        secrets: secrets.into_iter().collect(),
        tokens: tokens.into_iter().collect(),
        claims: BTreeMap::new(),
        trust: BTreeMap::new(),
        certificates: BTreeMap::new(),
    }
}

/// Which of the cluster's newer objects volumes may hold; their gates can be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectionGates {
    /// Gate `ClusterTrustBundleProjection`.
    pub trust_bundles: bool,
    /// Gate `PodCertificateRequest`.
    pub pod_certificates: bool,
}

/// The cluster as far as a kind of object is concerned, or why volumes cannot have any.
type Projectable<'a> = Result<&'a dyn StorageObjects, &'static str>;

impl ProjectionGates {
    /// Where trust bundles come from.
    pub(crate) fn trust_from(self, storage: Option<&dyn StorageObjects>) -> Projectable<'_> {
        if !self.trust_bundles {
            return Err("ClusterTrustBundle projection is not supported: \
                        feature gate ClusterTrustBundleProjection is disabled");
        }
        storage.ok_or(STANDALONE)
    }

    /// Where certificates of pods come from.
    pub(crate) fn certificates_from(self, storage: Option<&dyn StorageObjects>) -> Projectable<'_> {
        if !self.pod_certificates {
            return Err("PodCertificate projection is not supported: \
                        feature gate PodCertificateRequest is disabled");
        }
        storage.ok_or(STANDALONE)
    }
}

/// Reads the trust bundles that volumes refer to.
pub(crate) async fn gather_trust(
    storage: Projectable<'_>,
    needs: &Needs,
) -> BTreeMap<TrustAsk, Got<Vec<String>>> {
    let asked = needs.trust.iter().map(async |ask| {
        let got = match storage {
            Ok(storage) => storage.get_trust_bundles(ask).await,
            Err(why) => return (ask.clone(), impossible(why)),
        };
        let got = got.map_err(|error| {
            let message = format!("while getting ClusterTrustBundle: {}", error.message);
            Missing::new(error.kind, message)
        });
        (ask.clone(), got)
    });
    join_all(asked).await.into_iter().collect()
}

/// What was said of the pod's certificates on the way.
type AllSaid = Vec<Said>;

/// Brings the certificates that volumes need as far as they can be brought now.
pub(crate) async fn gather_certificates(
    storage: Projectable<'_>,
    table: &VolumeTable,
    needs: &Needs,
    now: Timestamp,
) -> (BTreeMap<(String, usize), Got<Bundle>>, AllSaid) {
    let asked = needs.certificates.iter().map(async |(place, ask)| {
        let storage = match storage {
            Ok(storage) => storage,
            Err(why) => return (place.clone(), (impossible(why), Vec::new())),
        };
        let key = (ask.pod.1.clone(), place.0.clone(), place.1);
        let advanced = advance(table, storage, &key, ask, now).await;
        (place.clone(), advanced)
    });
    let mut all_said = Vec::new();
    let mut found = BTreeMap::new();
    for (place, (bundle, said)) in join_all(asked).await {
        all_said.extend(said);
        found.insert(place, bundle);
    }
    (found, all_said)
}

/// Finds out what the claims among the volumes stand for.
pub(crate) async fn gather_claims(
    storage: Option<&dyn StorageObjects>,
    plan: &PodPlan,
    volumes: &[&PlannedVolume],
) -> BTreeMap<String, Got<VolumeSpec>> {
    let claims = volumes.iter().filter_map(|volume| match &volume.desired {
        Desired::Claim(claim_use) => Some((*volume, claim_use)),
        _ => None,
    });
    let resolved = claims.map(async |(volume, claim_use)| {
        let found = match storage {
            Some(storage) => resolve(storage, plan, volume, claim_use).await,
            None => Err(STANDALONE.to_owned()),
        };
        let found = found.map_err(|message| Missing { is_absent: false, message });
        (volume.name.clone(), found)
    });
    join_all(resolved).await.into_iter().collect()
}

async fn resolve(
    storage: &dyn StorageObjects,
    plan: &PodPlan,
    volume: &PlannedVolume,
    claim_use: &ClaimUse,
) -> Result<VolumeSpec, String> {
    let (namespace, name) = (&plan.key.namespace, &claim_use.claim);
    let process = |why: String| format!("error processing PVC {namespace}/{name}: {why}");
    let pod = Claimant { namespace, name: &plan.key.name, uid: plan.uid.as_str() };
    let claim = storage.get_claim(namespace, name).await.map_err(|error| {
        process(format!("failed to fetch PVC from API server: {}", error.message))
    })?;
    let bound = bound_volume(&pod, claim_use, &claim)?;
    let found = storage.get_volume(&bound).await.map_err(|error| {
        process(format!("failed to fetch PV {bound} from API server: {}", error.message))
    })?;
    let spec = claimed_spec(&pod, (&volume.name, volume.uses), claim_use, &claim, &found)?;
    Ok(VolumeSpec { affinity_fault: affinity_fault(storage, &found).await, ..spec })
}

/// Why a volume may not be used on this node.
async fn affinity_fault(storage: &dyn StorageObjects, volume: &PersistentVolume) -> Option<String> {
    let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?;
    let selector = affinity.required.as_ref()?;
    let node = match storage.get_own_node().await {
        Ok(node) => node,
        Err(error) => return Some(error.message),
    };
    let labels = node.metadata.labels.unwrap_or_default();
    let name = node.metadata.name.unwrap_or_default();
    let is_here = is_selected(selector, &labels, &name);
    (!is_here).then(|| "no matching NodeSelectorTerms".to_owned())
}

fn standalone<T>() -> Got<T> {
    impossible(STANDALONE)
}

fn impossible<T>(why: &str) -> Got<T> {
    Err(Missing { is_absent: false, message: why.to_owned() })
}

fn missing(kind: &str, name: &str, error: ApiError) -> Missing {
    let message =
        if error.is_not_found() { format!("{kind} {name:?} not found") } else { error.message };
    Missing::new(error.kind, message)
}
