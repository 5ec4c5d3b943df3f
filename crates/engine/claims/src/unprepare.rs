//! After a pod: drivers take back what only this pod used.

use ferrolet_claims::complete;
use ferrolet_ports::metrics::{DRA_NODE_UNPREPARE_SKIPS_TOTAL, process};
use ferrolet_types::PodUid;
use futures::future::join_all;

use crate::{
    Claims,
    prepare::{Fault, check_registered},
};

const CALL: &str = "NodeUnprepareResources";

/// Takes back what only this pod used. Until every driver did, nobody else gets these claims, and
/// the pod stays their user.
pub(crate) async fn unprepare(claims: &Claims, uid: &PodUid) -> Result<(), Fault> {
    let (batches, spared) = claims.edit(|book| {
        let spared = book.spared_unpreparing(uid);
        (book.detach(uid), spared)
    });
    for driver in spared {
        process().add(DRA_NODE_UNPREPARE_SKIPS_TOTAL, [&driver], 1.0);
    }
    let calls = batches.iter().map(|(driver, asked)| async move {
        check_registered(claims, driver)?;
        let answer = claims.drivers.unprepare(driver, asked).await;
        let answer = answer.map_err(|error| Fault::Unanswered { call: CALL, error })?;
        complete(CALL, asked, answer)?;
        Ok(())
    });
    let outcomes: Vec<Result<(), Fault>> = join_all(calls).await;
    outcomes.into_iter().collect::<Result<(), Fault>>()?;
    claims.edit(|book| book.drop_detached(uid));
    claims.copy.settle().await.map_err(Fault::Unkept)
}
