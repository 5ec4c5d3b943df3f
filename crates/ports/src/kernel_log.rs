//! What the kernel says.

use crate::{Fut, HostError};

/// The kernel's log from now on.
pub trait KernelLog: Send {
    /// Waits for the next record, as `/dev/kmsg` has it. Records that came too fast to be read are
    /// left out.
    fn next(&mut self) -> Fut<'_, Result<String, HostError>>;
}
