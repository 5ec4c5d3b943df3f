//! A file of checksums that `sha256sum --check` reads.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// One line for each file, by its name without a directory.
pub fn sums(files: &[&Path]) -> Result<String> {
    let mut text = String::new();
    for file in files {
        let name = file.file_name().context("a file has a name")?.to_string_lossy();
        let content = fs::read(file).with_context(|| format!("read {}", file.display()))?;
        let digest = Sha256::digest(&content);
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!("{digits}  {name}\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_sum_and_a_name() {
        let directory = std::env::temp_dir().join(format!("ferrolet-sums-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("abc");
        std::fs::write(&file, "abc").unwrap();
        let text = sums(&[&file]).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc\n");
    }
}
