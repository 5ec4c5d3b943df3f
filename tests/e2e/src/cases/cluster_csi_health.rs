//! What a CSI driver says is wrong with its volumes and with all that it stores, where gate
//! `CSIVolumeHealth` is on.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{SOON, cases};
use crate::cluster::World;
use crate::context::Context;
use crate::driver::{Driver, claim, claimant, no_driver, serve_on};
use crate::runner::Outcome;

cases![what_ails_a_volume_or_its_storage_is_told_until_it_is_well];

/// Waits until the pod's status says exactly this of its volume; `null` when nothing is wrong any
/// more.
fn wait_told(world: &mut World<'_>, conditions: &Value) -> Result<()> {
    let what = format!("volumeHealth {conditions}");
    let seen = world.wait_pod("ailing", &what, SOON, |pod| {
        let told = &pod.0["status"]["volumeHealth"][0];
        told["name"] == "data" && told["healthConditions"] == *conditions
    })?;
    ensure!(
        seen.0["status"]["volumeHealth"][0]["lastTransitionTime"].is_string(),
        "it has no time: {}",
        seen.0["status"]["volumeHealth"]
    );
    Ok(())
}

fn wait_storage_told(world: &mut World<'_>, driver: &Driver, expected: &Value) -> Result<()> {
    let path = format!("/apis/storage.k8s.io/v1/csinodes/{}", world.node_name());
    let what = format!("storageHealth {expected}");
    world.wait(&what, SOON, |cluster, _| {
        let node = cluster.get(&path)?;
        let told = node["status"]["storageHealth"].as_array().cloned();
        let mut told = told.unwrap_or_default().into_iter();
        let own = told.find(|it| it["name"] == driver.name.as_str());
        let mut own = own.map_or(json!(null), |it| it["healthConditions"].clone());
        for condition in own.as_array_mut().into_iter().flatten() {
            // The server writes a time even where nobody gave one.
            condition.as_object_mut().map(|it| it.remove("lastTransitionTime"));
        }
        ensure!(own == *expected, "it is {own}");
        Ok(Some(()))
    })
}

fn what_ails_a_volume_or_its_storage_is_told_until_it_is_well(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node_options();
    node.configuration = json!({
        "featureGates": {"CSIVolumeHealth": true},
        "volumeStatsAggPeriod": "1s",
    });
    let rules = json!({"attachRequired": false});
    let Some((mut world, driver)) = serve_on(context, node, &["-tells-health"], rules)? else {
        return Ok(no_driver());
    };
    let volume = claim(&world, &driver, "data", json!({}))?;
    world.apply(&claimant(&world, "ailing", "data"))?;
    let first = world.wait_ready_later("ailing")?;
    ensure!(first.0["status"]["volumeHealth"].is_null(), "nothing is wrong yet");

    // Rubbish among it would have the whole status refused.
    driver.set_health(
        &volume,
        "DEGRADED DiskSlow a disk of three is slow\nDATA_LOSS 9-not-a-word x\nNO_SUCH_KIND Kind x\n",
    )?;
    let slow = json!([
        {"status": "Degraded", "reason": "DiskSlow", "message": "a disk of three is slow"},
    ]);
    wait_told(&mut world, &slow)?;
    let asked = driver.calls()?;
    let asked = asked.iter().rev().find(|it| it["method"] == "NodeGetVolumeHealth");
    let asked = &asked.context("nobody asked")?["request"];
    let (path, staged) = (&asked["volume_publish_path"], &asked["staging_target_path"]);
    ensure!(
        path.as_str().is_some_and(|it| it.contains(first.uid()) && it.ends_with("/mount"))
            && staged.as_str().is_some_and(|it| it.ends_with("/globalmount")),
        "the driver was asked with {asked}"
    );

    driver.set_health("storage", "STORAGE_UNREACHABLE ArrayDown no path is left\n")?;
    let down = json!([
        {"status": "StorageUnreachable", "reason": "ArrayDown", "message": "no path is left"},
    ]);
    wait_storage_told(&mut world, &driver, &down)?;
    let gauge = format!(
        "csi_node_storage_health_status{{driver_name=\"{}\",reason=\"ArrayDown\",status=\"StorageUnreachable\"}} 1",
        driver.name
    );
    let metrics =
        |world: &World<'_>| Ok::<_, anyhow::Error>(world.node.node.read_only("/metrics")?.body);
    ensure!(metrics(&world)?.lines().any(|it| it == gauge), "no {gauge}");

    // What was told outlives the agent, and so does the end of it.
    world.node.node.kill()?;
    driver.set_health(&volume, "")?;
    driver.set_health("storage", "")?;
    let kept = world.find_pod("ailing")?.context("the pod is gone")?;
    ensure!(
        kept.0["status"]["volumeHealth"][0]["healthConditions"] == slow,
        "it is told {}",
        kept.0["status"]["volumeHealth"]
    );
    world.node.node.launch()?;
    wait_told(&mut world, &json!(null))?;
    wait_storage_told(&mut world, &driver, &json!(null))?;
    ensure!(!metrics(&world)?.contains("ArrayDown"), "it is still measured");
    let now = world.wait_ready("ailing")?;
    ensure!(
        now.uid() == first.uid() && now.restarts() == 0,
        "the pod was touched: {}",
        now.state()
    );
    let refused = world.cluster.refusals(world.node_name())?;
    ensure!(refused.is_empty(), "the API server refused {refused:#?}");
    Ok(Outcome::Passed)
}
