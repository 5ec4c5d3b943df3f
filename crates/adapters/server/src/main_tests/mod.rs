//! The main listener over real TLS on loopback: certificates made here, an API server and a runtime
//! that are fakes.

mod attackers;
mod bridge;
mod figures;
mod history;
mod identities;
mod inside;
mod limits;
mod logs;
mod page;
mod rig;
mod runtime;
mod streams;
mod tls;
