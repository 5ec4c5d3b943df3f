//! AppArmor: a pod that asks to be confined does not run on a node that cannot confine it.
//!
//! Whether a profile is loaded is the runtime's business when it makes the container; here only
//! what the node as a whole can do counts, and names that cannot name anything. Upstream:
//! `pkg/security/apparmor`.

use ferrolet_pod::all_containers;
use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};

use super::Rejection;

/// Annotation of old, before there was a field; its end is a container's name.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const UNCONFINED: &str = "unconfined";
const LOCALHOST: &str = "localhost/";

/// Refuses a pod that wants a profile where there is no AppArmor, or one without a name.
pub(super) fn check(pod: &Pod, is_enabled: bool) -> Result<(), Rejection> {
    if !is_wanted(pod) {
        return Ok(());
    }
    if !is_enabled {
        return refuse("AppArmor is not enabled on the host");
    }
    if all_containers(pod).any(|(_, it)| is_nameless(pod, &it)) {
        return refuse("invalid empty AppArmor profile name");
    }
    Ok(())
}

fn refuse(why: &str) -> Result<(), Rejection> {
    Err(Rejection {
        reason: "AppArmor".to_owned(),
        message: format!("Cannot enforce AppArmor: {why}"),
    })
}

/// True when the pod or one of its containers asks for anything but to be left alone.
fn is_wanted(pod: &Pod) -> bool {
    let confines = |profile: &AppArmorProfile| profile.type_ != "Unconfined";
    let mut annotations = pod.metadata.annotations.iter().flatten();
    pods_profile(pod).is_some_and(confines)
        || all_containers(pod).any(|(_, it)| own_profile(&it).is_some_and(confines))
        || annotations.any(|(key, value)| key.starts_with(ANNOTATION) && value != UNCONFINED)
}

/// True when the profile that counts for a container is one of the node's and has no name.
fn is_nameless(pod: &Pod, container: &Container) -> bool {
    let is_empty = |profile: &AppArmorProfile| {
        let name = profile.localhost_profile.as_deref().unwrap_or_default();
        profile.type_ == "Localhost" && name.trim().is_empty()
    };
    let annotated = pod.annotation(&format!("{ANNOTATION}{}", container.name));
    match (own_profile(container), annotated) {
        (Some(profile), _) => is_empty(profile),
        (None, Some(value)) if value.starts_with(LOCALHOST) => {
            value[LOCALHOST.len()..].trim().is_empty()
        }
        (None, _) => pods_profile(pod).is_some_and(is_empty),
    }
}

fn pods_profile(pod: &Pod) -> Option<&AppArmorProfile> {
    let context = pod.spec_ref().security_context.as_ref()?;
    context.app_armor_profile.as_ref()
}

fn own_profile(container: &Container) -> Option<&AppArmorProfile> {
    let context = container.security_context.as_ref()?;
    context.app_armor_profile.as_ref()
}
