//! Quantities in the API's canonical form: `0.5` is stored as `500m`, `1.5Gi` as `1536Mi`.
//!
//! Apart from the defaults because a static pod's identity is taken from the quantities as written.

use ferrolet_types::Quantity;
use k8s_openapi::{
    api::core::v1::{Pod, ResourceFieldSelector, ResourceRequirements, Volume},
    apimachinery::pkg::api::resource::Quantity as WrittenQuantity,
};

use crate::defaults::containers;

/// Writes every quantity of the pod as the API would.
pub(crate) fn canonicalize(pod: &mut Pod) {
    let Some(spec) = pod.spec.as_mut() else {
        return;
    };
    spec.volumes.iter_mut().flatten().for_each(write_volume);
    for quantity in spec.overhead.iter_mut().flat_map(|list| list.values_mut()) {
        write_entry(quantity);
    }
    spec.resources.iter_mut().for_each(write_resources);
    for container in containers(spec) {
        container.resources.iter_mut().for_each(write_resources);
        let variables = container.env.iter_mut().flatten();
        let sources = variables.flat_map(|it| &mut it.value_from);
        let selectors = sources.flat_map(|it| &mut it.resource_field_ref);
        selectors.for_each(write_divisor);
    }
}

fn write_volume(volume: &mut Volume) {
    let sized = volume.empty_dir.iter_mut().flat_map(|it| &mut it.size_limit);
    sized.for_each(write);
    let files = volume.downward_api.iter_mut().flat_map(|it| &mut it.items);
    let projections = volume.projected.iter_mut().flat_map(|it| &mut it.sources);
    let projected = projections.flatten().flat_map(|it| &mut it.downward_api);
    let files = files.chain(projected.flat_map(|it| &mut it.items)).flatten();
    let selectors = files.flat_map(|file| &mut file.resource_field_ref);
    selectors.for_each(write_divisor);
}

fn write_resources(resources: &mut ResourceRequirements) {
    let lists = [&mut resources.limits, &mut resources.requests];
    let entries = lists.into_iter().flatten().flat_map(|list| list.values_mut());
    entries.for_each(write_entry);
}

/// A divisor that was left out is stored as zero.
fn write_divisor(selector: &mut ResourceFieldSelector) {
    let zero = || WrittenQuantity("0".to_owned());
    write(selector.divisor.get_or_insert_with(zero));
}

fn write(quantity: &mut WrittenQuantity) {
    if let Ok(parsed) = Quantity::parse(&quantity.0) {
        quantity.0 = parsed.to_string();
    }
}

/// Entries of resource lists are also rounded up to thousandths.
fn write_entry(quantity: &mut WrittenQuantity) {
    write(quantity);
    if quantity.0.ends_with(['n', 'u'])
        && let Ok(parsed) = Quantity::parse(&quantity.0)
    {
        quantity.0 = Quantity::from_milli(parsed.milli()).to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_lists_are_written_canonically_and_rounded_up_to_thousandths() {
        let resources =
            serde_json::json!({"limits": {"cpu": "0.5", "memory": "1.5Gi", "x/y": "100u"}});
        let mut pod: Pod = serde_json::from_value(
            serde_json::json!({"spec": {"containers": [{"resources": resources}]}}),
        )
        .unwrap();
        canonicalize(&mut pod);
        let pod = serde_json::to_value(&pod).unwrap();
        assert_eq!(
            pod["spec"]["containers"][0]["resources"]["limits"],
            serde_json::json!({"cpu": "500m", "memory": "1536Mi", "x/y": "1m"})
        );
    }
}
