//! Looking at the traces of a pod from outside: logs, links, cgroups, directories.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::{Containerd, Node, PodView, cgroups};

/// Where upstream puts one link per container, whatever the configuration says.
const LINKS: &str = "/var/log/containers";

/// The directory of a pod's logs.
pub(crate) fn log_directory(node: &Node, pod: &PodView) -> PathBuf {
    node.pod_logs().join(format!("{}_{}_{}", pod.namespace(), pod.name(), pod.uid()))
}

/// What a container wrote, without the runtime's columns in front.
pub(crate) fn log_lines(
    node: &Node,
    pod: &PodView,
    container: &str,
    n_restarts: u64,
) -> Result<Vec<String>> {
    let path = log_directory(node, pod).join(container).join(format!("{n_restarts}.log"));
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned()).collect())
}

/// Names of the links into a pod's logs. The name alone would also fit a pod that took its place.
pub(crate) fn links(node: &Node, pod: &PodView) -> Vec<String> {
    let logs = log_directory(node, pod);
    let names = fs::read_dir(LINKS).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| link_target(name).is_ok_and(|target| target.starts_with(&logs))).collect()
}

/// Where a link leads.
pub(crate) fn link_target(name: &str) -> Result<PathBuf> {
    fs::read_link(Path::new(LINKS).join(name)).with_context(|| format!("read link {name}"))
}

/// The cgroup of a pod; `class` is `""`, `burstable/` or `besteffort/`.
pub(crate) fn pod_cgroup(node: &Node, class: &str, pod: &PodView) -> String {
    format!("{}/kubepods/{class}pod{}", node.cgroup_root(), pod.uid())
}

/// The directory of a pod under the agent's root.
pub(crate) fn pod_directory(node: &Node, pod: &PodView) -> PathBuf {
    node.root().join("pods").join(pod.uid())
}

/// How many sandboxes the runtime has, of whatever pod.
pub(crate) fn n_sandboxes(containerd: &Containerd) -> Result<usize> {
    let all = containerd.containers()?;
    Ok(all.iter().filter(|it| it.kind == "sandbox").count())
}

/// Fails while anything of a pod is left: sandbox, containers, cgroups, directories, logs, links.
pub(crate) fn ensure_gone(node: &Node, containerd: &Containerd, pod: &PodView) -> Result<()> {
    let known = node.pods()?.iter().any(|it| it.uid() == pod.uid());
    ensure!(!known, "/pods still has {}", pod.uid());
    let left: Vec<String> = containerd
        .containers()?
        .into_iter()
        .filter(|it| it.pod_uid == pod.uid())
        .map(|it| format!("{} {}", it.kind, it.name))
        .collect();
    ensure!(left.is_empty(), "the runtime still has {left:?}");
    for class in ["", "burstable/", "besteffort/"] {
        let left = cgroups::directories(&pod_cgroup(node, class, pod))?;
        ensure!(left.is_empty(), "cgroups are left: {left:?}");
    }
    for dir in [pod_directory(node, pod), log_directory(node, pod)] {
        ensure!(!dir.exists(), "{} is left", dir.display());
    }
    let left = links(node, pod);
    ensure!(left.is_empty(), "links are left: {left:?}");
    Ok(())
}
