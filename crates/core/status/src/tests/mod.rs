//! Every rule of this crate, one test each, and recordings of upstream replayed.

mod containers;
mod publish;
mod recorded;
mod rules;
mod support;
