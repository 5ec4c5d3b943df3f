//! A look at one pod: what the runtime has of it, and what dead containers had to say.

use std::time::Duration;

use ferrolet_lifecycle::Presence;
use ferrolet_ports::{EventKind, Remains, RuntimeError};
use ferrolet_resources::pod_cgroup;
use ferrolet_types::observed::{ObservedContainer, PodObservation};
use tokio::time::sleep;

use super::Worker;
use crate::{
    memory::Part,
    metrics,
    reading::{is_about_the_pod, wants_recursive_read_only},
    start::runtime_handler,
    tell::say_of_pod,
    termination_message::termination_message,
};

/// First and longest pause before a runtime that does not answer is asked again about this pod.
const LOOK_AGAIN_FIRST: Duration = Duration::from_millis(200);
const LOOK_AGAIN_LONGEST: Duration = Duration::from_secs(5);

impl Worker {
    /// Asks the runtime about this pod until it answers.
    pub(super) async fn look(&mut self) {
        let mut pause = LOOK_AGAIN_FIRST;
        loop {
            match self.ask().await {
                Ok((seen, runtime_name)) => {
                    self.memory.look_at(seen, runtime_name);
                    self.look_for_cgroup().await;
                    return self.read_termination_messages().await;
                }
                Err(error) => {
                    tracing::debug!(pod = %self.memory.name(), %error, "Pod cannot be inspected");
                    if pause == LOOK_AGAIN_FIRST && is_about_the_pod(error.kind) {
                        self.say_not_seen(&error);
                    }
                    self.show_before_first_look();
                    sleep(pause).await;
                    pause = (pause * 2).min(LOOK_AGAIN_LONGEST);
                }
            }
        }
    }

    async fn ask(&self) -> Result<(PodObservation, String), RuntimeError> {
        let runtime_name = self.world.runtime_name().await?;
        let pod = self.memory.asked.pod();
        if let Some(pod) = pod.filter(|pod| wants_recursive_read_only(pod)) {
            let handler = runtime_handler(&self.world, pod).unwrap_or_default();
            self.world.recursive_read_only(&handler).await?;
        }
        let asked = self.world.runtime.observe_pod(self.memory.asked.uid());
        Ok((metrics::looked(asked).await?, runtime_name))
    }

    /// Finds out once whether a pod that was found running has its cgroup; one that is not found
    /// running gets it with its start.
    async fn look_for_cgroup(&mut self) {
        let is_running = self.memory.seen.observation().running().next().is_some();
        let Some(pod) = self.memory.asked.pod().filter(|_| is_running) else {
            return;
        };
        if self.memory.made.setup().cgroup != Presence::Unknown {
            return;
        }
        let cgroup = pod_cgroup(pod, &self.world.settings.spec.resources.cgroups);
        match self.world.cgroups.exists(&cgroup).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(pod = %self.memory.name(), "Pod runs without its cgroup");
                self.memory.made.note_setup(Part::Cgroup, Presence::Absent);
            }
            Err(error) => {
                tracing::debug!(pod = %self.memory.name(), %error, "Pod's cgroup cannot be looked for");
            }
        }
    }

    /// Tells that nobody knows how the pod is.
    fn say_not_seen(&self, error: &RuntimeError) {
        if let Some(pod) = self.memory.asked.pod() {
            let message = format!("error determining status: {error}");
            let events = self.world.events.as_ref();
            say_of_pod(events, pod, EventKind::Warning, "FailedSync", message);
        }
    }

    /// A pod that nobody could look at yet is shown as what its source says it is: pending, or as
    /// it was before.
    fn show_before_first_look(&mut self) {
        if self.memory.shown.status.is_some() {
            return;
        }
        let before = self.memory.asked.pod().and_then(|pod| {
            let status = pod.status.clone().filter(|it| it.start_time.is_some())?;
            Some((pod, status))
        });
        match before {
            // Computed from nothing seen, the containers of an earlier life would all look dead.
            Some((pod, status)) => {
                self.world.board.publish(pod, &status, Remains::Active);
                self.memory.shown.status = Some(status);
            }
            None => self.publish(),
        }
    }

    /// Reads the termination messages of containers that are newly dead and puts them where the
    /// runtime's message is.
    async fn read_termination_messages(&mut self) {
        for id in self.memory.seen.without_termination_message() {
            let containers = &self.memory.seen.observation().containers;
            let Some(container) = containers.iter().find(|it| it.id == id) else {
                continue;
            };
            let message = self.read_termination_message(container).await;
            self.memory.seen.note_termination_message(id, message);
        }
        self.memory.seen.add_termination_messages();
    }

    async fn read_termination_message(&self, container: &ObservedContainer) -> String {
        let Some(exit) = container.state.exit() else {
            return String::new();
        };
        let source = &container.termination_message;
        let mut mounts = container.mounts.iter();
        let mount = mounts.find(|mount| mount.container_path == source.path);
        let path = mount.map(|mount| mount.host_path.as_str()).unwrap_or_default();
        let log = source.falls_back_to_logs.then_some(container.log_path.as_str());
        termination_message(&self.world, exit, path, log).await
    }
}
