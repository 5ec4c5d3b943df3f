//! What a run needs from outside, found, installed or built, each with a plain reason when it
//! cannot be had.
//!
//! Called before the private network exists, because building needs the module proxy; called again
//! inside, where everything is found in the cache. Built binaries live in
//! `~/.cache/ferrolet/<module>-<hash>/bin`, keyed by the module's go.mod, go.sum and the build
//! flags, outside the checkout.

pub(crate) mod debian;
mod go;
mod journal;
mod prometheus;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{find_program, output, say};

pub use go::cache_directory;
use go::{CACHE, Language};
pub use journal::{JournalLine, JournalWriter, journal_writer};
pub use prometheus::prometheus;

/// Names a directory with containerd, its shim and ctr to use instead, such as Debian's 1.6.
const CONTAINERD_DIRECTORY: &str = "FERROLET_CONTAINERD";

/// A part that is there, or why it is not.
#[derive(Debug, Clone)]
pub enum Part<T> {
    Available(T),
    Missing(String),
}

impl<T> Part<T> {
    /// The part, or its absence as an error.
    pub fn required(self) -> Result<T> {
        match self {
            Part::Available(part) => Ok(part),
            Part::Missing(reason) => bail!(reason),
        }
    }
}

impl<T> From<Result<T>> for Part<T> {
    fn from(result: Result<T>) -> Part<T> {
        match result {
            Ok(part) => Part::Available(part),
            Err(error) => Part::Missing(format!("{error:#}")),
        }
    }
}

/// Everything to run containers with.
#[derive(Debug, Clone)]
pub struct Toolbox {
    pub containerd: ContainerdBinaries,
    pub runc: PathBuf,
    pub cni_plugins: PathBuf,
    pub busybox: PathBuf,
    pub pause: PathBuf,
}

/// Names and values that a program is told.
pub type Settings = Vec<(String, String)>;

impl Toolbox {
    /// Every file that [`toolbox`] has to find in a virtual machine, and the environment to find it
    /// with.
    pub fn luggage(&self) -> Result<(Vec<PathBuf>, Settings)> {
        let directory = &self.containerd.directory;
        let mut files: Vec<PathBuf> = debian::signs().map(PathBuf::from).collect();
        files.extend([self.runc.clone(), self.busybox.clone(), self.pause.clone()]);
        files.extend(["containerd", "containerd-shim-runc-v2", "ctr"].map(|it| directory.join(it)));
        files.extend(
            ["bridge", "host-local", "loopback", "portmap"].map(|it| self.cni_plugins.join(it)),
        );
        let cache = cache_directory()?;
        let cache = cache.parent().context("cache path has no parent")?;
        let environment = [(CONTAINERD_DIRECTORY, directory.as_path()), (CACHE, cache)]
            .map(|(key, path)| (key.to_owned(), path.display().to_string()))
            .into();
        Ok((files, environment))
    }
}

/// One containerd with its shim and client.
#[derive(Debug, Clone)]
pub struct ContainerdBinaries {
    pub containerd: PathBuf,
    pub ctr: PathBuf,
    /// The directory of the shim, for containerd's PATH.
    pub directory: PathBuf,
    pub major: u32,
    pub version: String,
}

/// The directory with kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, etcd and
/// upstream's kubelet.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    pub directory: PathBuf,
}

impl ControlPlane {
    /// The path of one of the binaries.
    #[must_use]
    pub fn binary(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// One of upstream's suites and what its images are made from.
#[derive(Debug, Clone)]
pub struct Suite {
    /// ginkgo, and the programs of images.
    pub directory: PathBuf,
    /// The suite itself.
    pub test_program: PathBuf,
    /// Kubernetes' source.
    pub source: PathBuf,
    /// Debian's nginx, taken apart.
    pub nginx: Part<PathBuf>,
}

impl Suite {
    /// The path of one of the binaries.
    #[must_use]
    pub fn binary(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Upstream's critest and what its images are made from.
#[derive(Debug, Clone)]
pub struct Critest {
    pub program: PathBuf,
    pub busybox: PathBuf,
    pub pause: PathBuf,
    /// A web server.
    pub web: PathBuf,
    /// A program that says as whom it runs.
    pub nnp: PathBuf,
}

/// Installs the Debian packages of a run that are not there: tests beside the code use some of them too.
#[must_use]
pub fn packages() -> Part<()> {
    debian::install_missing().into()
}

/// Builds the critest of `tests/critest` unless the cache has it, and the programs of its images. No containerd is
/// needed.
#[must_use]
pub fn critest() -> Part<Critest> {
    find_critest().into()
}

fn find_critest() -> Result<Critest> {
    if !rustix::process::geteuid().is_root() {
        bail!("running containers needs root");
    }
    let module = go::Module {
        directory: modules().join("critest"),
        flags: &["-trimpath", "-ldflags=-s -w"],
        language: Language::Go,
    };
    debian::install_missing()?;
    Ok(Critest {
        program: module.build(go::CRITEST)?.join("critest.test"),
        busybox: find_program("busybox").context("busybox is not installed")?,
        pause: build_pause()?,
        web: build_static("web", include_str!("../../assets/web.c"))?,
        nnp: build_static("nnp", include_str!("../../assets/nnp.c"))?,
    })
}

/// Finds, installs or builds everything to run containers with; says what it installs or builds.
#[must_use]
pub fn toolbox() -> Part<Toolbox> {
    find_toolbox().into()
}

/// Builds the control plane of `tests/control-plane` unless the cache has it: about nine minutes
/// the first time.
#[must_use]
pub fn control_plane() -> Part<ControlPlane> {
    let module = go::Module {
        directory: modules().join("control-plane"),
        flags: go::CONTROL_PLANE_FLAGS,
        language: Language::Go,
    };
    module.build(go::CONTROL_PLANE).map(|directory| ControlPlane { directory }).into()
}

/// Builds the CSI driver of `tests/csi-driver`, and csi-test's program beside it, unless the cache
/// has them.
#[must_use]
pub fn csi_driver() -> Part<PathBuf> {
    let module = go::Module {
        directory: modules().join("csi-driver"),
        flags: &["-trimpath", "-ldflags=-s -w"],
        language: Language::Go,
    };
    // A file system that grows on any machine; without it that is not tested, and the rest is.
    if find_program("mkfs.xfs").is_none()
        && let Err(error) = debian::install(&["xfsprogs"])
    {
        say(&format!("no XFS for the driver's volumes: {error:#}"));
    }
    let built = module.build(go::CSI_DRIVER);
    built.map(|directory| directory.join("csi-driver")).into()
}

/// Builds `tests/upstream-walk`, which does to a volume what upstream does for `fsGroup`, unless
/// the cache has it.
#[must_use]
pub fn upstream_walk() -> Part<PathBuf> {
    let module = go::Module {
        directory: modules().join("upstream-walk"),
        flags: &["-trimpath", "-ldflags=-s -w"],
        language: Language::Go,
    };
    let built = module.build(go::UPSTREAM_WALK);
    built.map(|directory| directory.join("upstream-walk")).into()
}

/// Builds the stand-in for logind of `tests/logind` unless the cache has it, and brings the bus that
/// it needs.
#[must_use]
pub fn logind() -> Part<PathBuf> {
    let module = go::Module {
        directory: modules().join("logind"),
        flags: &["-trimpath", "-ldflags=-s -w"],
        language: Language::Go,
    };
    if find_program("dbus-daemon").is_none()
        && let Err(error) = debian::install(&["dbus-daemon"])
    {
        return Part::Missing(format!("no bus: {error:#}"));
    }
    let built = module.build(go::LOGIND);
    built.map(|directory| directory.join("logind")).into()
}

/// Builds the NFS server of `tests/nfs-server` unless the cache has it.
#[must_use]
pub fn nfs_server() -> Part<PathBuf> {
    let module = go::Module {
        directory: modules().join("nfs-server"),
        flags: &["-trimpath", "-ldflags=-s -w"],
        language: Language::Go,
    };
    let built = module.build(go::NFS_SERVER);
    built.map(|directory| directory.join("osnfs")).into()
}

/// Builds the client of `tests/local-client` unless the cache has it.
#[must_use]
pub fn local_client() -> Part<PathBuf> {
    let module = go::Module {
        directory: modules().join("local-client"),
        flags: &["-trimpath", "-ldflags=-s -w"],
        language: Language::Go,
    };
    let built = module.build(go::LOCAL_CLIENT);
    built.map(|directory| directory.join("local-client")).into()
}

/// Builds the device plugin of `tests/device-plugin` unless the cache has it.
#[must_use]
pub fn device_plugin() -> Part<PathBuf> {
    let module = go::Module {
        directory: modules().join("device-plugin"),
        flags: &["-trimpath", "-ldflags=-s -w"],
        language: Language::Go,
    };
    let built = module.build(go::DEVICE_PLUGIN);
    built.map(|directory| directory.join("device-plugin")).into()
}

/// Builds upstream's driver of dynamic resources by `tests/conformance` unless the cache has it.
#[must_use]
pub fn claim_driver() -> Part<PathBuf> {
    let module = go::Module {
        directory: modules().join("conformance"),
        flags: go::CONTROL_PLANE_FLAGS,
        language: Language::Go,
    };
    let built = module.build(go::CLAIM_DRIVER);
    built.map(|directory| directory.join("dra-test-driver")).into()
}

/// Builds the runc of `tests/runc` unless the cache has it.
#[must_use]
pub fn newer_runc() -> Part<PathBuf> {
    let module = go::Module {
        directory: modules().join("runc"),
        flags: &["-trimpath", "-ldflags=-s -w", "-tags=seccomp"],
        language: Language::GoAndC,
    };
    let built = || -> Result<PathBuf> {
        if let Some(directory) = module.built(go::RUNC)? {
            return Ok(directory);
        }
        debian::install(&["libseccomp-dev", "pkg-config"])?;
        module.build(go::RUNC)
    };
    built().map(|directory| directory.join("runc")).into()
}

/// Builds a suite of `tests/conformance`, `e2e.test` or `e2e_node.test`, unless the cache has it,
/// and installs the tools that its images hold.
#[must_use]
pub fn suite(test_program: &str) -> Part<Suite> {
    find_suite(test_program).into()
}

fn find_suite(test_program: &str) -> Result<Suite> {
    let program = go::TEST_PROGRAMS
        .iter()
        .find(|(name, _)| *name == test_program)
        .with_context(|| format!("{test_program} is none of upstream's suites"))?;
    let module = go::Module {
        directory: modules().join("conformance"),
        flags: go::CONTROL_PLANE_FLAGS,
        language: Language::Go,
    };
    let directory = module.build(&[go::SUITE, &[*program]].concat())?;
    debian::install(&["bash-static", "netcat-openbsd", "bind9-dnsutils", "curl"])?;
    let nginx = directory.with_file_name("nginx");
    Ok(Suite {
        source: module.source_of("k8s.io/kubernetes")?,
        test_program: directory.join(test_program),
        nginx: debian::unpack(&["nginx"], &nginx).map(|()| nginx).into(),
        directory,
    })
}

/// Finds or installs a browser to look at pages with.
#[must_use]
pub fn browser() -> Part<PathBuf> {
    let find = || -> Result<PathBuf> {
        if find_program("chromium").is_none() {
            debian::install(&["chromium", "fonts-dejavu-core"])?;
        }
        find_program("chromium").context("chromium is not installed")
    };
    find().into()
}

/// Finds or installs CRIU, which writes processes to disk; whether this kernel lets it is another
/// matter.
#[must_use]
pub fn criu() -> Part<PathBuf> {
    let find = || -> Result<PathBuf> {
        if find_program("criu").is_none() {
            debian::install(&["criu"])?;
        }
        find_program("criu").context("criu is not installed")
    };
    find().into()
}

fn find_toolbox() -> Result<Toolbox> {
    if !rustix::process::geteuid().is_root() {
        bail!("running containers needs root");
    }
    debian::install_missing()?;
    let runc = find_program("runc").context("runc is not installed")?;
    let busybox = find_program("busybox").context("busybox is not installed")?;
    let cni_plugins = ["/usr/lib/cni", "/opt/cni/bin"]
        .iter()
        .map(PathBuf::from)
        .find(|dir| dir.join("bridge").exists())
        .context("the CNI plugins are not installed")?;
    let pause = build_pause()?;
    Ok(Toolbox { containerd: find_containerd()?, runc, cni_plugins, busybox, pause })
}

fn find_containerd() -> Result<ContainerdBinaries> {
    let directory = match std::env::var_os(CONTAINERD_DIRECTORY) {
        Some(given) => PathBuf::from(given),
        None => build_or_install_containerd()?,
    };
    let containerd = directory.join("containerd");
    let (version, major) = containerd_version(&containerd)?;
    Ok(ContainerdBinaries { ctr: directory.join("ctr"), containerd, directory, major, version })
}

/// containerd 2 from its Go module, because it streams container events; without Go the one of
/// Debian.
fn build_or_install_containerd() -> Result<PathBuf> {
    let module = go::Module {
        directory: modules().join("containerd"),
        flags: go::CONTAINERD_FLAGS,
        language: Language::Go,
    };
    let error = match module.build(go::CONTAINERD) {
        Ok(directory) => return Ok(directory),
        Err(error) => error,
    };
    say(&format!("no containerd 2 ({error:#}); taking Debian's, which has no container events"));
    debian::install(&["containerd"])?;
    let found = find_program("containerd").context("containerd is not installed")?;
    Ok(found.parent().context("containerd in no directory")?.to_owned())
}

fn containerd_version(containerd: &Path) -> Result<(String, u32)> {
    let said = output(Command::new(containerd).arg("--version"))?;
    parse_version(&said).with_context(|| format!("no version in {said:?}"))
}

/// `containerd github.com/containerd/containerd/v2 2.4.2 <revision>`, or `… v1.6.20~ds1
/// 1.6.20~ds1-1+b1`.
fn parse_version(said: &str) -> Option<(String, u32)> {
    said.split_whitespace().skip(2).find_map(|word| {
        let version = word.trim_start_matches('v');
        let major = version.split('.').next()?.parse().ok()?;
        Some((version.to_owned(), major))
    })
}

/// A pod's sandbox process: a few lines of C, linked statically, because no registry can be
/// reached.
fn build_pause() -> Result<PathBuf> {
    build_static("pause", include_str!("../../assets/pause.c"))
}

/// A program that swaps entries of a directory for links, for tests of what a hostile container can
/// reach.
pub fn swapper() -> Result<PathBuf> {
    build_static("swap", include_str!("../../assets/swap.c"))
}

/// Compiles `assets/NAME.c`, once for each text of it.
fn build_static(name: &str, text: &str) -> Result<PathBuf> {
    let key = crate::image::hex_digest(text.as_bytes());
    let target = cache_directory()?.join(format!("{name}-{}", &key[..12])).join(name);
    if target.exists() {
        return Ok(target);
    }
    let directory = target.parent().context("cache path has no parent")?;
    std::fs::create_dir_all(directory)?;
    let draft = directory.join(format!("{name}.{}", std::process::id()));
    let compiler = find_program("cc")
        .or_else(|| find_program("gcc"))
        .with_context(|| format!("no C compiler for {name}"))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("assets/{name}.c"));
    output(Command::new(compiler).args(["-Os", "-static", "-s", "-o"]).arg(&draft).arg(source))?;
    std::fs::rename(&draft, &target)?;
    Ok(target)
}

fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_printing_a_version_are_understood() {
        let cases = [
            ("containerd github.com/containerd/containerd/v2 2.4.2 \n", Some(("2.4.2", 2))),
            (
                "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1",
                Some(("1.6.20~ds1", 1)),
            ),
            (
                "containerd github.com/containerd/containerd/v2 v2.0.0-rc.1 abc",
                Some(("2.0.0-rc.1", 2)),
            ),
            ("containerd", None),
        ];
        for (said, expected) in cases {
            let expected = expected.map(|(version, major)| (version.to_owned(), major));
            assert_eq!(parse_version(said), expected, "{said}");
        }
    }
}
