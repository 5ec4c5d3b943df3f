//! A profile as it is meant on this node.
//!
//! Of rules for one system call, one without conditions counts over those with some, as in
//! libseccomp; otherwise the first that fits. A rule fits when all of its conditions hold, two on
//! the same argument as well.

use crate::syscalls::Arch;

/// What happens to a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The whole process ends.
    KillProcess,
    /// The thread ends.
    KillThread,
    /// The thread gets SIGSYS.
    Trap,
    /// It fails with this number.
    Errno(u16),
    /// Whoever traces the process is told, with this number.
    Trace(u16),
    /// It is done, and written to the kernel's log.
    Log,
    /// It is done.
    Allow,
}

impl Action {
    /// As a filter returns it.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::KillProcess => 0x8000_0000,
            Self::KillThread => 0,
            Self::Trap => 0x0003_0000,
            Self::Errno(number) => 0x0005_0000 | u32::from(number),
            Self::Trace(number) => 0x7ff0_0000 | u32::from(number),
            Self::Log => 0x7ffc_0000,
            Self::Allow => 0x7fff_0000,
        }
    }

    /// Whether a call that nobody thought of may go through.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Trace(_) | Self::Log | Self::Allow)
    }
}

/// How an argument is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comparison {
    /// It is not the value.
    NotEqual(u64),
    /// It is less.
    Less(u64),
    /// It is not greater.
    LessOrEqual(u64),
    /// It is the value.
    Equal(u64),
    /// It is not less.
    GreaterOrEqual(u64),
    /// It is greater.
    Greater(u64),
    /// Those bits of it are the value.
    MaskedEqual {
        /// The bits.
        mask: u64,
        /// What they are.
        value: u64,
    },
}

/// Something that has to hold for a rule to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition {
    /// Which argument, from 0 to 5.
    pub argument: u8,
    /// How it is compared.
    pub comparison: Comparison,
}

/// What happens to some system calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Their names. Those that an architecture does not have mean nothing on it.
    pub names: Vec<String>,
    /// What happens to them.
    pub action: Action,
    /// All of which have to hold.
    pub conditions: Vec<Condition>,
}

/// A profile as it is meant on one node for one set of capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// What happens to calls without a rule.
    pub default: Action,
    /// The architectures that calls may be of. Others end the process.
    pub arches: Vec<Arch>,
    /// The rules.
    pub rules: Vec<Rule>,
    /// The flags that the filter is loaded with.
    pub flags: u32,
}

/// What a profile may depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// The architecture of the kernel.
    pub arch: Arch,
    /// The kernel's version: major and minor.
    pub kernel: (u32, u32),
    /// The container's capabilities, one bit each.
    pub capabilities: u64,
}
