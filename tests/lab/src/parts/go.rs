//! Binaries of other projects, built from a go.mod of ours through the Go module proxy, one by one
//! into a cache.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::image::hex_digest;
use crate::process::{find_program, output, say};

/// File name and package; a name that ends in `.test` is the package's test program.
type Binary = (&'static str, &'static str);

pub(super) const CONTAINERD: &[Binary] = &[
    ("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
    ("containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
    ("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
];

pub(super) const CONTAINERD_FLAGS: &[&str] = &[
    "-trimpath",
    "-tags=no_btrfs",
    "-ldflags=-s -w -X github.com/containerd/containerd/v2/version.Version=2.4.2",
];

pub(super) const CONTROL_PLANE: &[Binary] = &[
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
];

/// Without these the API server takes itself for v0.0.0.
pub(super) const CONTROL_PLANE_FLAGS: &[&str] = &[
    "-trimpath",
    "-ldflags=-s -w \
     -X k8s.io/component-base/version.gitVersion=v1.37.1 \
     -X k8s.io/component-base/version.gitMajor=1 \
     -X k8s.io/component-base/version.gitMinor=37 \
     -X k8s.io/component-base/version.gitTreeState=clean \
     -X k8s.io/client-go/pkg/version.gitVersion=v1.37.1 \
     -X k8s.io/client-go/pkg/version.gitMajor=1 \
     -X k8s.io/client-go/pkg/version.gitMinor=37 \
     -X k8s.io/client-go/pkg/version.gitTreeState=clean",
];

/// A runc that maps the users of mounts, which Debian's 1.1 does not: without it a pod has no users
/// of its own.
pub(super) const RUNC: &[Binary] = &[("runc", "github.com/opencontainers/runc")];

/// Our own client of a node's local services, and collector of its traces.
pub(super) const LOCAL_CLIENT: &[Binary] = &[("local-client", ".")];

/// Our own device plugin.
pub(super) const DEVICE_PLUGIN: &[Binary] = &[("device-plugin", ".")];

/// Our own driver for volumes.
pub(super) const CSI_DRIVER: &[Binary] =
    &[("csi-driver", "."), ("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")];

/// A stand-in for logind.
pub(super) const LOGIND: &[Binary] = &[("logind", ".")];

/// A server of NFS in a process of its own.
pub(super) const NFS_SERVER: &[Binary] = &[("osnfs", "github.com/willscott/go-nfs/example/osnfs")];

/// What upstream does for `fsGroup`, to be timed.
pub(super) const UPSTREAM_WALK: &[Binary] = &[("upstream-walk", ".")];

/// What upstream's suites share: their runner, and the programs that their images hold. Built with
/// the flags of the control plane, as are the suites.
pub(super) const SUITE: &[Binary] = &[
    ("ginkgo", "github.com/onsi/ginkgo/v2/ginkgo"),
    ("agnhost", "k8s.io/kubernetes/test/images/agnhost"),
    ("nonewprivs", "k8s.io/kubernetes/test/images/nonewprivs"),
];

/// Upstream's suites.
pub(super) const TEST_PROGRAMS: &[Binary] = &[
    ("e2e.test", "k8s.io/kubernetes/test/e2e"),
    ("e2e_node.test", "k8s.io/kubernetes/test/e2e_node"),
];

/// Upstream's own driver of dynamic resources, of the same module.
pub(super) const CLAIM_DRIVER: &[Binary] =
    &[("dra-test-driver", "k8s.io/kubernetes/test/e2e/dra/test-driver")];

/// Upstream's judge of runtimes, which is a test program.
pub(super) const CRITEST: &[Binary] = &[("critest.test", "sigs.k8s.io/cri-tools/cmd/critest")];

/// A directory with go.mod and go.sum, and how its binaries are built.
pub(super) struct Module {
    pub(super) directory: PathBuf,
    pub(super) flags: &'static [&'static str],
    pub(super) language: Language,
}

/// What a module's programs are written in.
#[derive(Clone, Copy)]
pub(super) enum Language {
    Go,
    /// A part of it is C.
    GoAndC,
}

impl Module {
    /// The directory with all of `binaries`, when nothing has to be built.
    pub(super) fn built(&self, binaries: &[Binary]) -> Result<Option<PathBuf>> {
        let target = self.target()?;
        let is_whole = binaries.iter().all(|(name, _)| target.join(name).exists());
        Ok(is_whole.then_some(target))
    }

    /// The directory with all of `binaries`; what is missing is built and moved there whole.
    pub(super) fn build(&self, binaries: &[Binary]) -> Result<PathBuf> {
        let target = self.target()?;
        let missing: Vec<&Binary> =
            binaries.iter().filter(|(name, _)| !target.join(name).exists()).collect();
        if missing.is_empty() {
            return Ok(target);
        }
        let go = find_program("go").context("Go is not installed")?;
        fs::create_dir_all(&target)?;
        for (name, package) in missing {
            say(&format!("go build {package} (once, kept in {})", target.display()));
            let draft = target.join(format!(".{name}.{}", std::process::id()));
            let way: &[&str] = if name.ends_with(".test") {
                // Vetting somebody else's tests takes longer than compiling them.
                &["test", "-c", "-vet=off"]
            } else {
                &["build"]
            };
            let has_c = match self.language {
                Language::Go => "0",
                Language::GoAndC => "1",
            };
            let built = output(
                Command::new(&go)
                    .current_dir(&self.directory)
                    .env("CGO_ENABLED", has_c)
                    .args(way)
                    .args(self.flags)
                    .arg("-o")
                    .arg(&draft)
                    .arg(package),
            );
            if let Err(error) = built {
                // A half-written draft is of no use to anyone.
                let _ = fs::remove_file(&draft);
                return Err(error.context(format!("build {name}")));
            }
            fs::rename(&draft, target.join(name))?;
        }
        Ok(target)
    }

    /// Where the source of another module lies that this one needs.
    pub(super) fn source_of(&self, module: &str) -> Result<PathBuf> {
        let go = find_program("go").context("Go is not installed")?;
        let said = output(
            Command::new(go)
                .current_dir(&self.directory)
                .args(["list", "-m", "-f", "{{.Dir}}", module]),
        )?;
        Ok(PathBuf::from(said.trim()))
    }

    fn target(&self) -> Result<PathBuf> {
        let mut key = Vec::new();
        for file in ["go.mod", "go.sum"] {
            let path = self.directory.join(file);
            key.extend(fs::read(&path).with_context(|| format!("read {}", path.display()))?);
        }
        // A program of ours is built again when its code changes.
        if self.directory.join("main.go").exists() {
            let mut code: Vec<PathBuf> = fs::read_dir(&self.directory)?
                .map(|entry| Ok(entry?.path()))
                .collect::<Result<_>>()?;
            code.retain(|path| path.extension().is_some_and(|it| it == "go"));
            code.sort();
            for path in code {
                key.extend(fs::read(&path)?);
            }
        }
        for flag in self.flags {
            key.extend_from_slice(flag.as_bytes());
        }
        let digest = hex_digest(&key);
        let name = self
            .directory
            .file_name()
            .context("module directory has no name")?
            .to_string_lossy()
            .into_owned();
        Ok(cache_directory()?.join(format!("{name}-{}", &digest[..12])).join("bin"))
    }
}

/// Names the directory above ours instead of `~/.cache`.
pub(super) const CACHE: &str = "XDG_CACHE_HOME";

/// `$XDG_CACHE_HOME/ferrolet`, or `~/.cache/ferrolet`.
pub fn cache_directory() -> Result<PathBuf> {
    let base = match std::env::var_os(CACHE) {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("ferrolet"))
}
