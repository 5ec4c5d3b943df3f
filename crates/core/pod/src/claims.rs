//! Whether a pod uses claims of dynamic resources.

use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::Pod;

/// True for a pod that names claims, or for which the scheduler made one because of the extended
/// resources that it asks for.
pub fn uses_claims(pod: &Pod) -> bool {
    let names_claims = pod.spec_ref().resource_claims.as_ref().is_some_and(|it| !it.is_empty());
    let status = pod.status.as_ref();
    names_claims || status.is_some_and(|it| it.extended_resource_claim_status.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_uses_claims_that_it_names_or_that_were_made_for_its_resources() {
        let check = |pod: serde_json::Value, expected: bool| {
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(uses_claims(&pod), expected);
        };
        check(json!({"spec": {"containers": []}}), false);
        check(json!({"spec": {"containers": [], "resourceClaims": []}}), false);
        let claims = json!([{"name": "a", "resourceClaimName": "b"}]);
        check(json!({"spec": {"containers": [], "resourceClaims": claims}}), true);
        let status = json!({"extendedResourceClaimStatus":
            {"resourceClaimName": "b", "requestMappings": []}});
        check(json!({"spec": {"containers": []}, "status": status}), true);
    }
}
