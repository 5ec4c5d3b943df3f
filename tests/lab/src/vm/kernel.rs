//! The guest's kernel: Debian's cloud kernel, taken out of its package without installing it, so
//! that this machine's boot is left alone.
//!
//! Kept in `~/.cache/ferrolet/vm-<hash>`, keyed by what is taken: the image, and the modules below
//! in the order in which they can be loaded. The package has no `modules.dep` (that is made at
//! installation); each module names what it needs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::image::hex_digest;
use crate::parts::cache_directory;
use crate::process::{call, output, say};

/// Always depends on the newest kernel of the release.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// For overlay snapshots, pod networks, host ports, swap in memory, a disk in a file with quotas,
/// NFS, and a system on a disk. What they need comes along.
const WANTED: [&str; 21] = [
    "overlay",
    "veth",
    "bridge",
    "br_netfilter",
    "nf_tables",
    "nft_compat",
    "nft_chain_nat",
    "xt_comment",
    "xt_mark",
    "xt_multiport",
    "xt_addrtype",
    "xt_conntrack",
    "xt_nat",
    "xt_MASQUERADE",
    "brd",
    "loop",
    "quota_v2",
    "nfsv3",
    "virtio_pci",
    "virtio_blk",
    "autofs4",
];

/// A kernel image and its modules.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    directory: PathBuf,
}

impl Kernel {
    /// The kernel in the cache, downloaded first if it is not there.
    pub(super) fn find_or_download() -> Result<Kernel> {
        let key = hex_digest(format!("{PACKAGE} {WANTED:?}").as_bytes());
        let target = cache_directory()?.join(format!("vm-{}", &key[..12]));
        if !target.exists() {
            download(&target).with_context(|| format!("download {PACKAGE}"))?;
        }
        Ok(Kernel { image: target.join("vmlinuz"), directory: target.join("modules") })
    }

    /// File names that sort in loading order, and the files.
    pub(super) fn modules(&self) -> Result<Vec<(String, PathBuf)>> {
        let entries = fs::read_dir(&self.directory)
            .with_context(|| format!("read {}", self.directory.display()))?;
        entries
            .map(|entry| {
                let entry = entry?;
                Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
            })
            .collect()
    }
}

/// Puts image and modules into `target`, whole or not at all.
fn download(target: &Path) -> Result<()> {
    let cache = target.parent().context("cache path has no parent")?;
    let draft = cache.join(format!(".vm.{}", std::process::id()));
    let (unpacked, made) = (draft.join("unpacked"), draft.join("made"));
    fs::create_dir_all(made.join("modules"))?;
    let taken = fetch(&draft)
        .and_then(|package| {
            output(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&unpacked))
        })
        .and_then(|_| take(&unpacked, &made));
    let placed = taken.and_then(|()| match fs::rename(&made, target) {
        // Somebody else was faster; theirs is as good.
        Err(_) if target.exists() => Ok(()),
        renamed => renamed.context("move the kernel into the cache"),
    });
    fs::remove_dir_all(&draft)?;
    placed
}

/// Downloads the package that holds the kernel.
fn fetch(directory: &Path) -> Result<PathBuf> {
    let name = match package_name() {
        Ok(name) => name,
        Err(_) => {
            say("apt-get update");
            call("apt-get", &["update"])?;
            package_name()?
        }
    };
    say(&format!("apt-get download {name} (once)"));
    // As root: the cache is nobody else's.
    output(Command::new("apt-get").current_dir(directory).args([
        "--option",
        "APT::Sandbox::User=root",
        "download",
        &name,
    ]))?;
    let files = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    files
        .into_iter()
        .find(|path| path.extension().is_some_and(|kind| kind == "deb"))
        .context("apt-get downloaded no package")
}

fn package_name() -> Result<String> {
    let said = call("apt-cache", &["depends", "--important", PACKAGE])?;
    said.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .map(str::to_owned)
        .with_context(|| format!("{PACKAGE} depends on no kernel"))
}

fn take(unpacked: &Path, made: &Path) -> Result<()> {
    let boot = fs::read_dir(unpacked.join("boot"))?.flatten();
    let image = boot
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("/vmlinuz-"))
        .context("the package has no kernel")?;
    fs::copy(image, made.join("vmlinuz"))?;
    let lib = ["lib/modules", "usr/lib/modules"]
        .map(|path| unpacked.join(path))
        .into_iter()
        .find(|path| path.exists())
        .context("the package has no modules")?;
    let mut all = BTreeMap::new();
    collect(&lib, &mut all)?;
    let mut order = Vec::new();
    for name in WANTED {
        resolve(name, &all, &mut order)?;
    }
    for (number, name) in order.iter().enumerate() {
        let file = made.join(format!("modules/{number:02}-{name}.ko"));
        fs::copy(&all[name], file)?;
    }
    Ok(())
}

/// All modules below a directory, by name.
fn collect(directory: &Path, all: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), all)?;
        } else if let Some(name) = entry.file_name().to_string_lossy().strip_suffix(".ko") {
            all.insert(module_name(name), entry.path());
        }
    }
    Ok(())
}

/// Appends a module after everything it depends on. What is built into the kernel is in nobody's
/// list.
fn resolve(name: &str, all: &BTreeMap<String, PathBuf>, order: &mut Vec<String>) -> Result<()> {
    let name = module_name(name);
    if order.contains(&name) {
        return Ok(());
    }
    let Some(path) = all.get(&name) else {
        bail!("the kernel has no module {name}");
    };
    let content = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    for needed in depends(&content) {
        ensure!(needed != name, "module {name} depends on itself");
        resolve(&needed, all, order)?;
    }
    order.push(name);
    Ok(())
}

/// The line `depends=a,b` among a module's zero-terminated lines of information.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|part| part == KEY) else {
        return Vec::new();
    };
    let rest = &module[start + KEY.len()..];
    let line = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(line)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(module_name)
        .collect()
}

/// Dashes and underscores are the same in names of modules.
fn module_name(text: &str) -> String {
    text.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_names_what_it_needs() {
        let check = |content: &[u8], expected: &[&str]| {
            assert_eq!(depends(content), expected);
        };
        check(b"ELF\0license=GPL\0depends=stp,llc-x\0name=bridge\0", &["stp", "llc_x"]);
        check(b"ELF\0license=GPL\0depends=\0name=llc\0", &[]);
        check(b"ELF", &[]);
    }

    #[test]
    fn modules_are_loaded_after_what_they_need_and_once() {
        let directory =
            std::env::temp_dir().join(format!("ferrolet-modules-test-{}", std::process::id()));
        fs::create_dir_all(directory.join("net")).unwrap();
        for (name, needs) in [("net/a", "b,c"), ("net/b", "c"), ("c", ""), ("d", "a")] {
            let content = format!("\0depends={needs}\0");
            fs::write(directory.join(format!("{name}.ko")), content).unwrap();
        }
        let mut all = BTreeMap::new();
        collect(&directory, &mut all).unwrap();
        let mut order = Vec::new();
        for name in ["a", "d"] {
            resolve(name, &all, &mut order).unwrap();
        }
        let missing = resolve("e", &all, &mut order);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(order, ["c", "b", "a", "d"]);
        assert!(missing.is_err());
    }
}
