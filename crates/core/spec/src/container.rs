//! A container as a request.

use ferrolet_resources::container_resources;
use ferrolet_types::pod::ContainerKind;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{
    ContainerInputs, ContainerSpec, SpecError,
    env::{self, EnvError, EnvInputs},
    expand::expand,
    labels::{container_annotations, container_labels},
    mounts::{container_devices, container_mounts},
    security::{SecurityInputs, container_security},
};

/// The environment of a container: what plugins add, then its own.
pub fn container_env(
    pod: &Pod,
    container: &Container,
    inputs: &ContainerInputs<'_>,
) -> Result<Vec<(String, String)>, EnvError> {
    let own = EnvInputs {
        objects: inputs.objects,
        pod_ips: inputs.pod_ips,
        host_ips: &inputs.node.host_ips,
        allocatable: &inputs.node.allocatable,
    };
    let mut env = inputs.plugins.env.clone();
    env.extend(env::environment(pod, container, &own)?);
    Ok(env)
}

/// What to ask a runtime for. Ephemeral containers come in the shape of any other
/// (`pod::ephemeral_as_container`).
pub fn container_spec(
    pod: &Pod,
    kind: ContainerKind,
    container: &Container,
    inputs: &ContainerInputs<'_>,
) -> Result<ContainerSpec, SpecError> {
    let devices = container_devices(container, inputs)?;
    let env = container_env(pod, container, inputs)?;
    let mounts = container_mounts(pod, container, &env, inputs)?;
    let security = SecurityInputs {
        settings: inputs.settings,
        image_user: &inputs.image_user,
        user_mappings: inputs.user_mappings,
        extra_groups: inputs.extra_groups,
        target: inputs.target.filter(|_| kind == ContainerKind::Ephemeral),
    };
    let expanded = |words: Option<&Vec<String>>| {
        let words = words.into_iter().flatten();
        let expand = |word: &String| expand(word, |name| env::last_value(&env, name));
        words.map(expand).collect::<Vec<String>>()
    };
    let stop_signal = container
        .lifecycle
        .as_ref()
        .filter(|_| inputs.settings.has_stop_signals)
        .and_then(|lifecycle| lifecycle.stop_signal.clone());
    Ok(ContainerSpec {
        name: container.name.as_str().into(),
        attempt: inputs.restart_count + inputs.n_left_behind,
        image_ref: inputs.image_ref.clone(),
        image: container.image.clone().unwrap_or_default(),
        command: expanded(container.command.as_ref()),
        args: expanded(container.args.as_ref()),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts,
        devices,
        cdi_devices: inputs.plugins.cdi_devices.clone(),
        labels: container_labels(pod, container),
        annotations: container_annotations(
            pod,
            container,
            inputs.restart_count,
            inputs.crash_streak,
            &inputs.plugins.annotations,
        ),
        log_path: format!("{}/{}.log", container.name, inputs.restart_count),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        resources: container_resources(pod, container, &inputs.settings.resources, inputs.quota),
        security: container_security(pod, container, &security)?,
        stop_signal,
        env,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ferrolet_node::NodeState;
    use ferrolet_resources::QuotaMode;
    use ferrolet_types::ContainerId;
    use serde_json::{Value, json};

    use super::*;
    use crate::{EnvObjects, ImageUser, NamespaceMode, PluginResources, SpecSettings};

    fn make(kind: ContainerKind, container: Value) -> ContainerSpec {
        make_on(&SpecSettings::example(), kind, container)
    }

    fn make_on(settings: &SpecSettings, kind: ContainerKind, container: Value) -> ContainerSpec {
        let container = serde_json::from_value(container).unwrap();
        let inputs = ContainerInputs {
            settings,
            node: &NodeState::example(),
            objects: &EnvObjects::default(),
            volumes: &BTreeMap::new(),
            sub_paths: &BTreeMap::new(),
            restart_count: 4,
            n_left_behind: 2,
            crash_streak: 3,
            image_ref: "sha256:1".to_owned(),
            image_user: ImageUser::Id(0),
            pod_ips: &[],
            hosts_file: None,
            termination_log: None,
            target: Some(&ContainerId::new("abc")),
            user_mappings: &[],
            extra_groups: &[],
            supports_recursive_read_only: false,
            plugins: PluginResources {
                env: vec![("GPU".to_owned(), "0".to_owned())],
                ..PluginResources::default()
            },
            quota: QuotaMode::Enforced,
        };
        container_spec(&Pod::default(), kind, &container, &inputs).unwrap()
    }

    #[test]
    fn command_and_arguments_are_expanded_from_the_whole_environment() {
        let spec = make(
            ContainerKind::Regular,
            json!({"name": "c", "image": "i", "command": ["run", "$(A)", "$$(A)"], "args": ["$(GPU)", "$(NONE)"],
                "env": [{"name": "A", "value": "a"}], "workingDir": "/w", "stdin": true, "tty": true}),
        );
        assert_eq!(spec.command, ["run", "a", "$(A)"]);
        assert_eq!(spec.args, ["0", "$(NONE)"]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(spec.env, [pair("GPU", "0"), pair("A", "a")]);
        assert_eq!(spec.working_dir, "/w");
        assert_eq!((spec.stdin, spec.stdin_once, spec.tty), (true, false, true));
    }

    #[test]
    fn a_stop_signal_counts_where_its_gate_is_on() {
        for (has_stop_signals, expected) in [(false, None), (true, Some("SIGUSR1"))] {
            let settings = SpecSettings { has_stop_signals, ..SpecSettings::example() };
            let container = json!({"name": "c", "lifecycle": {"stopSignal": "SIGUSR1"}});
            let spec = make_on(&settings, ContainerKind::Regular, container);
            assert_eq!(spec.stop_signal.as_deref(), expected);
        }
    }

    #[test]
    fn the_restart_count_and_the_crash_streak_stay_with_the_container() {
        let spec = make(ContainerKind::Regular, json!({"name": "c"}));
        // Two that never ran still hold their names: the runtime counts them, and nobody else does.
        assert_eq!((spec.attempt, spec.log_path.as_str()), (6, "c/4.log"));
        assert_eq!(spec.annotations[crate::labels::RESTART_COUNT], "4");
        assert_eq!(spec.annotations[crate::labels::CRASH_STREAK], "3");
    }

    #[test]
    fn only_ephemeral_containers_look_into_another() {
        let pid = |kind| make(kind, json!({"name": "c"})).security.namespaces.pid;
        assert_eq!(pid(ContainerKind::Ephemeral), NamespaceMode::Target);
        assert_eq!(pid(ContainerKind::Regular), NamespaceMode::Container);
    }
}
