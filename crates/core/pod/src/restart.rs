//! Whether a container starts again: its rules about exit codes, its own policy, the pod's policy.
//!
//! The one place of this rule. `lifecycle` starts by it, `status` foretells by it, and
//! `--run-once-within` waits by it. Upstream: `ContainerShouldRestart`, `ShouldContainerBeRestarted`.

use ferrolet_types::{
    observed::{ContainerState, ObservedContainer},
    pod::{PodView, RestartPolicy, own_restart_policy},
};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::init_and_regular;

/// What a rule about an exit code asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleAction {
    /// This container starts again.
    Restart,
    /// Every container of the pod starts anew, in place.
    RestartAll,
    /// Something that this agent does not know.
    Other,
}

impl RuleAction {
    fn parse(text: &str) -> Self {
        match text {
            "Restart" => Self::Restart,
            "RestartAllContainers" => Self::RestartAll,
            _ => Self::Other,
        }
    }
}

/// True when a container shall be started, given the newest one of its name: it does not run, and
/// nothing forbids it.
pub fn should_start(pod: &Pod, container: &Container, newest: Option<&ObservedContainer>) -> bool {
    if pod.deletion_time().is_some() {
        return false;
    }
    match newest.map(|it| &it.state) {
        None | Some(ContainerState::Created | ContainerState::Unknown) => true,
        Some(ContainerState::Running { .. }) => false,
        Some(ContainerState::Exited(exit)) => restarts_after(pod, container, exit.code),
    }
}

/// True when an exit with this code is followed by another start: a rule that fits the code stands
/// above the container's policy, and that above the pod's. Rules count only where the container has
/// a policy of its own, as the API demands.
pub fn restarts_after(pod: &Pod, container: &Container, code: i32) -> bool {
    let by_rule =
        matches!(rule_for(container, code), Some(RuleAction::Restart | RuleAction::RestartAll));
    own_restart_policy(container).is_some() && by_rule
        || policy_restarts(restart_policy_of(pod, container), code)
}

/// True when this policy starts a container again that ended with this code.
pub fn policy_restarts(policy: RestartPolicy, code: i32) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => code != 0,
        RestartPolicy::Never => false,
    }
}

/// True when a failure is followed by a restart at all.
pub fn restarts_on_failure(pod: &Pod, container: &Container) -> bool {
    restart_policy_of(pod, container) != RestartPolicy::Never
}

/// The container's own policy, else the pod's.
pub fn restart_policy_of(pod: &Pod, container: &Container) -> RestartPolicy {
    own_restart_policy(container).unwrap_or_else(|| pod.restart_policy())
}

/// True when an exit with this code makes every container of the pod start anew, in place.
pub fn asks_to_restart_all(container: &Container, code: i32) -> bool {
    rule_for(container, code) == Some(RuleAction::RestartAll)
}

/// True when a rule of some container may restart the whole pod in place.
pub fn may_restart_all(spec: &PodSpec) -> bool {
    let mut rules = init_and_regular(spec).flat_map(|it| it.restart_policy_rules.iter().flatten());
    rules.any(|rule| RuleAction::parse(&rule.action) == RuleAction::RestartAll)
}

/// What the first rule that fits the exit code asks for.
fn rule_for(container: &Container, code: i32) -> Option<RuleAction> {
    let mut rules = container.restart_policy_rules.iter().flatten();
    let rule = rules.find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let is_listed = codes.values.iter().flatten().any(|value| *value == code);
            match codes.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                _ => false,
            }
        })
    });
    rule.map(|rule| RuleAction::parse(&rule.action))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Rules as `action operator:codes`, one a word pair.
    fn container(own: Option<&str>, rules: &str) -> Container {
        let words: Vec<&str> = rules.split_whitespace().collect();
        let rules: Vec<Value> = words
            .chunks(2)
            .map(|rule| {
                let (operator, codes) = rule[1].split_once(':').unwrap();
                let codes: Vec<i32> = codes.split(',').map(|it| it.parse().unwrap()).collect();
                json!({"action": rule[0], "exitCodes": {"operator": operator, "values": codes}})
            })
            .collect();
        let whole = json!({"name": "c", "restartPolicy": own, "restartPolicyRules": rules});
        serde_json::from_value(whole).unwrap()
    }

    fn pod(policy: &str) -> Pod {
        serde_json::from_value(json!({"spec": {"restartPolicy": policy, "containers": []}}))
            .unwrap()
    }

    #[test]
    fn rules_about_exit_codes_come_first_then_the_containers_policy_then_the_pods() {
        let check = |pods: &str, own: Option<&str>, rules: &str, code: i32, restarts: bool| {
            let container = container(own, rules);
            let got = restarts_after(&pod(pods), &container, code);
            assert_eq!(got, restarts, "{pods} {own:?} {rules} {code}");
        };
        check("Always", None, "", 0, true);
        check("OnFailure", None, "", 0, false);
        check("OnFailure", None, "", 1, true);
        check("Never", None, "", 1, false);
        check("Never", Some("Always"), "", 0, true);
        check("Always", Some("Never"), "", 1, false);
        check("Always", Some("OnFailure"), "", 0, false);
        check("Never", Some("OnFailure"), "", 1, true);
        check("Never", Some("Never"), "Restart In:42", 42, true);
        check("Never", Some("Never"), "Restart In:42", 43, false);
        check("Never", Some("Never"), "Restart NotIn:1,2", 3, true);
        check("Never", Some("Never"), "Restart NotIn:1,2 Restart In:7", 2, false);
        check("Never", Some("Never"), "Restart NotIn:1,2 Restart In:2", 2, true);
        check("Never", Some("Never"), "RestartAllContainers In:42", 42, true);
        // An action of a later version of the API, and rules without a policy, are passed over.
        check("Never", Some("Never"), "Dance In:42", 42, false);
        check("Never", Some("OnFailure"), "Dance In:42", 42, true);
        check("Never", None, "Restart In:42", 42, false);
    }

    #[test]
    fn the_first_rule_that_fits_says_whether_all_start_anew() {
        let check = |rules: &str, code: i32, asks: bool| {
            assert_eq!(
                asks_to_restart_all(&container(Some("Never"), rules), code),
                asks,
                "{rules}"
            );
        };
        check("RestartAllContainers In:42", 42, true);
        check("RestartAllContainers In:42", 1, false);
        check("Restart In:42 RestartAllContainers In:42", 42, false);
        let spec = |rules: &str| PodSpec {
            containers: vec![container(Some("Never"), rules)],
            ..PodSpec::default()
        };
        assert!(may_restart_all(&spec("Restart In:1 RestartAllContainers In:42")));
        assert!(!may_restart_all(&spec("Restart In:1")));
    }
}
