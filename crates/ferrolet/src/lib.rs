//! Wiring.
#![forbid(unsafe_code)]
