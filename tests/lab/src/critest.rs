//! The images that upstream's critest asks for, made of programs of this machine.
//!
//! Names are upstream's; contents are what its cases look at and no more: applets beside a shell that looks for them, a
//! web server, users and groups. Each image has an identity of its own, because removing one by any of its names
//! removes all names of that image.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::image::{self, Entry, ImageSpec};
use crate::parts::Critest;
use crate::process::find_program;
use crate::suite::{put, put_program};

/// Registries that critest's images are named after.
pub const REGISTRIES: [&str; 3] = ["registry.k8s.io", "gcr.io", "k8s.gcr.io"];

const OWN: &str = "gcr.io/k8s-staging-cri-tools";
const SHARED: &str = "registry.k8s.io/e2e-test-images";

/// Debian's busybox has none: what `pidof` finds, one to a line.
const PGREP: &str =
    "#!/bin/sh\nfound=$(pidof \"$1\") || exit 1\nfor pid in $found; do echo \"$pid\"; done\n";

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\n\
    default-user:x:1000:1000::/home/default-user:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nwww-data:x:33:\ndefault-user:x:1000:\nnogroup:x:65534:\n\
    group-defined-in-image:x:50000:default-user\n";

/// Every image that critest pulls, but the one by a fixed digest, which nobody has here.
pub fn images(parts: &Critest) -> Result<Vec<ImageSpec>> {
    let busybox = busybox(&parts.busybox, &parts.pause)?;
    let mut images = vec![busybox.clone()];
    for name in ["nginx:1.14-2", "httpd:2.4.39-4"] {
        images.push(web(&format!("{SHARED}/{name}"), &busybox, &parts.web, "80")?);
    }
    let on_host = format!("{OWN}/hostnet-nginx-{}:latest", image::architecture());
    images.push(web(&on_host, &busybox, &parts.web, "12003")?);
    images.push(nonewprivs(&busybox, &parts.nnp)?);
    for (name, user) in [
        ("test-image-user-uid", "1002"),
        ("test-image-user-username", "www-data"),
        ("test-image-user-uid-group", "1003:users"),
        ("test-image-user-username-group", "www-data:100"),
        ("test-image-predefined-group", "1000"),
    ] {
        let image = named(&busybox, &format!("{OWN}/{name}:latest"));
        images.push(ImageSpec { user: user.to_owned(), ..image });
    }
    for name in [
        "test-image-latest:latest",
        "test-image-tag:test",
        "test-image-tag:all",
        "test-image-1:latest",
        "test-image-2:latest",
        "test-image-3:latest",
    ] {
        images.push(named(&busybox, &format!("{OWN}/{name}")));
    }
    let tagged = named(&busybox, &format!("{OWN}/test-image-tags:1"));
    images.extend(["2", "3"].map(|tag| other_tag(&tagged, tag)));
    images.push(tagged);
    // The repository is the same in both registries that it is asked of.
    images.push(ImageSpec {
        name: "registry.k8s.io/pause:3.9".to_owned(),
        ..image::pause(&parts.pause)?
    });
    Ok(images)
}

/// Applets, and a shell of the same words that has no `ls` of its own: Debian's runs its applets without looking whether
/// the file was masked. `ls` is a file of its own, so that masking it hides nothing else.
fn busybox(binary: &Path, pause: &Path) -> Result<ImageSpec> {
    let mut image = image::busybox(binary)?;
    image.name = format!("{SHARED}/busybox:1.29-2");
    image.env =
        vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()];
    put(&mut image, Entry::program("/bin/ls", binary)?);
    // What most cases run, and some stop at once. It says what it does about SIGTERM first of all, so that the moment is
    // short in which a first process ignores it; that moment remains.
    put(&mut image, Entry::program("/bin/top", pause)?);
    let content = fs::read(binary).with_context(|| format!("read {}", binary.display()))?;
    let content = without_ls(content)
        .with_context(|| format!("{} has no table with ls before lsmod", binary.display()))?;
    put(&mut image, Entry::File { path: "/bin/sh".to_owned(), mode: 0o755, content });
    put_program(&mut image, "/usr/bin/ipcs", &program("ipcs")?)?;
    let pgrep = Entry::File {
        path: "/bin/pgrep".to_owned(),
        mode: 0o755,
        content: PGREP.as_bytes().to_vec(),
    };
    put(&mut image, pgrep);
    put(&mut image, Entry::text("/etc/passwd", PASSWD));
    put(&mut image, Entry::text("/etc/group", &format!("{GROUP}users:x:100:\n")));
    Ok(image)
}

/// Renames the applet `ls` to what nobody calls, in the order that the table has.
fn without_ls(mut binary: Vec<u8>) -> Option<Vec<u8>> {
    const TABLE: &[u8] = b"\0ls\0lsmod\0";
    let at = binary.windows(TABLE.len()).position(|it| it == TABLE)?;
    binary[at + 2] = b'r';
    Some(binary)
}

/// The web server under the name of the one that it stands in for. A case looks for nginx's title in its command line.
fn web(name: &str, base: &ImageSpec, server: &Path, port: &str) -> Result<ImageSpec> {
    let program = if name.contains("httpd") { "httpd" } else { "nginx" };
    let mut image = named(base, name);
    image.command = [program, "master process", port].map(str::to_owned).into();
    put(&mut image, Entry::program(&format!("/usr/sbin/{program}"), server)?);
    put(&mut image, Entry::Directory { path: "/var/run".to_owned(), mode: 0o777 });
    Ok(image)
}

/// A program that says who it runs as, with the bits that would make it root.
fn nonewprivs(base: &ImageSpec, program: &Path) -> Result<ImageSpec> {
    let mut image = named(base, &format!("{SHARED}/nonewprivs:1.3"));
    image.command = vec!["nnp".to_owned()];
    let content = fs::read(program).with_context(|| format!("read {}", program.display()))?;
    put(&mut image, Entry::File { path: "/usr/local/bin/nnp".to_owned(), mode: 0o6755, content });
    Ok(image)
}

/// The same image under another tag.
fn other_tag(image: &ImageSpec, tag: &str) -> ImageSpec {
    let repository = image.name.rsplit_once(':').map_or(image.name.as_str(), |(it, _)| it);
    ImageSpec { name: format!("{repository}:{tag}"), ..image.clone() }
}

/// A copy with an identity of its own.
fn named(base: &ImageSpec, name: &str) -> ImageSpec {
    let mut image = base.clone();
    image.env.push(format!("IMAGE={name}"));
    image.name = name.to_owned();
    image
}

fn program(name: &str) -> Result<PathBuf> {
    find_program(name).with_context(|| format!("{name} is not installed"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::image::pack;

    fn base() -> ImageSpec {
        ImageSpec { name: "a/base:1".to_owned(), ..ImageSpec::default() }
    }

    #[test]
    fn images_that_are_not_meant_to_be_one_have_different_identities() {
        let identities: BTreeSet<String> = ["a/b:1", "a/c:1", "a/c:2"]
            .iter()
            .map(|name| pack(&named(&base(), name)).unwrap().config.digest())
            .collect();
        assert_eq!(identities.len(), 3);
    }

    #[test]
    fn tags_of_one_image_have_one_identity() {
        let first = named(&base(), "a/b:1");
        let second = other_tag(&first, "2");
        assert_eq!(second.name, "a/b:2");
        assert_eq!(pack(&first).unwrap().config.digest(), pack(&second).unwrap().config.digest());
    }

    #[test]
    fn only_ls_is_renamed_in_the_shell() {
        let renamed = without_ls(b"x\0losetup\0ls\0lsmod\0".to_vec());
        assert_eq!(renamed.unwrap(), b"x\0losetup\0lr\0lsmod\0");
        assert_eq!(without_ls(b"\0ls\0".to_vec()), None);
    }
}
