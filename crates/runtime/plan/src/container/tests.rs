use ferrolet_runtime_protocol::launch::{Kernel, Mount, Readonly, Source};

use super::*;

struct Case {
    config: cri::ContainerConfig,
    sandbox: cri::PodSandboxConfig,
    hierarchies: Hierarchies,
    devices: Vec<NodeDevice>,
}

fn v1() -> Hierarchies {
    let controllers = ["cpu", "memory", "name=systemd"]
        .map(|it| (it.to_owned(), format!("/cg/{}", it.trim_start_matches("name="))));
    Hierarchies::V1 { controllers: controllers.to_vec(), unified: None }
}

fn case() -> Case {
    Case {
        config: cri::ContainerConfig { command: vec!["app".to_owned()], ..Default::default() },
        sandbox: cri::PodSandboxConfig {
            log_directory: "/var/log/pods/web/".to_owned(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: "/pods/web".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        },
        hierarchies: Hierarchies::V2 { root: "/cg".to_owned() },
        devices: Vec::new(),
    }
}

impl Case {
    fn plan(&self) -> Result<LaunchSpec, Refusal> {
        let image = ImageFacts {
            layers: vec!["/layers/top".to_owned(), "/layers/base".to_owned()],
            ..ImageFacts::default()
        };
        let place = ContainerPlace {
            id: "c1",
            sandbox: &self.sandbox,
            sandbox_directory: "/run/pods/s1",
            hostname: "web-0",
            upper: "/c1/upper",
            work: "/c1/work",
            image: &image,
            hierarchies: &self.hierarchies,
            cgroup_parent: "/ferrolet",
            devices: &self.devices,
            seccomp: None,
        };
        container(&self.config, place, &BTreeMap::from([(1, vec!["/layers/data".to_owned()])]))
    }

    fn security(&mut self) -> &mut cri::LinuxContainerSecurityContext {
        let linux = self.config.linux.get_or_insert_default();
        linux.security_context.get_or_insert_default()
    }
}

/// `target source`, and how it differs from a plain, writable mount.
fn shown(mount: &Mount) -> String {
    let source = match mount.source.as_ref().unwrap() {
        Source::Path(path) => path.clone(),
        Source::Tmpfs(_) => "tmpfs".to_owned(),
        Source::Kernel(kind) => format!("{:?}", Kernel::try_from(*kind).unwrap()),
        Source::Layers(layers) => format!("{:?}/{}", layers.layers, layers.sub_path),
    };
    let readonly = match mount.readonly() {
        Readonly::No => "",
        Readonly::Yes => " ro",
        Readonly::Recursive => " rro",
    };
    let idmap = if mount.idmap { " idmap" } else { "" };
    let propagation = match mount.propagation() {
        ferrolet_runtime_protocol::launch::Propagation::Private => String::new(),
        other => format!(" {other:?}"),
    };
    format!("{} {source}{readonly}{propagation}{idmap}", mount.target)
}

fn mounted(spec: &LaunchSpec) -> Vec<String> {
    spec.mounts.iter().map(shown).collect()
}

#[test]
fn a_plain_container_gets_the_kernels_file_systems_and_the_pods_files() {
    let spec = case().plan().unwrap();
    assert_eq!(
        mounted(&spec),
        [
            "/proc Proc",
            "/dev Dev",
            "/sys Sysfs ro",
            "/dev/pts Devpts",
            "/dev/mqueue Mqueue",
            "/dev/shm Shm",
            "/etc/hosts /run/pods/s1/hosts",
            "/etc/hostname /run/pods/s1/hostname",
            "/etc/resolv.conf /run/pods/s1/resolv.conf",
            "/sys/fs/cgroup Cgroup ro",
        ]
    );
    let root = spec.root.unwrap();
    assert_eq!((root.layers.len(), root.upper.as_str(), root.readonly), (2, "/c1/upper", false));
    assert_eq!(spec.masked_paths, defaults::MASKED_PATHS);
    assert_eq!(spec.readonly_paths, defaults::READONLY_PATHS);
    assert_eq!(spec.cgroups.unwrap().kill, "/cg/pods/web/c1");
    assert_eq!((spec.cgroup_namespace, spec.log), (true, None));
    assert_eq!(spec.devices, defaults::devices());
}

#[test]
fn what_is_asked_for_stands_in_for_what_everybody_has() {
    let mount = |container_path: &str, host_path: &str| cri::Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_owned(),
        ..Default::default()
    };
    let mut case = case();
    case.config.mounts = vec![
        cri::Mount {
            readonly: true,
            recursive_read_only: true,
            ..mount("/a/deep/place", "/volumes/deep")
        },
        cri::Mount {
            image: Some(cri::ImageSpec::default()),
            image_sub_path: "data".to_owned(),
            ..mount("/data/", "")
        },
        cri::Mount {
            propagation: cri::MountPropagation::PropagationBidirectional.into(),
            ..mount("/dev", "/dev")
        },
        mount("/etc/hosts", "/pods/etc-hosts"),
    ];
    let spec = case.plan().unwrap();
    assert_eq!(
        mounted(&spec),
        [
            "/proc Proc",
            "/sys Sysfs ro",
            "/data [\"/layers/data\"]/data",
            "/dev /dev Bidirectional",
            "/etc/hosts /pods/etc-hosts",
            "/etc/hostname /run/pods/s1/hostname",
            "/etc/resolv.conf /run/pods/s1/resolv.conf",
            "/sys/fs/cgroup Cgroup ro",
            "/a/deep/place /volumes/deep rro",
        ]
    );
}

#[test]
fn mounts_that_make_no_sense_are_refused() {
    let base = cri::Mount {
        container_path: "/data".to_owned(),
        host_path: "/volume".to_owned(),
        ..Default::default()
    };
    let check = |mount: cri::Mount| {
        let mut case = case();
        case.config.mounts = vec![mount];
        case.plan().unwrap_err().to_string()
    };
    let relative = cri::Mount { host_path: "volume".to_owned(), ..base.clone() };
    assert_eq!(check(relative), "host path \"volume\" is not an absolute path");
    for path in ["", "data", "/", "//"] {
        let mount = cri::Mount { container_path: path.to_owned(), ..base.clone() };
        assert_eq!(check(mount), format!("container path {path:?} is not an absolute path"));
    }
    let writable = cri::Mount { recursive_read_only: true, ..base.clone() };
    assert!(check(writable).contains("not supported"));
    let shared = cri::Mount {
        readonly: true,
        recursive_read_only: true,
        propagation: cri::MountPropagation::PropagationHostToContainer.into(),
        ..base.clone()
    };
    assert!(check(shared).contains("not supported"));
    // The second mount of the request is the one that has an image.
    let image = cri::Mount { image: Some(cri::ImageSpec::default()), ..base };
    assert_eq!(check(image), "the image of a volume is missing");
}

#[test]
fn version_1_has_its_trees_below_one_directory() {
    let mut case = case();
    case.hierarchies = v1();
    let spec = case.plan().unwrap();
    let trees: Vec<String> =
        mounted(&spec).into_iter().filter(|it| it.starts_with("/sys/fs")).collect();
    assert_eq!(
        trees,
        [
            "/sys/fs/cgroup tmpfs",
            "/sys/fs/cgroup/cpu /cg/cpu/pods/web/c1 ro",
            "/sys/fs/cgroup/memory /cg/memory/pods/web/c1 ro",
            "/sys/fs/cgroup/systemd /cg/systemd/pods/web/c1 ro",
        ]
    );
    assert_eq!(spec.readonly_paths.last().map(String::as_str), Some("/sys/fs/cgroup"));
    assert!(!spec.cgroup_namespace);
}

#[test]
fn a_privileged_container_is_hidden_nothing_and_has_every_device() {
    let mut case = case();
    case.security().privileged = true;
    case.devices = vec![device("/dev/sda", true, 8, 0), device("/dev/null", false, 1, 3)];
    let spec = case.plan().unwrap();
    assert_eq!((spec.masked_paths.len(), spec.readonly_paths.len()), (0, 0));
    assert_eq!(spec.process.unwrap().capabilities, defaults::ALL_CAPABILITIES);
    assert_eq!(spec.mounts.iter().filter(|it| it.readonly() != Readonly::No).count(), 0);
    assert_eq!(spec.devices.len(), defaults::devices().len() + 1);
    assert!(!spec.cgroup_namespace);
}

fn device(path: &str, is_block: bool, major: u32, minor: u32) -> NodeDevice {
    NodeDevice { path: path.to_owned(), is_block, major, minor, mode: 0o20640, uid: 0, gid: 6 }
}

#[test]
fn devices_are_opened_as_far_as_was_asked() {
    let asked = |host: &str, container: &str, permissions: &str| cri::Device {
        host_path: host.to_owned(),
        container_path: container.to_owned(),
        permissions: permissions.to_owned(),
    };
    let mut case = case();
    case.hierarchies = Hierarchies::V1 {
        controllers: vec![("devices".to_owned(), "/cg/devices".to_owned())],
        unified: None,
    };
    case.devices = vec![
        device("/dev/sda", true, 8, 0),
        device("/dev/snd/a", false, 116, 1),
        device("/dev/snd/b", false, 116, 2),
    ];
    case.config.devices =
        vec![asked("/dev/sda", "/dev/disk", "r"), asked("/dev/snd", "/dev/sound", "")];
    let spec = case.plan().unwrap();
    let added = &spec.devices[defaults::devices().len()..];
    let shown: Vec<String> = added
        .iter()
        .map(|it| format!("{} {}:{} {:o}", it.path, it.major, it.minor, it.mode))
        .collect();
    assert_eq!(shown, ["/dev/disk 8:0 640", "/dev/sound/a 116:1 640", "/dev/sound/b 116:2 640"]);
    let groups = spec.cgroups.unwrap().groups;
    let lines: Vec<&str> =
        groups.last().unwrap().settings.iter().map(|it| it.value.as_str()).collect();
    assert_eq!(lines[lines.len() - 3..], ["b 8:0 r", "c 116:1 rwm", "c 116:2 rwm"]);
    case.config.devices = vec![asked("/dev/sda", "/dev/disk", "x")];
    let permissions = Refusal::Permissions { path: "/dev/sda".into(), permissions: "x".into() };
    assert_eq!(case.plan(), Err(permissions));
    case.config.devices = vec![asked("/dev/sda", "/disk", "r")];
    assert_eq!(case.plan(), Err(Refusal::Unsupported("a device outside /dev")));
}

#[test]
fn users_of_the_pods_own_have_mapped_files_and_the_nodes_devices() {
    let mut case = case();
    let map = cri::IdMapping { host_id: 65536, container_id: 0, length: 65536 };
    let users = cri::UserNamespace {
        mode: cri::NamespaceMode::Pod.into(),
        uids: vec![map],
        gids: vec![map],
    };
    let options = cri::NamespaceOption { userns_options: Some(users), ..Default::default() };
    let linux = case.sandbox.linux.as_mut().unwrap();
    linux.security_context = Some(cri::LinuxSandboxSecurityContext {
        namespace_options: Some(options),
        ..Default::default()
    });
    let spec = case.plan().unwrap();
    assert!(spec.root.as_ref().unwrap().idmap);
    assert!(mounted(&spec).contains(&"/etc/hosts /run/pods/s1/hosts idmap".to_owned()));
    assert!(spec.devices.iter().all(|it| it.host_path == it.path));
    // A kubelet that names no paths wants none hidden.
    assert_eq!((spec.masked_paths.len(), spec.readonly_paths.len()), (0, 0));
}

#[test]
fn processes_output_and_input_are_as_asked() {
    let mut case = case();
    case.config.log_path = "app/0.log".to_owned();
    (case.config.stdin, case.config.stdin_once) = (true, true);
    case.security().namespace_options = Some(cri::NamespaceOption {
        pid: cri::NamespaceMode::Target.into(),
        target_id: "other".to_owned(),
        ..Default::default()
    });
    let spec = case.plan().unwrap();
    assert_eq!((spec.pid(), spec.pid_target.as_str()), (PidShare::Target, "other"));
    assert_eq!(spec.stdin(), Stdin::Once);
    assert_eq!(spec.log.unwrap().path, "/var/log/pods/web/app/0.log");
}

#[test]
fn a_log_stays_in_its_pods_directory() {
    for path in ["../../../etc/cron.d/x", "app/../../x.log", ".."] {
        let mut case = case();
        case.config.log_path = path.to_owned();
        let refused = Err(Refusal::Unsupported("a log path that leads upwards"));
        assert_eq!(case.plan(), refused, "{path}");
    }
    let mut case = case();
    case.config.log_path = "app/..0.log".to_owned();
    assert_eq!(case.plan().unwrap().log.unwrap().path, "/var/log/pods/web/app/..0.log");
}

#[test]
fn what_is_not_done_is_refused_and_never_left_out() {
    let mut cdi = case();
    cdi.config.cdi_devices = vec![cri::CdiDevice { name: "vendor/gpu=0".to_owned() }];
    assert_eq!(cdi.plan(), Err(Refusal::Unsupported("a CDI device")));
    let mut ambient = case();
    ambient.security().capabilities = Some(cri::Capability {
        add_ambient_capabilities: vec!["NET_ADMIN".to_owned()],
        ..Default::default()
    });
    assert_eq!(ambient.plan(), Err(Refusal::Unsupported("an ambient capability")));
}

#[test]
fn limits_are_cris() {
    let resources = cri::LinuxContainerResources {
        cpu_shares: 102,
        cpu_quota: -1,
        memory_limit_in_bytes: 5,
        memory_swap_limit_in_bytes: -1,
        hugepage_limits: vec![cri::HugepageLimit { page_size: "2MB".to_owned(), limit: 0 }],
        unified: BTreeMap::from([("pids.max".to_owned(), "7".to_owned())]),
        ..Default::default()
    };
    let expected = Limits {
        cpu_shares: 102,
        cpu_quota: -1,
        memory: 5,
        huge_pages: vec![("2MB".to_owned(), 0)],
        unified: vec![("pids.max".to_owned(), "7".to_owned())],
        ..Limits::default()
    };
    assert_eq!(limits(&resources), expected);
}
