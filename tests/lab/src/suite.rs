//! The images that upstream's test suite asks for, made from its own sources and from programs of
//! this machine.
//!
//! ```text
//! busybox (Debian's, and bash) ──► nonroot, ipc-utils, nonewprivs, nginx, kitten, glibc-dns-testing
//!        └─► agnhost (upstream's program, certificates, curl, nc, ip, dig)
//! ```
//!
//! Names and tags are upstream's; contents are what its tests look at and no more. An image that
//! cannot be made is named with the reason, and it is the caller's business to say which tests want
//! it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use crate::image::{self, Entry, ImageSpec};
use crate::parts::{Part, Suite, Toolbox};
use crate::process::{find_program, output};

const REGISTRY: &str = "registry.k8s.io/e2e-test-images";
const SEARCH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A part of busybox that Debian leaves out.
const NMETER: &str = r#"#!/bin/bash
now=$EPOCHREALTIME
micros=${now#*.}
TZ=UTC printf '%(%T)T.%s\n' "${now%.*}" "${micros:0:3}"
"#;

/// An image that could be made, or its name and why it could not.
pub type Made = Result<ImageSpec, (String, String)>;

/// Every image that can be made here.
pub fn images(suite: &Suite, tools: &Toolbox) -> Result<Vec<Made>> {
    let busybox = busybox(tools)?;
    let pause = ImageSpec {
        name: "registry.k8s.io/pause:3.10.2".to_owned(),
        ..image::pause(&tools.pause)?
    };
    let agnhost = agnhost(suite, &busybox, &pause)?;
    let nginx = made(tagged("nginx:1.27.0-2"), nginx(suite, &busybox));
    let mut images = vec![
        Ok(pause),
        Ok(kitten(suite, &busybox)?),
        Ok(nonewprivs(suite, &busybox)?),
        Ok(ImageSpec { name: tagged("nonroot:1.5"), user: "1234".to_owned(), ..busybox.clone() }),
        made(tagged("ipc-utils:1.4"), with_programs(&busybox, &["ipcs", "ipcmk", "ipcrm"])),
        other_release(&nginx, "nginx:1.28.0-2"),
        nginx,
        made(
            tagged("glibc-dns-testing:2.1.1"),
            with_programs(&busybox, &["hostname", "getent", "dig"]),
        ),
    ];
    let agnhost = Ok(agnhost);
    images.push(other_release(&agnhost, "agnhost:2.55"));
    images.extend([agnhost, Ok(busybox)]);
    Ok(images)
}

/// Another release of an image: the same programs, and an image of its own, so that the runtime
/// cannot take one for the other.
fn other_release(image: &Made, tag: &str) -> Made {
    let name = tagged(tag);
    match image {
        Ok(image) => {
            let mut other = image.clone();
            other.env.push(format!("RELEASE={tag}"));
            other.name = name;
            Ok(other)
        }
        Err((_, why)) => Err((name, why.clone())),
    }
}

fn made(name: String, image: Result<ImageSpec>) -> Made {
    match image {
        Ok(image) => Ok(ImageSpec { name, ..image }),
        Err(error) => Err((name, format!("{error:#}"))),
    }
}

fn tagged(name: &str) -> String {
    format!("{REGISTRY}/{name}")
}

/// Debian's busybox, and bash for those who ask for `sh` without a path: the shell of busybox drops
/// variables whose names have dashes, which some tests print that way, and others want its very
/// words.
fn busybox(tools: &Toolbox) -> Result<ImageSpec> {
    let mut image = image::busybox(&tools.busybox)?;
    image.name = tagged("busybox:1.37.0-2");
    image.env = vec![SEARCH.to_owned()];
    put(&mut image, Entry::program("/bin/bash", &program("bash-static")?)?);
    let shell =
        Entry::Link { path: "/usr/local/bin/sh".to_owned(), target: "/bin/bash".to_owned() };
    put(&mut image, shell);
    // Upstream's has this one for the time of day to the millisecond, which is all that anybody
    // asks it for.
    let clock = Entry::File {
        path: "/bin/nmeter".to_owned(),
        mode: 0o755,
        content: NMETER.as_bytes().to_vec(),
    };
    put(&mut image, clock);
    Ok(image)
}

fn agnhost(suite: &Suite, base: &ImageSpec, pause: &ImageSpec) -> Result<ImageSpec> {
    let mut image = ImageSpec {
        name: tagged("agnhost:2.66.1"),
        entrypoint: vec!["/agnhost".to_owned()],
        command: vec!["pause".to_owned()],
        ..base.clone()
    };
    put(&mut image, Entry::program("/agnhost", &suite.binary("agnhost"))?);
    put(&mut image, Entry::Link { path: "/agnhost-2".to_owned(), target: "agnhost".to_owned() });
    // The shell of busybox would take its own nc and the like for those below.
    put(&mut image, Entry::Link { path: "/bin/sh".to_owned(), target: "bash".to_owned() });
    put(&mut image, Entry::Directory { path: "/uploads".to_owned(), mode: 0o755 });
    for file in ["localhost.crt", "localhost.key"] {
        let source = suite.source.join("test/images/agnhost/porter").join(file);
        put(&mut image, plain(&format!("/{file}"), &source)?);
    }
    put(
        &mut image,
        Entry::text(
            "/etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n\
             user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n",
        ),
    );
    put(
        &mut image,
        Entry::text(
            "/etc/group",
            "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\n\
             group-defined-in-image:x:50000:user-defined-in-image\n",
        ),
    );
    for (path, name) in [
        ("/usr/bin/curl", "curl"),
        ("/bin/nc", "nc.openbsd"),
        ("/usr/bin/dig", "dig"),
        ("/bin/ip", "ip"),
        ("/bin/ss", "ss"),
    ] {
        put_program(&mut image, path, &program(name)?)?;
    }
    put_fake_registry(&mut image, pause)?;
    Ok(image)
}

/// What agnhost serves when it plays a registry: one image, `pause:testing`, laid out by digest.
fn put_fake_registry(image: &mut ImageSpec, pause: &ImageSpec) -> Result<()> {
    const ROOT: &str = "/var/registry/pause";
    let packed = image::pack(pause)?;
    let mut listed = packed.manifest.descriptor();
    listed["platform"] = json!({ "os": "linux", "architecture": image::architecture() });
    let list = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [listed],
    }))?;
    let tag = image::digest_of(&list);
    for (kind, content) in [
        ("manifests", list),
        ("manifests", packed.manifest.content),
        ("blobs", packed.config.content),
        ("blobs", packed.layer.content),
    ] {
        let hash = image::hex_digest(&content);
        let path = format!("{ROOT}/{kind}/sha256/{}/{hash}/data", &hash[..2]);
        put(image, Entry::File { path, mode: 0o644, content });
    }
    put(image, Entry::text(&format!("{ROOT}/manifests/testing"), &tag));
    Ok(())
}

/// The image whose files one test reads as a volume; its text says that it comes from Alpine Linux.
fn kitten(suite: &Suite, base: &ImageSpec) -> Result<ImageSpec> {
    let mut image = ImageSpec { name: tagged("kitten:1.8"), ..base.clone() };
    for file in ["kitten.jpg", "data.json"] {
        let source = suite.source.join("test/images/kitten/html").join(file);
        put(&mut image, plain(&format!("/{file}"), &source)?);
    }
    let release = "NAME=\"Alpine Linux\"\nID=alpine\nPRETTY_NAME=\"stands in for Alpine Linux\"\n";
    put(&mut image, Entry::text("/etc/os-release", release));
    Ok(image)
}

/// A program that says who it runs as, and belongs to root with the set-user-ID bit.
fn nonewprivs(suite: &Suite, base: &ImageSpec) -> Result<ImageSpec> {
    let mut image = ImageSpec {
        name: tagged("nonewprivs:1.4"),
        command: vec!["nnp".to_owned()],
        ..base.clone()
    };
    let source = suite.binary("nonewprivs");
    let content = fs::read(&source).with_context(|| format!("read {}", source.display()))?;
    put(&mut image, Entry::File { path: "/usr/local/bin/nnp".to_owned(), mode: 0o6755, content });
    Ok(image)
}

/// The base with programs of this machine.
fn with_programs(base: &ImageSpec, names: &[&str]) -> Result<ImageSpec> {
    let mut image = base.clone();
    // A name without a path must mean them, not those of busybox.
    for name in names {
        put_program(&mut image, &format!("/usr/local/bin/{name}"), &program(name)?)?;
    }
    Ok(image)
}

/// Debian's nginx with one page.
fn nginx(suite: &Suite, base: &ImageSpec) -> Result<ImageSpec> {
    let unpacked = match &suite.nginx {
        Part::Available(directory) => directory,
        Part::Missing(reason) => anyhow::bail!("{reason}"),
    };
    let mut image = ImageSpec {
        command: ["nginx", "-g", "daemon off;"].map(str::to_owned).into(),
        ..base.clone()
    };
    put_program(&mut image, "/usr/sbin/nginx", &unpacked.join("usr/sbin/nginx"))?;
    let configuration = "user nobody nogroup;\npid /var/run/nginx.pid;\nerror_log /dev/stderr;\nevents {}\n\
        http {\n  access_log /dev/stdout;\n  server { listen 80; root /www; }\n}\n";
    put(&mut image, Entry::text("/etc/nginx/nginx.conf", configuration));
    // Whoever runs it may say there which process it is.
    for (path, mode) in [("/var/log/nginx", 0o755), ("/var/lib/nginx", 0o755), ("/var/run", 0o777)]
    {
        put(&mut image, Entry::Directory { path: path.to_owned(), mode });
    }
    Ok(image)
}

/// Adds an entry, or replaces the one at its path.
pub(crate) fn put(image: &mut ImageSpec, entry: Entry) {
    image.entries.retain(|it| it.path() != entry.path());
    image.entries.push(entry);
}

fn plain(path: &str, source: &Path) -> Result<Entry> {
    Ok(Entry::File {
        path: path.to_owned(),
        mode: 0o644,
        content: fs::read(source).with_context(|| format!("read {}", source.display()))?,
    })
}

/// A program of this machine with the libraries that it loads, at the paths where it looks for
/// them.
pub(crate) fn put_program(image: &mut ImageSpec, path: &str, source: &Path) -> Result<()> {
    put(image, Entry::program(path, source)?);
    let said = output(Command::new("ldd").arg(source))?;
    for library in libraries(&said) {
        put(image, Entry::program(&library, Path::new(&library))?);
    }
    Ok(())
}

/// The paths that `ldd` names.
fn libraries(said: &str) -> Vec<String> {
    said.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(str::to_owned)
        .collect()
}

fn program(name: &str) -> Result<PathBuf> {
    find_program(name).with_context(|| format!("{name} is not installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_with_a_path() {
        let said = "\tlinux-vdso.so.1 (0x00007ffe)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            libraries(said),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
    }

    #[test]
    fn an_entry_replaces_the_one_at_its_path() {
        let mut image = ImageSpec {
            entries: vec![Entry::text("/a", "1"), Entry::text("/b", "1")],
            ..ImageSpec::default()
        };
        put(&mut image, Entry::Link { path: "/a".to_owned(), target: "b".to_owned() });
        let paths: Vec<&str> = image.entries.iter().map(Entry::path).collect();
        assert_eq!(paths, ["/b", "/a"]);
    }
}
