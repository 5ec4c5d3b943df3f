//! What a container gets of the pod's claims, and how that feels.

use std::collections::BTreeSet;

use ferrolet_types::{Pod, Quantity, Timestamp, pod::PodView as _};
use k8s_openapi::api::core::v1::{Container, ResourceHealth, ResourceStatus};

use crate::{
    ClaimBook, ClaimInfo, HealthBook, PreparedDevice, Refusal,
    wanted::{extended_claim, object_name},
};

/// Claims that a container uses, each with the requests of it that the container names; a request
/// without a name is all of them.
fn requests_of(pod: &Pod, container: &Container) -> Result<Vec<(String, Vec<String>)>, Refusal> {
    let resources = container.resources.as_ref();
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for claim in pod.spec_ref().resource_claims.iter().flatten() {
        let named = resources.into_iter().flat_map(|it| it.claims.iter().flatten());
        let named = named.filter(|it| it.name == claim.name);
        let requests: Vec<String> =
            named.map(|it| it.request.clone().unwrap_or_default()).collect();
        if requests.is_empty() {
            continue;
        }
        if let Some(object) = object_name(pod, claim)? {
            all.push((object.name, requests));
        }
    }
    let status = pod.status.as_ref().and_then(|it| it.extended_resource_claim_status.as_ref());
    if let (Some(name), Some(status)) = (extended_claim(pod), status) {
        let asked = resources.and_then(|it| it.requests.as_ref());
        let is_asked = |resource: &String| {
            let amount = asked.and_then(|it| it.get(resource));
            let amount = amount.and_then(|it| Quantity::parse(&it.0).ok());
            amount.is_some_and(|it| !it.is_zero())
        };
        let mapped = status
            .request_mappings
            .iter()
            .filter(|it| it.container_name == container.name && is_asked(&it.resource_name));
        let requests: Vec<String> = mapped.map(|it| it.request_name.clone()).collect();
        if !requests.is_empty() {
            all.push((name.to_owned(), requests));
        }
    }
    Ok(all)
}

fn known<'a>(book: &'a ClaimBook, pod: &Pod, name: &str) -> Result<&'a ClaimInfo, Refusal> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let found = book.get(&namespace, name);
    found.ok_or_else(|| Refusal::Unknown { name: name.to_owned(), namespace })
}

/// CDI names of the devices that a container gets.
pub fn cdi_devices(
    book: &ClaimBook,
    pod: &Pod,
    container: &Container,
) -> Result<Vec<String>, Refusal> {
    let mut all = Vec::new();
    for (name, requests) in requests_of(pod, container)? {
        let info = known(book, pod, &name)?;
        all.extend(requests.iter().flat_map(|it| info.cdi_ids(it)).cloned());
    }
    Ok(all)
}

/// Claims that a container uses, whatever it uses of them; none when one of them is not known.
pub fn claims_of<'a>(book: &'a ClaimBook, pod: &Pod, container: &Container) -> Vec<&'a ClaimInfo> {
    let requests = requests_of(pod, container).unwrap_or_default();
    let infos = requests.iter().map(|(name, _)| known(book, pod, name));
    infos.collect::<Result<_, _>>().unwrap_or_default()
}

/// What the status of a container says of its claims.
pub fn health_of(
    (book, health): (&ClaimBook, &HealthBook),
    pod: &Pod,
    container: &Container,
    now: Timestamp,
) -> Vec<ResourceStatus> {
    let claims = pod.spec_ref().resource_claims.iter().flatten();
    let used = container.resources.iter().flat_map(|it| it.claims.iter().flatten());
    let mut all: Vec<ResourceStatus> = Vec::new();
    for used in used {
        let Some(claim) = claims.clone().find(|it| it.name == used.name) else { continue };
        let Ok(Some(object)) = object_name(pod, claim) else { continue };
        let Ok(info) = known(book, pod, &object.name) else { continue };
        let request = used.request.as_deref().filter(|it| !it.is_empty());
        let name = match request {
            Some(request) => format!("claim:{}/{request}", used.name),
            None => format!("claim:{}", used.name),
        };
        let resources = feelings(info, health, request, now);
        if !resources.is_empty() && all.iter().all(|it| it.name != name) {
            all.push(ResourceStatus { name, resources: Some(resources) });
        }
    }
    all
}

fn feelings(
    info: &ClaimInfo,
    health: &HealthBook,
    request: Option<&str>,
    now: Timestamp,
) -> Vec<ResourceHealth> {
    // A subrequest is prepared under its request's name.
    let request = request.and_then(|it| it.split('/').next());
    let is_meant = |it: &PreparedDevice| {
        let is_named = |request| it.requests.iter().any(|name| name == request);
        it.requests.is_empty() || request.is_none_or(is_named)
    };
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for (driver, state) in &info.drivers {
        for device in state.devices.iter().filter(|it| is_meant(it)) {
            let by_place = || format!("{driver}/{}/{}", device.pool, device.device);
            let id = device.cdi_ids.first().cloned().unwrap_or_else(by_place);
            if !seen.insert(id.clone()) {
                continue;
            }
            let (feeling, message) = health.of(driver, &device.pool, &device.device, now);
            all.push(ResourceHealth {
                resource_id: id,
                health: Some(feeling.as_str().to_owned()),
                message: message.filter(|it| !it.is_empty()).map(str::to_owned),
            });
        }
    }
    all
}
