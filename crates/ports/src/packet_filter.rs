//! The kernel's packet filter, as the programs `iptables` and `ip6tables` show it.

use crate::{Fut, HostError};

/// A version of the internet protocol; each has a packet filter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpFamily {
    /// `iptables`.
    V4,
    /// `ip6tables`.
    V6,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterAnswer {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it complained about, bounded.
    pub complaint: String,
}

/// The packet filter.
pub trait PacketFilter: Send + Sync {
    /// Runs the family's program with these words, to its end or a deadline. A program that is not
    /// there, or does not end, is an error; one that fails is an answer.
    fn run<'a>(
        &'a self,
        family: IpFamily,
        words: &'a [&'a str],
    ) -> Fut<'a, Result<FilterAnswer, HostError>>;
}
