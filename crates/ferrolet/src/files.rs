//! The files named on the command line, read whole and bounded.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use ferrolet_config::{CommandLine, NamedText};

/// More than any configuration needs.
const LIMIT: u64 = 10 * 1024 * 1024;

/// The texts that a command line names: the main configuration and its drop-ins in lexical order.
pub(crate) fn read_configuration(
    command_line: &CommandLine,
) -> anyhow::Result<(Option<NamedText>, Vec<NamedText>)> {
    let main = command_line.flags.config.as_deref().map(read).transpose()?;
    let mut dropins = Vec::new();
    if let Some(directory) = command_line.flags.config_dir.as_deref() {
        let mut paths = Vec::new();
        collect(directory, &mut paths)
            .with_context(|| format!("read --config-dir {}", directory.display()))?;
        paths.sort();
        for path in paths {
            dropins.push(read(&path)?);
        }
    }
    Ok((main, dropins))
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "conf") {
            found.push(path);
        }
    }
    Ok(())
}

/// One file, whole.
pub(crate) fn read(path: &Path) -> anyhow::Result<NamedText> {
    let shown = path.display();
    let path = std::path::absolute(path).with_context(|| format!("resolve {shown}"))?;
    let file = File::open(&path).with_context(|| format!("open configuration {shown}"))?;
    let mut bytes = Vec::new();
    file.take(LIMIT + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("read configuration {shown}"))?;
    ensure!(
        u64::try_from(bytes.len())? <= LIMIT,
        "configuration {shown} is larger than {LIMIT} bytes"
    );
    let text =
        String::from_utf8(bytes).with_context(|| format!("configuration {shown} is not text"))?;
    Ok(NamedText { name: path.to_string_lossy().into_owned(), text })
}
