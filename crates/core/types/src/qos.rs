//! The three classes of service, from requests and limits.

use std::fmt;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};

use crate::Quantity;

/// How well a pod is protected when the node runs short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Qos {
    /// Every container has limits for CPU and memory, equal to its requests.
    Guaranteed,
    /// Something is asked for, but not everything is bounded.
    Burstable,
    /// Nothing is asked for.
    BestEffort,
}

impl Qos {
    /// The name the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const COUNTED: [&str; 2] = ["cpu", "memory"];

/// The class of a pod; pod-level resources, where given, decide alone.
pub fn qos_of(spec: &PodSpec) -> Qos {
    if let Some(pod_level) = spec.resources.as_ref().filter(|r| asks_for_something(r)) {
        return class_of(std::iter::once(Some(pod_level)));
    }
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    class_of(containers.map(|container: &Container| container.resources.as_ref()))
}

fn class_of<'a>(all: impl Iterator<Item = Option<&'a ResourceRequirements>>) -> Qos {
    let (mut anything, mut guaranteed) = (false, true);
    for resources in all {
        for name in COUNTED {
            let request = amount(resources.and_then(|r| r.requests.as_ref()), name);
            let limit = amount(resources.and_then(|r| r.limits.as_ref()), name);
            anything |= request.is_some() || limit.is_some();
            // A limit without a request is defaulted to an equal request by the API; an explicit
            // request of nothing is not.
            let is_defaulted = resources
                .and_then(|r| r.requests.as_ref())
                .is_none_or(|requests| !requests.contains_key(name));
            guaranteed &= limit.is_some() && (is_defaulted || request == limit);
        }
    }
    match (anything, guaranteed) {
        (false, _) => Qos::BestEffort,
        (true, true) => Qos::Guaranteed,
        (true, false) => Qos::Burstable,
    }
}

fn asks_for_something(resources: &ResourceRequirements) -> bool {
    COUNTED.iter().any(|name| {
        amount(resources.requests.as_ref(), name).is_some()
            || amount(resources.limits.as_ref(), name).is_some()
    })
}

type Amounts =
    std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

fn amount(list: Option<&Amounts>, name: &str) -> Option<Quantity> {
    list?
        .get(name)
        .and_then(|text| Quantity::parse(&text.0).ok())
        .filter(|quantity| !quantity.is_zero())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

    use super::*;

    fn container(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Container {
        let list = |pairs: &[(&str, &str)]| {
            (!pairs.is_empty()).then(|| {
                pairs.iter().map(|(k, v)| ((*k).to_owned(), ApiQuantity((*v).to_owned()))).collect()
            })
        };
        let resources = ResourceRequirements {
            requests: list(requests),
            limits: list(limits),
            ..Default::default()
        };
        Container { resources: Some(resources), ..Default::default() }
    }

    #[test]
    fn the_class_follows_from_requests_and_limits() {
        let check = |containers: Vec<Container>, class: Qos| {
            assert_eq!(qos_of(&PodSpec { containers, ..Default::default() }), class);
        };
        let full = || {
            container(&[("cpu", "1"), ("memory", "1Gi")], &[("cpu", "1000m"), ("memory", "1Gi")])
        };
        check(vec![Container::default()], Qos::BestEffort);
        check(vec![full()], Qos::Guaranteed);
        check(vec![container(&[], &[("cpu", "1"), ("memory", "1Gi")])], Qos::Guaranteed);
        check(vec![full(), Container::default()], Qos::Burstable);
        check(vec![container(&[("cpu", "1")], &[])], Qos::Burstable);
        check(vec![container(&[("cpu", "0")], &[])], Qos::BestEffort);
        check(
            vec![container(&[("cpu", "0"), ("memory", "1Gi")], &[("cpu", "1"), ("memory", "1Gi")])],
            Qos::Burstable,
        );
        check(
            vec![container(&[("cpu", "1"), ("memory", "1Gi")], &[("cpu", "2"), ("memory", "1Gi")])],
            Qos::Burstable,
        );
    }
}
