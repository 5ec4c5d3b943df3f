//! A Debian package, written without Debian's tools.
//!
//! ```text
//! ar archive ─┬─ debian-binary     "2.0"
//!             ├─ control.tar.gz    control, conffiles, scripts
//!             └─ data.tar.gz       the files, all of them root's
//! ```
//!
//! `Provides`, `Conflicts` and `Replaces` name upstream's package `kubelet`, so that the one replaces
//! the other and kubeadm's dependency is met.

use std::io::Write;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder, write::GzEncoder};

use crate::Release;
use crate::contents::{Entry, SETTINGS};

/// How hard a package is squeezed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squeeze {
    /// For people who download it.
    Well,
    /// For a test, which throws it away.
    Not,
}

impl Squeeze {
    fn level(self) -> Compression {
        match self {
            Self::Well => Compression::best(),
            Self::Not => Compression::none(),
        }
    }
}

/// Programs that the agent runs come with these; the rest it does itself.
const DEPENDS: &str = "mount, util-linux";
const RECOMMENDS: &str = "containerd, iptables";

const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("../files/postinst")),
    ("prerm", include_str!("../files/prerm")),
    ("postrm", include_str!("../files/postrm")),
];

/// The name that Debian gives a package of this release.
pub fn file_name(release: &Release) -> String {
    format!("ferrolet_{}_{}.deb", release.version, release.architecture)
}

/// The whole package.
pub fn package(release: &Release, squeeze: Squeeze) -> Result<Vec<u8>> {
    let control = control_archive(release, squeeze).context("write control.tar.gz")?;
    let data = data(release, squeeze).context("write data.tar.gz")?;
    let mut package = b"!<arch>\n".to_vec();
    for (name, content) in [
        ("debian-binary", b"2.0\n".as_slice()),
        ("control.tar.gz", &control),
        ("data.tar.gz", &data),
    ] {
        writeln!(
            package,
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`",
            release.time,
            0,
            0,
            "100644",
            content.len()
        )?;
        package.extend(content);
        if content.len() % 2 == 1 {
            package.push(b'\n');
        }
    }
    Ok(package)
}

fn control_archive(release: &Release, squeeze: Squeeze) -> Result<Vec<u8>> {
    let control = control(release);
    let settings: String = SETTINGS.iter().map(|path| format!("/{path}\n")).collect();
    let mut archive = archive(squeeze);
    append(&mut archive, release, "control", 0o644, control.as_bytes())?;
    append(&mut archive, release, "conffiles", 0o644, settings.as_bytes())?;
    for (name, text) in SCRIPTS {
        append(&mut archive, release, name, 0o755, text.as_bytes())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

fn control(release: &Release) -> String {
    let bytes = |entry: &Entry<'_>| match entry {
        Entry::Directory | Entry::Link(_) => 0,
        Entry::File(it) | Entry::Program(it) | Entry::Packed(it) => it.len(),
    };
    let size: usize = release.entries().iter().map(|(_, entry)| bytes(entry)).sum();
    format!(
        "Package: ferrolet\nVersion: {}\nArchitecture: {}\nMaintainer: the authors of Ferrolet <ferrolet@localhost>\n\
         Installed-Size: {}\nSection: admin\nPriority: optional\nDepends: {DEPENDS}\nRecommends: {RECOMMENDS}\n\
         Provides: kubelet (= {})\nConflicts: kubelet\nReplaces: kubelet\n\
         Description: Kubernetes node agent, in Rust\n \
         Takes the place of upstream's kubelet, with its flags, configuration and state, or\n \
         runs the pods of a directory on a machine without a cluster.\n",
        release.version,
        release.architecture,
        size.div_ceil(1024),
        release.kubernetes
    )
}

/// The files alone, as `tar.gz`: for machines without dpkg.
pub fn data(release: &Release, squeeze: Squeeze) -> Result<Vec<u8>> {
    let mut archive = archive(squeeze);
    for (path, entry) in release.entries() {
        let attempt = || format!("add {path}");
        match entry {
            Entry::Directory => {
                let mut header = header(release, tar::EntryType::Directory, 0o755);
                archive.append_data(&mut header, format!("./{path}/"), std::io::empty())
            }
            Entry::Link(target) => {
                let mut header = header(release, tar::EntryType::Symlink, 0o777);
                archive.append_link(&mut header, format!("./{path}"), target)
            }
            Entry::File(content) => append(&mut archive, release, path, 0o644, content),
            Entry::Program(content) => append(&mut archive, release, path, 0o755, content),
            Entry::Packed(content) => {
                let mut packed = GzBuilder::new().write(Vec::new(), Compression::best());
                packed.write_all(content)?;
                append(&mut archive, release, path, 0o644, &packed.finish()?)
            }
        }
        .with_context(attempt)?;
    }
    Ok(archive.into_inner()?.finish()?)
}

type Archive = tar::Builder<GzEncoder<Vec<u8>>>;

/// An archive whose bytes follow from its content: no name and no time of making it.
fn archive(squeeze: Squeeze) -> Archive {
    tar::Builder::new(GzBuilder::new().write(Vec::new(), squeeze.level()))
}

fn header(release: &Release, kind: tar::EntryType, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(release.time);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

fn append(
    archive: &mut Archive,
    release: &Release,
    path: &str,
    mode: u32,
    content: &[u8],
) -> std::io::Result<()> {
    let mut header = header(release, tar::EntryType::Regular, mode);
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, format!("./{path}"), content)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::contents::tests::release;

    /// The members of an `ar` archive.
    fn members(package: &[u8]) -> Vec<(String, &[u8])> {
        let mut rest = package.strip_prefix(b"!<arch>\n").unwrap();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (head, after) = rest.split_at(60);
            assert_eq!(&head[58..], b"`\n");
            let text =
                |from: usize, to: usize| std::str::from_utf8(&head[from..to]).unwrap().trim();
            let size: usize = text(48, 58).parse().unwrap();
            found.push((text(0, 16).to_owned(), &after[..size]));
            rest = &after[size + size % 2..];
        }
        found
    }

    fn unpacked(archive: &[u8]) -> Vec<(String, u32, String)> {
        let mut archive = tar::Archive::new(GzDecoder::new(archive));
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let content = match entry.link_name().unwrap() {
                Some(target) => format!("-> {}", target.display()),
                None => String::from_utf8_lossy(&content).into_owned(),
            };
            (path, entry.header().mode().unwrap(), content)
        });
        entries.collect()
    }

    #[test]
    fn a_package_is_what_dpkg_expects() {
        let package = package(&release(), Squeeze::Well).unwrap();
        let members = members(&package);
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        assert_eq!(members[0].1, b"2.0\n");
        let control = unpacked(members[1].1);
        let text = |name: &str| {
            let found = control.iter().find(|(path, _, _)| path.trim_start_matches("./") == name);
            found.unwrap_or_else(|| panic!("no {name}"))
        };
        assert!(
            text("control")
                .2
                .starts_with("Package: ferrolet\nVersion: 0.1.0\nArchitecture: amd64\n")
        );
        assert!(text("control").2.contains("\nProvides: kubelet (= 1.37.1)\n"));
        assert_eq!(text("conffiles").2, "/etc/default/kubelet\n/etc/ferrolet/kubelet.yaml\n");
        assert!(SCRIPTS.iter().all(|(name, _)| text(name).1 == 0o755));
    }

    #[test]
    fn programs_links_and_directories_are_what_they_are() {
        let package = package(&release(), Squeeze::Not).unwrap();
        let data = unpacked(members(&package)[2].1);
        let entry = |name: &str| {
            let found = data
                .iter()
                .find(|(path, _, _)| path.trim_start_matches("./").trim_end_matches('/') == name);
            found.map(|(_, mode, content)| (*mode, content.clone())).unwrap()
        };
        assert_eq!(entry("usr/bin/ferrolet"), (0o755, "\u{7f}ELF".to_owned()));
        assert_eq!(entry("usr/bin/kubelet"), (0o777, "-> ferrolet".to_owned()));
        assert_eq!(entry("etc/kubernetes/manifests"), (0o755, String::new()));
        assert_eq!(entry("etc/ferrolet/kubelet.yaml").0, 0o644);
    }

    #[test]
    fn the_same_release_gives_the_same_bytes() {
        let make = || package(&release(), Squeeze::Well).unwrap();
        assert_eq!(make(), make());
    }
}
