//! A spawner, a pod and containers of this machine's own programs, in a place of the test's own.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferrolet_runtime_client::{Command, Greeting, Monitor, Program, Spawner, Stdio, own_mounts};
use ferrolet_runtime_protocol::launch::{
    Cgroup, Cgroups, Device, Kernel, LaunchSpec, Log, Mount, Process, Readonly, Root, Setting,
    Source, User, Write,
};
use ferrolet_runtime_protocol::message::{Event, Exec, Signal};
use ferrolet_runtime_protocol::record::Exit;
use ferrolet_runtime_protocol::sandbox::{PidShare, SandboxSpec, Share};

/// The capabilities that containers have by default.
pub(crate) const CAPABILITIES: u64 = 0xa804_25fb;

/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// What these tests need, which `cargo test` as a plain user does not have.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) struct Bench {
    pub(crate) place: tempfile::TempDir,
    _spawner: Spawner,
    pub(crate) monitor: Monitor,
    pub(crate) greeting: Greeting,
    pub(crate) monitor_pid: i32,
    commands: u64,
}

pub(crate) fn spawner() -> Spawner {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_ferrolet-spawner"));
    Spawner::start(&Program { path, args: Vec::new() }).unwrap()
}

/// A pod on the node's network, with everything else its own.
pub(crate) fn sandbox(place: &Path) -> SandboxSpec {
    SandboxSpec {
        id: "pod".into(),
        directory: place.join("pod").to_str().unwrap().to_owned(),
        network: Share::Node.into(),
        ipc: Share::Pod.into(),
        pid: PidShare::Container.into(),
        shm_size: 1 << 20,
        ..SandboxSpec::default()
    }
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut SandboxSpec)) -> Self {
        let place = tempfile::Builder::new().prefix("ferrolet-monitor-").tempdir().unwrap();
        make_root(place.path());
        let spawner = spawner();
        let mut spec = sandbox(place.path());
        change(&mut spec);
        let spawned = spawner.spawn(spec).await.unwrap();
        let (monitor, greeting) = Monitor::connect(&place.path().join("pod")).await.unwrap();
        let monitor_pid = spawned.started.pid;
        Self { place, _spawner: spawner, monitor, greeting, monitor_pid, commands: 0 }
    }

    /// A container that runs a script.
    pub(crate) fn script(&self, id: &str, script: &str) -> LaunchSpec {
        container(self.place.path(), id, script)
    }

    /// A container that waits.
    pub(crate) fn sleeper(&self, id: &str) -> LaunchSpec {
        let mut spec = self.script(id, "");
        if let Some(process) = &mut spec.process {
            process.args = vec!["sleep".into(), "1000".into()];
        }
        spec
    }

    pub(crate) async fn launch(&self, spec: &LaunchSpec) {
        let launched = self.monitor.launch(spec.clone(), own_mounts().unwrap().as_fd()).await;
        launched.unwrap();
    }

    /// Why a container did not start: step, path and errno.
    pub(crate) async fn failure(&self, spec: &LaunchSpec) -> (String, i32) {
        let launched = self.monitor.launch(spec.clone(), own_mounts().unwrap().as_fd()).await;
        match launched {
            Err(ferrolet_runtime_client::CallError::Failed(failed, _)) => {
                (format!("{} {}", failed.step, failed.path), failed.errno)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next container's end.
    pub(crate) async fn exit(&mut self) -> (String, Exit) {
        let event = tokio::time::timeout(PATIENCE, self.greeting.events.recv()).await;
        match event.expect("a container ends in time").expect("the monitor is there") {
            Event::Exited(exited) => (exited.container, exited.exit.unwrap()),
            Event::LogTrouble(trouble) => panic!("{trouble:?}"),
        }
    }

    /// Runs a script in a container of its own: exit code, and what it wrote.
    pub(crate) async fn run(&mut self, spec: &LaunchSpec) -> (i32, String) {
        self.launch(spec).await;
        let (id, exit) = self.exit().await;
        assert_eq!(id, spec.container);
        (exit.code, self.log(&id))
    }

    /// The text of a container's log, without times.
    pub(crate) fn log(&self, id: &str) -> String {
        text(&fs::read_to_string(self.place.path().join(format!("{id}.log"))).unwrap())
    }

    pub(crate) async fn exec(&mut self, container: &str, script: &str) -> (i32, String) {
        let command = self.start(container, script, |_| {}).await;
        let output = read_all(&command).await;
        let exit = tokio::time::timeout(PATIENCE, command.exit.wait()).await.unwrap().unwrap();
        (exit.code, output)
    }

    pub(crate) async fn start(
        &mut self,
        container: &str,
        script: &str,
        change: impl FnOnce(&mut Exec),
    ) -> Command {
        self.commands += 1;
        let mut exec = Exec {
            container: container.into(),
            command: self.commands,
            process: Some(process(script)),
            stdout: true,
            ..Exec::default()
        };
        change(&mut exec);
        self.monitor.exec(exec).await.unwrap()
    }

    pub(crate) async fn kill(&self, container: &str) {
        let signal = Signal {
            container: container.into(),
            signal: libc::SIGKILL,
            everything: true,
            command: 0,
        };
        self.monitor.signal(signal).await.unwrap();
    }

    /// Ends the pod and looks that nothing is left of it.
    pub(crate) async fn end(self) {
        self.monitor.end().await.unwrap();
        assert!(!self.place.path().join("pod/monitor.sock").exists());
        let pid = self.monitor_pid;
        // It leaves right after its answer.
        wait_until(|| !Path::new(&format!("/proc/{pid}")).exists()).await;
        let marker = self.place.path().file_name().unwrap().to_str().unwrap().to_owned();
        for hierarchy in HIERARCHIES {
            let left = fs::read_dir(format!("/sys/fs/cgroup/{hierarchy}")).unwrap();
            let names = left.map(|it| it.unwrap().file_name().into_string().unwrap());
            assert_eq!(names.filter(|it| it.contains(&marker)).count(), 0, "{hierarchy}");
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&marker), "{mounts}");
    }
}

impl Drop for Bench {
    /// A test that failed leaves nothing either.
    fn drop(&mut self) {
        clear(self.place.path(), self.monitor_pid);
    }
}

/// Kills a monitor and what is in a place's groups.
pub(crate) fn clear(place: &Path, monitor: i32) {
    let record = fs::read_to_string(format!("/proc/{monitor}/comm"));
    if record.is_ok_and(|it| it == "ferrolet-pod\n") {
        let pid = rustix::process::Pid::from_raw(monitor).unwrap();
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let marker = place.file_name().unwrap().to_str().unwrap().to_owned();
    for hierarchy in HIERARCHIES.iter().rev() {
        let groups = fs::read_dir(format!("/sys/fs/cgroup/{hierarchy}")).into_iter().flatten();
        for group in groups.flatten().map(|it| it.path()) {
            if group.to_str().is_some_and(|it| it.contains(&marker)) {
                let _v1 = fs::write(group.join("cgroup.kill"), "1");
                let _busy = fs::remove_dir(group);
            }
        }
    }
}

/// Waits for a condition that nothing announces.
pub(crate) async fn wait_until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it comes in time");
}

pub(crate) async fn read_all(command: &Command) -> String {
    let near = match &command.stdio {
        Stdio::Pipes { stdout: Some(stdout), .. } => stdout.try_clone().unwrap(),
        Stdio::Terminal(master) => master.try_clone().unwrap(),
        Stdio::Pipes { .. } => return String::new(),
    };
    tokio::task::spawn_blocking(move || read_to_end(&near)).await.unwrap()
}

/// To the end, which a terminal gives as an error.
pub(crate) fn read_to_end(near: &impl AsFd) -> String {
    rustix::io::ioctl_fionbio(near, false).unwrap();
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = rustix::io::read(near, &mut buffer) {
        all.extend_from_slice(&buffer[..n]);
    }
    String::from_utf8(all).unwrap()
}

/// CRI's lines without their times: `stdout F text`.
pub(crate) fn text(log: &str) -> String {
    log.lines().map(|it| format!("{}\n", it.split_once(' ').unwrap().1)).collect()
}

/// A root whose programs are this machine's, below `/usr`.
pub(crate) fn make_root(place: &Path) {
    let root = place.join("root");
    for name in ["etc", "usr", "tmp", "proc", "sys", "dev"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    for name in ["bin", "lib", "lib64", "sbin"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0::/root:\nwww:x:33:34::/var/www:\n").unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\nweb:x:34:\nlogs:x:50:www\n").unwrap();
}

pub(crate) fn process(script: &str) -> Process {
    let args = ["/bin/dash", "-c", script].map(str::to_owned).to_vec();
    Process {
        args,
        env: vec!["PATH=/usr/bin".into(), "LC_ALL=C".into()],
        working_dir: "/".into(),
        user: Some(User::default()),
        capabilities: CAPABILITIES,
        ..Process::default()
    }
}

pub(crate) fn kernel(target: &str, kind: Kernel) -> Mount {
    Mount {
        target: target.into(),
        source: Some(Source::Kernel(kind.into())),
        nosuid: true,
        noexec: true,
        nodev: !matches!(kind, Kernel::Dev | Kernel::Devpts),
        ..Mount::default()
    }
}

pub(crate) fn volume(source: &Path, target: &str) -> Mount {
    Mount {
        target: target.into(),
        source: Some(Source::Path(source.to_str().unwrap().to_owned())),
        ..Mount::default()
    }
}

pub(crate) fn container(place: &Path, id: &str, script: &str) -> LaunchSpec {
    for part in ["upper", "work"] {
        fs::create_dir_all(place.join(format!("{part}-{id}"))).unwrap();
    }
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let readonly = Mount { readonly: Readonly::Yes.into(), ..volume(Path::new("/usr"), "/usr") };
    LaunchSpec {
        container: id.into(),
        process: Some(process(script)),
        root: Some(Root {
            layers: vec![path("root")],
            upper: path(&format!("upper-{id}")),
            work: path(&format!("work-{id}")),
            ..Root::default()
        }),
        mounts: vec![
            kernel("/proc", Kernel::Proc),
            Mount { readonly: Readonly::Yes.into(), ..kernel("/sys", Kernel::Sysfs) },
            kernel("/dev", Kernel::Dev),
            kernel("/dev/pts", Kernel::Devpts),
            kernel("/dev/mqueue", Kernel::Mqueue),
            kernel("/dev/shm", Kernel::Shm),
            readonly,
        ],
        devices: [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)]
            .map(|(name, minor)| device(name, minor))
            .to_vec(),
        cgroups: Some(groups(place, id)),
        log: Some(Log { path: path(&format!("{id}.log")), max_size: 0 }),
        ..LaunchSpec::default()
    }
}

fn device(name: &str, minor: u32) -> Device {
    Device { path: format!("/dev/{name}"), major: 1, minor, mode: 0o666, ..Device::default() }
}

/// The hierarchies in which tests make groups.
const HIERARCHIES: [&str; 5] = ["memory", "pids", "freezer", "cpuset", "unified"];

/// Groups named after the test's place, in each hierarchy.
pub(crate) fn groups(place: &Path, id: &str) -> Cgroups {
    let name = place.file_name().unwrap().to_str().unwrap();
    let directory = |hierarchy: &str| format!("/sys/fs/cgroup/{hierarchy}/{name}-{id}");
    let setting = |file: &str, value: &str, write: Write| Setting {
        file: file.into(),
        value: value.into(),
        write: write.into(),
    };
    let groups = HIERARCHIES.map(|hierarchy| Cgroup {
        directory: directory(hierarchy),
        is_own: true,
        is_unified: hierarchy == "unified",
        settings: match hierarchy {
            "memory" => vec![setting("memory.limit_in_bytes", "67108864", Write::Must)],
            "pids" => vec![setting("pids.max", "64", Write::Must)],
            "cpuset" => vec![
                setting("cpuset.cpus", "", Write::Inherit),
                setting("cpuset.mems", "", Write::Inherit),
            ],
            _ => Vec::new(),
        },
    });
    Cgroups {
        groups: groups.to_vec(),
        kill: directory("unified"),
        freezer: directory("freezer"),
        oom_events: format!("{}/memory.oom_control", directory("memory")),
        device_filter: Vec::new(),
    }
}
