//! The shared pool kept current: containers whose processors changed are told, through the runtime.

use std::time::Duration;

use ferrolet_pod::{bare_container_id, container_statuses};
use ferrolet_ports::{PodsView, Runtime};
use ferrolet_resources::LinuxResources;
use ferrolet_types::{
    ContainerId, Pod, PodUid,
    pod::{Phase, PodView as _},
};
use tokio::time::{MissedTickBehavior, interval};

use crate::Desk;

/// A container that is to be told its processors.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Update {
    uid: PodUid,
    container: String,
    pub(crate) id: ContainerId,
    pub(crate) cpus: String,
}

/// Looks at every container, for ever.
pub(crate) async fn reconcile(
    desk: &Desk,
    pods: &dyn PodsView,
    runtime: &dyn Runtime,
    period: Duration,
) {
    let mut ticks = interval(period.max(Duration::from_millis(100)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for update in plan(desk, &pods.pods()) {
            let resources =
                LinuxResources { cpuset_cpus: update.cpus.clone(), ..LinuxResources::default() };
            // Each call has the adapter's deadline; what failed is tried with the next look.
            match runtime.update_container(&update.id, &resources).await {
                Ok(()) => {
                    let key = (update.uid, update.container);
                    desk.lock().told.insert(key, update.cpus);
                }
                Err(error) => tracing::error!(
                    pod_uid = %update.uid,
                    container = update.container,
                    container_id = %update.id,
                    cpus = update.cpus,
                    %error,
                    "Container cannot be told its processors"
                ),
            }
        }
    }
}

/// Which running containers have to be told other processors than they were told last.
pub(crate) fn plan(desk: &Desk, shown: &[Pod]) -> Vec<Update> {
    let is_over = |pod: &Pod| pod.api_phase().is_some_and(Phase::is_terminal);
    let living = desk.sweep(shown, is_over);
    let state = desk.lock();
    let mut updates = Vec::new();
    for pod in &living {
        let uid = pod.uid();
        for status in pod.status.iter().flat_map(container_statuses) {
            let is_running = status.state.as_ref().is_some_and(|it| it.running.is_some());
            let Some(id) = status.container_id.as_deref().filter(|_| is_running) else {
                continue;
            };
            let cpus = state.placement.place(&uid, &status.name).cpus.to_string();
            let key = (uid.clone(), status.name.clone());
            if !cpus.is_empty() && state.told.get(&key) != Some(&cpus) {
                let (uid, container) = key;
                let id = ContainerId::from(bare_container_id(id));
                updates.push(Update { uid, container, id, cpus });
            }
        }
    }
    updates
}
