//! Programs that are started for us, ended together with whatever they started themselves.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// Ends a program's process group when it is dropped, however its run went. The program must lead a group of its own.
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group that a child leads.
    pub(crate) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// The program has ended well: what it left running in the background is meant to stay.
    pub(crate) fn let_live(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // Nobody left is as good.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
