//! Drivers of dynamic resources and claims of pods, without gRPC, without a cluster and without a
//! book.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use ferrolet_claims::{Answer, ClaimRef, PreparedDevice};
use ferrolet_ports::{
    ApiError, ApiErrorKind, ClaimDrivers, ClaimObjects, DriverCallError, Fut, PodClaims,
};
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use k8s_openapi::api::{
    core::v1::{Container, ResourceStatus},
    resource::v1::ResourceClaim,
};

/// Drivers that prepare whatever they are asked for: one device for each claim, named after it.
#[derive(Debug, Default)]
pub struct FakeClaimDrivers {
    state: Mutex<Drivers>,
}

#[derive(Debug, Default)]
struct Drivers {
    registered: BTreeSet<String>,
    /// What is wrong with every call.
    fault: Option<DriverFault>,
    /// Names of claims by driver.
    prepared: BTreeMap<String, BTreeSet<String>>,
    calls: Vec<String>,
}

/// What a driver does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverFault {
    /// It does not answer at all.
    Hangs,
    /// It cannot be reached.
    IsAway,
    /// It fails each claim.
    Fails,
    /// It says nothing of the claims.
    Skips,
    /// It speaks of a claim that nobody asked about.
    Invents,
}

impl FakeClaimDrivers {
    /// Comes, or goes.
    pub fn register(&self, driver: &str, is_there: bool) {
        let mut state = self.state.lock().expect("no panic while the lock is held");
        match is_there {
            true => state.registered.insert(driver.to_owned()),
            false => state.registered.remove(driver),
        };
    }

    /// From now on every call goes wrong; `None` for none.
    pub fn break_calls(&self, fault: Option<DriverFault>) {
        self.state.lock().expect("no panic while the lock is held").fault = fault;
    }

    /// Names of the claims that a driver has prepared.
    pub fn prepared(&self, driver: &str) -> BTreeSet<String> {
        let state = self.state.lock().expect("no panic while the lock is held");
        state.prepared.get(driver).cloned().unwrap_or_default()
    }

    /// Every call so far: what, whom, and which claims.
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().expect("no panic while the lock is held").calls.clone()
    }

    /// Takes one call; the answer for each claim is made by `make`.
    async fn call<T>(
        &self,
        (what, driver): (&str, &str),
        claims: &[ClaimRef],
        make: impl Fn(&mut BTreeSet<String>, &ClaimRef) -> T,
    ) -> Result<Answer<T>, DriverCallError> {
        let fault = {
            let mut state = self.state.lock().expect("no panic while the lock is held");
            let names: Vec<&str> = claims.iter().map(|it| it.name.as_str()).collect();
            state.calls.push(format!("{what} {driver} {}", names.join("+")));
            state.fault
        };
        match fault {
            Some(DriverFault::Hangs) => std::future::pending().await,
            Some(DriverFault::IsAway) => return Err(DriverCallError("it is away".to_owned())),
            Some(DriverFault::Skips) => return Ok(Answer::new()),
            Some(DriverFault::Fails) => {
                let failed = claims.iter().map(|it| (it.uid.clone(), Err("no".to_owned())));
                return Ok(failed.collect());
            }
            Some(DriverFault::Invents) | None => {}
        }
        let mut state = self.state.lock().expect("no panic while the lock is held");
        let own = state.prepared.entry(driver.to_owned()).or_default();
        let mut answer: Answer<T> =
            claims.iter().map(|it| (it.uid.clone(), Ok(make(own, it)))).collect();
        if fault == Some(DriverFault::Invents) {
            answer.insert("of-nobody".to_owned(), Err(String::new()));
        }
        Ok(answer)
    }
}

impl ClaimDrivers for FakeClaimDrivers {
    fn is_registered(&self, driver: &str) -> bool {
        let state = self.state.lock().expect("no panic while the lock is held");
        state.registered.contains(driver)
    }

    fn prepare<'a>(
        &'a self,
        driver: &'a str,
        claims: &'a [ClaimRef],
    ) -> Fut<'a, Result<Answer<Vec<PreparedDevice>>, DriverCallError>> {
        let make = move |own: &mut BTreeSet<String>, claim: &ClaimRef| {
            own.insert(claim.name.clone());
            vec![PreparedDevice {
                pool: "pool".to_owned(),
                device: format!("{}-0", claim.name),
                cdi_ids: vec![format!("{driver}/device={}-0", claim.name)],
                ..PreparedDevice::default()
            }]
        };
        Box::pin(self.call(("prepare", driver), claims, make))
    }

    fn unprepare<'a>(
        &'a self,
        driver: &'a str,
        claims: &'a [ClaimRef],
    ) -> Fut<'a, Result<Answer<()>, DriverCallError>> {
        let make = |own: &mut BTreeSet<String>, claim: &ClaimRef| {
            own.remove(&claim.name);
        };
        Box::pin(self.call(("unprepare", driver), claims, make))
    }
}

/// Claims of the API.
#[derive(Debug, Default)]
pub struct FakeClaimObjects {
    state: Mutex<Objects>,
}

#[derive(Debug, Default)]
struct Objects {
    claims: BTreeMap<(String, String), ResourceClaim>,
    is_down: bool,
    wiped: Vec<Option<String>>,
}

impl FakeClaimObjects {
    /// Puts a claim there, or another version of it.
    pub fn put(&self, claim: ResourceClaim) {
        let of = |it: &Option<String>| it.clone().unwrap_or_default();
        let key = (of(&claim.metadata.namespace), of(&claim.metadata.name));
        self.state.lock().expect("no panic while the lock is held").claims.insert(key, claim);
    }

    /// The server does not answer, or does again.
    pub fn go_down(&self, is_down: bool) {
        self.state.lock().expect("no panic while the lock is held").is_down = is_down;
    }

    /// Whose offers were removed; `None` for everybody's.
    pub fn wiped(&self) -> Vec<Option<String>> {
        self.state.lock().expect("no panic while the lock is held").wiped.clone()
    }
}

fn refusal(kind: ApiErrorKind, message: String) -> ApiError {
    let attempt = "ask for claims".to_owned();
    ApiError { attempt, kind, message, code: None, causes: Vec::new() }
}

impl ClaimObjects for FakeClaimObjects {
    fn get_resource_claim<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<ResourceClaim, ApiError>> {
        Box::pin(async move {
            let state = self.state.lock().expect("no panic while the lock is held");
            if state.is_down {
                return Err(refusal(ApiErrorKind::Unavailable, "no connection".to_owned()));
            }
            let found = state.claims.get(&(namespace.to_owned(), name.to_owned())).cloned();
            found.ok_or_else(|| {
                let words = format!("resourceclaims.resource.k8s.io {name:?} not found");
                refusal(ApiErrorKind::NotFound, words)
            })
        })
    }

    fn wipe_slices<'a>(&'a self, driver: Option<&'a str>) -> Fut<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let mut state = self.state.lock().expect("no panic while the lock is held");
            if state.is_down {
                return Err(refusal(ApiErrorKind::Unavailable, "no connection".to_owned()));
            }
            state.wiped.push(driver.map(str::to_owned));
            Ok(())
        })
    }
}

/// Claims of pods as somebody else keeps them.
#[derive(Debug, Default)]
pub struct FakeClaims {
    state: Mutex<Claims>,
}

#[derive(Debug, Default)]
struct Claims {
    prepare_fault: Option<String>,
    unprepare_fault: Option<String>,
    cdi_devices: Vec<String>,
    health: Vec<ResourceStatus>,
    holders: BTreeSet<PodUid>,
}

impl FakeClaims {
    /// From now on nothing is prepared, for this reason; `None` for no reason.
    pub fn refuse_preparing(&self, why: Option<&str>) {
        self.state.lock().expect("no panic while the lock is held").prepare_fault =
            why.map(str::to_owned);
    }

    /// From now on nothing is taken back, for this reason; `None` for no reason.
    pub fn refuse_unpreparing(&self, why: Option<&str>) {
        self.state.lock().expect("no panic while the lock is held").unprepare_fault =
            why.map(str::to_owned);
    }

    /// What containers of pods with claims get, and how that feels.
    pub fn give(&self, cdi_devices: &[&str], health: Vec<ResourceStatus>) {
        let mut state = self.state.lock().expect("no panic while the lock is held");
        state.cdi_devices = cdi_devices.iter().map(|it| (*it).to_owned()).collect();
        state.health = health;
    }

    /// Drivers hold something for this pod, which an earlier life had them prepare.
    pub fn hold(&self, uid: &PodUid) {
        self.state.lock().expect("no panic while the lock is held").holders.insert(uid.clone());
    }
}

impl PodClaims for FakeClaims {
    fn prepare<'a>(&'a self, pod: &'a Pod) -> Fut<'a, Result<(), String>> {
        Box::pin(async move {
            let mut state = self.state.lock().expect("no panic while the lock is held");
            match &state.prepare_fault {
                Some(why) => Err(why.clone()),
                None => {
                    state.holders.insert(pod.uid());
                    Ok(())
                }
            }
        })
    }

    fn ensure<'a>(&'a self, pod: &'a Pod) -> Fut<'a, Result<(), String>> {
        self.prepare(pod)
    }

    fn cdi_devices(&self, pod: &Pod, _: &Container) -> Result<Vec<String>, String> {
        let state = self.state.lock().expect("no panic while the lock is held");
        let has_some = state.holders.contains(&pod.uid());
        Ok(if has_some { state.cdi_devices.clone() } else { Vec::new() })
    }

    fn holds(&self, uid: &PodUid) -> bool {
        self.state.lock().expect("no panic while the lock is held").holders.contains(uid)
    }

    fn unprepare<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), String>> {
        Box::pin(async move {
            let mut state = self.state.lock().expect("no panic while the lock is held");
            match &state.unprepare_fault {
                Some(why) => Err(why.clone()),
                None => {
                    state.holders.remove(uid);
                    Ok(())
                }
            }
        })
    }

    fn holders(&self) -> BTreeSet<PodUid> {
        self.state.lock().expect("no panic while the lock is held").holders.clone()
    }

    fn health(&self, _: &Pod, _: &Container) -> Vec<ResourceStatus> {
        self.state.lock().expect("no panic while the lock is held").health.clone()
    }
}
