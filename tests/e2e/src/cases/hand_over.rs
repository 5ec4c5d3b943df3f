//! A node changes its agent: from upstream's kubelet to the one under test and back, and no
//! container notices.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use ferrolet_lab::PodView;
use ferrolet_lab::wait::stays_true;
use serde_json::{Value, json};

use super::{cases, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    static_pods_pass_from_upstream_to_this_agent_and_back,
    static_pods_pass_from_this_agent_to_upstream_and_back,
    api_pods_pass_from_upstream_to_this_agent_and_back,
];

/// Pods that touch what an agent derives by itself: names, hashes, cgroups, mounts, variables.
fn pods() -> Vec<(&'static str, Value)> {
    let plain = pod("plain", &[sleeper("main"), sleeper("side")]);
    let rich = with(
        pod(
            "rich",
            &[with(
                sleeper("main"),
                json!({
                    "env": [
                        {"name": "WHO", "value": "me"},
                        {"name": "GREETING", "value": "hello $(WHO)"},
                        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    ],
                    "ports": [{"containerPort": 8080, "name": "http"}],
                    "resources": {"limits": {"cpu": "100m", "memory": "32Mi"}},
                    "workingDir": "/tmp",
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }),
            )],
        ),
        json!({
            "metadata": {"labels": {"app": "rich"}, "annotations": {"note": "kept"}},
            "spec": {
                "initContainers": [script("before", "echo first")],
                "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
            },
        }),
    );
    let host = with(
        pod("host", &[sleeper("main")]),
        json!({"spec": {"hostNetwork": true, "restartPolicy": "OnFailure"}}),
    );
    vec![("plain", plain), ("rich", rich), ("host", host)]
}

fn api_pods_pass_from_upstream_to_this_agent_and_back(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let upstream = context.control_plane()?.binary("kubelet");
    let ours = context.options.agent.clone();
    let mut options = context.node_options();
    options.agent.clone_from(&upstream);
    let mut world = World::start_with(context, options)?;
    world.apply(&world.object("ConfigMap", "settings", json!({"data": {"a": "b"}})))?;
    let look = |world: &mut World<'_>, context: &mut Context<'_>| -> Result<Picture> {
        picture(context, |name| world.wait_ready(name))
    };
    for (_, pod) in pods() {
        let mut pod = with(
            pod,
            json!({
                "metadata": {"namespace": world.namespace},
                "spec": {
                    "nodeName": world.node_name(),
                    "volumes": [
                        {"name": "empty", "emptyDir": {}},
                        {"name": "settings", "configMap": {"name": "settings"}},
                    ],
                },
            }),
        );
        pod["spec"]["containers"][0]["volumeMounts"] = json!([
            {"name": "empty", "mountPath": "/empty"},
            {"name": "settings", "mountPath": "/settings"},
        ]);
        world.apply(&pod)?;
    }
    let first = look(&mut world, context)?;
    for agent in [&ours, &upstream] {
        world.node.node.stop()?;
        world.node.node.switch_agent(agent)?;
        world.node.node.launch()?;
        world.node.node.wait_healthy()?;
        stays_true("the same containers", Duration::from_secs(8), || {
            let now = look(&mut world, context)?;
            ensure!(
                now == first,
                "under {} there is {now:#?}\nbut first there was {first:#?}",
                agent.display()
            );
            Ok(true)
        })?;
    }
    Ok(Outcome::Passed)
}

/// What must not change: every container's id and start, and the processes behind them.
#[derive(Debug, PartialEq, Eq)]
struct Picture {
    containers: Vec<(String, String, String)>,
    tasks: Vec<(String, u32)>,
}

fn picture(
    context: &mut Context<'_>,
    mut wait: impl FnMut(&str) -> Result<PodView>,
) -> Result<Picture> {
    let mut containers = Vec::new();
    for (name, _) in pods() {
        let seen = wait(name)?;
        ensure!(seen.restarts() == 0, "{name} was restarted");
        for it in seen.containers().iter().filter(|it| it.is_running()) {
            containers.push((
                seen.uid().to_owned(),
                it.id().to_owned(),
                it.started_at().to_owned(),
            ));
        }
    }
    Ok(Picture { containers, tasks: context.containerd()?.tasks()? })
}

fn static_pods_pass_from_upstream_to_this_agent_and_back(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let upstream = context.control_plane()?.binary("kubelet");
    let ours = context.options.agent.clone();
    pass_around(context, &[upstream.clone(), ours, upstream])
}

fn static_pods_pass_from_this_agent_to_upstream_and_back(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let upstream = context.control_plane()?.binary("kubelet");
    let ours = context.options.agent.clone();
    pass_around(context, &[ours.clone(), upstream, ours])
}

/// Starts pods under the first agent and hands them on from one to the next.
fn pass_around(context: &mut Context<'_>, agents: &[PathBuf]) -> Result<Outcome> {
    let mut options = context.node_options();
    options.agent.clone_from(&agents[0]);
    let mut node = context.prepare(options)?;
    for (_, pod) in pods() {
        node.put_pod(&pod)?;
    }
    node.launch()?;
    node.wait_healthy()?;
    let first = picture(context, |name| wait_running(&mut node, name))?;
    for agent in &agents[1..] {
        node.stop()?;
        node.switch_agent(agent)?;
        node.launch()?;
        node.wait_healthy()?;
        stays_true("the same containers", Duration::from_secs(6), || {
            let now = picture(context, |name| wait_running(&mut node, name))?;
            ensure!(
                now == first,
                "under {} there is {now:#?}\nbut first there was {first:#?}",
                agent.display()
            );
            Ok(true)
        })?;
    }
    Ok(Outcome::Passed)
}
