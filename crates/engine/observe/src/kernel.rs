//! What the kernel's log means for the node: kills because the whole machine was short of memory
//! are told of the node.
//!
//! In: records. Out: `SystemOOM` events. A container that reaches its own limit is not news of the
//! node: its status says `OOMKilled`. What a record means is decided in `resources`.

use std::sync::Arc;

use ferrolet_ports::{Event, EventKind, EventObject, Events, KernelLog};
use ferrolet_resources::{OomLog, Shortage};

/// Tells of kills for ever; a log that cannot be read any more is given up.
pub async fn watch_kernel(mut log: Box<dyn KernelLog>, events: Arc<dyn Events>) {
    let mut kills = OomLog::default();
    loop {
        let record = match log.next().await {
            Ok(record) => record,
            Err(error) => {
                tracing::warn!(%error, "The kernel's log is not followed any longer");
                return std::future::pending().await;
            }
        };
        let Some(kill) = kills.take(&record) else {
            continue;
        };
        let (process, pid) = (kill.process, kill.pid);
        match kill.shortage {
            Shortage::Node => events.record(Event {
                object: EventObject::Node,
                kind: EventKind::Warning,
                reason: "SystemOOM".to_owned(),
                message: format!("System OOM encountered, victim process: {process}, pid: {pid}"),
            }),
            Shortage::Cgroup(cgroup) => {
                tracing::debug!(cgroup, process, pid, "A process was killed at its cgroup's limit");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use ferrolet_ports::{Fut, HostError};
    use ferrolet_testkit::World;

    use super::*;

    struct Told(VecDeque<&'static str>);

    impl KernelLog for Told {
        fn next(&mut self) -> Fut<'_, Result<String, HostError>> {
            let record = self.0.pop_front();
            Box::pin(async move {
                match record {
                    Some(record) => Ok(record.to_owned()),
                    None => std::future::pending().await,
                }
            })
        }
    }

    /// OOM watcher: `SystemOOM` for victims of the whole node only.
    #[tokio::test(start_paused = true)]
    async fn a_node_without_memory_says_whom_it_cost() {
        let world = World::new();
        let records = [
            "4,1,1,-;a invoked oom-killer: x",
            "6,2,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=x,cpuset=x,mems_allowed=0,oom_memcg=/pod,task_memcg=/pod/c,task=a,pid=1,uid=0",
            "3,3,1,-;Memory cgroup out of memory: Killed process 1 (a) total-vm:1kB",
            "4,4,1,-;b invoked oom-killer: x",
            "3,5,1,-;Out of memory: Killed process 2 (b) total-vm:1kB",
        ];
        let log = Box::new(Told(records.into()));
        let watching = watch_kernel(log, world.events());
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), watching).await;
        let told: Vec<(String, String)> =
            world.recorded_events().into_iter().map(|(_, it)| (it.reason, it.message)).collect();
        let expected = "System OOM encountered, victim process: b, pid: 2";
        assert_eq!(told, [("SystemOOM".to_owned(), expected.to_owned())]);
    }
}
