//! Amounts of several resources together: what somebody asks for, has, or may have.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::Quantity;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads a list of the API; what is no quantity is left out, since validation names it elsewhere.
pub fn parse_amounts(list: Option<&BTreeMap<String, ApiQuantity>>) -> Amounts {
    list.into_iter()
        .flatten()
        .filter_map(|(name, text)| Some((name.clone(), Quantity::parse(&text.0).ok()?)))
        .collect()
}

/// True for resources of Kubernetes itself; extended ones have a domain of somebody else.
pub fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// The amount of one resource; nothing when it is absent.
pub fn amount(amounts: &Amounts, name: &str) -> Quantity {
    amounts.get(name).copied().unwrap_or(Quantity::ZERO)
}
