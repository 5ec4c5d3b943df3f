//! Which cgroup a process is in. Pure: the text of `/proc/PID/cgroup` in, a path out.

use std::path::{Component, Path, PathBuf};

use super::CgroupLayout;

/// The cgroup whose memory and processor time are that process's, relative to the root; `None` for the
/// root itself, for one outside of what we see, and where the two hierarchies of v1 do not agree.
pub fn process_cgroup(layout: &CgroupLayout, proc_cgroup: &str) -> Option<PathBuf> {
    let of = |controller: &str| {
        proc_cgroup.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            controllers.split(',').any(|it| it == controller).then_some(path)
        })
    };
    let path = match layout {
        // The tree has no controller in its name.
        CgroupLayout::V2 { .. } => of("")?,
        CgroupLayout::V1 { .. } => {
            let memory = of("memory")?;
            (of("cpuacct")? == memory).then_some(memory)?
        }
    };
    let path = Path::new(path.strip_prefix('/')?);
    let is_plain = path.components().all(|it| matches!(it, Component::Normal(_)));
    (is_plain && path.components().next().is_some()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_where_its_memory_and_time_are_counted() {
        let v2 = CgroupLayout::V2 { mount: "/sys/fs/cgroup".into() };
        let v1 = CgroupLayout::V1 { hierarchies: Vec::new(), unified: None };
        let check = |layout: &CgroupLayout, text: &str, expected: Option<&str>| {
            assert_eq!(process_cgroup(layout, text), expected.map(PathBuf::from), "{text}");
        };
        let service = "system.slice/containerd.service";
        check(&v2, "0::/system.slice/containerd.service\n", Some(service));
        check(&v2, "0::/a:b\n", Some("a:b"));
        check(&v2, "0::/\n", None);
        check(&v2, "0::/../other\n", None);
        check(&v2, "4:memory:/x\n", None);
        let same = "9:cpu,cpuacct:/daemons\n5:memory:/daemons\n1:name=systemd:/y\n0::/z\n";
        check(&v1, same, Some("daemons"));
        check(&v1, "9:cpu,cpuacct:/a\n5:memory:/b\n", None);
        check(&v1, "5:memory:/b\n", None);
        check(&v1, "", None);
    }
}
