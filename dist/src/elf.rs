//! Whether an executable stands alone.
//!
//! Reads the program headers of a 64-bit little-endian ELF file, which is all that we build. A file
//! with an interpreter is handed to the dynamic linker and needs its libraries on the node.

use anyhow::{Result, ensure};

/// What an executable needs beside the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// Nothing.
    Static,
    /// A dynamic linker, and libraries.
    Dynamic,
}

const INTERPRETER: u32 = 3;

/// Reads the headers of an executable.
pub fn linking(program: &[u8]) -> Result<Linking> {
    ensure!(program.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
    let number = |at: usize, size: usize| -> Result<u64> {
        let bytes = program.get(at..at + size);
        ensure!(bytes.is_some(), "the ELF file ends in its headers");
        Ok(bytes.unwrap_or_default().iter().rev().fold(0, |sum, it| sum << 8 | u64::from(*it)))
    };
    let (table, size, n) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for entry in 0..n {
        let at = usize::try_from(table + entry * size)?;
        if number(at, 4)? == u64::from(INTERPRETER) {
            return Ok(Linking::Dynamic);
        }
    }
    Ok(Linking::Static)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one program header of this kind.
    fn file(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (bytes[32], bytes[54], bytes[56], bytes[64]) = (64, 56, 1, kind);
        bytes
    }

    #[test]
    fn an_interpreter_tells() {
        assert_eq!(linking(&file(1)).unwrap(), Linking::Static);
        assert_eq!(linking(&file(3)).unwrap(), Linking::Dynamic);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(linking(&own).is_ok());
    }

    #[test]
    fn what_is_no_program_is_refused() {
        for bytes in [&b"#!/bin/sh"[..], &file(1)[..60], b"\x7fELF\x02\x01"] {
            assert!(linking(bytes).is_err());
        }
    }
}
