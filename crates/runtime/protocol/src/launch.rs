//! A container to start, down to the last flag. Whoever executes it decides nothing.

use prost::{Enumeration, Message, Oneof};

/// A container to start.
#[derive(Clone, PartialEq, Message)]
pub struct LaunchSpec {
    /// The container's id.
    #[prost(string, tag = "1")]
    pub container: String,
    /// Its first process.
    #[prost(message, optional, tag = "2")]
    pub process: Option<Process>,
    /// Its root file system.
    #[prost(message, optional, tag = "3")]
    pub root: Option<Root>,
    /// What is mounted in it, in this order.
    #[prost(message, repeated, tag = "4")]
    pub mounts: Vec<Mount>,
    /// The device nodes of its `/dev`.
    #[prost(message, repeated, tag = "5")]
    pub devices: Vec<Device>,
    /// Paths that are hidden: files behind `/dev/null`, directories behind an empty one.
    #[prost(string, repeated, tag = "6")]
    pub masked_paths: Vec<String>,
    /// Paths that cannot be written.
    #[prost(string, repeated, tag = "7")]
    pub readonly_paths: Vec<String>,
    /// Whose processes it sees: a [`crate::sandbox::PidShare`].
    #[prost(enumeration = "crate::sandbox::PidShare", tag = "8")]
    pub pid: i32,
    /// The container whose processes it sees, with [`crate::sandbox::PidShare::Target`].
    #[prost(string, tag = "9")]
    pub pid_target: String,
    /// Its control groups.
    #[prost(message, optional, tag = "10")]
    pub cgroups: Option<Cgroups>,
    /// Where its output goes; absent: nowhere but to those who attach.
    #[prost(message, optional, tag = "11")]
    pub log: Option<Log>,
    /// Its stdin.
    #[prost(enumeration = "Stdin", tag = "12")]
    pub stdin: i32,
    /// Whether its stdio is a terminal.
    #[prost(bool, tag = "13")]
    pub tty: bool,
    /// Whether it has a cgroup namespace of its own.
    #[prost(bool, tag = "14")]
    pub cgroup_namespace: bool,
}

/// A process to become: of a container, or of a command in one.
#[derive(Clone, PartialEq, Message)]
pub struct Process {
    /// The program and its arguments.
    #[prost(string, repeated, tag = "1")]
    pub args: Vec<String>,
    /// `NAME=value`; a value may be any bytes.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub env: Vec<Vec<u8>>,
    /// Where it begins; made if missing.
    #[prost(string, tag = "3")]
    pub working_dir: String,
    /// Who it is.
    #[prost(message, optional, tag = "4")]
    pub user: Option<User>,
    /// Capabilities, one bit each, that it has and may have. Inheritable and ambient are empty.
    #[prost(fixed64, tag = "5")]
    pub capabilities: u64,
    /// Whether it can never gain what it does not have.
    #[prost(bool, tag = "6")]
    pub no_new_privs: bool,
    /// A seccomp filter, eight bytes an instruction as the kernel takes them; empty: none.
    #[prost(bytes = "vec", tag = "7")]
    pub seccomp: Vec<u8>,
    /// The flags that go with the filter.
    #[prost(uint32, tag = "8")]
    pub seccomp_flags: u32,
    /// Resource limits.
    #[prost(message, repeated, tag = "9")]
    pub rlimits: Vec<Rlimit>,
    /// How gladly the kernel kills it when memory is short; absent: as its parent.
    #[prost(sint32, optional, tag = "10")]
    pub oom_score_adj: Option<i32>,
    /// The AppArmor profile to be in; empty: none.
    #[prost(string, tag = "11")]
    pub apparmor: String,
    /// The SELinux label to have; empty: none.
    #[prost(string, tag = "12")]
    pub selinux: String,
}

/// Who a process is. Names are looked up in the container's own files.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct User {
    /// A name or a number; empty: root.
    #[prost(string, tag = "1")]
    pub user: String,
    /// A name or a number; empty: the user's own group.
    #[prost(string, tag = "2")]
    pub group: String,
    /// Further groups.
    #[prost(uint32, repeated, tag = "3")]
    pub supplemental_groups: Vec<u32>,
    /// Whether the groups that the container's files give the user count too.
    #[prost(enumeration = "GroupsPolicy", tag = "4")]
    pub policy: i32,
}

/// Which groups a user has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum GroupsPolicy {
    /// Those listed and those of the container's files.
    Merge = 0,
    /// Those listed.
    Strict = 1,
}

/// A limit of `setrlimit`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Rlimit {
    /// The kernel's number for it.
    #[prost(uint32, tag = "1")]
    pub resource: u32,
    /// The soft limit; `u64::MAX` is none.
    #[prost(uint64, tag = "2")]
    pub soft: u64,
    /// The hard limit.
    #[prost(uint64, tag = "3")]
    pub hard: u64,
}

/// A root file system.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Root {
    /// Directories of layers, the uppermost first.
    #[prost(string, repeated, tag = "1")]
    pub layers: Vec<String>,
    /// Where changes go; empty: there is one layer, and it is the root itself.
    #[prost(string, tag = "2")]
    pub upper: String,
    /// The overlay's own directory beside `upper`.
    #[prost(string, tag = "3")]
    pub work: String,
    /// Whether the container cannot write to it.
    #[prost(bool, tag = "4")]
    pub readonly: bool,
    /// Whether its layers belong to the pod's user namespace by an id-mapped mount.
    #[prost(bool, tag = "5")]
    pub idmap: bool,
    /// How mounts below the root and outside move in and out.
    #[prost(enumeration = "Propagation", tag = "6")]
    pub propagation: i32,
}

/// Something mounted in a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mount {
    /// Where, in the container.
    #[prost(string, tag = "1")]
    pub target: String,
    /// What.
    #[prost(oneof = "Source", tags = "2, 3, 4, 5")]
    pub source: Option<Source>,
    /// Whether it can be written.
    #[prost(enumeration = "Readonly", tag = "6")]
    pub readonly: i32,
    /// No set-user-id programs.
    #[prost(bool, tag = "7")]
    pub nosuid: bool,
    /// No devices.
    #[prost(bool, tag = "8")]
    pub nodev: bool,
    /// No programs.
    #[prost(bool, tag = "9")]
    pub noexec: bool,
    /// How mounts below it and outside move in and out.
    #[prost(enumeration = "Propagation", tag = "10")]
    pub propagation: i32,
    /// Whether it belongs to the pod's user namespace by an id-mapped mount.
    #[prost(bool, tag = "11")]
    pub idmap: bool,
}

/// Where a mount comes from.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Source {
    /// A file or directory of the node, with what is mounted below it.
    #[prost(string, tag = "2")]
    Path(String),
    /// A file system of its own.
    #[prost(message, tag = "3")]
    Tmpfs(Tmpfs),
    /// One of the kernel's file systems.
    #[prost(enumeration = "Kernel", tag = "4")]
    Kernel(i32),
    /// An image's files: directories of layers, the uppermost first, and what is taken of them.
    #[prost(message, tag = "5")]
    Layers(Layers),
}

/// A file system in memory.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Tmpfs {
    /// Its size in bytes; 0: the kernel's default.
    #[prost(uint64, tag = "1")]
    pub size: u64,
    /// The mode of its root.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
}

/// An image as a volume. It is always read-only.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Layers {
    /// Directories of layers, the uppermost first.
    #[prost(string, repeated, tag = "1")]
    pub layers: Vec<String>,
    /// The directory in them that is mounted; empty: all.
    #[prost(string, tag = "2")]
    pub sub_path: String,
}

/// File systems that the kernel makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Kernel {
    /// `/proc`.
    Proc = 0,
    /// `/sys`.
    Sysfs = 1,
    /// `/dev`: a small tmpfs with the container's devices.
    Dev = 2,
    /// `/dev/pts`.
    Devpts = 3,
    /// `/dev/mqueue`.
    Mqueue = 4,
    /// `/dev/shm`: the pod's.
    Shm = 5,
    /// `/sys/fs/cgroup`.
    Cgroup = 6,
}

/// Whether a mount can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Readonly {
    /// It can.
    No = 0,
    /// It cannot; what is mounted below it is as it was.
    Yes = 1,
    /// Neither it nor anything below it.
    Recursive = 2,
}

/// How mounts move between a container and the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Propagation {
    /// Not at all.
    Private = 0,
    /// From the node into the container.
    HostToContainer = 1,
    /// Both ways.
    Bidirectional = 2,
}

/// A device node.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    /// Where, below `/dev`.
    #[prost(string, tag = "1")]
    pub path: String,
    /// A block device, not a character device.
    #[prost(bool, tag = "2")]
    pub is_block: bool,
    /// Its major number.
    #[prost(uint32, tag = "3")]
    pub major: u32,
    /// Its minor number.
    #[prost(uint32, tag = "4")]
    pub minor: u32,
    /// Its permissions.
    #[prost(uint32, tag = "5")]
    pub mode: u32,
    /// Its owner.
    #[prost(uint32, tag = "6")]
    pub uid: u32,
    /// Its group.
    #[prost(uint32, tag = "7")]
    pub gid: u32,
    /// The node's own, for user namespaces, in which nobody makes devices.
    #[prost(string, tag = "8")]
    pub host_path: String,
}

/// Control groups to make and to be in.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Cgroups {
    /// Made in this order.
    #[prost(message, repeated, tag = "1")]
    pub groups: Vec<Cgroup>,
    /// The group in a v2 tree by which everything is killed at once; empty: there is none.
    #[prost(string, tag = "2")]
    pub kill: String,
    /// The group of v1's freezer; empty: there is none.
    #[prost(string, tag = "3")]
    pub freezer: String,
    /// The file whose line `oom_kill` counts; empty: nobody counts.
    #[prost(string, tag = "4")]
    pub oom_events: String,
    /// A program that says which devices may be opened, for v2; eight bytes an instruction.
    #[prost(bytes = "vec", tag = "5")]
    pub device_filter: Vec<u8>,
}

/// One directory of a cgroup tree.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Cgroup {
    /// Its absolute path.
    #[prost(string, tag = "1")]
    pub directory: String,
    /// Whether processes join it, and it goes with the container. Others are on the way.
    #[prost(bool, tag = "2")]
    pub is_own: bool,
    /// Whether it is in a v2 tree.
    #[prost(bool, tag = "3")]
    pub is_unified: bool,
    /// Written in this order.
    #[prost(message, repeated, tag = "4")]
    pub settings: Vec<Setting>,
}

/// A file of a cgroup and what is written to it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Setting {
    /// Its name.
    #[prost(string, tag = "1")]
    pub file: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
    /// How it is written.
    #[prost(enumeration = "Write", tag = "3")]
    pub write: i32,
}

/// How a setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Write {
    /// As it is, or the launch fails.
    Must = 0,
    /// As it is, where the kernel takes it.
    May = 1,
    /// The parent's value, if the file is empty.
    Inherit = 2,
}

/// Where a container's output goes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Log {
    /// The file's absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The size at which the monitor begins another file; 0: never.
    #[prost(uint64, tag = "2")]
    pub max_size: u64,
}

/// A container's stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Stdin {
    /// Empty.
    None = 0,
    /// Open as long as the container runs.
    Open = 1,
    /// Closed when the first client leaves.
    Once = 2,
}
