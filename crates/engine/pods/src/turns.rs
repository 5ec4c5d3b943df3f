//! Whose turn it is to be signalled while a pod's containers are stopped side by side.
//!
//! In: the stops of one stage, and word of each container that has ended. Out: a wait for those
//! that go before. The order itself is decided by `lifecycle`; refuses to know what a sidecar is.

use std::collections::BTreeMap;

use ferrolet_lifecycle::{Action, Stage};
use ferrolet_types::ContainerId;
use tokio::sync::watch;

/// Who of a stage has ended.
pub(crate) struct Turns {
    ends: BTreeMap<ContainerId, watch::Sender<bool>>,
}

impl Turns {
    /// Nobody of this stage has ended yet.
    pub(crate) fn of(stage: &Stage) -> Self {
        let awaited = stage.iter().flat_map(|action| match action {
            Action::StopContainer { after, .. } => after.as_slice(),
            _ => &[],
        });
        Self { ends: awaited.map(|id| (id.clone(), watch::Sender::new(false))).collect() }
    }

    /// Notes that a container has ended.
    pub(crate) fn ended(&self, id: &ContainerId) {
        if let Some(end) = self.ends.get(id) {
            end.send_replace(true);
        }
    }

    /// Waits until all of these have ended. Cancel-safe: an end stays noted.
    pub(crate) async fn wait_for(&self, those: &[ContainerId]) {
        for end in those.iter().filter_map(|id| self.ends.get(id)) {
            // The sender lives as long as this does, so there is no other outcome.
            let _ = end.subscribe().wait_for(|is_over| *is_over).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_lifecycle::StopCause;
    use ferrolet_types::{ContainerName, GracePeriod};
    use futures::FutureExt as _;

    use super::*;

    fn stop(id: &str, after: &[&str]) -> Action {
        Action::StopContainer {
            id: id.into(),
            container: ContainerName::new(id),
            grace: GracePeriod::from_secs(30),
            cause: StopCause::PodEnds,
            after: after.iter().map(|id| ContainerId::new(*id)).collect(),
        }
    }

    #[test]
    fn a_turn_comes_when_everybody_before_has_ended() {
        let turns = Turns::of(&vec![stop("a", &[]), stop("b", &[]), stop("s", &["a", "b"])]);
        let those = ["a", "b"].map(ContainerId::new);
        let has_come = || turns.wait_for(&those).now_or_never().is_some();
        assert!(!has_come());
        turns.ended(&ContainerId::new("b"));
        assert!(!has_come());
        turns.ended(&ContainerId::new("a"));
        assert!(has_come());
        assert!(turns.wait_for(&[]).now_or_never().is_some());
        let stranger = [ContainerId::new("x")];
        assert!(turns.wait_for(&stranger).now_or_never().is_some());
    }
}
