//! Cgroups that systemd makes on request: slices, units that live as long as the machine.

use std::fmt;

use crate::{Fut, HostError};

/// Whoever makes slices.
pub trait Slices: Send + Sync + fmt::Debug {
    /// Makes a slice with these properties, or gives them to one that is there. Its parents come
    /// with it. Idempotent.
    fn ensure<'a>(&'a self, slice: &'a Slice) -> Fut<'a, Result<(), HostError>>;
    /// Gives properties to a unit that somebody else made.
    fn set<'a>(
        &'a self,
        name: &'a str,
        properties: &'a [SliceProperty],
    ) -> Fut<'a, Result<(), HostError>>;
    /// Takes a slice away. Absent is success.
    fn stop<'a>(&'a self, name: &'a str) -> Fut<'a, Result<(), HostError>>;
}

/// A slice as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The unit, `kubepods-burstable.slice`.
    pub name: String,
    /// The unit above it, `kubepods.slice`; `-.slice` for the root.
    pub parent: String,
    /// Its bounds.
    pub properties: Vec<SliceProperty>,
}

/// One property of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceProperty {
    /// A number; `u64::MAX` is without bound.
    Number(&'static str, u64),
    /// A set of processors, a bit each.
    Mask(&'static str, Vec<u8>),
}
