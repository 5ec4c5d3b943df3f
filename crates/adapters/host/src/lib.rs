//! The Linux door: files, cgroups, inotify, the wall clock and facts about the machine.
//!
//! Owned by the shell; the engine sees only ports, `PodCgroups`, `PodFiles` and `Clock` among them. Everything that a pod can
//! influence is reached through [`rooted`], every call that can hang runs off the async threads with a deadline
//! ([`off_thread`]), and all `unsafe` lives in `sys`. Refuses: policy, the network, and following a link it did not make.

pub mod addresses;
pub mod cgroups;
mod children;
mod clock;
pub mod contract;
mod farewell;
pub mod files;
mod journal;
mod kernel_log;
pub mod log_store;
pub mod logs;
pub mod machine;
pub mod manifests;
pub mod mountinfo;
pub mod names;
pub mod notify;
pub mod offline;
mod offload;
mod own;
mod own_pages;
mod packet_filter;
pub mod paging;
pub mod process;
mod profile;
pub mod pulls;
pub mod rooted;
pub mod selinux;
pub mod sockets;
pub mod state_files;
pub mod subids;
mod sys;
mod system_logs;
pub mod usage;
pub mod volumes;
pub mod watch;

pub use clock::SystemClock;
pub use farewell::QuickFarewell;
pub use kernel_log::KernelRecords;
pub use offload::off_thread;
pub use own::OwnFigures;
pub use packet_filter::Iptables;
pub use profile::OwnProfiler;
pub use sys::WatchedHeap;
pub use system_logs::SystemLogs;
