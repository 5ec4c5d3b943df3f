//! Pulls from a registry, on a node that stands alone: policies, turns, limits, plugins and
//! failures half way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::image::{Entry, ImageSpec, busybox};
use ferrolet_lab::registry::{Mood, Registry};
use ferrolet_lab::{Node, Toolbox};
use serde_json::{Value, json};

use super::{LATER, SOON, cases, wait_running};
use crate::build::{pod, sleeper, with};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    policies_say_when_an_image_is_pulled,
    a_registry_that_breaks_half_way_is_tried_again,
    a_slow_registry_holds_nobody_else_up,
    serialized_pulls_come_one_after_the_other,
    containers_of_one_pod_do_not_wait_for_each_others_images,
    a_long_pull_and_a_long_wait_for_one_are_told,
    too_many_pulls_in_a_second_are_refused_and_tried_again,
    a_plugin_opens_a_private_registry_and_is_remembered,
    a_wrong_plugin_configuration_keeps_the_agent_from_starting,
];

/// busybox under another name, with content of its own so that it is another image.
pub(super) fn app(tools: &Toolbox, name: &str) -> Result<ImageSpec> {
    let mut image = busybox(&tools.busybox)?;
    image.entries.push(Entry::text("/etc/motd", name));
    image.name = name.to_owned();
    Ok(image)
}

/// A pod whose one container runs this image.
fn of_image(name: &str, image: &str, policy: &str) -> Value {
    let container = with(sleeper("main"), json!({"image": image, "imagePullPolicy": policy}));
    pod(name, &[container])
}

/// A registry that this test's containerd finds under this name.
pub(super) fn registry(context: &mut Context<'_>, name: &str, images: &[&str]) -> Result<Registry> {
    let tools = context.tools;
    let images: Vec<ImageSpec> =
        images.iter().map(|it| app(tools, &format!("{name}/{it}"))).collect::<Result<_>>()?;
    let registry = Registry::start(&images)?;
    context.containerd()?.point_registry(name, &registry)?;
    Ok(registry)
}

/// Waits until a pull has come as far as the registry lets it.
fn wait_held(node: &mut Node, registry: &Registry) -> Result<()> {
    node.wait("a held pull", SOON, |_| {
        let requests = registry.requests();
        let is_held = requests.iter().any(|it| it.path.contains("/blobs/"));
        Ok(is_held.then_some(()))
    })
}

fn wait_log(node: &mut Node, text: &str) -> Result<()> {
    node.wait(&format!("{text:?} in the log"), LATER, |node| {
        Ok(node.log_text().contains(text).then_some(()))
    })
}

fn waiting(node: &mut Node, name: &str, reason: &str) -> Result<String> {
    let seen = node.wait_pod(name, reason, LATER, |pod| {
        pod.container("main").is_ok_and(|it| it.waiting_reason() == Some(reason))
    })?;
    let main = seen.container("main")?;
    Ok(main.waiting_message().unwrap_or_default().to_owned())
}

fn policies_say_when_an_image_is_pulled(context: &mut Context<'_>) -> Result<Outcome> {
    let registry = registry(context, "open.test", &["app:1"])?;
    let mut node = context.node()?;
    let pulls = || registry.resolutions("app", "1");
    node.put_pod(&of_image("never", "open.test/app:1", "Never"))?;
    waiting(&mut node, "never", "ErrImageNeverPull")?;
    ensure!(pulls() == 0, "{:?}", registry.requests());
    node.put_pod(&of_image("first", "open.test/app:1", "IfNotPresent"))?;
    wait_running(&mut node, "first")?;
    let after_first = pulls();
    ensure!(after_first > 0, "nothing was asked of the registry");
    // It is here now, so that `Never` is content too.
    wait_running(&mut node, "never")?;
    node.put_pod(&of_image("second", "open.test/app:1", "IfNotPresent"))?;
    wait_running(&mut node, "second")?;
    ensure!(pulls() == after_first, "{:?}", registry.requests());
    node.put_pod(&of_image("always", "open.test/app:1", "Always"))?;
    wait_running(&mut node, "always")?;
    ensure!(pulls() > after_first, "Always did not ask the registry");
    wait_log(&mut node, "Successfully pulled image \\\"open.test/app:1\\\" in ")?;
    Ok(Outcome::Passed)
}

fn a_registry_that_breaks_half_way_is_tried_again(context: &mut Context<'_>) -> Result<Outcome> {
    let registry = registry(context, "half.test", &["app:1"])?;
    registry.set_mood(Mood::Broken);
    let mut node = context.node()?;
    node.put_pod(&of_image("app", "half.test/app:1", "IfNotPresent"))?;
    let said = waiting(&mut node, "app", "ImagePullBackOff")?;
    let start = "Back-off pulling image \"half.test/app:1\": ErrImagePull: ";
    ensure!(said.starts_with(start) && said.contains("503"), "it says {said:?}");
    registry.set_mood(Mood::HalfWay);
    node.wait("a blob to be asked for", LATER, |_| {
        let requests = registry.requests();
        let blobs = requests.iter().filter(|it| it.path.contains("/blobs/"));
        Ok((blobs.count() > 0).then_some(()))
    })?;
    registry.set_mood(Mood::Well);
    node.wait_pod("app", "running", LATER, |pod| pod.phase() == "Running")?;
    Ok(Outcome::Passed)
}

fn a_slow_registry_holds_nobody_else_up(context: &mut Context<'_>) -> Result<Outcome> {
    let slow = registry(context, "slow.test", &["a:1", "b:1"])?;
    registry(context, "quick.test", &["a:1"])?;
    slow.set_mood(Mood::Holding);
    let mut options = context.node_options();
    // Two places, and two pulls that would take both.
    options.configuration = json!({"serializeImagePulls": false, "maxParallelImagePulls": 2});
    let mut node = context.node_with(options)?;
    node.put_pod(&of_image("slow-a", "slow.test/a:1", "IfNotPresent"))?;
    node.put_pod(&of_image("slow-b", "slow.test/b:1", "IfNotPresent"))?;
    wait_held(&mut node, &slow)?;
    node.put_pod(&of_image("quick", "quick.test/a:1", "IfNotPresent"))?;
    wait_running(&mut node, "quick")?;
    for name in ["slow-a", "slow-b"] {
        let phase = node.pod(name)?.phase().to_owned();
        ensure!(phase == "Pending", "{name} is {phase}");
    }
    ensure!(
        slow.resolutions("a", "1").min(slow.resolutions("b", "1")) == 0,
        "both slow pulls were under way at once: {:?}",
        slow.requests()
    );
    slow.set_mood(Mood::Well);
    wait_running(&mut node, "slow-a")?;
    wait_running(&mut node, "slow-b")?;
    Ok(Outcome::Passed)
}

fn serialized_pulls_come_one_after_the_other(context: &mut Context<'_>) -> Result<Outcome> {
    let slow = registry(context, "slow.test", &["a:1"])?;
    let quick = registry(context, "quick.test", &["a:1"])?;
    slow.set_mood(Mood::Holding);
    let mut options = context.node_options();
    options.configuration = json!({"serializeImagePulls": true});
    let mut node = context.node_with(options)?;
    node.put_pod(&of_image("slow", "slow.test/a:1", "IfNotPresent"))?;
    wait_held(&mut node, &slow)?;
    node.put_pod(&of_image("quick", "quick.test/a:1", "IfNotPresent"))?;
    wait_log(&mut node, "Pulling image \\\"quick.test/a:1\\\"")?;
    ensure!(quick.requests().is_empty(), "{:?}", quick.requests());
    slow.set_mood(Mood::Well);
    wait_running(&mut node, "slow")?;
    wait_running(&mut node, "quick")?;
    Ok(Outcome::Passed)
}

fn containers_of_one_pod_do_not_wait_for_each_others_images(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let slow = registry(context, "slow.test", &["a:1"])?;
    registry(context, "quick.test", &["a:1"])?;
    slow.set_mood(Mood::Holding);
    let mut options = context.node_options();
    options.configuration = json!({"serializeImagePulls": false, "maxParallelImagePulls": 2});
    let mut node = context.node_with(options)?;
    let of = |name: &str, image: &str| with(sleeper(name), json!({"image": image}));
    // The one that is held comes first in the list.
    let list = [of("held", "slow.test/a:1"), of("pulled", "quick.test/a:1"), sleeper("here")];
    node.put_pod(&pod("app", &list))?;
    wait_held(&mut node, &slow)?;
    // Asked of the runtime: the pod is in the middle of its start.
    let containerd = context.containerd()?;
    let running = || -> Result<Vec<String>> {
        let tasks = containerd.tasks()?;
        let all = containerd.containers()?.into_iter();
        let mut names: Vec<String> = all
            .filter(|it| it.kind != "sandbox" && tasks.iter().any(|(id, _)| *id == it.id))
            .map(|it| it.name)
            .collect();
        names.sort();
        Ok(names)
    };
    node.wait("the others to run", SOON, |_| {
        let names = running()?;
        ensure!(names == ["here", "pulled"], "{names:?} run");
        Ok(Some(()))
    })?;
    slow.set_mood(Mood::Well);
    let seen = wait_running(&mut node, "app")?;
    ensure!(seen.restarts() == 0, "{}", seen.0["status"]);
    Ok(Outcome::Passed)
}

fn a_long_pull_and_a_long_wait_for_one_are_told(context: &mut Context<'_>) -> Result<Outcome> {
    let slow = registry(context, "slow.test", &["a:1", "b:1"])?;
    slow.set_mood(Mood::Holding);
    let mut options = context.node_options();
    options.configuration = json!({"serializeImagePulls": true});
    let mut node = context.node_with(options)?;
    node.put_pod(&of_image("first", "slow.test/a:1", "IfNotPresent"))?;
    wait_held(&mut node, &slow)?;
    node.put_pod(&of_image("second", "slow.test/b:1", "IfNotPresent"))?;
    wait_log(&mut node, "Still pulling image \\\"slow.test/a:1\\\" after 10s")?;
    wait_log(&mut node, "Image \\\"slow.test/b:1\\\" has waited 10s to be pulled; 1 ahead of it")?;
    slow.set_mood(Mood::Well);
    for name in ["first", "second"] {
        wait_running(&mut node, name)?;
    }
    Ok(Outcome::Passed)
}

fn too_many_pulls_in_a_second_are_refused_and_tried_again(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    registry(context, "open.test", &["a:1", "b:1"])?;
    let mut options = context.node_options();
    options.configuration =
        json!({"registryPullQPS": 1, "registryBurst": 1, "serializeImagePulls": false});
    let mut node = context.prepare(options)?;
    node.put_pod(&of_image("a", "open.test/a:1", "IfNotPresent"))?;
    node.put_pod(&of_image("b", "open.test/b:1", "IfNotPresent"))?;
    node.launch()?;
    wait_log(&mut node, "pull QPS exceeded")?;
    for name in ["a", "b"] {
        node.wait_pod(name, "running", LATER, |pod| pod.phase() == "Running")?;
    }
    Ok(Outcome::Passed)
}

/// A plugin that knows ann's password and counts its runs.
fn write_plugin(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory.join("bin"))?;
    let answer = json!({
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry",
        "cacheDuration": "10m",
        "auth": {"*.test": {"username": "ann", "password": "secret"}},
    });
    let text = format!(
        "#!/bin/sh\ncat >> {0}/requests\necho run >> {0}/runs\nprintf '%s' \"$ANSWER\"\n",
        directory.display()
    );
    let path = directory.join("bin/lab-plugin");
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "lab-plugin",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "matchImages": ["*.test"],
            "defaultCacheDuration": "1m",
            "env": [{"name": "ANSWER", "value": answer.to_string()}],
        }],
    });
    fs::write(directory.join("providers.json"), config.to_string())?;
    Ok(())
}

fn a_plugin_opens_a_private_registry_and_is_remembered(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let registry = registry(context, "private.test", &["a:1", "b:1"])?;
    registry.set_account(Some(("ann", "secret")));
    let mut options = context.node_options();
    let directory = context.bench.directory(&format!("node-{}", options.name))?;
    let plugins = directory.join("plugins");
    options.arguments =
        [("config", plugins.join("providers.json")), ("bin-dir", plugins.join("bin"))]
            .map(|(flag, path)| format!("--image-credential-provider-{flag}={}", path.display()))
            .into();
    let mut node = context.prepare(options)?;
    write_plugin(&plugins)?;
    node.launch()?;
    node.wait_healthy()?;
    for name in ["a", "b"] {
        let image = format!("private.test/{name}:1");
        node.put_pod(&of_image(name, &image, "IfNotPresent"))?;
        wait_running(&mut node, name)?;
    }
    let runs = fs::read_to_string(plugins.join("runs")).context("the plugin never ran")?;
    ensure!(runs.lines().count() == 1, "it ran {runs:?}");
    let asked = fs::read_to_string(plugins.join("requests"))?;
    let asked: Value = serde_json::from_str(&asked)?;
    ensure!(
        asked["kind"] == "CredentialProviderRequest" && asked["image"] == "private.test/a",
        "it was asked {asked}"
    );
    ensure!(!node.log_text().contains("secret"), "the log shows the password");
    // The next pod finds the image and the record of whose credentials opened the registry.
    node.put_pod(&of_image("again", "private.test/a:1", "IfNotPresent"))?;
    wait_running(&mut node, "again")?;
    let figures = node.read_only("/metrics")?.body;
    for line in [
        "kubelet_credential_provider_plugin_duration_count{plugin_name=\"lab-plugin\"} 1",
        "kubelet_imagemanager_image_mustpull_checks_total{result=\"credentialRecordFound\"} 1",
        "kubelet_pod_level_resources_admission_total{config_mode=\"\",qos_class=\"besteffort\"} 3",
    ] {
        ensure!(figures.lines().any(|it| it == line), "{line} is not in {figures}");
    }
    Ok(Outcome::Passed)
}

fn a_wrong_plugin_configuration_keeps_the_agent_from_starting(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    let directory = context.bench.directory(&format!("node-{}", options.name))?;
    options.arguments = vec![
        format!(
            "--image-credential-provider-config={}",
            directory.join("providers.yaml").display()
        ),
        format!("--image-credential-provider-bin-dir={}", directory.display()),
    ];
    let mut node = context.prepare(options)?;
    let text = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: x\n  matchImages: ['a b']\n";
    fs::write(directory.join("providers.yaml"), text)?;
    node.launch()?;
    let ended =
        ferrolet_lab::wait_until("the agent to give up", SOON, || Ok(node.expect_running().err()))?;
    let said = format!("{ended:#}{}", node.log_text());
    for part in ["providers.yaml", "matchImages", "\"a b\"", "defaultCacheDuration"] {
        let plain = said.replace('\\', "");
        ensure!(plain.contains(part), "no {part} in {said}");
    }
    Ok(Outcome::Passed)
}
