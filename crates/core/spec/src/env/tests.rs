use serde_json::{Value, json};

use super::*;

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": "web", "namespace": "ns", "uid": "u-1",
            "labels": {"app": "web", "a/b": "x"}, "annotations": {"note": "say \"hi\"\n"}},
        "spec": {
            "nodeName": "node", "serviceAccountName": "robot",
            "initContainers": [{"name": "init", "resources": {"limits": {"memory": "8Mi"}}}],
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "100Mi"}}},
                {"name": "other"}]}}))
    .unwrap()
}

fn objects() -> EnvObjects {
    let config_map =
        |data: Value| Arc::new(serde_json::from_value(json!({ "data": data })).unwrap());
    let secret = serde_json::from_value(json!({"data": {"s": "c2VjcmV0"}})).unwrap();
    EnvObjects {
        config_maps: BTreeMap::from([
            ("cm".to_owned(), Lookup::Found(config_map(json!({"k": "v", "j": "w"})))),
            ("none".to_owned(), Lookup::NotFound),
            ("slow".to_owned(), Lookup::Failed("failed to sync configmap cache".to_owned())),
        ]),
        secrets: BTreeMap::from([
            ("sec".to_owned(), Lookup::Found(Arc::new(secret))),
            ("none".to_owned(), Lookup::NotFound),
        ]),
        services: Services::Read(vec![service("kubernetes", "default", "10.0.0.1")]),
        files: BTreeMap::from([
            (("v".to_owned(), "f".to_owned()), Lookup::Found("A='1'".to_owned())),
            (("v".to_owned(), "bad".to_owned()), Lookup::Found("A=1".to_owned())),
        ]),
    }
}

fn service(name: &str, namespace: &str, ip: &str) -> Arc<Service> {
    let value = json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": ip, "ports": [{"name": "web", "port": 80}, {"port": 53, "protocol": "UDP"}]}});
    Arc::new(serde_json::from_value(value).unwrap())
}

fn make(
    pod: &Pod,
    container: Value,
    objects: &EnvObjects,
) -> Result<Vec<(String, String)>, EnvError> {
    let mut container = container;
    container["name"] = json!("c");
    container["resources"] =
        json!({"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "100Mi"}});
    let container = serde_json::from_value(container).unwrap();
    let allocatable = parse([("cpu", "4"), ("memory", "8Gi")]);
    let inputs = EnvInputs {
        objects,
        pod_ips: &["fd00::5".to_owned(), "10.1.0.5".to_owned()],
        host_ips: &["192.168.0.1".to_owned(), "fd00::1".to_owned()],
        allocatable: &allocatable,
    };
    environment(pod, &container, &inputs)
}

fn parse<const N: usize>(pairs: [(&str, &str); N]) -> Amounts {
    let quantity = |text: &str| ferrolet_types::Quantity::parse(text).unwrap();
    pairs.map(|(name, text)| (name.to_owned(), quantity(text))).into()
}

fn text(env: &[(String, String)]) -> String {
    let own = env.iter().filter(|(name, _)| !name.starts_with("KUBERNETES_"));
    own.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn check(container: Value, expected: &str) {
    let shown = container.to_string();
    assert_eq!(text(&make(&pod(), container, &objects()).unwrap()), expected, "{shown}");
}

fn refuse(container: Value, message: &str) {
    let shown = container.to_string();
    let error = make(&pod(), container, &objects()).unwrap_err();
    assert_eq!(error.to_string(), message, "{shown}");
}

fn from(source: Value) -> Value {
    json!({"env": [{"name": "X", "valueFrom": source}]})
}

fn field(path: &str) -> Value {
    from(json!({"fieldRef": {"apiVersion": "v1", "fieldPath": path}}))
}

fn amount_of(resource: &str, divisor: &str) -> Value {
    from(json!({"resourceFieldRef": {"resource": resource, "divisor": divisor}}))
}

/// Service env: `$(VAR)`.
#[test]
fn variables_refer_to_earlier_ones_and_to_services() {
    check(
        json!({"env": [
            {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)-$(KUBERNETES_SERVICE_HOST)"},
            {"name": "C", "value": "3"}, {"name": "A", "value": "$(A)$(A)"}, {"name": "E"}]}),
        "A=11 B=1-$(C)-10.0.0.1 C=3 E=",
    );
}

/// Service env: envFrom, then env, then services.
#[test]
fn whole_objects_come_first_with_their_prefix_and_are_overridden() {
    check(
        json!({
            "envFrom": [
                {"prefix": "P_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "sec"}},
                {"configMapRef": {"name": "none", "optional": true}}, {"secretRef": {"name": "none", "optional": true}}],
            "env": [{"name": "s", "value": "mine"}, {"name": "Y", "value": "$(P_k)"}]}),
        "P_j=w P_k=v s=mine Y=v",
    );
}

#[test]
fn single_keys_come_from_objects_and_files() {
    check(from(json!({"configMapKeyRef": {"name": "cm", "key": "k"}})), "X=v");
    check(from(json!({"secretKeyRef": {"name": "sec", "key": "s"}})), "X=secret");
    check(from(json!({"configMapKeyRef": {"name": "cm", "key": "z", "optional": true}})), "");
    check(from(json!({"secretKeyRef": {"name": "none", "key": "z", "optional": true}})), "");
    check(from(json!({"fileKeyRef": {"volumeName": "v", "path": "f", "key": "A"}})), "X=1");
    check(
        from(json!({"fileKeyRef": {"volumeName": "v", "path": "f", "key": "B", "optional": true}})),
        "",
    );
}

/// Env sources: a missing key.
#[test]
fn what_is_missing_is_named_as_upstream_does() {
    refuse(
        from(json!({"configMapKeyRef": {"name": "none", "key": "k"}})),
        "configmap \"none\" not found",
    );
    refuse(
        from(json!({"secretKeyRef": {"name": "none", "key": "k"}})),
        "secret \"none\" not found",
    );
    refuse(
        json!({"envFrom": [{"configMapRef": {"name": "none"}}]}),
        "configmap \"none\" not found",
    );
    refuse(
        from(json!({"configMapKeyRef": {"name": "cm", "key": "z"}})),
        "couldn't find key z in ConfigMap ns/cm",
    );
    refuse(
        from(json!({"secretKeyRef": {"name": "sec", "key": "z"}})),
        "couldn't find key z in Secret ns/sec",
    );
    refuse(
        from(json!({"configMapKeyRef": {"name": "slow", "key": "z"}})),
        "failed to sync configmap cache",
    );
    refuse(
        from(json!({"configMapKeyRef": {"name": "far", "key": "k", "optional": true}})),
        "couldn't get configMap ns/far, no kubeClient defined",
    );
    refuse(
        json!({"envFrom": [{"secretRef": {"name": "far"}}]}),
        "couldn't get secret ns/far, no kubeClient defined",
    );
    let file = |volume: &str, path: &str| {
        from(json!({"fileKeyRef": {"volumeName": volume, "path": path, "key": "B"}}))
    };
    refuse(file("w", "f"), "cannot find the volume \"w\" referenced by FileKeyRef");
    refuse(file("v", "bad"), "couldn't parse env file");
    refuse(file("v", "f"), "environment variable key \"B\" not found in file \"f\"");
}

#[test]
fn fields_of_the_pod_are_available() {
    for (path, value) in [
        ("metadata.name", "web"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels", "a/b=\"x\"\napp=\"web\""),
        ("metadata.annotations", "note=\"say \\\"hi\\\"\\n\""),
        ("metadata.labels['a/b']", "x"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", "say \"hi\"\n"),
        ("spec.nodeName", "node"),
        ("spec.host", "node"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "192.168.0.1"),
        ("status.hostIPs", "192.168.0.1,fd00::1"),
        ("status.podIP", "10.1.0.5"),
        ("status.podIPs", "10.1.0.5,fd00::5"),
    ] {
        check(field(path), &format!("X={value}"));
    }
    refuse(field("status.phase"), "unsupported fieldPath: status.phase");
    refuse(field("spec.bogus"), "field label not supported: spec.bogus");
    refuse(field("spec['x']"), "field label does not support subscript: spec['x']");
    refuse(
        from(json!({"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}})),
        "unsupported pod version: v2",
    );
    refuse(
        field("metadata.labels['']"),
        "invalid key subscript in metadata.labels['']: name part must be non-empty",
    );
}

#[test]
fn amounts_are_divided_and_rounded_up_and_the_node_stands_in_for_limits() {
    for (resource, divisor, value) in [
        ("requests.cpu", "1", "1"),
        ("requests.cpu", "1m", "250"),
        ("requests.memory", "0", "67108864"),
        ("requests.memory", "1Mi", "64"),
        ("limits.memory", "1Gi", "1"),
        ("limits.cpu", "1", "4"),
        ("limits.ephemeral-storage", "1", "0"),
        ("limits.hugepages-2Mi", "1", "0"),
    ] {
        check(amount_of(resource, divisor), &format!("X={value}"));
    }
    let other = |name: &str| {
        from(json!({"resourceFieldRef": {"containerName": name, "resource": "limits.memory"}}))
    };
    check(other("other"), "X=8589934592");
    check(other("init"), "X=8388608");
    refuse(other("none"), "container none not found");
    refuse(amount_of("limits.gpu", "1"), "unsupported container resource : limits.gpu");
    refuse(amount_of("cpu", "1"), "unsupported container resource : cpu");
}

/// Service env: which services.
#[test]
fn services_of_the_namespace_are_announced_unless_the_pod_declines() {
    let mut objects = objects();
    objects.services = Services::Read(vec![
        service("kubernetes", "default", "10.0.0.1"),
        service("my-db", "ns", "fd00::9"),
        service("headless", "ns", "None"),
        // A name alone takes nothing away from anybody.
        service("kubernetes", "ns", "None"),
        service("far", "elsewhere", "10.0.0.9"),
    ]);
    let mut pod = pod();
    let own = json!({"env": [{"name": "MY_DB_PORT", "value": "mine"}]});
    let found = text(&make(&pod, own, &objects).unwrap());
    assert_eq!(
        found,
        "MY_DB_PORT=mine MY_DB_SERVICE_HOST=fd00::9 MY_DB_SERVICE_PORT=80 MY_DB_SERVICE_PORT_WEB=80 \
         MY_DB_PORT_80_TCP=tcp://[fd00::9]:80 MY_DB_PORT_80_TCP_PROTO=tcp MY_DB_PORT_80_TCP_PORT=80 \
         MY_DB_PORT_80_TCP_ADDR=fd00::9 MY_DB_PORT_53_UDP=udp://[fd00::9]:53 MY_DB_PORT_53_UDP_PROTO=udp \
         MY_DB_PORT_53_UDP_PORT=53 MY_DB_PORT_53_UDP_ADDR=fd00::9"
    );
    pod.spec.as_mut().unwrap().enable_service_links = Some(false);
    let all = make(&pod, json!({}), &objects).unwrap();
    assert!(!all.is_empty() && all.iter().all(|(name, _)| name.starts_with("KUBERNETES_")));
}

#[test]
fn only_static_pods_start_before_services_are_known() {
    let objects = EnvObjects { services: Services::NotRead, ..EnvObjects::default() };
    let mut pod = pod();
    assert_eq!(make(&pod, json!({}), &objects), Err(EnvError::ServicesNotRead));
    let annotations =
        BTreeMap::from([("kubernetes.io/config.source".to_owned(), "file".to_owned())]);
    pod.metadata.annotations = Some(annotations);
    assert_eq!(make(&pod, json!({}), &objects), Ok(Vec::new()));
}

#[test]
fn needs_list_what_to_fetch() {
    let container = json!({
        "name": "c", "envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
        "env": [
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "d", "key": "k"}}},
            {"name": "Z", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}]});
    let found = needs(&serde_json::from_value(container).unwrap());
    let set = |names: [&str; 2]| BTreeSet::from(names.map(str::to_owned));
    assert_eq!((found.config_maps, found.secrets), (set(["a", "c"]), set(["b", "d"])));
    assert_eq!(found.files, BTreeSet::from([("v".to_owned(), "p".to_owned())]));
}
