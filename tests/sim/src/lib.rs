#![forbid(unsafe_code)]
//! ferrolet-sim
