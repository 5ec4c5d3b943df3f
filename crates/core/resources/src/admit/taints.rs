//! Taints that would evict the pod at once.

use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};

/// True when the pod tolerates every `NoExecute` taint; the scheduler has judged the others.
pub(super) fn are_tolerated(pod: &Pod, taints: &[Taint]) -> bool {
    let mut executed = taints.iter().filter(|taint| taint.effect == "NoExecute");
    executed.all(|taint| is_tolerated(pod, taint))
}

/// True when the pod tolerates the taint.
pub(super) fn is_tolerated(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec_ref().tolerations.as_deref().unwrap_or_default();
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let is_effect_met = said(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let is_key_met = said(&toleration.key).is_none_or(|key| key == taint.key);
    let is_value_met = match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            said(&toleration.key).is_some()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        Some(_) => false,
    };
    is_effect_met && is_key_met && is_value_met
}
