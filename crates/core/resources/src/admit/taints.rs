//! Taints that would evict the pod at once.

use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};

/// True when the pod tolerates every `NoExecute` taint; the scheduler has judged the others.
pub(super) fn are_tolerated(pod: &Pod, taints: &[Taint], compares: bool) -> bool {
    let mut executed = taints.iter().filter(|taint| taint.effect == "NoExecute");
    executed.all(|taint| is_tolerated(pod, taint, compares))
}

/// True when the pod tolerates the taint; `Lt` and `Gt` count only where numbers are compared.
pub(super) fn is_tolerated(pod: &Pod, taint: &Taint, compares: bool) -> bool {
    let tolerations = pod.spec_ref().tolerations.as_deref().unwrap_or_default();
    tolerations.iter().any(|toleration| tolerates(toleration, taint, compares))
}

fn tolerates(toleration: &Toleration, taint: &Taint, compares: bool) -> bool {
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
        Some("Lt") if compares => both(toleration, taint).is_some_and(|(own, its)| its < own),
        Some("Gt") if compares => both(toleration, taint).is_some_and(|(own, its)| its > own),
        Some(_) => false,
    };
    is_effect_met && is_key_met && is_value_met
}

/// The toleration's number and the taint's, where both are whole numbers in their plain form.
fn both(toleration: &Toleration, taint: &Taint) -> Option<(i64, i64)> {
    let number = |text: &Option<String>| {
        let text = text.as_deref()?;
        text.parse::<i64>().ok().filter(|number| number.to_string() == text)
    };
    Some((number(&toleration.value)?, number(&taint.value)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(operator: &str, own: &str, its: &str, expected: [bool; 2]) {
        let toleration: Toleration =
            serde_json::from_value(json!({"key": "sla", "operator": operator, "value": own}))
                .unwrap();
        let taint: Taint =
            serde_json::from_value(json!({"key": "sla", "value": its, "effect": "NoExecute"}))
                .unwrap();
        let found = [false, true].map(|compares| tolerates(&toleration, &taint, compares));
        assert_eq!(found, expected, "{operator} {own} against {its}");
    }

    #[test]
    fn numbers_are_compared_only_where_the_gate_is_open() {
        check("Gt", "900", "950", [false, true]);
        check("Gt", "950", "950", [false, false]);
        check("Lt", "900", "-5", [false, true]);
        check("Lt", "900", "950", [false, false]);
        check("Lt", "900", "0100", [false, false]);
        check("Lt", "", "1", [false, false]);
        check("Equal", "900", "900", [true, true]);
    }
}
