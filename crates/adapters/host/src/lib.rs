//! The Linux door: pods' files and logs, cgroups, inotify and facts about the machine.
//!
//! Owned by the shell; the engine sees only ports, `PodCgroups` and `PodFiles` among them. Everything
//! that a pod can influence is reached through [`ferrolet_linux::rooted`], and every call that can
//! hang runs off the async threads with a deadline ([`ferrolet_linux::offload`]). Volumes are in
//! `mounts`, what is used is in `usage`. Refuses: policy, the network, and following a link it did
//! not make.
#![forbid(unsafe_code)]

pub mod addresses;
pub mod certificates;
pub mod cgroups;
pub mod contract;
mod credential_files;
pub mod daemons;
pub mod files;
mod journal;
mod kernel_log;
pub mod kernel_settings;
mod lock_file;
pub mod log_store;
pub mod logs;
pub mod machine;
pub mod manifests;
mod memory_alarm;
pub mod names;
mod node_host;
pub mod notify;
pub mod offline;
mod outbound;
mod packet_filter;
pub mod paging;
mod profile;
pub mod pulls;
pub mod selinux;
pub mod shared_root;
pub mod sockets;
pub mod state_files;
pub mod subids;
mod system_logs;
mod termination;
pub mod topology;
pub mod watch;
pub mod watchdog;

pub use credential_files::OperatorFiles;
pub use kernel_log::KernelRecords;
pub use lock_file::LockFile;
pub use memory_alarm::KernelMemoryAlarm;
pub use node_host::ThisMachine;
pub use outbound::NodeOutbound;
pub use packet_filter::Iptables;
pub use profile::OwnProfiler;
pub use system_logs::SystemLogs;
pub use termination::Termination;
