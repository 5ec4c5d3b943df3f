use crate::{Origin, read};

/// Every fault of a manifest whose spec is `spec`, beside one good container unless the spec brings
/// its own.
fn faults(spec: &str) -> Vec<String> {
    let containers = if spec.contains("containers:") && !spec.contains("initContainers:") {
        ""
    } else {
        "containers: [{name: main, image: i}], "
    };
    faults_of(&format!("metadata: {{name: a}}\nspec: {{{containers}{spec}}}"))
}

fn faults_of(rest: &str) -> Vec<String> {
    let text = format!("apiVersion: v1\nkind: Pod\n{rest}\n");
    match read(text.as_bytes(), Origin::File("/m/a.yaml"), "node-a") {
        Ok(_) => Vec::new(),
        Err(crate::manifest::ManifestError::Faults(faults)) => {
            faults.iter().map(ToString::to_string).collect()
        }
        Err(other) => panic!("{text}: {other}"),
    }
}

/// The first fault starts with `start`, and there is no second.
fn check(spec: &str, start: &str) {
    let found = faults(spec);
    assert_eq!(found.len(), 1, "{spec}: {found:?}");
    assert!(found[0].starts_with(start), "{spec}: {found:?}");
}

fn check_container(container: &str, start: &str) {
    check(&format!("containers: [{{name: main, image: i, {container}}}]"), start);
}

#[test]
fn a_good_pod_has_no_faults() {
    assert_eq!(faults("hostname: h"), Vec::<String>::new());
}

#[test]
fn names_follow_the_rules_of_the_api() {
    let check = |metadata: &str, start: &str| {
        let found = faults_of(&format!(
            "metadata: {{{metadata}}}\nspec: {{containers: [{{name: m, image: i}}]}}"
        ));
        assert_eq!(found.len(), 1, "{metadata}: {found:?}");
        assert!(found[0].starts_with(start), "{metadata}: {found:?}");
    };
    check("name: ''", "metadata.name: required value is missing");
    check("labels: {}", "metadata.name: required value is missing");
    check("name: A_b", "metadata.name: invalid value \"A_b-node-a\": must consist of");
    check("name: a, namespace: b.c", "metadata.namespace: invalid value \"b.c\": must consist of");
    check("name: a, labels: {a/b/c: d}", "metadata.labels: invalid value \"a/b/c\": must");
    check("name: a, labels: {a: 'b c'}", "metadata.labels[a]: invalid value \"b c\": must");
    check("name: a, annotations: {'a b': c}", "metadata.annotations: invalid value \"a b\": must");
    check(
        "name: a, uid: ../../etc",
        "metadata.uid: invalid value \"../../etc\": must not be a path",
    );
}

#[test]
fn a_pod_has_containers_with_names_and_images() {
    check("containers: []", "spec.containers: required value is missing");
    check("containers: [{image: i}]", "spec.containers[0].name: required value is missing");
    check(
        "containers: [{name: Main, image: i}]",
        "spec.containers[0].name: invalid value \"Main\": must",
    );
    check("containers: [{name: a}]", "spec.containers[0].image: required value is missing");
    check(
        "containers: [{name: a, image: ' i'}]",
        "spec.containers[0].image: invalid value \" i\": must not",
    );
    check(
        "containers: [{name: a, image: i}, {name: a, image: i}]",
        "spec.containers[1].name: duplicate value \"a\"",
    );
    check(
        "initContainers: [{name: main, image: i}]",
        "spec.initContainers[0].name: duplicate value \"main\"",
    );
}

#[test]
fn words_must_be_known() {
    check(
        "restartPolicy: Sometimes",
        "spec.restartPolicy: unsupported value \"Sometimes\": must be one of Always, OnFailure, Never",
    );
    check("dnsPolicy: Cluster", "spec.dnsPolicy: unsupported value \"Cluster\": must be one of");
    check_container(
        "imagePullPolicy: Often",
        "spec.containers[0].imagePullPolicy: unsupported value",
    );
    check_container(
        "ports: [{containerPort: 1, protocol: ICMP}]",
        "spec.containers[0].ports[0].protocol: unsupported",
    );
    check_container(
        "terminationMessagePolicy: X",
        "spec.containers[0].terminationMessagePolicy: unsupported",
    );
}

#[test]
fn ports_are_in_range_and_do_not_collide() {
    check_container(
        "ports: [{containerPort: 70000}]",
        "spec.containers[0].ports[0].containerPort: invalid value 70000: must be between 1 and 65535",
    );
    check_container("ports: [{name: p}]", "spec.containers[0].ports[0].containerPort: required");
    check_container(
        "ports: [{containerPort: 1, hostPort: -1}]",
        "spec.containers[0].ports[0].hostPort: invalid value -1",
    );
    check_container(
        "ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]",
        "spec.containers[0].ports[1].name: duplicate value \"a\"",
    );
    check_container(
        "ports: [{containerPort: 1, name: a_b}]",
        "spec.containers[0].ports[0].name: invalid value \"a_b\"",
    );
    check(
        "containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}]}, \
         {name: b, image: i, ports: [{containerPort: 2, hostPort: 80}]}]",
        "spec.containers[1].ports[0].hostPort: duplicate value \"TCP//80\"",
    );
    check(
        "hostNetwork: true, containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}]}]",
        "spec.containers[0].ports[0].hostPort: invalid value 80: must equal containerPort",
    );
}

#[test]
fn requests_stay_within_limits() {
    check_container(
        "resources: {limits: {cpu: 1}, requests: {cpu: 1500m}}",
        "spec.containers[0].resources.requests[cpu]: invalid value \"1500m\": must not exceed the limit of 1",
    );
    check_container(
        "resources: {requests: {memory: -1Mi}}",
        "spec.containers[0].resources.requests[memory]: invalid value \"-1Mi\": must not be negative",
    );
    check_container(
        "resources: {requests: {disk: 1}}",
        "spec.containers[0].resources.requests[disk]: invalid value \"disk\": must be cpu",
    );
    check_container(
        "resources: {requests: {a.b/c: 1}}",
        "spec.containers[0].resources.requests[a.b/c]: a limit of a.b/c must be set",
    );
    check_container(
        "resources: {requests: {a.b/c: 1}, limits: {a.b/c: 2}}",
        "spec.containers[0].resources.requests[a.b/c]: invalid value \"1\": must equal the limit of 2",
    );
}

#[test]
fn volumes_have_one_source_and_mounts_have_a_volume() {
    check_container(
        "volumeMounts: [{name: data, mountPath: /d}]",
        "spec.containers[0].volumeMounts[0].name: invalid value \"data\": no volume of this pod has that name",
    );
    check("volumes: [{name: a}, {name: a}]", "spec.volumes[1].name: duplicate value \"a\"");
    check(
        "volumes: [{name: a, emptyDir: {}, hostPath: {path: /x}}]",
        "spec.volumes[0].hostPath: forbidden: a volume has one source",
    );
    check(
        "volumes: [{name: a, hostPath: {path: /x/../y}}]",
        "spec.volumes[0].hostPath.path: invalid value \"/x/../y\": must not contain '..'",
    );
    check(
        "volumes: [{name: a, hostPath: {path: /x, type: Folder}}]",
        "spec.volumes[0].hostPath.type: unsupported value \"Folder\"",
    );
    check("volumes: [{name: a, hostPath: {}}]", "spec.volumes[0].hostPath.path: required");
    let mounts = |mounts: &str| {
        format!(
            "volumes: [{{name: v}}], containers: [{{name: m, image: i, volumeMounts: [{mounts}]}}]"
        )
    };
    check(&mounts("{name: v}"), "spec.containers[0].volumeMounts[0].mountPath: required");
    check(
        &mounts("{name: v, mountPath: /a}, {name: v, mountPath: /a}"),
        "spec.containers[0].volumeMounts[1].mountPath: duplicate value \"/a\"",
    );
    check(
        &mounts("{name: v, mountPath: /a, subPath: ../b}"),
        "spec.containers[0].volumeMounts[0].subPath: invalid value \"../b\"",
    );
    check(
        &mounts("{name: v, mountPath: /a, subPath: /b}"),
        "spec.containers[0].volumeMounts[0].subPath: invalid value \"/b\": must be a relative",
    );
    check(
        &mounts("{name: v, mountPath: /a, mountPropagation: Bidirectional}"),
        "spec.containers[0].volumeMounts[0].mountPropagation: forbidden",
    );
}

#[test]
fn variables_have_a_name_and_one_source() {
    check_container("env: [{value: a}]", "spec.containers[0].env[0].name: required");
    check_container("env: [{name: a=b}]", "spec.containers[0].env[0].name: invalid value \"a=b\"");
    check_container(
        "env: [{name: a, valueFrom: {}}]",
        "spec.containers[0].env[0].valueFrom: must name a source",
    );
    check_container(
        "env: [{name: a, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
        "spec.containers[0].env[0].valueFrom: forbidden: may not be set together with value",
    );
    check_container(
        "env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.nam}}}]",
        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: unsupported value \"metadata.nam\"",
    );
}

#[test]
fn probes_have_one_handler_and_init_containers_have_no_probes() {
    check_container(
        "livenessProbe: {}",
        "spec.containers[0].livenessProbe: must have one of exec, httpGet, tcpSocket, grpc",
    );
    check_container(
        "livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}",
        "spec.containers[0].livenessProbe.tcpSocket: forbidden: may have one handler only",
    );
    check_container(
        "livenessProbe: {exec: {command: [a]}, successThreshold: 2}",
        "spec.containers[0].livenessProbe.successThreshold: invalid value 2: must be 1",
    );
    check_container(
        "readinessProbe: {httpGet: {port: 0}}",
        "spec.containers[0].readinessProbe.httpGet.port: invalid value 0",
    );
    check_container(
        "lifecycle: {preStop: {sleep: {seconds: 60}}}",
        "spec.containers[0].lifecycle.preStop.sleep.seconds: invalid value 60",
    );
    check(
        "initContainers: [{name: a, image: i, livenessProbe: {exec: {command: [a]}}}]",
        "spec.initContainers[0].livenessProbe: forbidden: may not be set for init containers",
    );
    assert_eq!(
        faults(
            "initContainers: [{name: a, image: i, restartPolicy: Always, livenessProbe: {exec: {command: [a]}}}]"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn the_rest_of_a_specification_is_checked_too() {
    check("activeDeadlineSeconds: 0", "spec.activeDeadlineSeconds: invalid value 0");
    check("hostname: a.b", "spec.hostname: invalid value \"a.b\"");
    check(
        "hostAliases: [{ip: x}]",
        "spec.hostAliases[0].ip: invalid value \"x\": must be an IP address",
    );
    check("hostPID: true, shareProcessNamespace: true", "spec.shareProcessNamespace: forbidden");
    check(
        "tolerations: [{value: x}]",
        "spec.tolerations[0].operator: invalid value \"\": must be Exists when key is empty",
    );
    check("dnsPolicy: None", "spec.dnsConfig.nameservers: required when dnsPolicy is None");
    check("dnsConfig: {nameservers: [a]}", "spec.dnsConfig.nameservers[0]: invalid value \"a\"");
    check("ephemeralContainers: [{name: e, image: i}]", "spec.ephemeralContainers: forbidden");
    check("schedulingGates: [{name: a}]", "spec.schedulingGates: forbidden");
    check_container(
        "securityContext: {procMount: Unmasked}",
        "spec.containers[0].securityContext.procMount: forbidden",
    );
    check_container(
        "securityContext: {runAsUser: -1}",
        "spec.containers[0].securityContext.runAsUser: invalid value -1",
    );
}

#[test]
fn a_static_pod_refers_to_nothing_in_the_api() {
    let refused = |path: &str, resource: &str| {
        format!("{path}: forbidden: static pods may not reference {resource}")
    };
    for (spec, path, resource) in [
        ("serviceAccountName: a", "spec.serviceAccountName", "serviceaccounts"),
        ("serviceAccount: a", "spec.serviceAccountName", "serviceaccounts"),
        ("imagePullSecrets: [{name: a}]", "spec.imagePullSecrets[0]", "secrets"),
        ("resourceClaims: [{name: a}]", "spec.resourceClaims[0]", "resourceclaims"),
        ("volumes: [{name: a, secret: {secretName: s}}]", "spec.volumes[0].secret", "secrets"),
        ("volumes: [{name: a, configMap: {name: s}}]", "spec.volumes[0].configMap", "configmaps"),
        (
            "volumes: [{name: a, persistentVolumeClaim: {claimName: s}}]",
            "spec.volumes[0].persistentVolumeClaim",
            "persistentvolumeclaims",
        ),
        ("volumes: [{name: a, csi: {driver: s}}]", "spec.volumes[0].csi", "csidrivers"),
        (
            "volumes: [{name: a, projected: {sources: [{clusterTrustBundle: {path: p}}]}}]",
            "spec.volumes[0].projected.sources[0].clusterTrustBundle",
            "clustertrustbundles",
        ),
        (
            "containers: [{name: m, image: i, envFrom: [{secretRef: {name: s}}]}]",
            "spec.containers[0].envFrom[0].secretRef",
            "secrets",
        ),
        (
            "containers: [{name: m, image: i, env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]}]",
            "spec.containers[0].env[0].valueFrom.configMapKeyRef",
            "configmaps",
        ),
    ] {
        assert_eq!(faults(spec), [refused(path, resource)], "{spec}");
    }
}

#[test]
fn all_faults_of_a_manifest_come_together() {
    let found = faults(
        "restartPolicy: X, containers: [{name: A}, {name: b, image: i, ports: [{containerPort: 0}]}]",
    );
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn an_unusual_priority_is_worth_a_warning() {
    let warnings = |spec: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{{name: m, image: i}}], {spec}}}"
        );
        read(text.as_bytes(), Origin::File("/m"), "n").unwrap().warnings
    };
    assert!(warnings("hostname: a").is_empty());
    assert!(warnings("priority: 2000001000, priorityClassName: system-node-critical").is_empty());
    assert!(warnings("priority: 5")[0].starts_with("priority is set without"));
    assert!(warnings("priorityClassName: x")[0].starts_with("priorityClassName is not used"));
    assert!(
        warnings("priority: 5, priorityClassName: x")[0].starts_with("priority is not that of")
    );
}
