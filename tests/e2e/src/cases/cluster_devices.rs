//! Devices of a plugin: a real one, in a process of its own (`tests/device-plugin`).

use std::path::PathBuf;
use std::process::{Child, Command};

use anyhow::{Result, ensure};
use ferrolet_lab::wait::wait_until;
use ferrolet_lab::{Part, PodView};
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_pod_gets_a_device_and_keeps_it_over_restarts_of_agent_and_plugin,
    a_container_waits_for_its_plugin_after_a_restart_and_gets_the_same_device,
];

const RESOURCE: &str = "example.com/device";

/// A plugin process that goes with the test.
struct Plugin {
    program: PathBuf,
    state: PathBuf,
    sockets: PathBuf,
    process: Option<Child>,
}

impl Plugin {
    /// Starts it; `None` where it cannot be built.
    fn start(context: &Context<'_>, world: &World<'_>) -> Result<Option<Self>> {
        let Part::Available(program) = &context.options.device_plugin else {
            return Ok(None);
        };
        let state = world.node.node.directory().join("dev");
        std::fs::create_dir_all(state.join("shared"))?;
        std::fs::write(state.join("shared/file"), "from the plugin\n")?;
        let sockets = world.node.node.root().join("device-plugins");
        let mut plugin = Self { program: program.clone(), state, sockets, process: None };
        plugin.launch()?;
        Ok(Some(plugin))
    }

    fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("-dir").arg(&self.sockets).arg("-state").arg(&self.state);
        self.process = Some(command.spawn()?);
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Calls of one kind so far, by the devices that they were about.
    fn calls(&self, method: &str) -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.state.join("calls")).unwrap_or_default();
        let calls: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let of_kind = calls.into_iter().filter(|it| it["method"] == method);
        Ok(of_kind.map(|it| it["request"].clone()).collect())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.kill().ok();
    }
}

/// Waits until the node shows so many devices, healthy and in all, as kubectl reads them.
fn wait_shown(world: &mut World<'_>, healthy: &str, all: &str) -> Result<()> {
    let path = format!("/api/v1/nodes/{}", world.node_name());
    let what = format!("{healthy} of {all} devices");
    world.wait(&what, LATER, |cluster, _| {
        let status = &cluster.get(&path)?["status"];
        let is_so =
            status["allocatable"][RESOURCE] == healthy && status["capacity"][RESOURCE] == all;
        Ok(is_so.then_some(()))
    })?;
    let name = world.node_name().to_owned();
    let field = r"jsonpath={.status.allocatable.example\.com/device}";
    wait_until("kubectl to say so", SOON, || {
        let said = world.kubectl(&["get", "node", &name, "-o", field])?;
        ensure!(said.trim() == healthy, "kubectl says {said:?}");
        Ok(Some(()))
    })?;
    Ok(())
}

fn asking(world: &World<'_>, name: &str, text: &str) -> Value {
    let limits = json!({"resources": {"limits": {RESOURCE: "1"}}});
    world.pod(name, &[with(script("main", text), limits)])
}

/// Waits until the status of a pod with `device-1` says how that feels.
fn wait_health(world: &mut World<'_>, name: &str, health: &str) -> Result<()> {
    let device = json!({"resourceID": "device-1", "health": health});
    let told = json!([{"name": RESOURCE, "resources": [device]}]);
    let is_told =
        |pod: &PodView| pod.0["status"]["containerStatuses"][0]["allocatedResourcesStatus"] == told;
    world.wait_pod(name, &format!("its device {health}"), SOON, is_told).map(drop)
}

fn a_pod_gets_a_device_and_keeps_it_over_restarts_of_agent_and_plugin(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let Some(mut plugin) = Plugin::start(context, &world)? else {
        return Ok(Outcome::Skipped("the device plugin cannot be built".to_owned()));
    };
    wait_shown(&mut world, "2", "2")?;
    let text = "echo devices=$TEST_DEVICES; cat /from-plugin/file; \
                test -c /dev/from-plugin && echo node; touch /from-plugin/x || echo read-only; sleep 10000";
    let first = asking(&world, "first", text);
    let first = world.run(&first)?;
    // The plugin prefers its last device.
    let said = world.said_log(&first, "main", 4)?;
    let expected = ["devices=device-1", "from the plugin", "node", "read-only"];
    ensure!(expected.iter().all(|it| said.iter().any(|line| line == it)), "it says {said:?}");
    ensure!(plugin.calls("Allocate")? == [json!(["device-1"])]);
    ensure!(plugin.calls("PreStartContainer")? == [json!(["device-1"])]);
    wait_health(&mut world, "first", "Healthy")?;

    // Not well, and well again.
    std::fs::write(plugin.state.join("unhealthy"), "device-1")?;
    wait_shown(&mut world, "1", "2")?;
    wait_health(&mut world, "first", "Unhealthy")?;
    std::fs::write(plugin.state.join("unhealthy"), "")?;
    wait_shown(&mut world, "2", "2")?;

    // The plugin goes and comes back; the agent does.
    plugin.kill()?;
    wait_shown(&mut world, "0", "2")?;
    plugin.launch()?;
    wait_shown(&mut world, "2", "2")?;
    let n_lists = plugin.calls("ListAndWatch")?.len();
    world.node.node.kill()?;
    world.node.node.launch()?;
    // Until then the API still shows what the agent's earlier life said.
    world.wait("the plugin to be asked again", LATER, |_, _| {
        Ok((plugin.calls("ListAndWatch")?.len() > n_lists).then_some(()))
    })?;
    wait_shown(&mut world, "2", "2")?;
    let again = world.wait_ready("first")?;
    ensure!(again.container("main")?.id() == first.container("main")?.id(), "it was restarted");
    let second = asking(&world, "second", "echo devices=$TEST_DEVICES; sleep 10000");
    let second = world.run(&second)?;
    ensure!(world.said_log(&second, "main", 1)? == ["devices=device-0"]);
    // Nothing is left for a third.
    world.apply(&asking(&world, "third", "true"))?;
    let third = world.wait_pod("third", "refused", SOON, |pod| pod.phase() == "Failed")?;
    ensure!(third.0["status"]["reason"] == format!("OutOf{RESOURCE}"), "{}", third.0["status"]);
    world.kubectl(&["delete", "pod", "second", "--wait=false"])?;
    world.wait_gone(&second, LATER)?;
    let fourth = asking(&world, "fourth", "echo devices=$TEST_DEVICES; sleep 10000");
    let fourth = world.run(&fourth)?;
    ensure!(world.said_log(&fourth, "main", 1)? == ["devices=device-0"]);
    Ok(Outcome::Passed)
}

fn a_container_waits_for_its_plugin_after_a_restart_and_gets_the_same_device(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let Some(mut plugin) = Plugin::start(context, &world)? else {
        return Ok(Outcome::Skipped("the device plugin cannot be built".to_owned()));
    };
    wait_shown(&mut world, "2", "2")?;
    let text = "echo devices=$TEST_DEVICES; until test -e /from-plugin/stop; do sleep 0.2; done";
    let pod = asking(&world, "waits", text);
    let pod = world.run(&pod)?;
    ensure!(world.said_log(&pod, "main", 1)? == ["devices=device-1"]);
    // Both go, and the container ends meanwhile.
    world.node.node.kill()?;
    plugin.kill()?;
    std::fs::write(plugin.state.join("shared/stop"), "")?;
    world.node.node.launch()?;
    world.wait_pod("waits", "held back", LATER, |pod| {
        let waiting = &pod.0["status"]["containerStatuses"][0]["state"]["waiting"];
        let message = waiting["message"].as_str().unwrap_or_default();
        message.contains("waiting for the device plugin of example.com/device")
    })?;
    std::fs::remove_file(plugin.state.join("shared/stop"))?;
    plugin.launch()?;
    let again = world.wait_ready_later("waits")?;
    ensure!(again.restarts() == 1, "it was restarted {} times", again.restarts());
    ensure!(plugin.calls("Allocate")?.len() == 1, "it was allocated anew");
    ensure!(plugin.calls("PreStartContainer")?.len() == 2);
    Ok(Outcome::Passed)
}
