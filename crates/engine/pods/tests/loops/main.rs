//! The sync loop as a whole: real dispatcher and workers on testkit's world, under paused time.
//!
//! `rig` puts them together without sources and without `observe`: changes are handed in, and the
//! world's events become hints. Tests wait for conditions of the world or of the board and read
//! times from the world's journal.

mod claims;
mod devices;
mod end;
mod evictions;
mod faults;
mod images;
mod life;
mod resize;
mod restarts;
mod rig;
mod traces;
