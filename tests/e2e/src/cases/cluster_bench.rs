//! Tests of the bench itself with a control plane: it ends with its run, however that ends.

use anyhow::Result;

use super::bench::{CLUSTER, Sample};
use super::cases;
use crate::context::Context;
use crate::runner::Outcome;

cases![a_killed_run_with_a_control_plane_leaves_nothing_behind];

fn a_killed_run_with_a_control_plane_leaves_nothing_behind(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut sample = Sample::start(context, CLUSTER)?;
    sample.wait_ready()?;
    sample.child.kill()?;
    sample.wait_gone()
}
