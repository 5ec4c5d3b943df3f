//! Which files a program needs to run elsewhere: its dynamic loader is asked, as `ldd` does.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// The files and the libraries of those that are programs, each once.
pub(super) fn with_libraries(files: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut all = BTreeSet::new();
    for file in files {
        all.insert(file.clone());
        if is_program(file)? {
            all.extend(libraries(file)?);
        }
    }
    Ok(all)
}

fn is_program(path: &Path) -> Result<bool> {
    let mut start = [0; 4];
    let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    Ok(file.read(&mut start)? == start.len() && start == *b"\x7fELF")
}

fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    if !Path::new(LOADER).exists() {
        return Ok(Vec::new());
    }
    let listed = Command::new(LOADER)
        .arg("--list")
        .arg(program)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("list the libraries of {}", program.display()))?;
    // The loader refuses programs that are linked statically: those need nothing.
    if !listed.status.success() {
        return Ok(Vec::new());
    }
    Ok(parse(&String::from_utf8_lossy(&listed.stdout)))
}

/// Lines such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`,
/// `/lib64/ld-linux-x86-64.so.2 (0x…)`, and a `linux-vdso.so.1 (0x…)` that is no file.
fn parse(listed: &str) -> Vec<PathBuf> {
    listed
        .lines()
        .filter_map(|line| {
            let path = line.rsplit("=>").next()?.trim().split(" (").next()?;
            path.starts_with('/').then(|| PathBuf::from(path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_itself_are_taken_the_vdso_is_not() {
        let listed = "\tlinux-vdso.so.1 (0x00007ff5de727000)\n\
                      \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007ff5de514000)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007ff5de729000)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", LOADER].map(PathBuf::from);
        assert_eq!(parse(listed), expected);
    }

    #[test]
    fn a_text_file_is_taken_as_it_is() {
        let file = PathBuf::from("/etc/hostname");
        let all = with_libraries(std::slice::from_ref(&file)).unwrap();
        assert_eq!(all, BTreeSet::from([file]));
    }
}
