//! Pods from the API server: they come, run, say so, and go.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{GONE, LATER, SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_scheduled_pod_runs_and_kubectl_tells_its_story,
    a_deleted_pod_gets_its_grace_and_leaves_nothing,
    a_pod_deleted_by_force_is_torn_down,
    a_pod_replaced_under_the_same_name_is_another_pod,
    pods_that_end_are_succeeded_or_failed_and_stay_so,
    a_pod_past_its_deadline_fails,
    a_readiness_gate_holds_ready_back,
    a_pod_waits_for_its_readiness_probe,
    changed_labels_and_images_reach_the_pod,
    a_missing_pull_secret_is_reported_and_does_not_stop_the_pod,
    a_repeated_event_is_counted_not_repeated,
];

fn a_scheduled_pod_runs_and_kubectl_tells_its_story(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let name = world.node_name().to_owned();
    let mut pod = world.pod("web", &[sleeper("main")]);
    pod["spec"]["nodeName"] = json!(null);
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": name});
    let seen = world.run(&pod)?;
    let subnet = context.containerd()?.subnet().to_owned();
    let ip = seen.ip().context("no address")?.to_owned();
    ensure!(ip.starts_with(&subnet), "{ip} is not in {subnet}");
    let status = &seen.0["status"];
    ensure!(
        status["podIPs"] == json!([{"ip": ip}])
            && status["hostIP"] == context.bench.node_ip().as_str()
            && status["qosClass"] == "BestEffort"
            && status["startTime"].is_string(),
        "its status is {status}"
    );
    for kind in
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    {
        ensure!(seen.condition(kind) == Some("True"), "{kind} in {status}");
    }
    let main = seen.container("main")?;
    ensure!(
        main.0["started"] == true && main.0["imageID"].as_str().is_some_and(|id| !id.is_empty()),
        "its container is {}",
        main.0
    );
    let wide = world.kubectl(&["get", "pod", "web", "--output=wide"])?;
    for word in ["1/1", "Running", &ip, &name] {
        ensure!(wide.contains(word), "no {word} in\n{wide}");
    }
    world.wait_event(&seen, "Started")?;
    let story = world.kubectl(&["describe", "pod", "web"])?;
    for word in ["Scheduled", "Pulled", "Created", "Started", "already present on machine"] {
        ensure!(story.contains(word), "no {word} in\n{story}");
    }
    let events = world.events(&seen)?;
    let ours = events.iter().filter(|it| it["source"]["component"] == "kubelet");
    for event in ours.clone() {
        ensure!(
            event["source"]["host"] == name.as_str()
                && event["involvedObject"]["fieldPath"] == "spec.containers{main}",
            "an event is {event}"
        );
    }
    ensure!(ours.count() == 3, "{:?}", world.event_reasons(&seen)?);
    world.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=10s"])?;
    let refused = world.cluster.refusals(&name)?;
    ensure!(refused.is_empty(), "the API server refused {refused:#?}");
    Ok(Outcome::Passed)
}

fn a_deleted_pod_gets_its_grace_and_leaves_nothing(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    // Takes its time on the polite signal, but less than it is given.
    let text = "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done";
    let pod = with(
        world.pod("slow", &[script("main", text)]),
        json!({"spec": {"terminationGracePeriodSeconds": 20}}),
    );
    let seen = world.run(&pod)?;
    let began = Instant::now();
    world.kubectl(&["delete", "pod", "slow", "--wait=false"])?;
    world.wait_pod("slow", "being deleted", SOON, |pod| {
        pod.0["metadata"]["deletionTimestamp"].is_string()
    })?;
    world.wait_gone(&seen, SOON)?;
    let took = began.elapsed().as_secs_f64();
    ensure!((1.9..12.0).contains(&took), "it took {took:.1} s");
    world.wait_event(&seen, "Killing")?;
    let containerd = context.containerd()?;
    world.node.node.wait("nothing to be left", GONE, |node| {
        look::ensure_gone(node, containerd, &seen).map(Some)
    })?;
    Ok(Outcome::Passed)
}

fn a_pod_deleted_by_force_is_torn_down(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("forced", &[sleeper("main")]);
    let seen = world.run(&pod)?;
    world.kubectl(&["delete", "pod", "forced", "--force", "--grace-period=0"])?;
    ensure!(world.find_pod("forced")?.is_none(), "the object is still there");
    let containerd = context.containerd()?;
    world.node.node.wait("nothing to be left", GONE, |node| {
        look::ensure_gone(node, containerd, &seen).map(Some)
    })?;
    Ok(Outcome::Passed)
}

fn a_pod_replaced_under_the_same_name_is_another_pod(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("same", &[sleeper("main")]);
    let first = world.run(&pod)?;
    // By force, so that the old pod is still being torn down when the new one comes.
    world.kubectl(&["delete", "pod", "same", "--force", "--grace-period=0"])?;
    let second = world.run(&pod)?;
    ensure!(first.uid() != second.uid(), "it is the same object");
    ensure!(
        first.container("main")?.id() != second.container("main")?.id(),
        "it is the same container"
    );
    let containerd = context.containerd()?;
    world.node.node.wait("nothing of the first", GONE, |node| {
        look::ensure_gone(node, containerd, &first).map(Some)
    })?;
    ensure!(world.wait_ready("same")?.restarts() == 0, "it was restarted");
    Ok(Outcome::Passed)
}

fn pods_that_end_are_succeeded_or_failed_and_stay_so(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    for (name, code, policy) in
        [("works", 0, "Never"), ("fails", 7, "Never"), ("once", 0, "OnFailure")]
    {
        let text = format!("exit {code}");
        world.apply(&with(
            world.pod(name, &[script("main", &text)]),
            json!({"spec": {"restartPolicy": policy}}),
        ))?;
    }
    let check = |world: &mut World<'_>| -> Result<()> {
        for (name, phase, code, reason) in [
            ("works", "Succeeded", 0, "Completed"),
            ("fails", "Failed", 7, "Error"),
            ("once", "Succeeded", 0, "Completed"),
        ] {
            let pod = world.wait_pod(name, phase, SOON, |pod| pod.phase() == phase)?;
            let main = pod.container("main")?;
            ensure!(
                main.exit_code() == Some(code) && main.terminated_reason() == Some(reason),
                "{name} is {}",
                pod.0["status"]
            );
            ensure!(pod.condition("Ready") == Some("False"), "{name} is Ready");
            let wanted = if phase == "Succeeded" { "PodCompleted" } else { "PodFailed" };
            let conditions = pod.0["status"]["conditions"].to_string();
            ensure!(conditions.contains(wanted), "no {wanted} in {conditions}");
        }
        Ok(())
    };
    check(&mut world)?;
    // Neither a restart of the agent nor time brings them back.
    world.node.node.kill()?;
    world.node.node.launch()?;
    world.node.node.wait_healthy()?;
    world.node.wait_ready(world.cluster)?;
    check(&mut world)?;
    let containers = context.containerd()?.tasks()?;
    ensure!(containers.is_empty(), "something runs: {containers:?}");
    let seen = world.find_pod("works")?.context("the pod is gone")?;
    world.kubectl(&["delete", "pod", "works", "fails", "once", "--wait=false"])?;
    world.wait_gone(&seen, SOON)?;
    Ok(Outcome::Passed)
}

fn a_pod_past_its_deadline_fails(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    world.apply(&with(
        world.pod("late", &[sleeper("main")]),
        json!({"spec": {"activeDeadlineSeconds": 4}}),
    ))?;
    let seen = world.wait_pod("late", "Failed", LATER, |pod| pod.phase() == "Failed")?;
    let status = &seen.0["status"];
    ensure!(
        status["reason"] == "DeadlineExceeded"
            && status["message"] == "Pod was active on the node longer than the specified deadline",
        "its status is {status}"
    );
    world.wait_event(&seen, "DeadlineExceeded")?;
    let (containerd, what) = (context.containerd()?, "its container to end");
    world.node.node.wait(what, SOON, |_| Ok(containerd.tasks()?.is_empty().then_some(())))?;
    Ok(Outcome::Passed)
}

fn a_readiness_gate_holds_ready_back(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    world.apply(&with(
        world.pod("gated", &[sleeper("main")]),
        json!({"spec": {"readinessGates": [{"conditionType": "lab.test/open"}]}}),
    ))?;
    let seen = world.wait_pod("gated", "ContainersReady", SOON, |pod| {
        pod.condition("ContainersReady") == Some("True")
    })?;
    ensure!(seen.condition("Ready") == Some("False"), "it is Ready");
    let conditions = seen.0["status"]["conditions"].to_string();
    ensure!(conditions.contains("ReadinessGatesNotReady"), "{conditions}");
    let patch = json!({"status": {"conditions": [{"type": "lab.test/open", "status": "True"}]}});
    world.kubectl(&[
        "patch",
        "pod",
        "gated",
        "--subresource=status",
        "--patch",
        &patch.to_string(),
    ])?;
    world.wait_ready("gated")?;
    Ok(Outcome::Passed)
}

fn a_pod_waits_for_its_readiness_probe(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let text = "sleep 3; touch /tmp/ready; exec sleep 100000";
    let pod = world.pod(
        "probed",
        &[with(
            script("main", text),
            json!({"readinessProbe": {
                "exec": {"command": ["test", "-e", "/tmp/ready"]},
                "periodSeconds": 1,
            }}),
        )],
    );
    world.apply(&pod)?;
    let running = world.wait_pod("probed", "Running", SOON, |pod| pod.phase() == "Running")?;
    ensure!(running.condition("Ready") == Some("False"), "it is Ready too early");
    world.wait_ready("probed")?;
    Ok(Outcome::Passed)
}

fn changed_labels_and_images_reach_the_pod(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("edited", &[sleeper("main"), sleeper("side")]);
    let before = world.run(&pod)?;
    world.kubectl(&["label", "pod", "edited", "tier=front"])?;
    // The same content under its digest-free short name is another image to Kubernetes: the
    // container restarts.
    world.kubectl(&["set", "image", "pod/edited", "main=busybox:latest"])?;
    let after = world.wait_pod("edited", "main restarted", LATER, |pod| {
        pod.container("main").is_ok_and(|it| it.restarts() == 1 && it.is_running())
    })?;
    ensure!(
        after.container("side")?.id() == before.container("side")?.id(),
        "the other container was restarted"
    );
    ensure!(after.uid() == before.uid(), "it is another pod");
    let generation = &after.0["metadata"]["generation"];
    let (cluster, node) = (world.cluster, &mut world.node.node);
    let path = format!("/api/v1/namespaces/{}/pods/edited", world.namespace);
    node.wait("the generation to be observed", SOON, |_| {
        let pod = cluster.get(&path)?;
        ensure!(pod["status"]["observedGeneration"] == *generation, "{}", pod["status"]);
        Ok(Some(()))
    })?;
    let said = node.pods()?;
    let known = said.iter().find(|it| it.uid() == after.uid()).context("/pods lacks it")?;
    ensure!(known.0["metadata"]["labels"]["tier"] == "front", "{}", known.0["metadata"]);
    Ok(Outcome::Passed)
}

fn a_missing_pull_secret_is_reported_and_does_not_stop_the_pod(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = with(
        world.pod("secretive", &[sleeper("main")]),
        json!({"spec": {"imagePullSecrets": [{"name": "nowhere"}]}}),
    );
    world.run(&pod)?;
    // Nobody listens there: only a pull that fails makes the secret worth a word.
    let absent = with(sleeper("main"), json!({"image": "127.0.0.1:1/absent:1"}));
    let pod = with(
        world.pod("pulling", &[absent]),
        json!({"spec": {"imagePullSecrets": [{"name": "nowhere"}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_pod("pulling", "waiting for its image", LATER, |pod| {
        pod.container("main").is_ok_and(|it| {
            matches!(it.waiting_reason(), Some("ErrImagePull" | "ImagePullBackOff"))
        })
    })?;
    let said = world.wait_event(&seen, "FailedToRetrieveImagePullSecret")?;
    ensure!(
        said == "Unable to retrieve some image pull secrets (nowhere); attempting to pull the image may not succeed.",
        "it says {said:?}"
    );
    Ok(Outcome::Passed)
}

fn a_repeated_event_is_counted_not_repeated(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    world.apply(&world.pod("crash", &[script("main", "exit 1")]))?;
    let seen = world.wait_pod("crash", "two restarts", LATER, |pod| pod.restarts() >= 2)?;
    world.cluster.wait("counted events", LATER, |_| {
        let events = world.events(&seen)?;
        for reason in ["Created", "Started", "BackOff"] {
            let alike: Vec<_> = events.iter().filter(|it| it["reason"] == reason).collect();
            ensure!(
                alike.len() == 1 && alike[0]["count"].as_u64() >= Some(2),
                "{reason}: {alike:#?}"
            );
        }
        Ok(Some(()))
    })?;
    Ok(Outcome::Passed)
}
