//! Rules of a pod's life that show best on a cluster: restart rules, environment files, hooks,
//! users, ephemeral containers.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_rule_about_an_exit_code_stands_above_the_policies,
    an_exit_can_restart_every_container_of_its_pod_in_place,
    the_environment_comes_from_a_file_that_an_init_container_wrote,
    an_ephemeral_container_sees_the_processes_of_its_target,
    names_of_hosts_are_as_the_pod_says,
    the_nodes_resolver_is_checked_once_and_read_for_each_pod,
    hooks_take_their_share_of_the_grace,
    a_failing_hook_after_the_start_is_told_and_tried_again,
    a_grace_shortened_while_stopping_is_obeyed,
    a_failing_liveness_probe_has_a_grace_of_its_own,
    a_burst_of_burstable_pods_weighs_together,
];

fn rule(action: &str, code: i32) -> Value {
    json!({"restartPolicy": "Never", "restartPolicyRules": [
        {"action": action, "exitCodes": {"operator": "In", "values": [code]}}]})
}

fn a_rule_about_an_exit_code_stands_above_the_policies(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    // Ends with 42 the first time, then with 1.
    let text = "[ -e /shared/again ] && exit 1; touch /shared/again; exit 42";
    let shared = json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
    let ruled = with(with(script("ruled", text), rule("Restart", 42)), shared);
    let pod = with(
        world.pod("web", &[ruled, sleeper("other")]),
        json!({"spec": {"restartPolicy": "Never", "volumes": [{"name": "shared", "emptyDir": {}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_pod("web", "ruled to have ended", LATER, |pod| {
        pod.container("ruled").is_ok_and(|it| it.0["state"]["terminated"]["exitCode"] == 1)
    })?;
    let ruled = seen.container("ruled")?;
    ensure!(
        ruled.restarts() == 1 && ruled.0["lastState"]["terminated"]["exitCode"] == 42,
        "{}",
        ruled.0
    );
    ensure!(
        seen.phase() == "Running" && seen.container("other")?.restarts() == 0,
        "{}",
        seen.0["status"]
    );
    Ok(Outcome::Passed)
}

fn an_exit_can_restart_every_container_of_its_pod_in_place(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let mount = json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
    let text = "[ -e /shared/again ] && exec sleep 100000; touch /shared/again; sleep 1; exit 42";
    let source =
        with(with(script("source", text), rule("RestartAllContainers", 42)), mount.clone());
    let first = with(script("first", "echo ran >> /shared/first"), mount.clone());
    let other = with(sleeper("other"), mount);
    let pod = with(
        world.pod("web", &[source, other]),
        json!({"spec": {"restartPolicy": "Never", "initContainers": [first],
                        "volumes": [{"name": "shared", "emptyDir": {}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_pod("web", "everything to run again", LATER, |pod| {
        ["source", "other"]
            .iter()
            .all(|name| pod.container(name).is_ok_and(|it| it.restarts() == 1 && it.is_running()))
            && pod.condition("AllContainersRestarting") == Some("False")
    })?;
    let other = seen.container("other")?;
    ensure!(
        other.0["lastState"]["terminated"]["reason"] == "RestartingAllContainers",
        "{}",
        other.0
    );
    let containerd = context.containerd()?;
    let ran = world.read_inside(containerd, &seen, "/shared/first")?;
    ensure!(ran == "ran\nran\n", "the init container left {ran:?}");
    Ok(Outcome::Passed)
}

fn the_environment_comes_from_a_file_that_an_init_container_wrote(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let write = with(
        script("write", "echo \"COLOUR='blue'\" > /out/env; ln -s /etc/passwd /out/link"),
        json!({"volumeMounts": [{"name": "out", "mountPath": "/out"}]}),
    );
    let from = |name: &str, path: &str, key: &str, optional: bool| {
        json!({"name": name, "valueFrom": {"fileKeyRef":
            {"volumeName": "out", "path": path, "key": key, "optional": optional}}})
    };
    let show = "echo colour=$COLOUR none=${NONE-unset}; exec sleep 100000";
    let volumes = json!({"initContainers": [write], "volumes": [{"name": "out", "emptyDir": {}}]});
    let good = with(
        script("main", show),
        json!({"env": [from("COLOUR", "env", "COLOUR", false), from("NONE", "env", "NONE", true)]}),
    );
    let pod = with(world.pod("good", &[good]), json!({"spec": volumes}));
    let seen = world.run(&pod)?;
    let lines = world.settled_log(&seen, "main")?;
    ensure!(lines == ["colour=blue none=unset"], "it says {lines:?}");
    // A link out of the volume is not followed, and a missing key is named.
    for (name, path, key, why) in [
        ("linked", "link", "root", "couldn't parse env file"),
        ("keyless", "env", "SIZE", "environment variable key \"SIZE\" not found in file"),
    ] {
        let bad = with(script("main", show), json!({"env": [from("X", path, key, false)]}));
        let pod = with(world.pod(name, &[bad]), json!({"spec": volumes}));
        world.apply(&pod)?;
        world.wait_pod(name, "to say why it waits", SOON, |pod| {
            pod.container("main").is_ok_and(|it| {
                let waiting = &it.0["state"]["waiting"];
                waiting["reason"] == "CreateContainerConfigError"
                    && waiting["message"].as_str().is_some_and(|it| it.starts_with(why))
            })
        })?;
    }
    Ok(Outcome::Passed)
}

fn an_ephemeral_container_sees_the_processes_of_its_target(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("web", &[script("main", "exec sleep 54321")]);
    world.run(&pod)?;
    let image = ferrolet_lab::image::BUSYBOX;
    world.kubectl(&[
        "debug",
        "web",
        "--image",
        image,
        "--image-pull-policy=IfNotPresent",
        "--container=look",
        "--target=main",
        "--",
        "sh",
        "-c",
        "ps | grep -c '[s]leep 54321'",
    ])?;
    let seen = world.wait_pod("web", "the look to be over", SOON, |pod| {
        pod.0["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"].is_object()
    })?;
    let lines = world.settled_log(&seen, "look")?;
    ensure!(lines == ["1"], "it sees {lines:?}");
    ensure!(seen.container("main")?.restarts() == 0, "main restarted");
    Ok(Outcome::Passed)
}

fn names_of_hosts_are_as_the_pod_says(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let namespace = world.namespace.clone();
    let pod = with(
        world.pod("web", &[script("main", "hostname; grep -v '^#' /etc/hosts; exec sleep 100000")]),
        json!({"spec": {"hostname": "front", "subdomain": "shop", "setHostnameAsFQDN": true,
            "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["a.example", "b.example"]}],
            "dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"], "searches": ["x.example"],
                "options": [{"name": "ndots", "value": "2"}]}}}),
    );
    let seen = world.run(&pod)?;
    let ip = seen.ip().context("no address")?.to_owned();
    let lines = world.settled_log(&seen, "main")?;
    let full = format!("front.shop.{namespace}.svc.cluster.local");
    ensure!(lines[0] == full, "its name is {:?}", lines[0]);
    let own = format!("{ip}\t{full}\tfront");
    for line in [own.as_str(), "192.0.2.7\ta.example\tb.example"] {
        ensure!(lines.iter().any(|it| it == line), "no {line:?} in {lines:#?}");
    }
    let containerd = context.containerd()?;
    let resolver = world.read_inside(containerd, &seen, "/etc/resolv.conf")?;
    ensure!(resolver == "search x.example\nnameserver 192.0.2.53\noptions ndots:2\n", "{resolver}");
    Ok(Outcome::Passed)
}

fn the_nodes_resolver_is_checked_once_and_read_for_each_pod(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    let directory = context.bench.directory(&format!("resolver-{}", options.name))?;
    let file = directory.join("resolv.conf");
    // More domains than pods can have: three places are the cluster's.
    let searches: Vec<String> = (0..30).map(|n| format!("d{n}.test")).collect();
    let text = format!("nameserver 192.0.2.1\nsearch {}\n", searches.join(" "));
    fs::write(&file, text)?;
    options.configuration = json!({"resolvConf": file});
    let mut world = World::start_with(context, options)?;
    let (cluster, node) = (world.cluster, world.node_name().to_owned());
    let path = format!(
        "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{node},reason%3DCheckLimitsForResolvConf"
    );
    let said = cluster.wait("a word about the resolver", SOON, |cluster| {
        let events = cluster.get(&path)?;
        Ok(events["items"][0]["message"].as_str().map(str::to_owned))
    })?;
    let expected = format!(
        "Resolv.conf file '{}' contains search line consisting of more than 29 domains!",
        file.display()
    );
    ensure!(said == expected, "{said}");
    // Whoever edits the file reaches the next pod, and whoever removes it is waited for.
    let pod = |world: &World<'_>, name: &str| {
        let base = world.pod(name, &[sleeper("main")]);
        with(base, json!({"spec": {"dnsPolicy": "Default"}}))
    };
    for server in ["192.0.2.2", "192.0.2.3"] {
        let text = format!("nameserver {server}\n");
        fs::write(&file, &text)?;
        let name = format!("asks-{}", &server[8..]);
        let seen = world.run(&pod(&world, &name))?;
        let inside = world.read_inside(context.containerd()?, &seen, "/etc/resolv.conf")?;
        ensure!(inside == text, "{inside:?}, not {text:?}");
    }
    fs::remove_file(&file)?;
    world.apply(&pod(&world, "waits"))?;
    let seen = world.wait_known("waits")?;
    let said = world.wait_event(&seen, "FailedCreatePodSandBox")?;
    ensure!(said.contains("resolv.conf"), "{said}");
    fs::write(&file, "nameserver 192.0.2.4\n")?;
    world.wait_ready("waits")?;
    Ok(Outcome::Passed)
}

fn hooks_take_their_share_of_the_grace(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let stubborn = "trap '' TERM; while :; do sleep 0.1; done";
    let sleepy = with(
        script("main", stubborn),
        json!({"lifecycle": {"preStop": {"sleep": {"seconds": 2}}}}),
    );
    let pod =
        with(world.pod("slept", &[sleepy]), json!({"spec": {"terminationGracePeriodSeconds": 5}}));
    let seen = world.run(&pod)?;
    let began = Instant::now();
    world.kubectl(&["delete", "pod", "slept", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    let took = began.elapsed().as_secs_f64();
    // Two seconds of sleep and the three that are left, not two and five. How long it really takes
    // is the machine's affair: the runtime writes down what it was asked for, and a sleep that took
    // three seconds of a busy machine's time leaves two.
    let id = seen.container("main")?.id().to_owned();
    let log = fs::read_to_string(context.containerd()?.log())?;
    let asked = [3, 2].map(|left| format!("{id}\\\" with timeout {left} (s)"));
    ensure!(asked.iter().any(|it| log.contains(it)), "{asked:?}: {log}");
    ensure!(took > 3.9, "it took {took:.1} s");
    Ok(Outcome::Passed)
}

fn a_failing_hook_after_the_start_is_told_and_tried_again(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let hooked = with(
        sleeper("main"),
        json!({"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "echo no >&2; exit 3"]}}}}),
    );
    let pod = world.pod("web", &[hooked]);
    world.apply(&pod)?;
    let seen = world.wait_pod("web", "to be tried again", LATER, |pod| {
        pod.container("main").is_ok_and(|it| it.restarts() >= 1)
    })?;
    let message = world.wait_event(&seen, "FailedPostStartHook")?;
    ensure!(message == "PostStartHook failed", "{message}");
    world.wait_event(&seen, "Killing")?;
    Ok(Outcome::Passed)
}

fn a_grace_shortened_while_stopping_is_obeyed(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let stubborn = script("main", "trap '' TERM; while :; do sleep 0.1; done");
    let pod = with(
        world.pod("web", &[stubborn]),
        json!({"spec": {"terminationGracePeriodSeconds": 300}}),
    );
    let seen = world.run(&pod)?;
    world.kubectl(&["delete", "pod", "web", "--wait=false"])?;
    world.wait_event(&seen, "Killing")?;
    let began = Instant::now();
    world.kubectl(&["delete", "pod", "web", "--grace-period=3", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    // Of five minutes; more than three seconds are the machine's affair.
    let took = began.elapsed().as_secs_f64();
    ensure!(took < 120.0, "it took {took:.1} s");
    Ok(Outcome::Passed)
}

fn a_failing_liveness_probe_has_a_grace_of_its_own(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let probed = with(
        script("main", "trap '' TERM; while :; do sleep 0.1; done"),
        json!({"livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1,
            "failureThreshold": 1, "terminationGracePeriodSeconds": 2}}),
    );
    let pod =
        with(world.pod("web", &[probed]), json!({"spec": {"terminationGracePeriodSeconds": 300}}));
    world.apply(&pod)?;
    let seen = world.wait_pod("web", "a restart", SOON, |pod| {
        pod.container("main").is_ok_and(|it| it.restarts() >= 1)
    })?;
    let message = world.wait_event(&seen, "Killing")?;
    ensure!(message == "Container main failed liveness probe, will be restarted", "{message}");
    world.wait_event(&seen, "Unhealthy")?;
    world.kubectl(&["delete", "pod", "web", "--force", "--grace-period=0"])?;
    Ok(Outcome::Passed)
}

fn a_burst_of_burstable_pods_weighs_together(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    for name in ["one", "two"] {
        let asks = with(sleeper("main"), json!({"resources": {"requests": {"cpu": "250m"}}}));
        let pod = world.pod(name, &[asks]);
        world.run(&pod)?;
    }
    let (file, both, one) = if ferrolet_lab::cgroups::is_v2() {
        ("cpu.weight", "20", "10")
    } else {
        ("cpu.shares", "512", "256")
    };
    let group = format!("{}/kubepods/burstable", world.node.node.cgroup_root());
    let value = ferrolet_lab::cgroups::value(&group, file)?;
    ensure!(value == both, "{file} is {value}");
    let seen = world.find_pod("one")?.context("one is gone")?;
    world.kubectl(&["delete", "pod", "one"])?;
    world.wait_gone(&seen, SOON)?;
    world.node.node.wait("the class to weigh less", SOON, |_| {
        let value = ferrolet_lab::cgroups::value(&group, file)?;
        ensure!(value == one, "{file} is {value}");
        Ok(Some(()))
    })?;
    Ok(Outcome::Passed)
}
