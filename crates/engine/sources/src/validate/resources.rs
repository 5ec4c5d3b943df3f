//! Rules for resource requests and limits.

use ferrolet_types::Quantity;
use k8s_openapi::{
    api::core::v1::ResourceRequirements,
    apimachinery::pkg::api::resource::Quantity as WrittenQuantity,
};

use super::{Faults, names};
use crate::fault::Fault;

/// Resources of the API's own that a container may ask for.
const NATIVE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

pub(super) fn validate(path: &str, resources: &ResourceRequirements, faults: &mut Faults) {
    for (list, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for (name, quantity) in amounts.iter().flatten() {
            let path = format!("{path}.{list}[{name}]");
            validate_name(&path, name, faults);
            validate_amount(&path, name, quantity, faults);
        }
    }
    let empty = Default::default();
    let limits = resources.limits.as_ref().unwrap_or(&empty);
    for (name, request) in resources.requests.iter().flatten() {
        let path = format!("{path}.requests[{name}]");
        let Some(limit) = limits.get(name) else {
            if !may_overcommit(name) {
                let problem = format!("a limit of {name} must be set as well");
                faults.push(Fault::new(path, problem));
            }
            continue;
        };
        let (Ok(asked), Ok(allowed)) = (Quantity::parse(&request.0), Quantity::parse(&limit.0))
        else {
            continue;
        };
        if asked > allowed {
            let rule = format!("must not exceed the limit of {}", limit.0);
            faults.push(Fault::invalid(path, &request.0, &rule));
        } else if asked < allowed && !may_overcommit(name) {
            let rule = format!("must equal the limit of {}", limit.0);
            faults.push(Fault::invalid(path, &request.0, &rule));
        }
    }
}

pub(super) fn validate_amount(
    path: &str,
    name: &str,
    written: &WrittenQuantity,
    faults: &mut Faults,
) {
    let Ok(quantity) = Quantity::parse(&written.0) else {
        let rule = "must be a quantity such as 500m, 1.5 or 64Mi";
        faults.push(Fault::invalid(path, &written.0, rule));
        return;
    };
    if quantity < Quantity::ZERO {
        faults.push(Fault::invalid(path, &written.0, "must not be negative"));
    }
    if name.contains('/') && quantity.milli() % 1000 != 0 {
        faults.push(Fault::invalid(path, &written.0, "must be a whole number"));
    }
}

fn validate_name(path: &str, name: &str, faults: &mut Faults) {
    faults.check(path, name, names::qualified(name));
    if !name.contains('/') && !NATIVE.contains(&name) && !name.starts_with("hugepages-") {
        let rule =
            "must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain";
        faults.push(Fault::invalid(path, name, rule));
    }
}

/// What the node can promise more of than it has.
fn may_overcommit(name: &str) -> bool {
    !name.contains('/') && !name.starts_with("hugepages-")
}
