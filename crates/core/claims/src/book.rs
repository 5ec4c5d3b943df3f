//! The book of claims: who uses which, what drivers prepared for it, and what is to be done next.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::{ClaimRules, Refusal};

const SKIPS_ALL: &str = "*";
const SKIPS_PREPARE: &str = "NodePrepareResources";
const SKIPS_UNPREPARE: &str = "NodeUnprepareResources";

/// A claim as drivers are told of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Which one of that name.
    pub uid: String,
}

/// What each driver is asked for in one call.
pub type Batches = BTreeMap<String, Vec<ClaimRef>>;

/// A device that a driver prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The pool that it is of.
    pub pool: String,
    /// Its name there.
    pub device: String,
    /// Which share of it.
    pub share_id: Option<String>,
    /// Requests of the claim that it is for; for all of them where there is none.
    pub requests: Vec<String>,
    /// What the runtime is told.
    pub cdi_ids: Vec<String>,
}

/// What one driver has to do with a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverState {
    /// What it prepared.
    pub devices: Vec<PreparedDevice>,
    /// Calls that it does not need.
    pub skips: Vec<String>,
}

impl DriverState {
    fn skips(&self, operation: &str) -> bool {
        self.skips.iter().any(|it| it == SKIPS_ALL || it == operation)
    }
}

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// An earlier life of the agent left it.
    Kept,
    /// Somebody uses it, and drivers have yet to prepare it.
    Noted,
    /// Every driver prepared it.
    Prepared,
    /// Its last user is gone, and drivers have yet to take it back.
    Unpreparing,
}

/// What is known of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimInfo {
    /// Which one.
    pub claim: ClaimRef,
    /// Who uses it.
    pub pods: BTreeSet<PodUid>,
    /// Who gave something to it.
    pub drivers: BTreeMap<String, DriverState>,
    /// How far it is.
    pub stage: Stage,
}

impl ClaimInfo {
    /// What a claim of the API asks of this node.
    pub fn of(claim: &ResourceClaim, rules: ClaimRules) -> Result<Self, Refusal> {
        let of = |it: &Option<String>| it.clone().unwrap_or_default();
        let name = of(&claim.metadata.name);
        let allocation = claim.status.as_ref().and_then(|it| it.allocation.as_ref());
        let allocation = allocation.ok_or_else(|| Refusal::NotAllocated(name.clone()))?;
        let results = allocation.devices.as_ref().and_then(|it| it.results.as_ref());
        let mut asked: BTreeMap<String, Vec<BTreeSet<&str>>> = BTreeMap::new();
        for result in results.into_iter().flatten() {
            let skips = result.skip_node_operations.iter().flatten();
            let skips = skips.map(String::as_str).collect();
            asked.entry(result.driver.clone()).or_default().push(skips);
        }
        let drivers: BTreeMap<String, DriverState> = asked
            .into_iter()
            .map(|(driver, devices)| {
                (driver, DriverState { devices: Vec::new(), skips: skipped_by_all(&devices) })
            })
            .collect();
        if !rules.skipping && drivers.values().any(|it| !it.skips.is_empty()) {
            return Err(Refusal::Skips(name));
        }
        let namespace = of(&claim.metadata.namespace);
        let claim = ClaimRef { namespace, name, uid: of(&claim.metadata.uid) };
        Ok(Self { claim, pods: BTreeSet::new(), drivers, stage: Stage::Noted })
    }

    /// Drivers that prepare it.
    pub fn preparers(&self) -> impl Iterator<Item = &String> {
        self.drivers.iter().filter(|(_, it)| !it.skips(SKIPS_PREPARE)).map(|(driver, _)| driver)
    }

    /// Drivers that are spared an operation.
    fn spared(&self, operation: &str) -> impl Iterator<Item = &String> {
        self.drivers.iter().filter(move |(_, it)| it.skips(operation)).map(|(driver, _)| driver)
    }

    /// CDI names of the devices for a request; of all devices when none is named.
    pub(crate) fn cdi_ids(&self, request: &str) -> impl Iterator<Item = &String> {
        let devices = self.drivers.values().flat_map(|it| &it.devices);
        let devices = devices.filter(move |it| {
            let is_meant = it.requests.iter().any(|name| name == request);
            request.is_empty() || it.requests.is_empty() || is_meant
        });
        devices.flat_map(|it| &it.cdi_ids)
    }
}

/// Operations that no device of a driver needs: one that any device needs is done for all.
fn skipped_by_all(devices: &[BTreeSet<&str>]) -> Vec<String> {
    if devices.iter().all(|it| it.contains(SKIPS_ALL)) {
        return vec![SKIPS_ALL.to_owned()];
    }
    let named: BTreeSet<&str> = devices.iter().flatten().copied().collect();
    let by_all = named.into_iter().filter(|operation| {
        *operation != SKIPS_ALL
            && devices.iter().all(|it| it.contains(operation) || it.contains(SKIPS_ALL))
    });
    by_all.map(str::to_owned).collect()
}

/// Claims that pods of this node use, by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimBook {
    claims: BTreeMap<(String, String), ClaimInfo>,
}

fn key(claim: &ClaimRef) -> (String, String) {
    (claim.namespace.clone(), claim.name.clone())
}

impl ClaimBook {
    /// A book of these claims.
    pub fn new(claims: impl IntoIterator<Item = ClaimInfo>) -> Self {
        Self { claims: claims.into_iter().map(|it| (key(&it.claim), it)).collect() }
    }

    /// All claims, in order.
    pub fn claims(&self) -> impl Iterator<Item = &ClaimInfo> {
        self.claims.values()
    }

    /// The claim of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&ClaimInfo> {
        self.claims.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// True when every claim that the pod uses is here and is known to be the pod's.
    pub fn has_all(&self, pod: &Pod, names: &[String]) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let is_pods = |name: &String| {
            let info = self.get(namespace, name);
            info.is_some_and(|it| it.pods.contains(&pod.uid()) && it.stage != Stage::Noted)
        };
        names.iter().all(is_pods)
    }

    /// Notes that the pod uses these claims, all or none; answers what has to be prepared.
    pub fn attach(&mut self, uid: &PodUid, infos: &[ClaimInfo]) -> Result<Batches, Refusal> {
        for info in infos {
            let Some(known) = self.claims.get(&key(&info.claim)) else { continue };
            let name = known.claim.name.clone();
            if known.claim.uid != info.claim.uid {
                return Err(Refusal::Replaced { name, uid: known.claim.uid.clone() });
            }
            if known.stage == Stage::Unpreparing {
                return Err(Refusal::Unpreparing(name));
            }
        }
        let mut batches = Batches::new();
        for info in infos {
            let known = self.claims.entry(key(&info.claim)).or_insert_with(|| info.clone());
            known.pods.insert(uid.clone());
            if known.stage == Stage::Prepared {
                continue;
            }
            for driver in known.preparers() {
                let batch: &mut Vec<ClaimRef> = batches.entry(driver.clone()).or_default();
                // Two claims of the pod may be one object.
                if !batch.contains(&known.claim) {
                    batch.push(known.claim.clone());
                }
            }
        }
        Ok(batches)
    }

    /// Drivers that need not prepare what is not prepared of these claims, once for each claim.
    pub fn spared_preparing(&self, infos: &[ClaimInfo]) -> Vec<String> {
        let is_open = |it: &&ClaimInfo| {
            let known = self.claims.get(&key(&it.claim));
            known.is_none_or(|known| known.stage != Stage::Prepared)
        };
        infos.iter().filter(is_open).flat_map(|it| it.spared(SKIPS_PREPARE)).cloned().collect()
    }

    /// Drivers that need not take back what only this pod uses, once for each claim.
    pub fn spared_unpreparing(&self, uid: &PodUid) -> Vec<String> {
        let is_own = |it: &&ClaimInfo| it.pods.len() == 1 && it.pods.contains(uid);
        let own = self.claims.values().filter(is_own);
        own.flat_map(|it| it.spared(SKIPS_UNPREPARE)).cloned().collect()
    }

    /// Notes what a driver prepared for a claim; what it said before does not count any more.
    pub fn note(&mut self, claim: &ClaimRef, driver: &str, devices: Vec<PreparedDevice>) {
        let known = self.claims.get_mut(&key(claim)).filter(|it| it.claim.uid == claim.uid);
        let state = known.and_then(|it| it.drivers.get_mut(driver));
        if let Some(state) = state {
            state.devices = devices;
        }
    }

    /// Notes that every driver prepared these claims.
    pub fn settle(&mut self, infos: &[ClaimInfo]) {
        for info in infos {
            let known = self.claims.get_mut(&key(&info.claim));
            let is_open = |it: &&mut ClaimInfo| it.stage != Stage::Unpreparing;
            if let Some(known) = known.filter(is_open) {
                known.stage = Stage::Prepared;
            }
        }
    }

    /// True when the pod uses some claim.
    pub fn has_pod(&self, uid: &PodUid) -> bool {
        self.claims.values().any(|it| it.pods.contains(uid))
    }

    /// Everybody who uses a claim.
    pub fn pods(&self) -> BTreeSet<PodUid> {
        self.claims.values().flat_map(|it| it.pods.iter().cloned()).collect()
    }

    /// The pod is done with its claims: it leaves those that others use, and the others are to be
    /// taken back by their drivers. It stays the user of these until that is done.
    pub fn detach(&mut self, uid: &PodUid) -> Batches {
        let mut batches = Batches::new();
        for info in self.claims.values_mut().filter(|it| it.pods.contains(uid)) {
            if info.pods.len() > 1 {
                info.pods.remove(uid);
                continue;
            }
            info.stage = Stage::Unpreparing;
            for (driver, state) in &info.drivers {
                if !state.skips(SKIPS_UNPREPARE) {
                    batches.entry(driver.clone()).or_default().push(info.claim.clone());
                }
            }
        }
        batches
    }

    /// Drivers took back what only this pod used.
    pub fn drop_detached(&mut self, uid: &PodUid) {
        let is_left = |it: &ClaimInfo| it.stage == Stage::Unpreparing && it.pods.contains(uid);
        self.claims.retain(|_, info| !is_left(info));
    }

    /// How many claims are in use, by driver.
    pub fn in_use(&self) -> (usize, BTreeMap<&str, usize>) {
        let mut by_driver = BTreeMap::new();
        let used = self.claims.values().filter(|it| it.stage != Stage::Noted);
        let mut n_used = 0;
        for info in used {
            n_used += 1;
            for driver in info.drivers.keys() {
                *by_driver.entry(driver.as_str()).or_default() += 1;
            }
        }
        (n_used, by_driver)
    }

    /// Pods that use a device of this driver.
    pub fn users<'a>(
        &'a self,
        driver: &'a str,
    ) -> impl Iterator<Item = (&'a PodUid, &'a PreparedDevice)> {
        self.claims.values().flat_map(move |info| {
            let devices = info.drivers.get(driver).into_iter().flat_map(|it| &it.devices);
            devices.flat_map(move |device| info.pods.iter().map(move |uid| (uid, device)))
        })
    }
}
