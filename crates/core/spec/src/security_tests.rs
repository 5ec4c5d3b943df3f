use serde_json::{Value, json};

use super::*;

fn make(
    pod_context: Value,
    own: Value,
    user: ImageUser,
    settings: &SpecSettings,
) -> Result<SecuritySpec, SecurityError> {
    let pod = pod(
        json!({"securityContext": pod_context, "containers": [{"name": "c", "securityContext": own}]}),
    );
    let inputs = SecurityInputs {
        settings,
        image_user: &user,
        user_mappings: &[],
        extra_groups: &[],
        target: None,
    };
    container_security(&pod, &pod.spec_ref().containers[0], &inputs)
}

fn pod(spec: Value) -> Pod {
    let metadata = json!({"name": "web", "namespace": "ns", "uid": "u"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn of(pod_context: Value, own: Value) -> SecuritySpec {
    make(pod_context, own, ImageUser::Id(0), &SpecSettings::example()).unwrap()
}

#[test]
fn the_containers_context_wins_over_the_pods() {
    let pods = json!({"runAsUser": 1, "runAsGroup": 2, "seLinuxOptions": {"level": "s0"}, "seccompProfile": {"type": "RuntimeDefault"}});
    let found = of(pods.clone(), json!({}));
    assert_eq!((found.run_as_user, found.run_as_group), (Some(1), Some(2)));
    assert_eq!(found.selinux.unwrap().level, "s0");
    assert_eq!(found.seccomp, SeccompProfile::RuntimeDefault);
    let own = json!({
        "runAsUser": 5, "runAsGroup": 6, "seLinuxOptions": {"type": "t"}, "seccompProfile": {"type": "Unconfined"},
        "privileged": true, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
        "capabilities": {"add": ["A"], "drop": ["ALL"]}});
    let found = of(pods, own);
    assert_eq!((found.run_as_user, found.run_as_group), (Some(5), Some(6)));
    assert_eq!(
        found.selinux,
        Some(SelinuxLabel { kind: "t".to_owned(), ..SelinuxLabel::default() })
    );
    assert_eq!(found.seccomp, SeccompProfile::Unconfined);
    assert!(found.privileged && found.read_only_root && found.no_new_privileges);
    assert_eq!(
        (found.add_capabilities, found.drop_capabilities),
        (vec!["A".to_owned()], vec!["ALL".to_owned()])
    );
}

#[test]
fn the_image_names_the_user_when_nobody_else_does() {
    let settings = SpecSettings::example();
    let user = |user: ImageUser| {
        let found = make(json!({}), json!({}), user, &settings).unwrap();
        (found.run_as_user, found.run_as_username)
    };
    assert_eq!(user(ImageUser::Id(7)), (Some(7), String::new()));
    assert_eq!(user(ImageUser::Name("www".to_owned())), (None, "www".to_owned()));
}

/// RunAsNonRoot.
#[test]
fn non_root_is_checked_by_number() {
    let settings = SpecSettings::example();
    let check = |pods: Value, own: Value, user: ImageUser, message: Option<&str>| {
        let error = make(pods, own, user, &settings).err().map(|e| e.to_string());
        assert_eq!(error.as_deref(), message);
    };
    let must = || json!({"runAsNonRoot": true});
    let name = || ImageUser::Name("www".to_owned());
    check(json!({}), json!({}), ImageUser::Id(0), None);
    check(must(), json!({"runAsNonRoot": false}), ImageUser::Id(0), None);
    check(must(), json!({"runAsUser": 1}), name(), None);
    check(must(), json!({}), ImageUser::Id(1), None);
    check(
        json!({"runAsUser": 0}),
        must(),
        ImageUser::Id(1),
        Some("container's runAsUser breaks non-root policy (pod: \"web_ns(u)\", container: c)"),
    );
    check(
        must(),
        json!({}),
        name(),
        Some(
            "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root (pod: \"web_ns(u)\", container: c)",
        ),
    );
    check(
        must(),
        json!({}),
        ImageUser::Id(0),
        Some(
            "container has runAsNonRoot and image will run as root (pod: \"web_ns(u)\", container: c)",
        ),
    );
    check(
        must(),
        json!({}),
        ImageUser::Id(1 << 31),
        Some(
            "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive (pod: \"web_ns(u)\", container: c)",
        ),
    );
}

/// Seccomp.
#[test]
fn seccomp_profiles_lie_under_the_nodes_directory() {
    let mut settings = SpecSettings::example();
    let profile = |own: Value, settings: &SpecSettings| {
        make(json!({}), own, ImageUser::Id(0), settings).map(|s| s.seccomp)
    };
    let local =
        |file: Value| json!({"seccompProfile": {"type": "Localhost", "localhostProfile": file}});
    assert_eq!(profile(json!({}), &settings), Ok(SeccompProfile::Unconfined));
    assert_eq!(
        profile(local(json!("a/b.json")), &settings),
        Ok(SeccompProfile::Localhost("/var/lib/kubelet/seccomp/a/b.json".to_owned()))
    );
    assert_eq!(profile(local(Value::Null), &settings), Err(SecurityError::SeccompProfileMissing));
    assert_eq!(
        profile(local(json!("../x")), &settings),
        Err(SecurityError::SeccompProfileOutside("../x".to_owned()))
    );
    settings.is_seccomp_default = true;
    assert_eq!(profile(json!({}), &settings), Ok(SeccompProfile::RuntimeDefault));
}

/// AppArmor: field, then annotation.
#[test]
fn apparmor_comes_from_the_container_the_annotation_or_the_pod() {
    let local =
        |name: &str| json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": name}});
    let check = |pods: Value,
                 own: Value,
                 annotation: Option<&str>,
                 expected: Option<SeccompProfile>| {
        let mut pod = pod(
            json!({"securityContext": pods, "containers": [{"name": "c", "securityContext": own}]}),
        );
        let key = format!("{APPARMOR_ANNOTATION}c");
        pod.metadata.annotations = annotation.map(|text| [(key, text.to_owned())].into());
        assert_eq!(apparmor(&pod, &pod.spec_ref().containers[0]), Ok(expected));
    };
    let named = |name: &str| Some(SeccompProfile::Localhost(name.to_owned()));
    check(json!({}), json!({}), None, None);
    check(local("p"), json!({}), None, named("p"));
    check(local("p"), json!({}), Some("localhost/a"), named("a"));
    check(local("p"), local("c"), Some("localhost/a"), named("c"));
    check(json!({}), json!({}), Some("runtime/default"), Some(SeccompProfile::RuntimeDefault));
    check(json!({}), json!({}), Some("bogus"), None);
    check(
        json!({"appArmorProfile": {"type": "Unconfined"}}),
        json!({}),
        None,
        Some(SeccompProfile::Unconfined),
    );
}

#[test]
fn an_unmasked_proc_hides_nothing() {
    let found = of(json!({}), json!({"procMount": "Unmasked"}));
    assert!(found.masked_paths.is_empty() && found.readonly_paths.is_empty());
    let mut settings = SpecSettings::example();
    settings.extra_masked_paths = vec!["/sys/x".to_owned()];
    let found = make(json!({}), json!({}), ImageUser::Id(0), &settings).unwrap();
    assert_eq!((found.masked_paths.len(), found.readonly_paths.len()), (13, 5));
}

#[test]
fn groups_come_from_the_volumes_and_the_pod() {
    let context =
        json!({"fsGroup": 1, "supplementalGroups": [2, 3], "supplementalGroupsPolicy": "Strict"});
    let pod = pod(
        json!({"securityContext": context, "containers": [{"name": "c", "securityContext": {"privileged": true}}]}),
    );
    let sandbox = sandbox_security(&pod, &[], &[9]).unwrap();
    assert_eq!(sandbox.supplemental_groups, [1, 9, 2, 3]);
    assert_eq!(sandbox.supplemental_groups_policy, SupplementalGroupsPolicy::Strict);
    assert!(sandbox.privileged);
    let settings = SpecSettings::example();
    let inputs = SecurityInputs {
        settings: &settings,
        image_user: &ImageUser::Id(0),
        user_mappings: &[],
        extra_groups: &[9],
        target: None,
    };
    let container = container_security(&pod, &pod.spec_ref().containers[0], &inputs).unwrap();
    assert_eq!(container.supplemental_groups, [1, 2, 3, 9]);
    let error =
        make(json!({"supplementalGroupsPolicy": "Odd"}), json!({}), ImageUser::Id(0), &settings);
    assert_eq!(error.unwrap_err().to_string(), "unsupported supplementalGroupsPolicy: Odd");
}

#[test]
fn namespaces_are_shared_as_the_pod_says() {
    use NamespaceMode::{Container, Node, Pod as InPod, Target};
    let target = ContainerId::new("abc");
    let check =
        |spec: Value, target: Option<&ContainerId>, expected: [NamespaceMode; 3], id: &str| {
            let mut spec = spec;
            spec["containers"] = json!([{"name": "c"}]);
            let pod = pod(spec);
            let settings = SpecSettings::example();
            let inputs = SecurityInputs {
                settings: &settings,
                image_user: &ImageUser::Id(0),
                user_mappings: &[],
                extra_groups: &[],
                target,
            };
            let security =
                container_security(&pod, &pod.spec_ref().containers[0], &inputs).unwrap();
            let Namespaces { network, pid, ipc, target, .. } = security.namespaces;
            assert_eq!(([network, pid, ipc], target.as_str()), (expected, id));
        };
    check(json!({}), None, [InPod, Container, InPod], "");
    check(json!({"hostNetwork": true, "hostIPC": true, "hostPID": true}), None, [Node; 3], "");
    check(json!({"shareProcessNamespace": true}), Some(&target), [InPod; 3], "");
    check(json!({}), Some(&target), [InPod, Target, InPod], "abc");
}
