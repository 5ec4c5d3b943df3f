//! The Debian package on a machine with systemd: installed, started, upgraded, removed. In a virtual
//! machine ([`crate::guest`]), because it puts its files where an operator expects them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ferrolet_dist::debian::{self, Squeeze};
use ferrolet_dist::{Release, Texts};
use ferrolet_lab::process::{call, output};
use ferrolet_lab::wait::wait_until;
use ferrolet_lab::{Containerd, http};
use serde_json::json;

use super::{GONE, LATER, cases};
use crate::build::{pod, sleeper};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    ; systemd:
    a_package_runs_the_node_and_leaves_its_pods_alone_when_it_goes,
];

const HEALTH: &str = "127.0.0.1:10248";
const UNIT: &str = "kubelet.service";
const MANIFEST: &str = "/etc/kubernetes/manifests/still.yaml";
const SETTINGS: &str = "/etc/ferrolet/kubelet.yaml";

/// The guest's system was unpacked and never installed: dpkg starts from nothing there, and does not
/// find the packages that ours needs.
const FORCED: [&str; 2] = ["--force-depends", "--force-bad-path"];

fn a_package_runs_the_node_and_leaves_its_pods_alone_when_it_goes(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    context.take_systemd()?;
    make_room_for_dpkg()?;
    let agent = context.options.agent.clone();
    let directory = context.bench.directory("packages")?;
    let first = write(&directory, &agent, "0.1.0")?;
    let second = write(&directory, &agent, "0.1.1")?;
    let containerd = context.containerd()?;
    let runtime = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": containerd.endpoint(),
    });
    put("/etc/ferrolet/kubelet.conf.d/10-runtime.conf", &runtime.to_string())?;
    put(MANIFEST, &pod("still", &[sleeper("main")]).to_string())?;

    install(&first)?;
    let enabled = call("systemctl", &["is-enabled", UNIT])?;
    ensure!(enabled.trim() == "enabled", "{enabled}");
    let before = (wait_ready()?, wait_container(containerd)?);
    for (path, word) in [
        ("/usr/share/bash-completion/completions/kubelet", "_kubelet"),
        ("/usr/share/doc/ferrolet/copyright", "Apache-2.0"),
        ("/etc/default/kubelet", "KUBELET_EXTRA_ARGS"),
    ] {
        let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
        ensure!(text.contains(word), "{path} lacks {word}");
    }

    install(&second)?;
    let after = (wait_for_another(&before.0)?, wait_container(containerd)?);
    ensure!(before.1 == after.1, "an upgrade touched the container: {before:?}, {after:?}");

    dpkg(&["--remove", "ferrolet"])?;
    ensure!(!is_active()?, "the agent outlived its package");
    ensure!(!Path::new("/usr/bin/kubelet").exists(), "the program outlived its package");
    ensure!(Path::new(SETTINGS).exists(), "the operator's file went with the package");
    let left = wait_container(containerd)?;
    ensure!(left == before.1, "a removal touched the container: {before:?}, {left:?}");

    install(&first)?;
    wait_ready()?;
    fs::remove_file(MANIFEST)?;
    wait_until("the pod to be gone", GONE, || {
        Ok(containerd.containers()?.is_empty().then_some(()))
    })?;
    dpkg(&["--purge", "ferrolet"])?;
    ensure!(!Path::new(SETTINGS).exists(), "the operator's file outlived a purge");
    Ok(Outcome::Passed)
}

/// A package of the agent under test.
fn write(directory: &Path, agent: &Path, version: &str) -> Result<PathBuf> {
    let said = |words: &[&str]| output(Command::new(agent).args(words));
    let release = Release {
        version: version.to_owned(),
        kubernetes: "1.37.1".to_owned(),
        architecture: "amd64".to_owned(),
        time: 1_700_000_000,
        program: fs::read(agent)?,
        texts: Texts {
            bash: said(&["completion", "bash"])?,
            zsh: said(&["completion", "zsh"])?,
            fish: said(&["completion", "fish"])?,
            ferrolet_page: said(&["man"])?,
            kubelet_page: said(&["man", "kubelet"])?,
        },
        bill: "{}\n".to_owned(),
        changelog: "# Changelog\n".to_owned(),
    };
    let path = directory.join(debian::file_name(&release));
    fs::write(&path, debian::package(&release, Squeeze::Not)?)?;
    Ok(path)
}

fn put(path: &str, text: &str) -> Result<()> {
    let parent = Path::new(path).parent().context("a file lies in a directory")?;
    fs::create_dir_all(parent)?;
    fs::write(path, text).with_context(|| format!("write {path}"))
}

fn make_room_for_dpkg() -> Result<()> {
    for directory in ["info", "updates", "triggers", "parts"] {
        fs::create_dir_all(Path::new("/var/lib/dpkg").join(directory))?;
    }
    for file in ["status", "available"] {
        let path = format!("/var/lib/dpkg/{file}");
        if !Path::new(&path).exists() {
            put(&path, "")?;
        }
    }
    // Scripts of packages name it.
    if !Path::new("/bin/sh").exists() {
        symlink("/usr/bin/busybox", "/usr/bin/sh")?;
    }
    Ok(())
}

fn dpkg(words: &[&str]) -> Result<()> {
    call("dpkg", &[&FORCED, words].concat()).map(drop)
}

fn install(package: &Path) -> Result<()> {
    dpkg(&["--install", &package.to_string_lossy()])
}

fn is_active() -> Result<bool> {
    let state = call("systemctl", &["show", "--property=ActiveState", "--value", UNIT])?;
    Ok(state.trim() == "active")
}

/// Waits until the unit is ready and healthy; gives its process.
fn wait_ready() -> Result<String> {
    wait_for_another("")
}

/// Like [`wait_ready`], for a process that is not this one.
fn wait_for_another(old: &str) -> Result<String> {
    let waited = wait_until("the unit to be ready", LATER, || {
        let pid = call("systemctl", &["show", "--property=MainPID", "--value", UNIT])?;
        let pid = pid.trim().to_owned();
        if !is_active()? || pid == old {
            return Ok(None);
        }
        let answer = http::get(HEALTH, "/healthz")?;
        Ok((answer.status == 200).then_some(pid))
    });
    waited.with_context(|| {
        call("journalctl", &["--unit", UNIT, "--no-pager", "--lines=30"]).unwrap_or_default()
    })
}

/// The pod's container, as soon as it runs: id and process.
fn wait_container(containerd: &Containerd) -> Result<(String, u32)> {
    wait_until("the pod's container to run", LATER, || {
        let main = containerd.containers()?.into_iter().find(|it| it.name == "main");
        let Some(main) = main else { return Ok(None) };
        Ok(containerd.tasks()?.into_iter().find(|(id, _)| *id == main.id))
    })
}
