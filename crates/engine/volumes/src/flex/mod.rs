//! Volumes of drivers of the old kind, `flexVolume`: programs that are started for each call.
//!
//! ```text
//!  attaches?  no ──────────────────────────────────────────────────► mount ─► given to the group ─► the pod's
//!             yes ─► in use, attached ─► waitforattach ─► mountdevice ─┘
//!  unmount ─► nobody else has it ─► unmountdevice ─► no longer in use
//! ```
//!
//! [`rules`] says what a driver is told, [`shell`] tells it, and [`growth`] when a volume has become larger. Who uses a volume is read from directories, so a restart forgets
//! nothing. Refuses: raw devices and mount options, which the protocol has no words for.

mod growth;
mod rules;
mod shell;

pub use shell::Attaching;
pub(crate) use shell::{FlexShell, Kept, is_driver};
