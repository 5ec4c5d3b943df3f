//! Asking a web server: requests as specified, answers judged, errors in the words of Go's client.
//!
//! One connection per request, closed after it; the other side gets a moment to close first, so
//! that its TIME_WAIT is not ours. Certificates are not verified: nobody knows what a pod's should
//! be.

mod client;
mod exchange;
mod request;
mod tls;
mod url;

pub(crate) use client::Client;
pub(crate) use request::Request;
pub(crate) use tls::{Tls, is_http2};

#[cfg(test)]
pub(crate) mod tests;
