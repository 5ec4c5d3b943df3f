//! What the runtime will not let go of, and starts that were given up half way.
//!
//! A runtime whose caller dies in the middle of a start may keep the half-made container for good:
//! containerd 2.4 calls it dead and refuses to remove it, because its task is still there. Such a
//! thing must not hold up its pod: it is put aside, its successor gets another name, and the pod's
//! end does not wait for it. When the pod is gone, the census finds the rest as something that
//! nobody asked for, and goes on asking until the runtime gives in. Owns no clock and makes no
//! calls.

use std::collections::BTreeSet;

use ferrolet_types::{
    ContainerName,
    observed::{ContainerState, ObservedContainer, PodObservation},
};

/// What was put aside of one pod.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind {
    /// Sandboxes and containers that the runtime refused to remove.
    ids: BTreeSet<String>,
    /// The containers among them that it still has.
    containers: Vec<ObservedContainer>,
}

impl LeftBehind {
    /// Puts something aside, in what was seen last as well.
    pub(crate) fn put_aside(&mut self, id: &str, seen: &mut PodObservation) {
        self.ids.insert(id.to_owned());
        seen.containers.append(&mut self.containers);
        self.take_from(seen);
    }

    /// Takes what was put aside out of a new look.
    pub(crate) fn take_from(&mut self, seen: &mut PodObservation) {
        if self.ids.is_empty() {
            return;
        }
        let is_aside = |id: &str| self.ids.contains(id);
        seen.sandboxes.retain(|it| !is_aside(it.id.as_str()));
        let all = std::mem::take(&mut seen.containers).into_iter();
        let (aside, kept) = all.partition(|it| is_aside(it.id.as_str()));
        seen.containers = kept;
        self.containers = aside;
    }

    /// How many containers of this name never ran and still hold a name that one restarted so often
    /// would get.
    pub(crate) fn count(
        &self,
        seen: &PodObservation,
        name: &ContainerName,
        restart_count: u32,
    ) -> u32 {
        let named = |it: &&ObservedContainer| it.name == *name && it.restart_count <= restart_count;
        let older =
            seen.containers.iter().filter(|it| it.name == *name).skip(1).filter(|it| {
                it.state == ContainerState::Created && it.restart_count <= restart_count
            });
        let n = self.containers.iter().filter(named).count() + older.count();
        u32::try_from(n).unwrap_or(u32::MAX)
    }
}

/// A container whose start was given up by its caller, an agent that died for instance, never ran:
/// it is made anew, and nobody counts that as a crash.
pub(crate) fn undo_abandoned_start(container: &mut ObservedContainer) {
    let is_abandoned = container
        .state
        .exit()
        .is_some_and(|exit| exit.started_at.is_none() && was_given_up(&exit.message));
    if is_abandoned {
        container.state = ContainerState::Created;
    }
}

/// True when the last cause that the runtime names is that its caller is gone. Anywhere else in the
/// sentence the words may be a command's name, and whoever has such a command crashes like others.
fn was_given_up(message: &str) -> bool {
    let message = message.trim_end();
    // How containerd ends an error that has no code of its own.
    let message = message.strip_suffix(": unknown").unwrap_or(message);
    let last = message.strip_suffix("context canceled");
    last.is_some_and(|before| before.is_empty() || before.ends_with(": "))
}

#[cfg(test)]
mod tests {
    use ferrolet_types::{
        ContainerId, PodUid, SandboxId, Timestamp,
        observed::{Exit, NetworkMode, ObservedSandbox, TerminationMessageSource},
    };

    use super::*;

    fn container(id: &str, name: &str, restart_count: u32) -> ObservedContainer {
        ObservedContainer {
            id: ContainerId::new(id),
            name: ContainerName::new(name),
            sandbox: SandboxId::new("s"),
            state: ContainerState::Created,
            created_at: Timestamp::from_second(100),
            restart_count,
            spec_hash: None,
            crash_streak: None,
            termination_message: TerminationMessageSource::default(),
            image: String::new(),
            image_ref: String::new(),
            image_id: String::new(),
            log_path: String::new(),
            mounts: Vec::new(),
            user: None,
            resources: None,
            stop_signal: None,
        }
    }

    #[test]
    fn a_start_that_its_caller_gave_up_never_happened() {
        let check = |message: &str, started_at: Option<Timestamp>, is_undone: bool| {
            let exit = Exit {
                started_at,
                finished_at: Timestamp::from_second(100),
                code: 128,
                reason: "StartError".to_owned(),
                message: message.to_owned(),
            };
            let mut container = container("c", "c", 0);
            container.state = ContainerState::Exited(exit);
            undo_abandoned_start(&mut container);
            let found = container.state == ContainerState::Created;
            assert_eq!(found, is_undone, "{message}");
        };
        check("failed to create shim task: context canceled", None, true);
        check("context canceled", None, true);
        check("failed to start containerd task: context canceled: unknown", None, true);
        check("exec: no such file or directory", None, false);
        let named = "exec: \"context canceled\": executable file not found in $PATH: unknown";
        check(named, None, false);
        check("stat /bin/context canceled: no such file or directory: unknown", None, false);
        check("cannot run /bin/context canceled", None, false);
        check("context canceled", Some(Timestamp::from_second(90)), false);
    }

    #[test]
    fn what_is_put_aside_is_out_of_sight_and_counted() {
        let mut seen = PodObservation::nothing(PodUid::new("u"), Timestamp::from_second(100));
        let sandbox = |id: &str| ObservedSandbox {
            id: SandboxId::new(id),
            attempt: 0,
            is_ready: false,
            created_at: Timestamp::from_second(100),
            ips: Vec::new(),
            network: NetworkMode::Pod,
        };
        seen.sandboxes = vec![sandbox("s"), sandbox("t")];
        seen.containers = vec![
            container("c", "main", 1),
            container("b", "main", 0),
            container("x", "side", 0),
            container("a", "main", 0),
        ];
        let whole = seen.clone();
        let mut left = LeftBehind::default();
        left.take_from(&mut seen);
        assert_eq!(seen, whole, "nothing was put aside yet");
        let main = ContainerName::new("main");
        assert_eq!(left.count(&seen, &main, 1), 2, "both older ones never ran");
        assert_eq!(left.count(&seen, &ContainerName::new("side"), 1), 0);

        left.put_aside("c", &mut seen);
        left.put_aside("t", &mut seen);
        let ids = |seen: &PodObservation| {
            let sandboxes = seen.sandboxes.iter().map(|it| it.id.to_string());
            let containers = seen.containers.iter().map(|it| it.id.to_string());
            sandboxes.chain(containers).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ids(&seen), "s b x a");
        assert_eq!(left.count(&seen, &main, 1), 2, "c is aside, a is old");
        assert_eq!(left.count(&seen, &main, 0), 1, "c had another number");
        let mut again = whole;
        left.take_from(&mut again);
        assert_eq!(ids(&again), "s b x a");
        // The runtime let go of one after all.
        again.containers.retain(|it| it.id.as_str() != "c");
        left.take_from(&mut again);
        assert_eq!(left.count(&again, &main, 1), 1);
    }
}
