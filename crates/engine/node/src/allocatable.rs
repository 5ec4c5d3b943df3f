//! Keeps the bounds of the node's own cgroups: all pods together, the system's daemons, Kubernetes'
//! daemons.
//!
//! In: the node's state and what is enforced. Out: bounds, written when the agent starts, when the
//! machine changes and every minute again, because somebody else may have written there; events on
//! the node. A bound that cannot be written (more memory is in use than it allows) is tried again
//! and holds up nothing. Refuses: making cgroups of others, deciding numbers.

use std::{sync::Arc, time::Duration};

use ferrolet_node::NodeState;
use ferrolet_ports::{Event, EventKind, EventObject, Events, HostError, NodeCgroups};
use ferrolet_resources::{
    AllocatablePolicy, NodeCgroup, NodeCgroupPlace, ReservedScope, node_cgroups,
};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

/// Bounds are written again this often.
const AGAIN: Duration = Duration::from_secs(60);

/// What is enforced on the node's cgroups.
#[derive(Clone, Debug)]
pub struct AllocatableSettings {
    /// Which bounds.
    pub policy: AllocatablePolicy,
    /// The components of the name of the cgroup that all pods are in, for people.
    pub pods_cgroup: Vec<String>,
}

/// Who is asked and told.
pub struct AllocatableDoors {
    /// The node's cgroups.
    pub cgroups: Arc<dyn NodeCgroups>,
    /// Where the node's events go.
    pub events: Arc<dyn Events>,
}

/// Enforces for ever.
pub async fn enforce_allocatable(
    mut node: watch::Receiver<Arc<NodeState>>,
    settings: AllocatableSettings,
    doors: AllocatableDoors,
) {
    let mut tick = interval(AGAIN);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut announced: Vec<NodeCgroupPlace> = Vec::new();
    let mut written: Vec<NodeCgroup> = Vec::new();
    loop {
        let is_due = tokio::select! {
            // Neither loses anything: a tick comes again at once, a watch keeps its newest value.
            _ = tick.tick() => true,
            Ok(()) = node.changed() => false,
        };
        let state = node.borrow_and_update().clone();
        let Some(machine) = &state.facts.machine else {
            continue;
        };
        let cgroups = node_cgroups(&settings.policy, &state.settings, machine);
        if !is_due && cgroups == written {
            continue;
        }
        for cgroup in &cgroups {
            let outcome = doors.cgroups.bound(cgroup).await;
            if let Err(error) = &outcome {
                tracing::warn!(%error, "A cgroup of the node cannot be bounded");
            }
            let is_known = announced.contains(&cgroup.place);
            match (&outcome, is_known) {
                (Ok(()), true) => continue,
                (Ok(()), false) => announced.push(cgroup.place.clone()),
                // Once it holds again, that is news.
                (Err(_), _) => announced.retain(|place| *place != cgroup.place),
            }
            doors.events.record(tell(&cgroup.place, &settings, outcome));
        }
        written = cgroups;
    }
}

/// What people are told, in upstream's words.
fn tell(
    place: &NodeCgroupPlace,
    settings: &AllocatableSettings,
    outcome: Result<(), HostError>,
) -> Event {
    let (owner, small) = match place {
        NodeCgroupPlace::Pods => ("", ""),
        NodeCgroupPlace::System(_) => ("System", "system"),
        NodeCgroupPlace::Kube(_) => ("Kube", "kube"),
    };
    let (kind, reason, message) = match (outcome, place.reserved()) {
        (Ok(()), reserved) => {
            let message = match reserved {
                None => "Updated Node Allocatable limit across pods".to_owned(),
                Some(it) => format!("Updated limits on {small} reserved cgroup {}", it.name),
            };
            (EventKind::Normal, "NodeAllocatableEnforced", message)
        }
        (Err(error), reserved) => {
            let message = match reserved {
                None => {
                    let name: Vec<String> =
                        settings.pods_cgroup.iter().map(|it| format!("{it:?}")).collect();
                    let name = name.join(" ");
                    format!("Failed to update Node Allocatable Limits [{name}]: {error}")
                }
                Some(it) => {
                    let what = match it.scope {
                        ReservedScope::All => "",
                        ReservedScope::Compressible => "Compressible ",
                    };
                    let name = &it.name;
                    format!(
                        "Failed to enforce {owner} Reserved {what}Cgroup Limits on {name:?}: {error}"
                    )
                }
            };
            (EventKind::Warning, "FailedNodeAllocatableEnforcement", message)
        }
    };
    Event { object: EventObject::Node, kind, reason: reason.to_owned(), message }
}
