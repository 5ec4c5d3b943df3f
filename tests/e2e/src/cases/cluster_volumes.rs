//! What an API pod sees inside: its service account, volumes and environment.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{LATER, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_pod_can_read_its_service_account,
    volumes_of_every_simple_kind_are_there,
    a_changed_config_map_and_secret_reach_a_running_pod,
    changes_are_noticed_without_a_watch_too,
    the_environment_comes_from_maps_secrets_and_fields,
    services_are_in_the_environment,
    a_missing_config_map_holds_the_pod_until_it_comes,
    a_missing_key_in_the_environment_is_an_error_that_heals,
];

const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn a_pod_can_read_its_service_account(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    // Not root: the files must be readable for whoever the container is.
    let pod = with(
        world.pod("account", &[sleeper("main")]),
        json!({"spec": {"securityContext": {"runAsUser": 1000}}}),
    );
    let seen = world.run(&pod)?;
    let containerd = context.containerd()?;
    let read = |file: &str| world.read_inside(containerd, &seen, &format!("{ACCOUNT}/{file}"));
    ensure!(read("namespace")? == world.namespace, "the namespace is wrong");
    ensure!(read("ca.crt")?.contains("BEGIN CERTIFICATE"), "no certificate");
    let token = read("token")?;
    ensure!(token.split('.').count() == 3, "the token is {token:?}");
    // The API server knows the bearer.
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    });
    let said =
        world.cluster.kubectl_with(&["create", "--output=json", "-f", "-"], &review.to_string())?;
    let user = format!("system:serviceaccount:{}:default", world.namespace);
    ensure!(said.contains(&user), "the token is of {said}");
    Ok(Outcome::Passed)
}

fn volumes_of_every_simple_kind_are_there(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    world.apply(&world.object(
        "ConfigMap",
        "settings",
        json!({"data": {"a": "one", "b": "two"}}),
    ))?;
    world.apply(&world.object(
        "Secret",
        "keys",
        json!({"stringData": {"user": "me", "word": "hush"}}),
    ))?;
    let outside = world.node.node.directory().join("outside");
    std::fs::create_dir_all(&outside)?;
    std::fs::write(outside.join("file"), "from outside")?;
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    let text = "echo shared > /empty/file; echo back > /host/answer; exec sleep 100000";
    let names = ["empty", "memory", "settings", "keys", "down", "host", "all"];
    let mut main = script("main", text);
    main["volumeMounts"] = names.iter().map(|name| mount(name)).collect();
    main["volumeMounts"]
        .as_array_mut()
        .expect("just made")
        .push(json!({"name": "settings", "mountPath": "/etc/single", "subPath": "b"}));
    main["resources"] = json!({"limits": {"memory": "64Mi"}});
    let pod = with(
        world.pod("volumes", &[main]),
        json!({
            "metadata": {"labels": {"app": "volumes"}, "annotations": {"note": "hello"}},
            "spec": {
                "volumes": [
                    {"name": "empty", "emptyDir": {}},
                    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                    {"name": "settings", "configMap": {"name": "settings"}},
                    {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 256,
                        "items": [{"key": "word", "path": "deep/word"}]}},
                    {"name": "down", "downwardAPI": {"items": [
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                        {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory"}},
                    ]}},
                    {"name": "host", "hostPath": {"path": outside, "type": "Directory"}},
                    {"name": "all", "projected": {"sources": [
                        {"configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
                        {"secret": {"name": "keys", "items": [{"key": "user", "path": "user"}]}},
                        {"downwardAPI": {"items": [{"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}}]}},
                        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600, "audience": "lab"}},
                    ]}},
                ],
            },
        }),
    );
    let seen = world.run(&pod)?;
    let containerd = context.containerd()?;
    let read = |file: &str| world.read_inside(containerd, &seen, file);
    for (file, expected) in [
        ("/empty/file", "shared\n"),
        ("/settings/a", "one"),
        ("/settings/b", "two"),
        ("/etc/single", "two"),
        ("/keys/deep/word", "hush"),
        ("/down/name", "volumes"),
        ("/down/labels", "app=\"volumes\""),
        ("/down/memory", "67108864"),
        ("/host/file", "from outside"),
        ("/all/a", "one"),
        ("/all/user", "me"),
        ("/all/note", "hello"),
    ] {
        let found = read(file)?;
        ensure!(found == expected, "{file} is {found:?}");
    }
    ensure!(read("/all/token")?.split('.').count() == 3, "no token");
    let mounts = read("/proc/mounts")?;
    let memory = mounts.lines().find(|line| line.contains(" /memory "));
    ensure!(memory.is_some_and(|line| line.starts_with("tmpfs")), "{memory:?}");
    ensure!(
        std::fs::read_to_string(outside.join("answer"))? == "back\n",
        "the pod's file is not on the host"
    );
    // Everything is unmounted and removed with the pod, but not what is the host's.
    world.kubectl(&["delete", "pod", "volumes", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    let directory = crate::look::pod_directory(&world.node.node, &seen);
    world.node.node.wait("its directory to be gone", super::GONE, |_| {
        Ok((!directory.exists()).then_some(()))
    })?;
    ensure!(outside.join("file").exists(), "the host's file is gone");
    let refused = world.cluster.refusals(world.node_name())?;
    ensure!(refused.is_empty(), "the API server refused {refused:#?}");
    Ok(Outcome::Passed)
}

fn a_changed_config_map_and_secret_reach_a_running_pod(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    changes_reach_a_pod(context, "Watch")
}

fn changes_are_noticed_without_a_watch_too(context: &mut Context<'_>) -> Result<Outcome> {
    for strategy in ["Get", "Cache"] {
        changes_reach_a_pod(context, strategy).with_context(|| format!("strategy {strategy}"))?;
    }
    Ok(Outcome::Passed)
}

/// How the node learns of changes is its own business; that they arrive is not.
fn changes_reach_a_pod(context: &mut Context<'_>, strategy: &str) -> Result<Outcome> {
    let mut options = context.node_options();
    // Upstream looks at a settled pod only this often.
    options.configuration = json!({
        "syncFrequency": "4s",
        "configMapAndSecretChangeDetectionStrategy": strategy,
    });
    let mut world = World::start_with(context, options)?;
    let settings =
        |value: &str| world.object("ConfigMap", "changing", json!({"data": {"a": value}}));
    let keys =
        |value: &str| world.object("Secret", "changing", json!({"stringData": {"a": value}}));
    let (first, second) = (settings("one"), settings("two"));
    let (first_key, second_key) = (keys("one"), keys("two"));
    world.apply(&first)?;
    world.apply(&first_key)?;
    let mut main = sleeper("main");
    main["volumeMounts"] = json!([
        {"name": "settings", "mountPath": "/settings"},
        {"name": "keys", "mountPath": "/keys"},
        {"name": "down", "mountPath": "/down"},
    ]);
    let pod = with(
        world.pod("watcher", &[main]),
        json!({
            "metadata": {"annotations": {"note": "one"}},
            "spec": {"volumes": [
                {"name": "settings", "configMap": {"name": "changing"}},
                {"name": "keys", "secret": {"secretName": "changing"}},
                {"name": "down", "downwardAPI": {"items": [
                    {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
                ]}},
            ]},
        }),
    );
    let seen = world.run(&pod)?;
    world.apply(&second)?;
    world.apply(&second_key)?;
    world.kubectl(&["annotate", "--overwrite", "pod", "watcher", "note=two"])?;
    let containerd = context.containerd()?;
    for file in ["/settings/a", "/keys/a", "/down/note"] {
        world.cluster.wait(&format!("the new {file}"), LATER, |_| {
            let found = world.read_inside(containerd, &seen, file)?;
            ensure!(found == "two", "it is {found:?}");
            Ok(Some(()))
        })?;
    }
    ensure!(world.wait_ready("watcher")?.restarts() == 0, "it was restarted");
    check_strategy(&world, strategy)?;
    world.kubectl(&["delete", "pod", "watcher", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    Ok(Outcome::Passed)
}

/// What the API server was asked: one strategy watches each object, the others read it again and
/// again.
fn check_strategy(world: &World<'_>, strategy: &str) -> Result<()> {
    for kind in ["configmaps", "secrets"] {
        let place = format!("/namespaces/{}/{kind}", world.namespace);
        let asked = world.cluster.asked_by(world.node_name())?;
        let count = |verb: &str| {
            let alike = asked.iter();
            let alike = alike.filter(|it| it.verb == verb && it.uri.contains(&place));
            alike.filter(|it| it.uri.contains("changing")).count()
        };
        let (n_watches, n_reads) = (count("watch"), count("get"));
        let is_so = match strategy {
            "Watch" => n_watches > 0 && n_reads == 0,
            _ => n_watches == 0 && n_reads > 1,
        };
        ensure!(is_so, "{strategy}: {n_watches} watches and {n_reads} reads of {kind}");
    }
    Ok(())
}

fn the_environment_comes_from_maps_secrets_and_fields(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let node_ip = context.bench.node_ip();
    let mut world = World::start(context)?;
    world.apply(&world.object(
        "ConfigMap",
        "settings",
        json!({"data": {"COLOR": "blue", "SIZE": "big"}}),
    ))?;
    world.apply(&world.object("Secret", "keys", json!({"stringData": {"WORD": "hush"}})))?;
    let main = with(
        script("main", "env; exec sleep 100000"),
        json!({
            "envFrom": [
                {"prefix": "P_", "configMapRef": {"name": "settings"}},
                {"secretRef": {"name": "keys"}},
                {"configMapRef": {"name": "nowhere", "optional": true}},
            ],
            "env": [
                {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "COLOR"}}},
                {"name": "TWO", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "WORD"}}},
                {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "LOST", "optional": true}}},
                {"name": "BOTH", "value": "$(ONE) and $(TWO)"},
                {"name": "MY_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "MY_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": "MY_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                {"name": "MY_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "MY_ACCOUNT", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
                {"name": "MY_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
                {"name": "MY_LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                {"name": "MY_MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            ],
            "resources": {"limits": {"memory": "64Mi"}},
        }),
    );
    let pod = with(world.pod("envy", &[main]), json!({"metadata": {"labels": {"app": "envy"}}}));
    let seen = world.run(&pod)?;
    let lines = world.settled_log(&seen, "main")?;
    for expected in [
        "P_COLOR=blue".to_owned(),
        "P_SIZE=big".to_owned(),
        "WORD=hush".to_owned(),
        "ONE=blue".to_owned(),
        "TWO=hush".to_owned(),
        "BOTH=blue and hush".to_owned(),
        "MY_POD=envy".to_owned(),
        format!("MY_NAMESPACE={}", world.namespace),
        format!("MY_UID={}", seen.uid()),
        format!("MY_NODE={}", world.node_name()),
        "MY_ACCOUNT=default".to_owned(),
        format!("MY_IP={}", seen.ip().unwrap_or_default()),
        format!("HOST_IP={node_ip}"),
        "MY_LABEL=envy".to_owned(),
        "MY_MEMORY=64".to_owned(),
    ] {
        ensure!(lines.contains(&expected), "no {expected} in {lines:#?}");
    }
    ensure!(
        !lines.iter().any(|line| line.starts_with("NONE=")),
        "an optional key that is missing is set"
    );
    Ok(Outcome::Passed)
}

fn services_are_in_the_environment(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    world.apply(&world.object(
        "Service",
        "front-end",
        json!({"spec": {"selector": {"app": "x"}, "ports": [{"name": "web", "port": 80}]}}),
    ))?;
    let show = [script("main", "env; exec sleep 100000")];
    // The agent learns of services through a watch of its own; pods that start later must have
    // them.
    let service =
        world.cluster.get(&format!("/api/v1/namespaces/{}/services/front-end", world.namespace))?;
    let ip = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    let mut number = 0;
    let lines = world.cluster.wait("the service's variables", LATER, |cluster| {
        number += 1;
        let name = format!("envy-{number}");
        cluster.apply(&world.pod(&name, &show))?;
        let path = format!("/api/v1/namespaces/{}/pods/{name}", world.namespace);
        let lines = cluster.wait("the pod's output", LATER, |cluster| {
            let pod = ferrolet_lab::PodView(cluster.get(&path)?);
            let lines = world.log_lines(&pod, "main")?;
            Ok((lines.len() > 5).then_some(lines))
        })?;
        Ok(lines.iter().any(|line| line.starts_with("FRONT_END_")).then_some(lines))
    })?;
    for expected in [
        format!("FRONT_END_SERVICE_HOST={ip}"),
        "FRONT_END_SERVICE_PORT=80".to_owned(),
        "FRONT_END_SERVICE_PORT_WEB=80".to_owned(),
        format!("FRONT_END_PORT=tcp://{ip}:80"),
        format!("FRONT_END_PORT_80_TCP_ADDR={ip}"),
        "KUBERNETES_SERVICE_PORT_HTTPS=443".to_owned(),
    ] {
        ensure!(lines.contains(&expected), "no {expected} in {lines:#?}");
    }
    let quiet = with(world.pod("quiet", &show), json!({"spec": {"enableServiceLinks": false}}));
    let seen = world.run(&quiet)?;
    let lines = world.settled_log(&seen, "main")?;
    ensure!(
        !lines.iter().any(|line| line.starts_with("FRONT_END_"))
            && lines.iter().any(|line| line.starts_with("KUBERNETES_SERVICE_HOST=")),
        "without links it has {lines:#?}"
    );
    Ok(Outcome::Passed)
}

fn a_missing_config_map_holds_the_pod_until_it_comes(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let mut main = sleeper("main");
    main["volumeMounts"] = json!([{"name": "late", "mountPath": "/late"}]);
    let pod = with(
        world.pod("patient", &[main]),
        json!({"spec": {"volumes": [{"name": "late", "configMap": {"name": "late"}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_known("patient")?;
    let said = world.wait_event(&seen, "FailedMount")?;
    ensure!(
        said.contains("MountVolume.SetUp failed for volume \"late\"")
            && said.contains("configmap \"late\" not found"),
        "it says {said:?}"
    );
    let waiting = world.find_pod("patient")?.map(|pod| pod.container("main")).transpose()?;
    let reason = waiting.as_ref().and_then(|it| it.waiting_reason());
    ensure!(reason == Some("ContainerCreating"), "it waits for {reason:?}");
    world.apply(&world.object("ConfigMap", "late", json!({"data": {"a": "b"}})))?;
    world.wait_ready_later("patient")?;
    Ok(Outcome::Passed)
}

fn a_missing_key_in_the_environment_is_an_error_that_heals(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"syncFrequency": "5s"});
    let mut world = World::start_with(context, options)?;
    let main = with(
        sleeper("main"),
        json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "a"}}}]}),
    );
    world.apply(&world.pod("keyless", &[main]))?;
    let seen = world.wait_pod("keyless", "CreateContainerConfigError", LATER, |pod| {
        pod.container("main")
            .is_ok_and(|it| it.waiting_reason() == Some("CreateContainerConfigError"))
    })?;
    let said = seen.container("main")?.waiting_message().unwrap_or_default().to_owned();
    ensure!(said == "configmap \"later\" not found", "it says {said:?}");
    world.apply(&world.object("ConfigMap", "later", json!({"data": {"a": "b"}})))?;
    world.wait_ready_later("keyless")?;
    Ok(Outcome::Passed)
}
