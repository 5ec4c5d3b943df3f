//! Names that are no text: whatever a container calls its files, the node goes on.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{GONE, LATER, cases, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![a_mounted_directory_whose_name_is_no_text_stops_nobody];

/// The kernel's table of mounts has that name from then on, and everybody who takes a pod down or
/// starts the agent reads the table.
fn a_mounted_directory_whose_name_is_no_text_stops_nobody(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    let text = r"name=$(printf '\377'); mkdir /v/$name && ln -s $name /v/link && touch /v/link/it";
    let mut init = script("init", text);
    init["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let mut main = script("main", "test -e /part/it && exec sleep 100000");
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/part", "subPath": "link"}]);
    let odd =
        json!({"spec": {"initContainers": [init], "volumes": [{"name": "v", "emptyDir": {}}]}});
    node.put_pod(&with(pod("odd", &[main]), odd))?;
    let odd = wait_running(&mut node, "odd")?;

    node.put_pod(&pod("other", &[sleeper("main")]))?;
    let other = wait_running(&mut node, "other")?;
    node.remove_manifest("other.yaml")?;
    let containerd = context.containerd()?;
    node.wait("the other pod to be gone", GONE, |node| {
        look::ensure_gone(node, containerd, &other).map(Some)
    })?;

    node.kill()?;
    node.launch()?;
    node.wait_healthy()?;
    let again = node.wait_pod("odd", "running as before", LATER, |pod| {
        pod.container("main").is_ok_and(|main| main.is_running())
    })?;
    ensure!(again.uid() == odd.uid() && again.restarts() == 0, "{}", again.0["status"]);
    node.remove_manifest("odd.yaml")?;
    node.wait("the odd pod to be gone", GONE, |node| {
        look::ensure_gone(node, containerd, &odd).map(Some)
    })?;
    Ok(Outcome::Passed)
}
