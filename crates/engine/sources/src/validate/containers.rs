//! Rules for containers: names, images, ports, variables, mounts, and what init containers may not
//! have.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, SecurityContext};

use super::{Faults, names, probes, resources, text, volumes};
use crate::fault::Fault;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

pub(super) fn validate(spec: &PodSpec, volumes: &BTreeSet<String>, faults: &mut Faults) {
    if spec.containers.is_empty() {
        faults.push(Fault::required("spec.containers"));
    }
    let grace = spec.termination_grace_period_seconds;
    let mut seen = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let path = format!("spec.containers[{index}]");
        validate_one(&path, container, volumes, &mut seen, faults);
        check_proc_mount(&path, spec, container, faults);
        probes::validate(&path, container, grace, faults);
        check_host_ports(&path, container, &mut host_ports, faults);
        if spec.host_network == Some(true) {
            check_node_ports(&path, container, faults);
        }
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let path = format!("spec.initContainers[{index}]");
        validate_one(&path, container, volumes, &mut seen, faults);
        check_proc_mount(&path, spec, container, faults);
        // Init containers run one after the other, so only their own ports can collide.
        check_host_ports(&path, container, &mut BTreeSet::new(), faults);
        if ferrolet_types::pod::is_sidecar(container) {
            probes::validate(&path, container, grace, faults);
        } else {
            check_plain_init(&path, container, faults);
        }
    }
}

fn check_plain_init(path: &str, container: &Container, faults: &mut Faults) {
    for (field, is_set) in [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ] {
        if is_set {
            let why = "may not be set for init containers without restartPolicy Always";
            faults.push(Fault::forbidden(format!("{path}.{field}"), why));
        }
    }
}

fn validate_one(
    path: &str,
    container: &Container,
    volumes: &BTreeSet<String>,
    seen: &mut BTreeSet<String>,
    faults: &mut Faults,
) {
    faults.check_name(&format!("{path}.name"), &container.name, names::label);
    if !seen.insert(container.name.clone()) && !container.name.is_empty() {
        faults.push(Fault::duplicate(format!("{path}.name"), &container.name));
    }
    if text(&container.image).is_empty() {
        faults.push(Fault::required(format!("{path}.image")));
    } else if text(&container.image).trim() != text(&container.image) {
        let rule = "must not have leading or trailing white space";
        faults.push(Fault::invalid(format!("{path}.image"), text(&container.image), rule));
    }
    faults.check_word(
        format!("{path}.imagePullPolicy"),
        text(&container.image_pull_policy),
        &["Always", "IfNotPresent", "Never"],
    );
    faults.check_word(
        format!("{path}.terminationMessagePolicy"),
        text(&container.termination_message_policy),
        &["File", "FallbackToLogsOnError"],
    );
    match (&container.restart_policy, &container.restart_policy_rules) {
        (Some(policy), _) => {
            faults.check_word(format!("{path}.restartPolicy"), policy, &RESTART_POLICIES);
        }
        (None, Some(rules)) if !rules.is_empty() => {
            let problem = "required when restartPolicyRules are used";
            faults.push(Fault::new(format!("{path}.restartPolicy"), problem));
        }
        (None, _) => {}
    }
    validate_ports(path, container, faults);
    for (index, variable) in container.env.iter().flatten().enumerate() {
        validate_variable(&format!("{path}.env[{index}]"), variable, faults);
    }
    validate_mounts(path, container, volumes, faults);
    if let Some(resources) = &container.resources {
        resources::validate(&format!("{path}.resources"), resources, faults);
    }
    if let Some(context) = &container.security_context {
        validate_security(&format!("{path}.securityContext"), context, faults);
    }
}

fn validate_ports(path: &str, container: &Container, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = text(&port.name);
        if !name.is_empty() {
            faults.check(format!("{path}.name"), name, names::port_name(name));
            if !seen.insert(name) {
                faults.push(Fault::duplicate(format!("{path}.name"), name));
            }
        }
        match port.container_port {
            0 => faults.push(Fault::required(format!("{path}.containerPort"))),
            number => faults.check(format!("{path}.containerPort"), number, names::port(number)),
        }
        if let Some(number) = port.host_port.filter(|number| *number != 0) {
            faults.check(format!("{path}.hostPort"), number, names::port(number));
        }
        faults.check_word(
            format!("{path}.protocol"),
            text(&port.protocol),
            &["TCP", "UDP", "SCTP"],
        );
    }
}

fn check_host_ports(
    path: &str,
    container: &Container,
    taken: &mut BTreeSet<String>,
    faults: &mut Faults,
) {
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let Some(number) = port.host_port.filter(|number| *number != 0) else {
            continue;
        };
        let path = format!("{path}.ports[{index}].hostPort");
        let key = format!("{}/{}/{number}", text(&port.protocol), text(&port.host_ip));
        if !taken.insert(key.clone()) {
            faults.push(Fault::duplicate(&path, &key));
        }
    }
}

/// In the node's network a container's port is the node's.
fn check_node_ports(path: &str, container: &Container, faults: &mut Faults) {
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let number = port.host_port.unwrap_or(0);
        if number != port.container_port {
            let path = format!("{path}.ports[{index}].hostPort");
            let rule = "must equal containerPort when hostNetwork is true";
            faults.push(Fault::invalid(path, number, rule));
        }
    }
}

fn validate_variable(path: &str, variable: &EnvVar, faults: &mut Faults) {
    faults.check_name(&format!("{path}.name"), &variable.name, names::variable);
    let Some(source) = &variable.value_from else {
        return;
    };
    let path = format!("{path}.valueFrom");
    let n_sources = [
        source.field_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.config_map_key_ref.is_some(),
        source.secret_key_ref.is_some(),
        source.file_key_ref.is_some(),
    ];
    match n_sources.into_iter().filter(|is_set| *is_set).count() {
        0 => faults.push(Fault::new(&path, "must name a source, such as fieldRef")),
        1 if !text(&variable.value).is_empty() => {
            faults.push(Fault::forbidden(&path, "may not be set together with value"));
        }
        1 => {}
        _ => faults.push(Fault::forbidden(&path, "may not have more than one source")),
    }
    if let Some(field) = &source.field_ref {
        let path = format!("{path}.fieldRef.fieldPath");
        let known = [
            "metadata.name",
            "metadata.namespace",
            "metadata.uid",
            "spec.nodeName",
            "spec.serviceAccountName",
            "status.hostIP",
            "status.hostIPs",
            "status.podIP",
            "status.podIPs",
        ];
        let is_entry = ["metadata.labels['", "metadata.annotations['"]
            .iter()
            .any(|prefix| field.field_path.starts_with(prefix) && field.field_path.ends_with("']"));
        if field.field_path.is_empty() {
            faults.push(Fault::required(path));
        } else if !is_entry {
            faults.check_word(path, &field.field_path, &known);
        }
    }
}

fn validate_mounts(
    path: &str,
    container: &Container,
    volumes: &BTreeSet<String>,
    faults: &mut Faults,
) {
    let mut seen = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        if mount.name.is_empty() {
            faults.push(Fault::required(format!("{path}.name")));
        } else if !volumes.contains(&mount.name) {
            let rule = "no volume of this pod has that name";
            faults.push(Fault::invalid(format!("{path}.name"), &mount.name, rule));
        }
        if mount.mount_path.is_empty() {
            faults.push(Fault::required(format!("{path}.mountPath")));
        } else if !seen.insert(&mount.mount_path) {
            faults.push(Fault::duplicate(format!("{path}.mountPath"), &mount.mount_path));
        }
        let (sub_path, expression) = (text(&mount.sub_path), text(&mount.sub_path_expr));
        if !sub_path.is_empty() {
            volumes::check_relative(&format!("{path}.subPath"), sub_path, faults);
        }
        if !expression.is_empty() {
            volumes::check_relative(&format!("{path}.subPathExpr"), expression, faults);
            if !sub_path.is_empty() {
                let why = "may not be set together with subPath";
                faults.push(Fault::forbidden(format!("{path}.subPathExpr"), why));
            }
        }
        if let Some(propagation) = mount.mount_propagation.as_deref() {
            let path = format!("{path}.mountPropagation");
            faults.check_word(&path, propagation, &["None", "HostToContainer", "Bidirectional"]);
            let context = container.security_context.as_ref();
            let is_privileged = context.is_some_and(|it| it.privileged == Some(true));
            if propagation == "Bidirectional" && !is_privileged {
                let why = "Bidirectional is for privileged containers only";
                faults.push(Fault::forbidden(path, why));
            }
        }
    }
}

fn check_proc_mount(path: &str, spec: &PodSpec, container: &Container, faults: &mut Faults) {
    let context = container.security_context.as_ref();
    let is_unmasked = context.is_some_and(|it| it.proc_mount.as_deref() == Some("Unmasked"));
    if is_unmasked && spec.host_users != Some(false) {
        let why = "Unmasked is for pods with hostUsers false only";
        faults.push(Fault::forbidden(format!("{path}.securityContext.procMount"), why));
    }
}

fn validate_security(path: &str, context: &SecurityContext, faults: &mut Faults) {
    for (field, id) in [("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)] {
        if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
            let rule = "must be between 0 and 2147483647";
            faults.push(Fault::invalid(format!("{path}.{field}"), id, rule));
        }
    }
    if context.allow_privilege_escalation == Some(false) && context.privileged == Some(true) {
        let why = "may not be false for a privileged container";
        faults.push(Fault::forbidden(format!("{path}.allowPrivilegeEscalation"), why));
    }
    if let Some(mount) = context.proc_mount.as_deref() {
        faults.check_word(format!("{path}.procMount"), mount, &["Default", "Unmasked"]);
    }
    if let Some(profile) = &context.seccomp_profile {
        faults.check_word(
            format!("{path}.seccompProfile.type"),
            &profile.type_,
            &["Localhost", "RuntimeDefault", "Unconfined"],
        );
    }
}
