//! The kernel's network by netlink: messages, sockets, links and routes, nf_tables.
//!
//! Nothing here decides: [`crate::plan`] says what there should be, and these modules write it as messages. They know
//! only as much of both protocols as that needs.

pub(crate) mod connections;
pub(crate) mod message;
pub(crate) mod route;
pub(crate) mod socket;
pub(crate) mod tables;
