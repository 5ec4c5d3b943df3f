//! The port [`ClaimObjects`] on a real client: one request per question, in this node's name.

use ferrolet_ports::{ApiError, ClaimObjects, Fut};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};

use crate::{
    client::{Client, Place, Selector},
    early::patiently,
};

/// Claims of dynamic resources, and what drivers offer on this node.
pub struct ApiClaims {
    client: Client,
    node_name: String,
}

impl ApiClaims {
    /// For this node.
    pub fn new(client: Client, node_name: String) -> Self {
        Self { client, node_name }
    }
}

impl ClaimObjects for ApiClaims {
    fn get_resource_claim<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<ResourceClaim, ApiError>> {
        let place = Place::one::<ResourceClaim>(Some(namespace), name);
        // The node may read it only because a pod names it.
        Box::pin(async move { patiently(|| self.client.get(&place)).await })
    }

    fn wipe_slices<'a>(&'a self, driver: Option<&'a str>) -> Fut<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let slices = Place::all::<ResourceSlice>(None);
            let selector = of_node(&self.node_name, driver);
            match self.client.delete_all(&slices, &selector).await {
                // A server that does not know of slices has none.
                Err(error) if error.is_not_found() => Ok(()),
                outcome => outcome,
            }
        })
    }
}

/// What this node's drivers offer, or one of them. The node may touch no other slices.
fn of_node(node_name: &str, driver: Option<&str>) -> Selector {
    let driver = driver.map(|driver| format!(",spec.driver={driver}")).unwrap_or_default();
    Selector::fields(format!("spec.nodeName={node_name}{driver}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slices_of_this_node_are_meant() {
        let check = |driver, expected: &str| {
            assert_eq!(of_node("a.b", driver).fields.as_deref(), Some(expected));
        };
        check(None, "spec.nodeName=a.b");
        check(Some("x.example"), "spec.nodeName=a.b,spec.driver=x.example");
    }
}
