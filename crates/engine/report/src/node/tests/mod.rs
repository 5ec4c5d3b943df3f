//! The node as a loop in paused time, and what it sends.

mod patch;
mod run;
