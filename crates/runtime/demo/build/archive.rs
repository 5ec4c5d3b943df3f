//! An image as an OCI layout in an archive, which the embedded runtime loads and containerd imports.

use std::io::{self, Write as _};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::names::{NAMES, REPOSITORY, TAGS};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

const PAGE: &str = "It works.\n";
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";

/// The archive, compressed.
pub(crate) fn image(program: &[u8], architecture: &str) -> io::Result<Vec<u8>> {
    let layer = layer(program)?;
    let config = json!({
        "os": "linux",
        "architecture": architecture,
        "config": {
            "Env": ["PATH=/bin"],
            "Cmd": ["httpd", "-p", "8080", "-h", "/www"],
            "WorkingDir": "/",
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(CONFIG, &config),
        "layers": [described(LAYER, &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let named = |tag: &&str| {
        let mut named = described(MANIFEST, &manifest);
        named["annotations"] = json!({
            "io.containerd.image.name": format!("{REPOSITORY}:{tag}"),
            "org.opencontainers.image.ref.name": tag,
        });
        named
    };
    let manifests: Vec<Value> = TAGS.iter().map(named).collect();
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    file(&mut archive, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    file(&mut archive, "index.json", 0o644, index.to_string().as_bytes())?;
    for blob in [&manifest, &config, &layer] {
        let name = digest(blob).replace("sha256:", "blobs/sha256/");
        file(&mut archive, &name, 0o644, blob)?;
    }
    let mut compressed = archive.into_inner()?;
    compressed.flush()?;
    compressed.finish()
}

fn layer(program: &[u8]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, mode) in
        [("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777), ("www", 0o755)]
    {
        entry(&mut archive, tar::EntryType::Directory, path, mode, &[])?;
    }
    file(&mut archive, "bin/demo", 0o755, program)?;
    for name in NAMES {
        let mut header = header(tar::EntryType::Symlink, 0o777, 0);
        archive.append_link(&mut header, format!("bin/{name}"), "demo")?;
    }
    file(&mut archive, "etc/passwd", 0o644, PASSWD.as_bytes())?;
    file(&mut archive, "etc/group", 0o644, GROUP.as_bytes())?;
    file(&mut archive, "www/index.html", 0o644, PAGE.as_bytes())?;
    archive.into_inner()
}

fn file<W: io::Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    entry(archive, tar::EntryType::Regular, path, mode, content)
}

fn entry<W: io::Write>(
    archive: &mut tar::Builder<W>,
    kind: tar::EntryType,
    path: &str,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    archive.append_data(&mut header(kind, mode, content.len() as u64), path, content)
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}

fn described(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(content), "size": content.len() })
}

fn digest(content: &[u8]) -> String {
    let hexadecimal: String =
        Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hexadecimal}")
}
