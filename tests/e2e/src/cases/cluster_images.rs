//! Private images on a cluster: pull secrets, what their pulls are worth to other pods, and the
//! story that events tell.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::registries::registry;
use super::{LATER, cases};
use crate::build::{sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_private_image_is_pulled_with_the_pods_secret_and_the_events_say_so,
    a_private_image_is_pulled_with_the_service_accounts_secret,
    a_pull_without_its_secret_backs_off_and_recovers_when_the_secret_comes,
    a_private_image_that_is_here_is_not_for_everybody,
    the_image_of_a_volume_is_pulled_as_that_of_a_container_is,
];

const IMAGE: &str = "private.test/team/app:1";

fn of_image(world: &World<'_>, name: &str, policy: &str, secrets: &[&str]) -> Value {
    let container = with(sleeper("main"), json!({"image": IMAGE, "imagePullPolicy": policy}));
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    with(world.pod(name, &[container]), json!({"spec": {"imagePullSecrets": secrets}}))
}

fn create_secret(world: &World<'_>, name: &str, password: &str) -> Result<()> {
    let password = format!("--docker-password={password}");
    world.kubectl(&[
        "create",
        "secret",
        "docker-registry",
        name,
        "--docker-server=private.test",
        "--docker-username=ann",
        &password,
    ])?;
    Ok(())
}

fn a_private_image_is_pulled_with_the_pods_secret_and_the_events_say_so(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let registry = registry(context, "private.test", &["team/app:1"])?;
    registry.set_account(Some(("ann", "secret")));
    let mut world = World::start(context)?;
    create_secret(&world, "wrong", "guess")?;
    create_secret(&world, "right", "secret")?;
    // Both fit, the wrong one is tried first.
    let seen = world.run(&of_image(&world, "app", "IfNotPresent", &["wrong", "right"]))?;
    let pulling = world.wait_event(&seen, "Pulling")?;
    ensure!(pulling == format!("Pulling image {IMAGE:?}"), "it says {pulling:?}");
    let pulled = world.wait_event(&seen, "Pulled")?;
    let start = format!("Successfully pulled image {IMAGE:?} in ");
    ensure!(
        pulled.starts_with(&start)
            && pulled.contains(" including waiting). Image size: ")
            && pulled.ends_with(" bytes."),
        "it says {pulled:?}"
    );
    let requests = registry.requests();
    let ann = requests.iter().filter(|it| it.user.as_deref() == Some("ann"));
    ensure!(
        ann.clone().any(|it| it.status == 401) && ann.clone().any(|it| it.status == 200),
        "the registry saw {requests:?}"
    );
    ensure!(!world.node.node.log_text().contains("guess"), "the log shows a password");
    Ok(Outcome::Passed)
}

fn a_private_image_is_pulled_with_the_service_accounts_secret(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let registry = registry(context, "private.test", &["team/app:1"])?;
    registry.set_account(Some(("ann", "secret")));
    let mut world = World::start(context)?;
    create_secret(&world, "pull", "secret")?;
    let account =
        world.object("ServiceAccount", "robot", json!({"imagePullSecrets": [{"name": "pull"}]}));
    world.apply(&account)?;
    let container = with(sleeper("main"), json!({"image": IMAGE}));
    let pod =
        with(world.pod("app", &[container]), json!({"spec": {"serviceAccountName": "robot"}}));
    world.run(&pod)?;
    Ok(Outcome::Passed)
}

fn a_pull_without_its_secret_backs_off_and_recovers_when_the_secret_comes(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let registry = registry(context, "private.test", &["team/app:1"])?;
    registry.set_account(Some(("ann", "secret")));
    let mut world = World::start(context)?;
    world.apply(&of_image(&world, "app", "IfNotPresent", &["later"]))?;
    let seen = world.wait_pod("app", "back-off", LATER, |pod| {
        pod.container("main").is_ok_and(|it| it.waiting_reason() == Some("ImagePullBackOff"))
    })?;
    let main = seen.container("main")?;
    let said = main.waiting_message().unwrap_or_default().to_owned();
    let start = format!("Back-off pulling image {IMAGE:?}: ErrImagePull: ");
    ensure!(said.starts_with(&start), "it says {said:?}");
    let back_off = world.wait_event(&seen, "BackOff")?;
    ensure!(back_off == format!("Back-off pulling image {IMAGE:?}"), "it says {back_off:?}");
    let failed: Vec<String> = world
        .events(&seen)?
        .iter()
        .filter(|it| it["reason"] == "Failed")
        .filter_map(|it| it["message"].as_str().map(str::to_owned))
        .collect();
    let start = format!("Failed to pull image {IMAGE:?}: ");
    ensure!(
        failed.iter().any(|it| it.starts_with(&start))
            && failed.iter().any(|it| it == "Error: ErrImagePull"),
        "the failures are {failed:?}"
    );
    create_secret(&world, "later", "secret")?;
    world.wait_pod("app", "running", LATER, |pod| pod.phase() == "Running")?;
    Ok(Outcome::Passed)
}

fn a_private_image_that_is_here_is_not_for_everybody(context: &mut Context<'_>) -> Result<Outcome> {
    let registry = registry(context, "private.test", &["team/app:1"])?;
    registry.set_account(Some(("ann", "secret")));
    let mut world = World::start(context)?;
    create_secret(&world, "pull", "secret")?;
    create_secret(&world, "copy", "secret")?;
    world.run(&of_image(&world, "first", "IfNotPresent", &["pull"]))?;
    let pulls = registry.resolutions("team/app", "1");

    // Without the secret the image is as good as absent.
    world.apply(&of_image(&world, "never", "Never", &[]))?;
    world.apply(&of_image(&world, "stranger", "IfNotPresent", &[]))?;
    for (name, reasons) in
        [("never", &["ErrImageNeverPull"][..]), ("stranger", &["ErrImagePull", "ImagePullBackOff"])]
    {
        world.wait_pod(name, &format!("{reasons:?}"), LATER, |pod| {
            let reason = pod.container("main").ok();
            let reason = reason.and_then(|it| it.waiting_reason().map(str::to_owned));
            reason.is_some_and(|it| reasons.contains(&it.as_str()))
        })?;
    }
    ensure!(
        registry.resolutions("team/app", "1") > pulls,
        "the stranger's pull never reached the registry"
    );
    // With the same secret, or another one of the same content, the registry is not even asked.
    let pulls = registry.requests().iter().filter(|it| it.status == 200).count();
    for secret in ["pull", "copy"] {
        let seen = world.run(&of_image(&world, secret, "Never", &[secret]))?;
        let said = world.wait_event(&seen, "Pulled")?;
        ensure!(
            said == format!(
                "Container image {IMAGE:?} already present on machine and can be accessed by the pod"
            ),
            "it says {said:?}"
        );
    }
    let after = registry.requests().iter().filter(|it| it.status == 200).count();
    ensure!(after == pulls, "the registry was asked again");

    // The record is upstream's.
    let directory = world.node.node.root().join("image_manager");
    let mut records = fs::read_dir(directory.join("pulled"))?;
    let path = records.next().context("there is no record")??.path();
    let record: Value = serde_json::from_slice(&fs::read(&path)?)?;
    let known = &record["credentialMapping"]["private.test/team/app"]["kubernetesSecrets"];
    ensure!(
        record["kind"] == "ImagePulledRecord"
            && record["apiVersion"] == "kubelet.config.k8s.io/v1beta1"
            && record["imageRef"].as_str().is_some_and(|it| it.starts_with("sha256:"))
            && known.as_array().map(Vec::len) == Some(2)
            && known[0]["name"] == "copy"
            && known[0]["credentialHash"] == known[1]["credentialHash"],
        "the record is {record}"
    );
    Ok(Outcome::Passed)
}

fn the_image_of_a_volume_is_pulled_as_that_of_a_container_is(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let registry = registry(context, "private.test", &["team/app:1"])?;
    registry.set_account(Some(("ann", "secret")));
    let mut world = World::start(context)?;
    let main =
        with(sleeper("main"), json!({"volumeMounts": [{"name": "app", "mountPath": "/app"}]}));
    let pod = with(
        world.pod("app", &[main]),
        json!({"spec": {"imagePullSecrets": [{"name": "later"}],
            "volumes": [{"name": "app", "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_pod("app", "back-off", LATER, |pod| {
        pod.container("main").is_ok_and(|it| it.waiting_reason() == Some("ImagePullBackOff"))
    })?;
    let main = seen.container("main")?;
    let said = main.waiting_message().unwrap_or_default().to_owned();
    ensure!(said.contains(IMAGE), "it says {said:?}");
    create_secret(&world, "later", "secret")?;
    let seen = world.wait_pod("app", "running", LATER, |pod| pod.phase() == "Running")?;
    let inside = world.read_inside(context.containerd()?, &seen, "/app/etc/motd")?;
    ensure!(inside == IMAGE, "the volume holds {inside:?}");
    let requests = registry.requests();
    let is_ann = |it: &&ferrolet_lab::registry::Request| it.user.as_deref() == Some("ann");
    ensure!(
        requests.iter().filter(is_ann).any(|it| it.status == 200),
        "the registry saw {requests:?}"
    );
    Ok(Outcome::Passed)
}
