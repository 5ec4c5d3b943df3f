//! Container images from local binaries, written as OCI archives, because no registry can be
//! reached.
//!
//! The same inputs give the same bytes: entries carry no times and no owners but root. Importing an
//! archive is containerd's business (`Containerd::import`).

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::process::output;

/// The image of examples and tests.
pub const BUSYBOX: &str = "docker.io/library/busybox:latest";
/// The sandbox image.
pub const PAUSE: &str = "registry.k8s.io/pause:3.10";

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// One entry of an image's only layer. Paths are absolute in the image.
#[derive(Debug, Clone)]
pub enum Entry {
    Directory { path: String, mode: u32 },
    File { path: String, mode: u32, content: Vec<u8> },
    Link { path: String, target: String },
}

impl Entry {
    /// A copy of an executable of this machine.
    pub fn program(path: &str, source: &Path) -> Result<Entry> {
        let content = fs::read(source).with_context(|| format!("read {}", source.display()))?;
        Ok(Entry::File { path: path.to_owned(), mode: 0o755, content })
    }

    /// Where it is in the image.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Entry::Directory { path, .. } | Entry::File { path, .. } | Entry::Link { path, .. } => {
                path
            }
        }
    }

    /// A text file.
    #[must_use]
    pub fn text(path: &str, content: &str) -> Entry {
        Entry::File { path: path.to_owned(), mode: 0o644, content: content.as_bytes().to_vec() }
    }
}

/// What an image holds and how its containers start.
#[derive(Debug, Clone, Default)]
pub struct ImageSpec {
    /// The full reference, with registry and tag.
    pub name: String,
    pub entries: Vec<Entry>,
    pub env: Vec<String>,
    pub user: String,
    pub entrypoint: Vec<String>,
    pub command: Vec<String>,
    pub working_dir: String,
}

/// busybox with all its applets, a shell as the command, and a few accounts.
pub fn busybox(binary: &Path) -> Result<ImageSpec> {
    let mut entries: Vec<Entry> = [
        ("/bin", 0o755),
        ("/etc", 0o755),
        ("/root", 0o700),
        ("/tmp", 0o1777),
        ("/var", 0o755),
        ("/www", 0o755),
    ]
    .map(|(path, mode)| Entry::Directory { path: path.to_owned(), mode })
    .into();
    entries.push(Entry::program("/bin/busybox", binary)?);
    for applet in
        output(Command::new(binary).arg("--list"))?.lines().filter(|name| *name != "busybox")
    {
        entries.push(Entry::Link { path: format!("/bin/{applet}"), target: "busybox".to_owned() });
    }
    entries.push(Entry::text(
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    ));
    entries.push(Entry::text("/etc/group", "root:x:0:\nnogroup:x:65534:\n"));
    entries.push(Entry::text("/www/index.html", "It works.\n"));
    Ok(ImageSpec {
        name: BUSYBOX.to_owned(),
        entries,
        env: vec!["PATH=/bin".to_owned()],
        command: vec!["sh".to_owned()],
        ..ImageSpec::default()
    })
}

/// The sandbox image around our pause program.
pub fn pause(binary: &Path) -> Result<ImageSpec> {
    Ok(ImageSpec {
        name: PAUSE.to_owned(),
        entries: vec![Entry::program("/pause", binary)?],
        env: vec!["PATH=/".to_owned()],
        user: "65535:65535".to_owned(),
        entrypoint: vec!["/pause".to_owned()],
        ..ImageSpec::default()
    })
}

/// An image as registries keep it.
pub(crate) struct PackedImage {
    pub(crate) manifest: Blob,
    pub(crate) config: Blob,
    pub(crate) layer: Blob,
}

/// Bytes that are known by their digest.
pub(crate) struct Blob {
    media_type: &'static str,
    pub(crate) content: Vec<u8>,
}

impl Blob {
    /// `sha256:…`
    pub(crate) fn digest(&self) -> String {
        digest_of(&self.content)
    }

    /// How a manifest or a list speaks of them.
    pub(crate) fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest(), "size": self.content.len() })
    }
}

/// The digest by which a registry knows these bytes.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex_digest(bytes))
}

/// Makes an image's manifest, configuration and layer.
pub(crate) fn pack(image: &ImageSpec) -> Result<PackedImage> {
    let layer = Blob { media_type: LAYER, content: layer(&image.entries)? };
    let config = serde_json::to_vec(&json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Env": image.env,
            "User": image.user,
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "WorkingDir": image.working_dir,
        },
        "rootfs": { "type": "layers", "diff_ids": [layer.digest()] },
    }))?;
    let config = Blob { media_type: CONFIG, content: config };
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor(),
        "layers": [layer.descriptor()],
    }))?;
    let manifest = Blob { media_type: MANIFEST, content: manifest };
    Ok(PackedImage { manifest, config, layer })
}

/// Writes `image` as an OCI archive at `path`.
pub fn write_archive(path: &Path, image: &ImageSpec) -> Result<()> {
    let PackedImage { manifest, config, layer } = pack(image)?;
    let mut listed = manifest.descriptor();
    let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    listed["annotations"] = json!({
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": tag,
    });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [listed] }))?;

    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut archive = tar::Builder::new(file);
    append(&mut archive, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut archive, "index.json", 0o644, &index)?;
    for blob in [&manifest, &config, &layer] {
        append(
            &mut archive,
            &format!("blobs/sha256/{}", hex_digest(&blob.content)),
            0o644,
            &blob.content,
        )?;
    }
    archive.into_inner()?.flush()?;
    Ok(())
}

/// Writes several images into `dir`, one archive each, and gives their paths.
pub fn write_archives(dir: &Path, images: &[ImageSpec]) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    images
        .iter()
        .enumerate()
        .map(|(index, image)| {
            let path = dir.join(format!("image-{index}.tar"));
            write_archive(&path, image)?;
            Ok(path)
        })
        .collect()
}

/// SHA-256 as text.
#[must_use]
pub fn hex_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

fn layer(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for entry in entries {
        match entry {
            Entry::Directory { path, mode } => {
                let mut header = header(tar::EntryType::Directory, *mode, 0);
                archive.append_data(&mut header, relative(path), std::io::empty())?;
            }
            Entry::File { path, mode, content } => {
                append(&mut archive, relative(path), *mode, content)?
            }
            Entry::Link { path, target } => {
                let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                archive.append_link(&mut header, relative(path), target)?;
            }
        }
    }
    Ok(archive.into_inner()?)
}

fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    let mut header = header(tar::EntryType::Regular, mode, content.len() as u64);
    archive.append_data(&mut header, path, content)?;
    Ok(())
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// The name that OCI uses for this machine's processor.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_names_its_image_and_its_digests_fit_its_blobs() {
        let path =
            std::env::temp_dir().join(format!("ferrolet-image-test-{}.tar", std::process::id()));
        let image = ImageSpec {
            name: "example.test/a/b:v1".to_owned(),
            entries: vec![Entry::text("/etc/motd", "hi")],
            ..ImageSpec::default()
        };
        write_archive(&path, &image).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let mut index = Value::Null;
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            if name == "index.json" {
                index = serde_json::from_slice(&content).unwrap();
            } else if let Some(digest) = name.strip_prefix("blobs/sha256/") {
                assert_eq!(digest, hex_digest(&content));
            }
        }
        let notes = &index["manifests"][0]["annotations"];
        assert_eq!(notes["io.containerd.image.name"], "example.test/a/b:v1");
        assert_eq!(notes["org.opencontainers.image.ref.name"], "v1");
    }
}
