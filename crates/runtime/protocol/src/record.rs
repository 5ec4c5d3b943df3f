//! What is kept of containers: in a monitor's memory, in snapshots and in files.

use prost::{Enumeration, Message};

/// How a process ended.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Exit {
    /// The exit code; 128 and the signal's number after a signal.
    #[prost(sint32, tag = "1")]
    pub code: i32,
    /// Whether the kernel killed something in the container for want of memory.
    #[prost(bool, tag = "2")]
    pub oom_killed: bool,
    /// When, in nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub finished_at: i64,
    /// Why, in one word, where the service wrote it down because no monitor saw it.
    #[prost(string, tag = "4")]
    pub reason: String,
    /// Why, in a sentence, likewise.
    #[prost(string, tag = "5")]
    pub message: String,
}

/// Where a container stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum State {
    /// Its first process is being made.
    Starting = 0,
    /// It runs.
    Running = 1,
    /// It ended, and `exit` says how.
    Exited = 2,
}

/// A container as its monitor knows it: an entry of a snapshot, and the file `launched`.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerRecord {
    /// Its id.
    #[prost(string, tag = "1")]
    pub container: String,
    /// Where it stands.
    #[prost(enumeration = "State", tag = "2")]
    pub state: i32,
    /// Its first process on the node; 0 before there is one.
    #[prost(int32, tag = "3")]
    pub pid: i32,
    /// When it was started, in nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub started_at: i64,
    /// How it ended.
    #[prost(message, optional, tag = "5")]
    pub exit: Option<Exit>,
    /// Lines of output that could not be written.
    #[prost(uint64, tag = "6")]
    pub lost_lines: u64,
}

/// The monitor itself: the file `monitor`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MonitorRecord {
    /// Its process.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// When the process began, in the kernel's ticks: with the pid, a name that is never reused.
    #[prost(uint64, tag = "2")]
    pub start_ticks: u64,
    /// The protocol that it speaks.
    #[prost(uint32, tag = "3")]
    pub protocol: u32,
}
