//! What the API would refuse in a pod, and what a static pod may not have: every fault with its
//! field path and value.
//!
//! In: a defaulted pod with its identity. Out: all faults, none for a good pod. Matches upstream's
//! pod validation in what people get wrong; rules about scheduling (affinity, spread constraints,
//! gates) are left out, because nothing on a node acts on them. Refuses: reading and repairing.

mod containers;
mod names;
mod probes;
mod references;
mod resources;
mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig, PodSpec, Toleration};

use crate::fault::{Fault, Show};

pub(crate) use references::references;

/// Everything that is wrong with the pod, in the order of its fields.
pub(crate) fn validate(pod: &Pod) -> Vec<Fault> {
    let mut faults = Faults::default();
    validate_metadata(pod, &mut faults);
    let Some(spec) = pod.spec.as_ref() else {
        faults.push(Fault::required("spec.containers"));
        return faults.0;
    };
    let volumes = volumes::validate(spec, &mut faults);
    containers::validate(spec, &volumes, &mut faults);
    validate_spec(spec, &mut faults);
    if let Some(tolerations) = &spec.tolerations {
        validate_tolerations(tolerations, &mut faults);
    }
    validate_dns(spec, spec.dns_config.as_ref(), &mut faults);
    faults.0
}

/// A warning where the pod's priority is not what a static pod's should be, in upstream's sense.
pub(crate) fn priority_warning(pod: &Pod) -> Option<&'static str> {
    let spec = pod.spec.as_ref()?;
    let class = text(&spec.priority_class_name);
    match (spec.priority, class) {
        (None, "") | (Some(2_000_001_000), "system-node-critical") => None,
        (None, _) => Some(
            "priorityClassName is not used without priority; the pod's copy in the API may not be created",
        ),
        (Some(_), "") => Some(
            "priority is set without priorityClassName; the pod's copy in the API may not be created",
        ),
        (Some(_), _) => Some(
            "priority is not that of system-node-critical; evictions of the pod's copy in the API have no effect",
        ),
    }
}

/// A list of faults under construction.
#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Records the rule that a value breaks, if it breaks one.
    fn check(&mut self, path: impl Into<String>, value: impl Show, rule: names::Rule) {
        if let Err(rule) = rule {
            self.push(Fault::invalid(path, value, rule));
        }
    }

    /// Records a name that is missing or breaks its rule.
    fn check_name(&mut self, path: &str, name: &str, rule: fn(&str) -> names::Rule) {
        if name.is_empty() {
            self.push(Fault::required(path));
        } else {
            self.check(path, name, rule(name));
        }
    }

    fn check_not_negative(&mut self, path: impl Into<String>, number: Option<i64>) {
        if let Some(number) = number.filter(|number| *number < 0) {
            self.push(Fault::invalid(path, number, "must not be negative"));
        }
    }

    fn check_word(&mut self, path: impl Into<String>, word: &str, known: &[&str]) {
        if !known.contains(&word) {
            self.push(Fault::unsupported(path, word, known));
        }
    }
}

/// The text of a field, where absent and empty mean the same.
fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

fn validate_metadata(pod: &Pod, faults: &mut Faults) {
    let metadata = &pod.metadata;
    faults.check_name("metadata.name", text(&metadata.name), names::subdomain);
    faults.check_name("metadata.namespace", text(&metadata.namespace), names::label);
    let empty = BTreeMap::new();
    for (key, value) in metadata.labels.as_ref().unwrap_or(&empty) {
        faults.check("metadata.labels", key, names::qualified(key));
        faults.check(format!("metadata.labels[{key}]"), value, names::label_value(value));
    }
    for key in metadata.annotations.as_ref().unwrap_or(&empty).keys() {
        // Keys of annotations may have capitals in their prefix.
        faults.check("metadata.annotations", key, names::qualified(&key.to_lowercase()));
    }
    // The API would not take a UID that cannot be a file name; it becomes one.
    if let Some(uid) = metadata.uid.as_deref()
        && (uid.contains('/') || uid == "." || uid == "..")
    {
        faults.push(Fault::invalid("metadata.uid", uid, "must not be a path"));
    }
}

fn validate_spec(spec: &PodSpec, faults: &mut Faults) {
    faults.check_word(
        "spec.restartPolicy",
        text(&spec.restart_policy),
        &["Always", "OnFailure", "Never"],
    );
    faults.check_word(
        "spec.dnsPolicy",
        text(&spec.dns_policy),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    faults.check_not_negative(
        "spec.terminationGracePeriodSeconds",
        spec.termination_grace_period_seconds,
    );
    if let Some(seconds) = spec.active_deadline_seconds
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let rule = "must be between 1 and 2147483647";
        faults.push(Fault::invalid("spec.activeDeadlineSeconds", seconds, rule));
    }
    for (path, name) in [("spec.hostname", &spec.hostname), ("spec.subdomain", &spec.subdomain)] {
        if !text(name).is_empty() {
            faults.check(path, text(name), names::label(text(name)));
        }
    }
    for (path, name) in [
        ("spec.nodeName", &spec.node_name),
        ("spec.priorityClassName", &spec.priority_class_name),
        ("spec.runtimeClassName", &spec.runtime_class_name),
        ("spec.hostnameOverride", &spec.hostname_override),
    ] {
        if !text(name).is_empty() {
            faults.check(path, text(name), names::subdomain(text(name)));
        }
    }
    for (key, value) in spec.node_selector.iter().flatten() {
        faults.check("spec.nodeSelector", key, names::qualified(key));
        faults.check(format!("spec.nodeSelector[{key}]"), value, names::label_value(value));
    }
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let path = format!("spec.hostAliases[{index}]");
        faults.check(format!("{path}.ip"), &alias.ip, names::address(&alias.ip));
        for (number, name) in alias.hostnames.iter().flatten().enumerate() {
            faults.check(format!("{path}.hostnames[{number}]"), name, names::subdomain(name));
        }
    }
    if spec.host_pid == Some(true) && spec.share_process_namespace == Some(true) {
        let why = "must not be true together with hostPID";
        faults.push(Fault::forbidden("spec.shareProcessNamespace", why));
    }
    if spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()) {
        let why = "ephemeral containers cannot be part of a new pod";
        faults.push(Fault::forbidden("spec.ephemeralContainers", why));
    }
    if spec.scheduling_gates.as_ref().is_some_and(|list| !list.is_empty()) {
        let why = "a pod with scheduling gates cannot be on a node";
        faults.push(Fault::forbidden("spec.schedulingGates", why));
    }
    if let Some(os) = &spec.os {
        faults.check_word("spec.os.name", &os.name, &["linux", "windows"]);
    }
    if let Some(policy) = spec.preemption_policy.as_deref() {
        faults.check_word("spec.preemptionPolicy", policy, &["PreemptLowerPriority", "Never"]);
    }
    for (name, quantity) in spec.overhead.iter().flatten() {
        resources::validate_amount(&format!("spec.overhead[{name}]"), name, quantity, faults);
    }
    if let Some(resources) = &spec.resources {
        resources::validate("spec.resources", resources, faults);
    }
}

fn validate_tolerations(tolerations: &[Toleration], faults: &mut Faults) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = format!("spec.tolerations[{index}]");
        let (key, value) = (text(&toleration.key), text(&toleration.value));
        let operator = text(&toleration.operator);
        if !key.is_empty() {
            faults.check(format!("{path}.key"), key, names::qualified(key));
        } else if operator != "Exists" {
            let rule = "must be Exists when key is empty";
            faults.push(Fault::invalid(format!("{path}.operator"), operator, rule));
        }
        match operator {
            "Exists" if !value.is_empty() => {
                let rule = "must be empty when operator is Exists";
                faults.push(Fault::invalid(format!("{path}.value"), value, rule));
            }
            "Exists" | "Lt" | "Gt" => {}
            "Equal" | "" => faults.check(format!("{path}.value"), value, names::label_value(value)),
            other => faults.push(Fault::unsupported(
                format!("{path}.operator"),
                other,
                &["Equal", "Exists", "Lt", "Gt"],
            )),
        }
        let effect = text(&toleration.effect);
        faults.check_word(
            format!("{path}.effect"),
            effect,
            &["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
        );
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            let rule = "must be NoExecute when tolerationSeconds is set";
            faults.push(Fault::invalid(format!("{path}.effect"), effect, rule));
        }
    }
}

fn validate_dns(spec: &PodSpec, config: Option<&PodDNSConfig>, faults: &mut Faults) {
    let servers = config.and_then(|config| config.nameservers.as_deref()).unwrap_or_default();
    if text(&spec.dns_policy) == "None" && servers.is_empty() {
        let problem = "required when dnsPolicy is None";
        faults.push(Fault::new("spec.dnsConfig.nameservers", problem));
    }
    if servers.len() > 3 {
        let problem = format!("{} name servers given, at most 3 are possible", servers.len());
        faults.push(Fault::new("spec.dnsConfig.nameservers", problem));
    }
    for (index, server) in servers.iter().enumerate() {
        faults.check(
            format!("spec.dnsConfig.nameservers[{index}]"),
            server,
            names::address(server),
        );
    }
    let searches = config.and_then(|config| config.searches.as_deref()).unwrap_or_default();
    if searches.len() > 32 || searches.join(" ").len() > 2048 {
        let problem = "at most 32 search paths with 2048 characters are possible";
        faults.push(Fault::new("spec.dnsConfig.searches", problem));
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| *search != ".") {
        let name = search.strip_suffix('.').unwrap_or(search);
        faults.check(format!("spec.dnsConfig.searches[{index}]"), search, names::search_path(name));
    }
}

#[cfg(test)]
mod tests;
