//! What is handed to people who do not build: a Debian package, checksums, and the list of what the
//! program is made of.
//!
//! ```text
//! executable ──────────────┐
//! texts that it prints ────┼─► Release ─► debian::write ─► ferrolet_0.1.0_amd64.deb
//! files/ (unit, defaults) ─┘
//! cargo metadata, Cargo.lock ─► sbom::bill
//! ```
//!
//! Owned by `cargo xtask dist`. Values in, files out: it runs no program, so no tools of a
//! distribution are needed to make a package for it, and the same input gives the same bytes.
//! Refuses: building, and looking at the network.
#![forbid(unsafe_code)]

mod checksums;
mod contents;
pub mod debian;
mod elf;
pub mod sbom;

pub use checksums::sums;
pub use contents::{Release, Texts};
pub use elf::{Linking, linking};
