//! WebSocket and SPDY/3.1 as bytes on a connection, as far as streams into pods need them.
//!
//! For the two that serve such streams: `adapters/server`, which stands between clients and a runtime, and
//! `runtime/service`, which is one. Frames in, frames out; no listening, no HTTP, no meaning of what is said.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod spdy;
pub mod tunnel;
pub mod websocket;
