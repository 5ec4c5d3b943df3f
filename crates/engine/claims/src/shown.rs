//! What others see of claims: which devices a container has by them.

use ferrolet_claims::{ClaimInfo, PreparedDevice, claims_of};
use ferrolet_ports::{Given, GivenClaim, GivenClaimDevice, GivenView};
use ferrolet_types::Pod;
use k8s_openapi::api::core::v1::Container;

use crate::Claims;

/// All devices of a claim, whichever of its requests the container names, as upstream has it. What
/// could be claimed is in the API.
impl GivenView for Claims {
    fn allocatable(&self) -> Given {
        Given::default()
    }

    fn given_to(&self, pod: &Pod, container: &Container) -> Given {
        let claims = self.look(|book| {
            let claims = claims_of(book, pod, container).into_iter();
            claims.map(given).collect()
        });
        Given { claims, ..Given::default() }
    }
}

fn given(info: &ClaimInfo) -> GivenClaim {
    let device = |driver: &String, it: &PreparedDevice| GivenClaimDevice {
        driver: driver.clone(),
        pool: it.pool.clone(),
        device: it.device.clone(),
        share_id: it.share_id.clone(),
        cdi_ids: it.cdi_ids.clone(),
    };
    let devices = info
        .drivers
        .iter()
        .flat_map(|(driver, state)| state.devices.iter().map(move |it| device(driver, it)));
    GivenClaim {
        namespace: info.claim.namespace.clone(),
        name: info.claim.name.clone(),
        devices: devices.collect(),
    }
}
