use std::{collections::BTreeMap, sync::Arc};

use ferrolet_node::NodeSettings;
use ferrolet_types::Quantity;
use k8s_openapi::api::core::v1::{Pod, Taint};

use super::*;

fn pod(spec: serde_json::Value) -> Pod {
    serde_json::from_value(serde_json::json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec}))
        .unwrap()
}

fn node() -> NodeState {
    let amounts = [("cpu", "2"), ("memory", "1Gi"), ("pods", "3"), ("example.com/gpu", "1")];
    let settings = NodeSettings {
        name: "n".to_owned(),
        allowed_unsafe_sysctls: vec!["kernel.msg*".to_owned()],
        declared_features: Vec::new(),
        ..NodeSettings::example()
    };
    NodeState {
        settings: Arc::new(settings),
        labels: BTreeMap::from([
            ("zone".to_owned(), "a".to_owned()),
            ("size".to_owned(), "5".to_owned()),
        ]),
        taints: Vec::new(),
        allocatable: amounts
            .iter()
            .map(|(name, text)| ((*name).into(), Quantity::parse(text).unwrap()))
            .collect(),
        has_supplemental_groups_policy: false,
        ..NodeState::example()
    }
}

fn asking(requests: serde_json::Value) -> Pod {
    pod(serde_json::json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
}

fn check(pod: &Pod, node: &NodeState, others: &[&Pod], expected: Option<(&str, &str)>) {
    let rejected = admit(pod, node, others).err();
    assert_eq!(rejected.as_ref().map(|it| (it.reason.as_str(), it.message.as_str())), expected);
}

#[test]
fn what_is_asked_for_must_be_free() {
    let taken = asking(serde_json::json!({"cpu": "1500m", "memory": "512Mi"}));
    let others = [&taken];
    check(&asking(serde_json::json!({"cpu": "500m"})), &node(), &others, None);
    let message =
        "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000";
    check(
        &asking(serde_json::json!({"cpu": "501m"})),
        &node(),
        &others,
        Some(("OutOfcpu", message)),
    );
    let message = "Node didn't have enough resource: memory, requested: 1073741824, used: 536870912, capacity: 1073741824";
    check(
        &asking(serde_json::json!({"memory": "1Gi"})),
        &node(),
        &others,
        Some(("OutOfmemory", message)),
    );
    let message =
        "Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1";
    check(
        &asking(serde_json::json!({"example.com/gpu": "2"})),
        &node(),
        &[],
        Some(("OutOfexample.com/gpu", message)),
    );
    // Native resources count where the node has none, and are looked at in upstream's order.
    let message = "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824";
    check(
        &asking(
            serde_json::json!({"memory": "2Gi", "hugepages-2Mi": "2Mi", "ephemeral-storage": "1"}),
        ),
        &node(),
        &[],
        Some(("OutOfmemory", message)),
    );
    let message =
        "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0";
    check(
        &asking(serde_json::json!({"hugepages-2Mi": "2Mi"})),
        &node(),
        &[],
        Some(("OutOfhugepages-2Mi", message)),
    );
    // Nobody here counts it: a resource of the cluster, not of the node.
    check(&asking(serde_json::json!({"example.com/licence": "9"})), &node(), &[], None);
}

#[test]
fn what_plugins_offer_counts_before_the_api_hears_of_it_and_their_return_is_waited_for() {
    let gpu = "example.com/gpu";
    let wants = asking(serde_json::json!({gpu: "2"}));
    let mut node = node();
    node.facts.devices.allocatable.insert(gpu.to_owned(), Quantity::from_value(2));
    check(&wants, &node, &[], None);
    node.facts.devices.allocatable.insert(gpu.to_owned(), Quantity::from_value(0));
    let message =
        "Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 0";
    check(&wants, &node, &[], Some(("OutOfexample.com/gpu", message)));
    node.facts.devices.awaited.push(gpu.to_owned());
    check(&wants, &node, &[], None);
}

#[test]
fn a_node_takes_so_many_pods_and_no_more() {
    let other = asking(serde_json::json!({}));
    let message = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
    check(&other, &node(), &[&other, &other], None);
    check(&other, &node(), &[&other, &other, &other], Some(("OutOfpods", message)));
}

#[test]
fn selectors_and_affinity_choose_the_node() {
    let message =
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    let refused = Some(("NodeAffinity", message));
    let selecting =
        |zone: &str| pod(serde_json::json!({"containers": [], "nodeSelector": {"zone": zone}}));
    check(&selecting("a"), &node(), &[], None);
    check(&selecting("b"), &node(), &[], refused);
    let requiring = |terms: serde_json::Value| {
        let required = serde_json::json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        pod(serde_json::json!({"containers": [], "affinity": {"nodeAffinity": required}}))
    };
    let expression = |key: &str, operator: &str, values: &[&str]| serde_json::json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
    for (terms, is_met) in [
        (expression("zone", "In", &["a", "b"]), true),
        (expression("zone", "NotIn", &["a"]), false),
        (expression("none", "NotIn", &["a"]), true),
        (expression("zone", "Exists", &[]), true),
        (expression("none", "DoesNotExist", &[]), true),
        (expression("size", "Gt", &["4"]), true),
        (expression("size", "Lt", &["4"]), false),
        (
            serde_json::json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]),
            true,
        ),
        (
            serde_json::json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}]),
            false,
        ),
        (serde_json::json!([{}]), false),
    ] {
        check(&requiring(terms), &node(), &[], if is_met { None } else { refused });
    }
}

#[test]
fn a_pod_for_another_node_is_refused() {
    let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
    check(
        &pod(serde_json::json!({"containers": [], "nodeName": "m"})),
        &node(),
        &[],
        Some(("NodeName", message)),
    );
    check(&pod(serde_json::json!({"containers": [], "nodeName": "n"})), &node(), &[], None);
}

#[test]
fn ports_of_the_node_are_given_once() {
    let message =
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    let refused = Some(("NodePorts", message));
    let with = |ip: &str, protocol: &str, port: i32| {
        let port = serde_json::json!({"containerPort": 80, "hostPort": port, "hostIP": ip, "protocol": protocol});
        pod(serde_json::json!({"containers": [{"name": "c", "ports": [port]}]}))
    };
    let taken = with("10.0.0.1", "TCP", 8080);
    for (asked, expected) in [
        (with("", "TCP", 8080), refused),
        (with("10.0.0.1", "TCP", 8080), refused),
        (with("10.0.0.2", "TCP", 8080), None),
        (with("", "UDP", 8080), None),
        (with("", "TCP", 8081), None),
    ] {
        check(&asked, &node(), &[&taken], expected);
    }
}

#[test]
fn taints_that_evict_must_be_tolerated_but_not_by_static_pods() {
    let message =
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    let refused = Some(("TaintToleration", message));
    let mut node = node();
    let taint = |effect: &str| Taint {
        key: "k".to_owned(),
        value: Some("v".to_owned()),
        effect: effect.to_owned(),
        ..Default::default()
    };
    node.taints = vec![taint("NoSchedule")];
    let plain = pod(serde_json::json!({"containers": []}));
    check(&plain, &node, &[], None);
    node.taints = vec![taint("NoExecute")];
    check(&plain, &node, &[], refused);
    let tolerating = |toleration: serde_json::Value| {
        pod(serde_json::json!({"containers": [], "tolerations": [toleration]}))
    };
    check(&tolerating(serde_json::json!({"operator": "Exists"})), &node, &[], None);
    check(&tolerating(serde_json::json!({"key": "k", "value": "v"})), &node, &[], None);
    check(&tolerating(serde_json::json!({"key": "k", "value": "w"})), &node, &[], refused);
    check(
        &tolerating(serde_json::json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"})),
        &node,
        &[],
        refused,
    );
    let mut from_file = plain;
    let source = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
    from_file.metadata.annotations = Some(BTreeMap::from([source]));
    check(&from_file, &node, &[], None);
}

/// Sysctls.
#[test]
fn sysctls_are_safe_or_allowed_or_refused() {
    let setting = |name: &str, host: bool| {
        let context = serde_json::json!({"sysctls": [{"name": name, "value": "1"}]});
        pod(
            serde_json::json!({"containers": [], "hostNetwork": host, "hostIPC": host, "securityContext": context}),
        )
    };
    check(&setting("kernel.shm_rmid_forced", false), &node(), &[], None);
    check(&setting("net/ipv4/tcp_syncookies", false), &node(), &[], None);
    check(&setting("kernel.msgmax", false), &node(), &[], None);
    let refuse = |message: &'static str| Some(("SysctlForbidden", message));
    check(
        &setting("kernel.sem", false),
        &node(),
        &[],
        refuse("forbidden sysctl: \"kernel.sem\" not allowlisted"),
    );
    let message = "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host net enabled";
    check(&setting("net.ipv4.tcp_syncookies", true), &node(), &[], refuse(message));
    let message = "forbidden sysctl: \"kernel.msgmax\" not allowed with host ipc enabled";
    check(&setting("kernel.msgmax", true), &node(), &[], refuse(message));
}

#[test]
fn pods_for_another_system_are_refused() {
    let other = pod(serde_json::json!({"containers": [], "os": {"name": "windows"}}));
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    check(&other, &node(), &[], Some(("PodOSNotSupported", message)));
    let strict = pod(
        serde_json::json!({"containers": [], "securityContext": {"supplementalGroupsPolicy": "Strict"}}),
    );
    let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
    check(&strict, &node(), &[], Some(("SupplementalGroupsPolicyNotSupported", message)));
}

#[test]
fn what_the_node_does_not_declare_is_not_promised() {
    let rules = serde_json::json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
    let restarting = pod(
        serde_json::json!({"containers": [{"name": "c", "restartPolicy": "Never", "restartPolicyRules": rules}]}),
    );
    let mapped =
        pod(serde_json::json!({"containers": [], "hostNetwork": true, "hostUsers": false}));
    for (pod, feature) in [
        (&restarting, "RestartAllContainersOnContainerExits"),
        (&mapped, "UserNamespacesHostNetworkSupport"),
    ] {
        let message = format!("Pod requires node features that are not available: {feature}");
        let refused = Some(("PodFeatureUnsupported", message.as_str()));
        check(pod, &node(), &[], refused);
        let mut able = node();
        let settings = Arc::make_mut(&mut able.settings);
        settings.declared_features = vec![feature.to_owned()];
        check(pod, &able, &[], None);
    }
}

#[test]
fn resources_of_the_whole_pod_are_refused_where_the_gate_is_closed() {
    let whole =
        pod(serde_json::json!({"containers": [], "resources": {"limits": {"memory": "1Mi"}}}));
    check(&whole, &node(), &[], None);
    let mut closed = node();
    Arc::make_mut(&mut closed.settings).has_pod_level_resources = false;
    let refused = ("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled");
    check(&whole, &closed, &[], Some(refused));
    let plain = pod(serde_json::json!({"containers": [], "resources": {}}));
    check(&plain, &closed, &[], None);
}

/// An update that needs a feature which the node does not declare.
#[test]
fn an_update_that_the_node_cannot_do_names_the_missing_features() {
    let whole = |cpu: &str| {
        pod(
            serde_json::json!({"resources": {"limits": {"cpu": cpu}}, "containers": [{"name": "c"}]}),
        )
    };
    let first = |cpu: &str, policy: Option<&str>| {
        let resources = serde_json::json!({"limits": {"cpu": cpu}});
        let first =
            serde_json::json!({"name": "i", "restartPolicy": policy, "resources": resources});
        pod(serde_json::json!({"initContainers": [first], "containers": [{"name": "c"}]}))
    };
    let volume = |medium: &str, size: &str| {
        let volume =
            serde_json::json!({"name": "v", "emptyDir": {"medium": medium, "sizeLimit": size}});
        pod(serde_json::json!({"volumes": [volume], "containers": [{"name": "c"}]}))
    };
    for (old, new, needed) in [
        (whole("1"), whole("1000m"), None),
        (whole("1"), whole("2"), Some("InPlacePodLevelResourcesVerticalScaling")),
        (first("1", None), first("1", None), None),
        (first("1", Some("Always")), first("2", Some("Always")), None),
        (first("1", None), first("2", None), Some("InPlacePodVerticalScalingInitContainers")),
        (volume("", "1Mi"), volume("", "2Mi"), None),
        (volume("Memory", "1Mi"), volume("Memory", "1024Ki"), None),
        (
            volume("Memory", "1Mi"),
            volume("Memory", "2Mi"),
            Some("InPlacePodVerticalScalingMemoryBackedVolumes"),
        ),
    ] {
        let expected =
            needed.map(|name| format!("Pod requires node features that are not available: {name}"));
        assert_eq!(missing_for_update(&old, &new, &[]), expected);
        let declared: Vec<String> = needed.into_iter().map(str::to_owned).collect();
        assert_eq!(missing_for_update(&old, &new, &declared), None);
    }
}

/// AppArmor: validated at admission.
#[test]
fn who_wants_to_be_confined_runs_only_where_that_can_be_done() {
    let local = |name: &str| serde_json::json!({"type": "Localhost", "localhostProfile": name});
    let of_pod = |profile: serde_json::Value| {
        pod(
            serde_json::json!({"securityContext": {"appArmorProfile": profile}, "containers": [{"name": "c"}]}),
        )
    };
    let of_container = |list: &str, profile: serde_json::Value| {
        let confined =
            serde_json::json!({"name": "d", "securityContext": {"appArmorProfile": profile}});
        let mut spec = serde_json::json!({"containers": [{"name": "c"}]});
        match spec[list].as_array_mut() {
            Some(all) => all.push(confined),
            None => spec[list] = serde_json::json!([confined]),
        }
        pod(spec)
    };
    let annotated = |value: &str| {
        let mut pod = of_pod(serde_json::json!({"type": "Unconfined"}));
        let key = "container.apparmor.security.beta.kubernetes.io/c".to_owned();
        pod.metadata.annotations = Some([(key, value.to_owned())].into());
        pod
    };
    let none = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    let nameless = "Cannot enforce AppArmor: invalid empty AppArmor profile name";
    let mut able = node();
    able.facts.machine.as_mut().unwrap().has_apparmor = true;
    let default = serde_json::json!({"type": "RuntimeDefault"});
    let free = serde_json::json!({"type": "Unconfined"});
    for (pod, without, with) in [
        (of_pod(free.clone()), None, None),
        (of_pod(default.clone()), Some(none), None),
        (of_pod(local("p")), Some(none), None),
        (of_pod(local(" ")), Some(none), Some(nameless)),
        (of_container("containers", free), None, None),
        (of_container("containers", default.clone()), Some(none), None),
        (of_container("initContainers", default.clone()), Some(none), None),
        (of_container("ephemeralContainers", default), Some(none), None),
        (of_container("containers", local("")), Some(none), Some(nameless)),
        (annotated("unconfined"), None, None),
        (annotated("runtime/default"), Some(none), None),
        (annotated("localhost/"), Some(none), Some(nameless)),
        (annotated("localhost/p"), Some(none), None),
    ] {
        let refused = |message: Option<&'static str>| message.map(|it| ("AppArmor", it));
        check(&pod, &node(), &[], refused(without));
        check(&pod, &able, &[], refused(with));
    }
}

/// A machine that goes down takes nobody, for whatever reason it would refuse a pod besides.
#[test]
fn a_node_that_shuts_down_takes_nobody() {
    let mut node = node();
    let plain = pod(serde_json::json!({"containers": []}));
    assert_eq!(admit(&plain, &node, &[]), Ok(()));
    node.facts.shutdown_fault = Some("node is shutting down".to_owned());
    let refused = admit(&plain, &node, &[]).unwrap_err();
    assert_eq!(refused.reason, "NodeShutdown");
    assert_eq!(refused.message, "Pod was rejected as the node is shutting down.");
}

fn critical(requests: serde_json::Value) -> Pod {
    let mut pod = asking(requests);
    pod.spec.as_mut().unwrap().priority = Some(2_000_000_000);
    pod
}

fn named(name: &str, requests: serde_json::Value) -> Pod {
    let mut pod = asking(requests);
    pod.metadata.name = Some(name.to_owned());
    pod
}

/// Critical-pod preemption.
#[test]
fn a_critical_pod_that_lacks_room_alone_costs_others_their_place() {
    let (small, large) = (
        named("small", serde_json::json!({"cpu": "500m"})),
        named("large", serde_json::json!({"cpu": "1500m"})),
    );
    let others = [&small, &large];
    let place = admit_or_preempt(&critical(serde_json::json!({"cpu": "1"})), &node(), &others);
    let place = place.unwrap();
    assert_eq!((place.victims, place.missing.as_deref()), (vec![&large], Some("cpu")));
    let fits = admit_or_preempt(&critical(serde_json::json!({})), &node(), &others).unwrap();
    assert_eq!((fits.victims.len(), fits.missing), (0, None));
    // Others are refused as ever.
    let refused = admit_or_preempt(&asking(serde_json::json!({"cpu": "1"})), &node(), &others);
    assert_eq!(refused.unwrap_err().reason, "OutOfcpu");
    let refused = admit_or_preempt(&critical(serde_json::json!({"cpu": "9"})), &node(), &others);
    let message = "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 7000), ]";
    let expected = ("UnexpectedAdmissionError".to_owned(), message.to_owned());
    let refused = refused.unwrap_err();
    assert_eq!((refused.reason, refused.message), expected);
}

#[test]
fn nobody_goes_for_a_critical_pod_that_is_refused_anyway() {
    let taken = named("taken", serde_json::json!({"cpu": "2"}));
    let mut elsewhere = critical(serde_json::json!({"cpu": "1"}));
    elsewhere.spec.as_mut().unwrap().node_name = Some("other".to_owned());
    let refused = admit_or_preempt(&elsewhere, &node(), &[&taken]).unwrap_err();
    assert_eq!(refused.reason, "NodeName");
}
