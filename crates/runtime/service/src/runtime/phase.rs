//! Where a container stands. Pure.
//!
//! ```text
//!  Created ─ start ─► Starting ─ launched ─► Running ─ ended ─► Exited
//!                        └──── failed ─────────────────────────► Exited
//! ```
//!
//! That it runs and that it ended are told by two tasks, in either order: an end that comes first counts, and the
//! beginning only adds its time.

use ferrolet_runtime_protocol::record::Exit;

/// Where a container stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It was never started.
    Created,
    /// Its monitor makes it.
    Starting,
    /// It runs.
    Running(Process),
    /// It ended.
    Exited {
        /// When it began; 0: nobody knows, or never.
        started_at: i64,
        /// How it ended.
        exit: Exit,
    },
    /// Its monitor does not answer.
    Unknown,
}

/// A container's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number on the node.
    pub(crate) pid: i32,
    /// When it began, in nanoseconds since 1970.
    pub(crate) started_at: i64,
}

impl Phase {
    /// After a launch that succeeded.
    pub(crate) fn started(self, process: Process) -> Self {
        match self {
            Self::Exited { exit, .. } => Self::Exited { started_at: process.started_at, exit },
            Self::Created | Self::Starting | Self::Running(_) | Self::Unknown => {
                Self::Running(process)
            }
        }
    }

    /// After an end.
    pub(crate) fn ended(self, exit: Exit) -> Self {
        match self {
            // Of two ends the first was seen by whoever was there.
            Self::Exited { .. } => self,
            Self::Running(Process { started_at, .. }) => Self::Exited { started_at, exit },
            Self::Created | Self::Starting | Self::Unknown => Self::Exited { started_at: 0, exit },
        }
    }

    /// In words for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Running(_) => "running",
            Self::Exited { .. } => "exited",
            Self::Unknown => "in an unknown state",
        }
    }

    /// Whether something of it may run.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self, Self::Starting | Self::Running(_) | Self::Unknown)
    }

    /// Its first process, while it runs.
    pub(crate) fn pid(&self) -> Option<i32> {
        match self {
            Self::Running(process) => Some(process.pid),
            Self::Created | Self::Starting | Self::Exited { .. } | Self::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> Exit {
        Exit { code, finished_at: 9, ..Exit::default() }
    }

    #[test]
    fn beginning_and_end_are_known_whichever_is_told_first() {
        let process = Process { pid: 7, started_at: 5 };
        let ended = Phase::Exited { started_at: 5, exit: exit(3) };
        assert_eq!(Phase::Starting.started(process).ended(exit(3)), ended);
        assert_eq!(Phase::Starting.ended(exit(3)).started(process), ended);
    }

    #[test]
    fn the_first_end_counts() {
        let first = Phase::Created.ended(exit(128));
        assert_eq!(first.clone().ended(exit(137)), first);
    }
}
