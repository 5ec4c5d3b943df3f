//! Profiles of the agent itself: where it spends processor time and what holds its memory.
//!
//! Plain data: addresses of code and the files that code was mapped from. Names are not resolved
//! here; who reads a profile has the executable. Implemented by the adapter `host`, shown by the
//! server.

use std::time::Duration;

use crate::{Fut, HostError};

/// One stack with its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSample {
    /// Addresses of code, innermost first.
    pub stack: Vec<u64>,
    /// As many figures as the profile has kinds of them.
    pub figures: Vec<i64>,
}

/// A part of the address space with code in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file.
    pub file: String,
}

/// Samples and what is needed to read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Stacks, each once.
    pub samples: Vec<ProfileSample>,
    /// Code, by address.
    pub mappings: Vec<CodeMapping>,
    /// What one sample stands for: nanoseconds of processor time, or bytes of memory.
    pub period: i64,
}

/// Threads by number, with name and state.
pub type Threads = Vec<(u32, String, char)>;

/// Takes profiles of this process.
pub trait Profiler: Send + Sync {
    /// Processor time used during `span`: number of samples, nanoseconds. One at a time.
    fn cpu(&self, span: Duration) -> Fut<'_, Result<Profile, HostError>>;
    /// Memory: objects and bytes allocated since the start, objects and bytes in use.
    fn heap(&self) -> Fut<'_, Result<Profile, HostError>>;
    /// The threads: number, name and state.
    fn threads(&self) -> Fut<'_, Result<Threads, HostError>>;
}
