//! Before a sandbox: the pod's claims are read and checked, noted on disk, and prepared by their
//! drivers, each asked once for all it has to do.

use ferrolet_claims::{
    AnswerFault, Batches, ClaimInfo, ClaimRef, PreparedDevice, Refusal, check, complete, wanted,
};
use ferrolet_ports::{
    ApiError, DriverCallError,
    metrics::{DRA_NODE_PREPARE_SKIPS_TOTAL, process},
};
use ferrolet_types::{Pod, pod::PodView as _};
use futures::future::join_all;

use crate::Claims;

const CALL: &str = "NodePrepareResources";

/// What is in the way, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("this node is in no cluster: there are no ResourceClaims")]
    Alone,
    #[error("fetch ResourceClaim {name}: {}", error.message)]
    Unread { name: String, error: ApiError },
    #[error("DRA driver name is empty")]
    Nameless,
    #[error("DRA driver {0} is not registered")]
    Unregistered(String),
    #[error("{call}: {error}")]
    Unanswered { call: &'static str, error: DriverCallError },
    #[error(transparent)]
    Answer(#[from] AnswerFault),
    #[error("checkpoint ResourceClaim state: {0}")]
    Unkept(String),
}

/// Prepares what the pod uses. Nothing is noted before it is certain that drivers are asked: a pod
/// that only waited leaves nothing that somebody would have to take back.
pub(crate) async fn prepare(claims: &Claims, pod: &Pod) -> Result<(), Fault> {
    let infos = read(claims, pod).await?;
    let uid = pod.uid();
    let (batches, spared) = claims.edit(|book| {
        let spared = book.spared_preparing(&infos);
        book.attach(&uid, &infos).map(|batches| (batches, spared))
    })?;
    for driver in spared {
        process().add(DRA_NODE_PREPARE_SKIPS_TOTAL, [&driver], 1.0);
    }
    claims.copy.settle().await.map_err(Fault::Unkept)?;
    call(claims, &batches).await?;
    claims.edit(|book| book.settle(&infos));
    claims.copy.settle().await.map_err(Fault::Unkept)
}

/// The pod's claims, as the API has them now.
async fn read(claims: &Claims, pod: &Pod) -> Result<Vec<ClaimInfo>, Fault> {
    let rules = claims.settings.rules;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut infos = Vec::new();
    for wanted in wanted(pod)? {
        let objects = claims.objects.as_ref().ok_or(Fault::Alone)?;
        let claim = objects.get_resource_claim(namespace, &wanted.name).await;
        let claim = claim.map_err(|error| Fault::Unread { name: wanted.name.clone(), error })?;
        check(pod, &wanted, &claim, rules)?;
        let info = ClaimInfo::of(&claim, rules)?;
        info.preparers().try_for_each(|driver| check_registered(claims, driver))?;
        infos.push(info);
    }
    Ok(infos)
}

/// Whether a driver can be asked.
pub(crate) fn check_registered(claims: &Claims, driver: &str) -> Result<(), Fault> {
    match driver {
        "" => Err(Fault::Nameless),
        driver if claims.drivers.is_registered(driver) => Ok(()),
        driver => Err(Fault::Unregistered(driver.to_owned())),
    }
}

/// Asks every driver, all at once; what each prepared is noted, whatever the others did.
async fn call(claims: &Claims, batches: &Batches) -> Result<(), Fault> {
    let calls = batches.iter().map(|(driver, asked)| async move {
        let answer = claims.drivers.prepare(driver, asked).await;
        let answer = answer.map_err(|error| Fault::Unanswered { call: CALL, error })?;
        note(claims, driver, complete(CALL, asked, answer)?);
        Ok(())
    });
    join_all(calls).await.into_iter().collect()
}

fn note(claims: &Claims, driver: &str, prepared: Vec<(ClaimRef, Vec<PreparedDevice>)>) {
    claims.edit(|book| {
        for (claim, devices) in prepared {
            book.note(&claim, driver, devices);
        }
    });
}
