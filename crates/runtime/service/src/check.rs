//! What this kernel can do for the runtime, and what follows from it: `ferrolet runtime check`.
//!
//! Everything is asked of the kernel itself, never read off its version: distributions carry features back and leave
//! others out. Nothing is changed. Blocking, and quick.

use std::path::Path;

use ferrolet_runtime_plan::cgroups::Hierarchies;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags},
    mount::{FsOpenFlags, OpenTreeFlags},
    process::PidfdFlags,
};

/// CAP_SYS_RESOURCE and CAP_SYS_ADMIN, as the kernel numbers them.
const SYS_RESOURCE: u32 = 24;
const SYS_ADMIN: u32 = 21;
/// As much of a file as is read.
const FILE_BYTES: u64 = 64 * 1024;

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// Without it nothing runs.
    Needed,
    /// Without it something is slower, or not there.
    Useful,
}

/// Something that a kernel has or has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// Whether it is there.
    pub is_there: bool,
    /// How much it matters.
    pub importance: Importance,
    /// What follows when it is not.
    pub without: &'static str,
}

/// Asks the kernel.
#[must_use]
pub fn features(hierarchies: Option<&Hierarchies>) -> Vec<Feature> {
    let needed = |name, is_there, without| Feature {
        name,
        is_there,
        importance: Importance::Needed,
        without,
    };
    let useful = |name, is_there, without| Feature {
        name,
        is_there,
        importance: Importance::Useful,
        without,
    };
    let capabilities = capabilities(&text("/proc/self/status"));
    let has = |number: u32| capabilities >> number & 1 == 1;
    let overlay = Overlay::probe();
    let lsm = text("/sys/kernel/security/lsm");
    vec![
        needed(
            "root (CAP_SYS_ADMIN)",
            has(SYS_ADMIN),
            "nothing can be mounted and no namespace made",
        ),
        needed(
            "control groups",
            hierarchies.is_some(),
            "containers cannot be limited or killed as a whole",
        ),
        needed("openat2", openat2(), "paths in images cannot be resolved safely (Linux 5.6)"),
        needed("pidfd", pidfd(), "processes cannot be waited for safely (Linux 5.3)"),
        needed(
            "mount API (open_tree)",
            open_tree(),
            "no mount can be prepared out of sight (Linux 5.2)",
        ),
        needed("overlay file system", overlay.is_there, "containers have no root file system"),
        needed(
            "overlay lowerdir+",
            overlay.has_lower,
            "layers cannot be added one by one (Linux 6.7)",
        ),
        useful(
            "overlay volatile",
            overlay.has_volatile,
            "a container's end waits for the disk (Linux 5.10)",
        ),
        useful(
            "cgroup.kill",
            kills(hierarchies),
            "containers are frozen and killed one process at a time (Linux 5.14)",
        ),
        useful("user namespaces", user_namespaces(), "pods with hostUsers: false are refused"),
        useful(
            "seccomp",
            exists("/proc/sys/kernel/seccomp/actions_avail"),
            "pods that ask for a seccomp profile do not start",
        ),
        useful(
            "AppArmor",
            text("/sys/module/apparmor/parameters/enabled").starts_with('Y'),
            "profiles are not applied",
        ),
        useful("SELinux", exists("/sys/fs/selinux/enforce"), "labels are not applied"),
        useful(
            "Landlock",
            lsm.contains("landlock"),
            "unpacking images is confined by other means only",
        ),
        useful(
            "CAP_SYS_RESOURCE",
            has(SYS_RESOURCE),
            "monitors cannot be spared when memory is short, and limits not raised",
        ),
    ]
}

/// The list, for people; whether everything that is needed is there.
#[must_use]
pub fn report(features: &[Feature]) -> (String, bool) {
    let mut text = String::new();
    for feature in features {
        let (mark, rest) = match (feature.is_there, feature.importance) {
            (true, _) => ("yes    ", String::new()),
            (false, Importance::Needed) => ("MISSING", format!(": {}", feature.without)),
            (false, Importance::Useful) => ("no     ", format!(": {}", feature.without)),
        };
        text += &format!("{mark}  {}{rest}\n", feature.name);
    }
    let is_fine = features.iter().all(|it| it.is_there || it.importance == Importance::Useful);
    text += if is_fine { "pods can run here\n" } else { "pods cannot run here\n" };
    (text, is_fine)
}

struct Overlay {
    is_there: bool,
    has_lower: bool,
    has_volatile: bool,
}

impl Overlay {
    /// A file system that is described and never made.
    fn probe() -> Self {
        let Ok(context) = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC) else {
            return Self { is_there: false, has_lower: false, has_volatile: false };
        };
        Self {
            is_there: true,
            has_lower: rustix::mount::fsconfig_set_string(&context, "lowerdir+", "/").is_ok(),
            has_volatile: rustix::mount::fsconfig_set_flag(&context, "volatile").is_ok(),
        }
    }
}

fn openat2() -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).is_ok()
}

fn pidfd() -> bool {
    rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).is_ok()
}

fn open_tree() -> bool {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(CWD, "/", flags).is_ok()
}

fn user_namespaces() -> bool {
    exists("/proc/self/ns/user") && text("/proc/sys/user/max_user_namespaces").trim() != "0"
}

/// A group other than the root has the file, where the kernel does.
fn kills(hierarchies: Option<&Hierarchies>) -> bool {
    let root = match hierarchies {
        Some(Hierarchies::V2 { root }) => root,
        Some(Hierarchies::V1 { unified: Some(root), .. }) => root,
        Some(Hierarchies::V1 { unified: None, .. }) | None => return false,
    };
    let Ok(entries) = std::fs::read_dir(root) else { return false };
    let mut groups = entries.flatten().map(|it| it.path()).filter(|it| it.is_dir()).peekable();
    // Without any group there is nothing to look at; the kernel that has the tree at all is new enough as a rule.
    groups.peek().is_none() || groups.any(|it| it.join("cgroup.kill").exists())
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}

fn text(path: &str) -> String {
    use std::io::Read as _;
    let mut content = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|it| it.take(FILE_BYTES).read_to_end(&mut content));
    if read.is_ok() { String::from_utf8_lossy(&content).into_owned() } else { String::new() }
}

/// What this process may do, one bit each.
fn capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|it| it.strip_prefix("CapEff:"));
    line.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_follows_and_whether_pods_can_run() {
        let feature =
            |name, is_there, importance| Feature { name, is_there, importance, without: "x" };
        let mut all =
            vec![feature("a", true, Importance::Needed), feature("b", false, Importance::Useful)];
        assert_eq!(
            report(&all),
            ("yes      a\nno       b: x\npods can run here\n".to_owned(), true)
        );
        all.push(feature("c", false, Importance::Needed));
        let (text, is_fine) = report(&all);
        assert!(!is_fine && text.ends_with("MISSING  c: x\npods cannot run here\n"), "{text}");
    }

    #[test]
    fn capabilities_are_read_as_the_kernel_writes_them() {
        assert_eq!(capabilities("Name:\tx\nCapEff:\t0000000000200000\n") >> SYS_ADMIN & 1, 1);
        assert_eq!(capabilities("nothing"), 0);
    }

    #[test]
    fn this_kernel_is_asked_without_harm() {
        let features = features(None);
        assert!(features.iter().any(|it| it.name == "pidfd" && it.is_there));
        assert!(features.iter().any(|it| it.name == "control groups" && !it.is_there));
    }
}
