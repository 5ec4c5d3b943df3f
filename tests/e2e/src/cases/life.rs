//! The life of a static pod.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::build::{pod, sleeper};
use crate::cases::cases;
use crate::context::Context;
use crate::runner::Outcome;

cases![a_static_pod_runs_and_shows_its_address];

const SOON: Duration = Duration::from_secs(30);

fn a_static_pod_runs_and_shows_its_address(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("web", &[sleeper("main")]))?;
    let seen = node.wait_pod("web", "running with an address", SOON, |pod| {
        pod.phase() == "Running" && pod.ip().is_some()
    })?;
    let subnet = context.containerd()?.subnet().to_owned();
    ensure!(
        seen.ip().is_some_and(|ip| ip.starts_with(&subnet)),
        "{:?} is not in {subnet}",
        seen.ip()
    );
    Ok(Outcome::Passed)
}
