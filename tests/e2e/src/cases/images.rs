//! Image names and pull policies; no registry can be reached, so every pull fails.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{LATER, cases, wait_running};
use crate::build::{pod, sleeper, with};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    an_absent_image_fails_and_backs_off,
    an_absent_image_with_policy_never_is_not_pulled,
    a_name_that_is_no_image_name_is_refused,
    a_present_image_is_not_pulled,
    a_command_that_is_not_there_shows_as_an_error,
];

fn with_image(name: &str, image: &str, policy: &str) -> Value {
    pod(name, &[with(sleeper("main"), json!({"image": image, "imagePullPolicy": policy}))])
}

/// The waiting message when the container waits for one of `reasons`.
fn wait_reason(context: &mut Context<'_>, pod: &Value, reasons: &[&str]) -> Result<String> {
    let mut node = context.node()?;
    node.put_pod(pod)?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let seen = node.wait_pod(name, &format!("{reasons:?}"), LATER, |pod| {
        let reason =
            pod.container("main").ok().and_then(|it| it.waiting_reason().map(str::to_owned));
        reason.is_some_and(|reason| reasons.contains(&reason.as_str()))
    })?;
    ensure!(seen.phase() == "Pending", "its phase is {}", seen.phase());
    Ok(seen.container("main")?.waiting_message().unwrap_or_default().to_owned())
}

fn an_absent_image_fails_and_backs_off(context: &mut Context<'_>) -> Result<Outcome> {
    // Nobody listens there, so the pull fails at once.
    let pod = with_image("absent", "127.0.0.1:9/absent:1", "IfNotPresent");
    let said = wait_reason(context, &pod, &["ImagePullBackOff"])?;
    ensure!(said.contains("Back-off pulling image \"127.0.0.1:9/absent:1\""), "it says {said:?}");
    Ok(Outcome::Passed)
}

fn an_absent_image_with_policy_never_is_not_pulled(context: &mut Context<'_>) -> Result<Outcome> {
    let pod = with_image("never", "lab.local/absent:1", "Never");
    let said = wait_reason(context, &pod, &["ErrImageNeverPull"])?;
    let expected =
        "Container image \"lab.local/absent:1\" is not present with pull policy of Never";
    ensure!(said == expected, "it says {said:?}");
    Ok(Outcome::Passed)
}

fn a_name_that_is_no_image_name_is_refused(context: &mut Context<'_>) -> Result<Outcome> {
    let pod = with_image("wrong", "Not A Name!", "IfNotPresent");
    let said = wait_reason(context, &pod, &["InvalidImageName"])?;
    ensure!(said.contains("Not A Name!"), "it says {said:?}");
    Ok(Outcome::Passed)
}

fn a_present_image_is_not_pulled(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&with_image("short", "busybox", "IfNotPresent"))?;
    node.put_pod(&with_image("tagged", "busybox:latest", "Never"))?;
    wait_running(&mut node, "short")?;
    wait_running(&mut node, "tagged")?;
    Ok(Outcome::Passed)
}

fn a_command_that_is_not_there_shows_as_an_error(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    let missing = with(sleeper("main"), json!({"command": ["/no/such/program"]}));
    node.put_pod(&pod("missing", &[missing]))?;
    node.put_pod(&pod("fine", &[sleeper("main")]))?;
    wait_running(&mut node, "fine")?;
    let seen = node.wait_pod("missing", "RunContainerError or back-off", LATER, |pod| {
        pod.container("main").is_ok_and(|it| {
            matches!(it.waiting_reason(), Some("RunContainerError" | "CrashLoopBackOff"))
                || it.terminated_reason() == Some("StartError")
        })
    })?;
    let text = seen.0["status"].to_string();
    ensure!(
        text.contains("/no/such/program") || text.contains("StartError"),
        "the status does not say why: {text}"
    );
    Ok(Outcome::Passed)
}
