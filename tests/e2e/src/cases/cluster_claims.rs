//! Claims of dynamic resources: upstream's own test driver, in a process of its own, with a real
//! scheduler that allocates.

use std::fs::{self, File};
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
    a_claim_of_a_template_brings_its_device_and_is_taken_back,
    a_claim_is_taken_back_whose_pod_went_while_the_agent_was_dead,
    a_pod_waits_for_a_driver_that_is_away_and_holds_up_nobody,
];

/// Where containerd looks for devices, and the driver describes them.
const CDI: &str = "/var/run/cdi";
/// Says which claims' devices the container has.
const SHOWS: &str = "env | grep ^claim_ || echo none; exec sleep 10000";

/// A driver process that goes with the test.
struct Driver {
    program: PathBuf,
    name: String,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Child>,
}

impl Driver {
    /// Starts it with a device class and a template of one device; `None` where it cannot be built.
    fn start(context: &Context<'_>, world: &mut World<'_>) -> Result<Option<Self>> {
        let Part::Available(program) = &context.options.claim_driver else {
            return Ok(None);
        };
        let name = format!("{}.example.com", world.namespace);
        let root = world.node.node.root().to_owned();
        let directory = |name: &str| root.join(name).display().to_string();
        let arguments = [
            format!("--kubeconfig={}", world.cluster.kubeconfig().display()),
            format!("--drivername={name}"),
            "kubelet-plugin".to_owned(),
            format!("--plugin-registration-path={}", directory("plugins_registry")),
            format!("--datadir={}", directory("plugins")),
            format!("--cdi-dir={CDI}"),
            format!("--node-name={}", world.node_name()),
            "--num-devices=2".to_owned(),
        ];
        let log = world.node.node.directory().join("claim-driver.log");
        let mut driver = Self {
            program: program.clone(),
            name,
            arguments: arguments.into(),
            log,
            process: None,
        };
        // Its own directory is what it expects to be there.
        fs::create_dir_all(root.join("plugins").join(&driver.name))?;
        driver.launch()?;
        world.apply(&json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": driver.name},
            "spec": {"selectors": [
                {"cel": {"expression": format!("device.driver == {:?}", driver.name)}}]},
        }))?;
        let request = json!({"name": "card", "exactly": {"deviceClassName": driver.name}});
        world.apply(&json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one", "namespace": world.namespace},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }))?;
        Ok(Some(driver))
    }

    fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdout(log.try_clone()?).stderr(log);
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

    fn last_words(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().rev().take(5).collect();
        lines.join(" | ")
    }

    /// What is described for the runtime.
    fn described(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(CDI)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(&self.name) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Waits until the scheduler sees what the driver offers, or no longer.
    fn wait_offers(&self, world: &mut World<'_>, n: usize) -> Result<()> {
        let selector = format!("spec.driver%3D{}", self.name);
        let path = format!("/apis/resource.k8s.io/v1/resourceslices?fieldSelector={selector}");
        world.wait(&format!("{n} slices"), LATER, |cluster, _| {
            let slices = cluster.get(&path)?;
            let found = slices["items"].as_array().map_or(0, Vec::len);
            ensure!(found == n, "there are {found}, and the driver says {}", self.last_words());
            Ok(Some(()))
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill().ok();
    }
}

/// A pod with a claim of the template, for this node by way of the scheduler.
fn claiming(world: &World<'_>, name: &str) -> Value {
    let uses = json!({"resources": {"claims": [{"name": "mine"}]}});
    let mut pod = world.pod(name, &[with(script("main", SHOWS), uses), script("other", SHOWS)]);
    pod["spec"]["nodeName"] = Value::Null;
    let claims = json!([{"name": "mine", "resourceClaimTemplateName": "one"}]);
    let host = json!({"kubernetes.io/hostname": world.node_name()});
    with(pod, json!({"spec": {"resourceClaims": claims, "nodeSelector": host}}))
}

/// The record of claims as upstream's kubelet would read it.
fn record(world: &World<'_>) -> Result<String> {
    Ok(fs::read_to_string(world.node.node.root().join("dra_manager_state"))?)
}

/// The name of the claim that was made for a pod.
fn claim_of(pod: &PodView) -> String {
    let statuses = &pod.0["status"]["resourceClaimStatuses"];
    statuses[0]["resourceClaimName"].as_str().unwrap_or_default().to_owned()
}

fn wait_taken_back(world: &World<'_>, driver: &Driver) -> Result<()> {
    wait_until("claims to be taken back", LATER, || {
        let described = driver.described()?;
        ensure!(described.is_empty(), "{described:?} is still there");
        Ok(Some(()))
    })?;
    wait_forgotten(world)
}

/// Waits until the agent holds no claims for anybody.
fn wait_forgotten(world: &World<'_>) -> Result<()> {
    wait_until("claims to be forgotten", LATER, || {
        let record = record(world)?;
        ensure!(record.contains(r#""ClaimInfoStateList\":null"#), "the record says {record}");
        Ok(Some(()))
    })?;
    Ok(())
}

fn a_claim_of_a_template_brings_its_device_and_is_taken_back(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let Some(driver) = Driver::start(context, &mut world)? else {
        return Ok(Outcome::Skipped("the driver cannot be built".to_owned()));
    };
    driver.wait_offers(&mut world, 1)?;
    world.apply(&claiming(&world, "first"))?;
    let pod = world.wait_ready_later("first")?;
    let said = world.said_log(&pod, "main", 1)?;
    ensure!(said.len() == 1 && said[0].ends_with("_card=true"), "it says {said:?}");
    ensure!(world.said_log(&pod, "other", 1)? == ["none"], "a neighbour got the device");
    let claim = claim_of(&pod);
    ensure!(record(&world)?.contains(&claim) && driver.described()?.len() == 1);
    // The driver says how its devices feel.
    let felt = |pod: &PodView| {
        let all = pod.0["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        let main = all.into_iter().find(|it| it["name"] == "main").unwrap_or_default();
        main["allocatedResourcesStatus"].clone()
    };
    world.wait_pod("first", "its device's health", LATER, |pod| {
        felt(pod)[0]["name"] == "claim:mine"
            && felt(pod)[0]["resources"][0]["resourceID"].is_string()
    })?;

    // The agent dies and comes back: nothing moves.
    world.node.node.kill()?;
    world.node.node.launch()?;
    let again = world.wait_ready_later("first")?;
    ensure!(again.container("main")?.id() == pod.container("main")?.id(), "it was restarted");
    world.kubectl(&["delete", "pod", "first", "--wait=false"])?;
    world.wait_gone(&pod, LATER)?;
    wait_taken_back(&world, &driver)?;
    // A driver that is gone for good offers nothing.
    let mut driver = driver;
    driver.wait_offers(&mut world, 1)?;
    driver.kill()?;
    driver.wait_offers(&mut world, 0)?;
    Ok(Outcome::Passed)
}

fn a_claim_is_taken_back_whose_pod_went_while_the_agent_was_dead(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let Some(driver) = Driver::start(context, &mut world)? else {
        return Ok(Outcome::Skipped("the driver cannot be built".to_owned()));
    };
    driver.wait_offers(&mut world, 1)?;
    world.apply(&claiming(&world, "first"))?;
    let pod = world.wait_ready_later("first")?;
    world.node.node.kill()?;
    world.kubectl(&["delete", "pod", "first", "--force", "--grace-period=0"])?;
    world.wait_gone(&pod, LATER)?;
    ensure!(driver.described()?.len() == 1);
    world.node.node.launch()?;
    wait_taken_back(&world, &driver)?;
    Ok(Outcome::Passed)
}

fn a_pod_waits_for_a_driver_that_is_away_and_holds_up_nobody(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let Some(mut driver) = Driver::start(context, &mut world)? else {
        return Ok(Outcome::Skipped("the driver cannot be built".to_owned()));
    };
    driver.wait_offers(&mut world, 1)?;
    driver.kill()?;
    world.apply(&claiming(&world, "first"))?;
    let pod = world.wait_known("first")?;
    let told = world.wait_event(&pod, "FailedPrepareDynamicResources")?;
    let words = "Failed to prepare dynamic resources: prepare dynamic resources: \
                 NodePrepareResources: rpc error: code = Unavailable";
    ensure!(told.starts_with(words), "it is told {told:?}");
    let plain = world.pod("plain", &[script("main", "exec sleep 10000")]);
    world.run(&plain)?;
    driver.launch()?;
    let pod = world.wait_ready_later("first")?;
    // Away again when the pod ends: it does not count as over before its claim is taken back.
    driver.kill()?;
    world.kubectl(&["delete", "pod", "first", "--wait=false"])?;
    wait_until("the pod's end to be held up", SOON, || {
        let told = world.event_reasons(&pod)?;
        ensure!(told.iter().any(|it| it == "FailedSync"), "there are only {told:?}");
        Ok(Some(()))
    })?;
    ensure!(world.find_pod("first")?.is_some(), "the pod is over");
    driver.launch()?;
    world.wait_gone(&pod, LATER)?;
    // A driver that was killed knows nothing of what it had described.
    wait_forgotten(&world)?;
    Ok(Outcome::Passed)
}
