//! What a container cannot do, and who it is: each attack or rule tried for real, as root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::bench::{Bench, is_root, volume};
use ferrolet_runtime_protocol::launch::{Mount, Propagation, Readonly, Rlimit, User};
use ferrolet_runtime_protocol::sandbox::{IdMap, IdMaps, Share};

#[tokio::test]
async fn a_process_is_who_it_should_be() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new().await;
    let script = "id -u; id -g; id -G; echo $HOME; pwd; ulimit -n; \
        grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status; echo x > /dev/stdout";
    let mut spec = bench.script("user", script);
    let process = spec.process.as_mut().unwrap();
    process.user =
        Some(User { user: "www".into(), supplemental_groups: vec![7], ..User::default() });
    process.no_new_privs = true;
    process.working_dir = "/var/www".into();
    let nofile = libc::RLIMIT_NOFILE;
    process.rlimits = vec![Rlimit { resource: nofile, soft: 77, hard: 88 }];
    let (code, log) = bench.run(&spec).await;
    let expected = "33 34 34 7 50 /var/www /var/www 77 CapInh: 0000000000000000 \
        CapPrm: 0000000000000000 CapEff: 0000000000000000 CapBnd: 00000000a80425fb \
        CapAmb: 0000000000000000 NoNewPrivs: 1 x";
    let seen: Vec<&str> = log.lines().map(|it| it.trim_start_matches("stdout F ")).collect();
    assert_eq!((code, seen.join(" ").replace('\t', " ").as_str()), (0, expected));
    let spec = bench.script("root", "grep CapEff /proc/self/status; ls /proc/self/fd | wc -l");
    let (code, log) = bench.run(&spec).await;
    // 0, 1, 2 and the directory that is being listed: nothing of the monitor's.
    let expected = "stdout F CapEff:\t00000000a80425fb\nstdout F 4\n";
    assert_eq!((code, log.as_str()), (0, expected));
    bench.end().await;
}

#[tokio::test]
async fn masked_and_read_only_paths_and_roots_hold() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new().await;
    let script = "cat /proc/keys | wc -c; ls /sys/firmware | wc -l; \
        for it in /proc/sys/kernel/domainname /new; do (echo x > $it) 2>/dev/null && echo wrote; done; \
        mount | grep -c ' / '; echo done";
    let mut spec = bench.script("masked", script);
    spec.masked_paths =
        ["/proc/keys", "/proc/kcore", "/sys/firmware", "/nowhere"].map(str::to_owned).to_vec();
    spec.readonly_paths = ["/proc/sys", "/nowhere"].map(str::to_owned).to_vec();
    spec.root.as_mut().unwrap().readonly = true;
    let (code, log) = bench.run(&spec).await;
    let seen: Vec<&str> = log.lines().map(|it| it.trim_start_matches("stdout F ")).collect();
    assert_eq!((code, seen.as_slice()), (0, &["0", "0", "1", "done"][..]));
    bench.end().await;
}

#[tokio::test]
async fn links_in_an_image_lead_nowhere_outside() {
    if !is_root() {
        return;
    }
    let bench = Bench::new().await;
    let root = bench.place.path().join("root");
    let outside = bench.place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    // A target below a link is made inside the root, or not at all.
    symlink(&outside, root.join("escape")).unwrap();
    let mut spec = bench.script("escape", "true");
    spec.mounts.push(volume(Path::new("/usr"), "/escape/made"));
    let (step, _) = bench.failure(&spec).await;
    assert!(step.starts_with("make directory"), "{step}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // A kernel's file system goes onto a directory only.
    fs::remove_dir(root.join("proc")).unwrap();
    symlink("tmp", root.join("proc")).unwrap();
    let spec = bench.script("proc", "true");
    let (step, errno) = bench.failure(&spec).await;
    assert!(step == "mount at /proc" && errno != 0, "{step} {errno}");
    fs::remove_file(root.join("proc")).unwrap();
    fs::create_dir(root.join("proc")).unwrap();
    // Nothing is mounted over procfs.
    let mut spec = bench.script("over", "true");
    spec.mounts.push(volume(&outside, "/proc/self/attr"));
    let (step, errno) = bench.failure(&spec).await;
    assert_eq!((step.as_str(), errno), ("refused to mount over procfs at /proc/self/attr", 0));
    // A working directory is not reached through descriptors.
    let mut spec = bench.script("cwd", "true");
    spec.process.as_mut().unwrap().working_dir = "/proc/self/fd/7".into();
    let (step, errno) = bench.failure(&spec).await;
    assert!(step.starts_with("enter working directory") && errno != 0, "{step} {errno}");
    bench.end().await;
}

#[tokio::test]
async fn volumes_are_read_only_all_the_way_down_if_they_should_be() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new().await;
    let data = bench.place.path().join("data");
    fs::create_dir(&data).unwrap();
    let mounted = |target: &str, readonly: Readonly, propagation: Propagation| Mount {
        readonly: readonly.into(),
        propagation: propagation.into(),
        ..volume(&data, target)
    };
    let script =
        "for it in rw ro; do (echo x > /$it/file) 2>/dev/null && echo $it; done; cat /ro/file";
    let mut spec = bench.script("volumes", script);
    spec.mounts.push(mounted("/rw", Readonly::No, Propagation::Private));
    spec.mounts.push(mounted("/ro", Readonly::Recursive, Propagation::HostToContainer));
    assert_eq!(bench.run(&spec).await, (0, "stdout F rw\nstdout F x\n".to_owned()));
    bench.end().await;
}

#[tokio::test]
async fn a_pods_root_is_nobody_on_the_node() {
    if !is_root() {
        return;
    }
    let range = IdMap { inside: 0, outside: 200_000, length: 65_536 };
    let maps = IdMaps { uids: vec![range], gids: vec![range] };
    let mut bench = Bench::with(|it| {
        it.user = Some(maps);
        it.network = Share::Pod.into();
        it.hostname = "in-the-pod".into();
    })
    .await;
    let data = bench.place.path().join("data");
    fs::create_dir(&data).unwrap();
    let script = "id -u; cat /proc/self/uid_map | tr -s ' '; hostname; echo x > /data/file; \
        stat -c %u /data/file /usr/bin/env /tmp; echo x > /tmp/file && ls /sys/class/net; echo $$";
    let mut spec = bench.script("user", script);
    for part in ["upper-user", "work-user"] {
        let path = bench.place.path().join(part);
        std::os::unix::fs::chown(path, Some(200_000), Some(200_000)).unwrap();
    }
    spec.root.as_mut().unwrap().idmap = true;
    for mount in &mut spec.mounts {
        mount.idmap = mount.target == "/usr";
    }
    spec.mounts.push(Mount { idmap: true, ..volume(&data, "/data") });
    for device in &mut spec.devices {
        device.host_path = device.path.clone();
    }
    let (code, log) = bench.run(&spec).await;
    let seen: Vec<&str> = log.lines().map(|it| it.trim_start_matches("stdout F ").trim()).collect();
    let expected = ["0", "0 200000 65536", "in-the-pod", "0", "0", "0", "lo", "1"];
    assert_eq!((code, seen.as_slice()), (0, &expected[..]));
    // On the node the file is root's, as an id-mapped volume has it.
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(data.join("file")).unwrap());
    assert_eq!(owner, 0);
    bench.end().await;
}
