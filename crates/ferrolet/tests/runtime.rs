//! `ferrolet runtime` for real, as root: driven over its socket by the agent's own client, killed in the middle, started
//! again. Needs root and busybox, as the end-to-end tests do; without them the cases count as skipped.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up is a failed test")]
#![expect(clippy::print_stdout, reason = "the runtime's log belongs to a failed test's report")]

#[path = "runtime/kills.rs"]
mod kills;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_cri::{CriClient, Timeouts};
use ferrolet_linux::{SystemClock, testing::skip};
use ferrolet_ports::{Runtime as _, RuntimeErrorKind};
use ferrolet_runtime_images::Digest;
use ferrolet_runtime_protocol::record::MonitorRecord;
use ferrolet_spec::{
    ContainerSpec, DnsSpec, LinuxResources, Mount, NamespaceMode, Namespaces, PortMapping,
    SandboxSpec, SeccompProfile, SecuritySpec, SupplementalGroupsPolicy,
};
use ferrolet_types::{
    ContainerId, PodKey, PodUid, SandboxId,
    observed::{ContainerState, Exit, PodObservation},
};
use prost::Message as _;

const IMAGE: &str = "example.test/busybox:1";
/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(240);
/// Lines of the long log, in two halves, each of 512 bytes: 100 MB.
const N_LINES: usize = 200_000;

/// A runtime in a place of its own.
struct Bench {
    place: tempfile::TempDir,
    group: String,
    process: Mutex<Child>,
    client: CriClient,
}

/// Where Debian's static busybox lies.
const BUSYBOXES: [&str; 2] = ["/usr/bin/busybox", "/bin/busybox"];

/// Whether this machine has what these tests need; says what it lacks.
fn is_equipped() -> bool {
    if !fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0) {
        skip("not root");
        return false;
    }
    if !BUSYBOXES.iter().any(|it| Path::new(it).exists()) {
        skip("no busybox: the package busybox-static is not installed");
        return false;
    }
    true
}

impl Bench {
    /// In a network of its own: pods' links, rules and addresses are nobody else's.
    async fn new(name: &str) -> Self {
        ferrolet_runtime_sys::network::leave_namespace().unwrap();
        ferrolet_runtime_sys::network::loopback_up().unwrap();
        let place = tempfile::Builder::new().prefix("ferrolet-runtime-").tempdir().unwrap();
        archive(&place.path().join("busybox.tar"));
        let group = format!("/ferrolet-test-{name}-{}", std::process::id());
        let process = Mutex::new(start(place.path(), &group));
        let socket = format!("unix://{}", place.path().join("runtime.sock").display());
        let timeouts = Timeouts { request: Duration::from_secs(120) };
        let client = CriClient::connect_lazy(&socket, "", timeouts, Arc::new(SystemClock)).unwrap();
        let bench = Self { place, group, process, client };
        bench.wait_until_served().await;
        bench
    }

    async fn wait_until_served(&self) {
        until("the runtime serves", async || self.client.version().await.is_ok().then_some(()))
            .await;
    }

    /// As a crash or an impatient administrator ends it.
    fn kill(&self) {
        let mut process = self.process.lock().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    async fn start_again(&self) {
        *self.process.lock().unwrap() = start(self.place.path(), &self.group);
        self.wait_until_served().await;
    }

    fn sandbox(&self, uid: &str) -> SandboxSpec {
        SandboxSpec {
            uid: PodUid::new(uid),
            key: PodKey::new("default", "web"),
            attempt: 0,
            hostname: String::new(),
            log_directory: self.place.path().join("logs"),
            dns: DnsSpec::default(),
            port_mappings: Vec::new(),
            labels: labels(uid, None),
            annotations: BTreeMap::new(),
            cgroup_parent: self.group.clone(),
            sysctls: BTreeMap::new(),
            security: security(),
            resources: LinuxResources::default(),
            overhead: LinuxResources::default(),
            runtime_handler: String::new(),
        }
    }

    /// Makes and starts a container that runs a script, with a directory that it shares with the test.
    async fn run(
        &self,
        sandbox: &SandboxId,
        spec: &SandboxSpec,
        (name, script): (&str, &str),
    ) -> ContainerId {
        let container = self.container(spec, name, script);
        let id = self.client.create_container(sandbox, spec, &container).await.unwrap();
        self.client.start_container(&id).await.unwrap();
        id
    }

    fn container(&self, spec: &SandboxSpec, name: &str, script: &str) -> ContainerSpec {
        let shared = self.place.path().join("shared");
        ContainerSpec {
            name: name.into(),
            attempt: 0,
            image_ref: IMAGE.to_owned(),
            image: IMAGE.to_owned(),
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            args: Vec::new(),
            working_dir: String::new(),
            env: vec![("COLOUR".to_owned(), "green".to_owned())],
            mounts: vec![Mount {
                container_path: "/shared".to_owned(),
                host_path: shared.to_str().unwrap().to_owned(),
                ..Mount::default()
            }],
            devices: Vec::new(),
            cdi_devices: Vec::new(),
            labels: labels(spec.uid.as_str(), Some(name)),
            annotations: BTreeMap::new(),
            log_path: format!("{name}.log"),
            stdin: false,
            stdin_once: false,
            tty: false,
            resources: LinuxResources { memory_limit: 256 << 20, ..LinuxResources::default() },
            security: security(),
            stop_signal: None,
        }
    }

    async fn observe(&self, spec: &SandboxSpec) -> PodObservation {
        self.client.observe_pod(&spec.uid).await.unwrap()
    }

    async fn state(&self, spec: &SandboxSpec, id: &ContainerId) -> ContainerState {
        let pod = self.observe(spec).await;
        pod.containers.into_iter().find(|it| it.id == *id).unwrap().state
    }

    async fn exit(&self, spec: &SandboxSpec, id: &ContainerId) -> Exit {
        until("the container ends", async || match self.state(spec, id).await {
            ContainerState::Exited(exit) => Some(exit),
            _ => None,
        })
        .await
    }

    fn log(&self, name: &str) -> PathBuf {
        self.place.path().join("logs").join(format!("{name}.log"))
    }

    /// A container's output, without times.
    fn text(&self, name: &str) -> Vec<String> {
        let log = fs::read_to_string(self.log(name)).unwrap();
        log.lines().map(|it| it.split_once(' ').unwrap().1.to_owned()).collect()
    }

    fn kill_monitor(&self, sandbox: &SandboxId) {
        let record = self.place.path().join("run/pods").join(sandbox.as_str()).join("monitor");
        let record = MonitorRecord::decode(&*fs::read(record).unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(record.pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    fn share(&self, name: &str) {
        fs::write(self.place.path().join("shared").join(name), "").unwrap();
    }

    /// Removes a pod; nothing is left of it.
    async fn clear(&self, sandbox: &SandboxId) {
        self.client.stop_sandbox(sandbox).await.unwrap();
        self.client.remove_sandbox(sandbox).await.unwrap();
        // Both again, as a kubelet that forgot would.
        self.client.stop_sandbox(sandbox).await.unwrap();
        self.client.remove_sandbox(sandbox).await.unwrap();
        self.expect_nothing_left();
    }

    /// Nothing is left of any pod.
    fn expect_nothing_left(&self) {
        for directory in ["run/pods", "root/containers", "root/sandboxes", "root/removed"] {
            let left: Vec<_> = fs::read_dir(self.place.path().join(directory)).unwrap().collect();
            assert!(left.is_empty(), "{directory}: {left:?}");
        }
        assert_eq!(self.groups_below(), [""; 0]);
    }

    /// The groups of pods and containers that are left, in any tree.
    fn groups_below(&self) -> Vec<String> {
        let mut found = Vec::new();
        for own in self.own_groups() {
            for entry in fs::read_dir(&own).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    found.push(entry.path().display().to_string());
                }
            }
        }
        found
    }

    /// The test's own group in each tree.
    fn own_groups(&self) -> Vec<PathBuf> {
        let name = self.group.trim_start_matches('/');
        let trees = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|it| it.path());
        let all = trees.chain([PathBuf::from("/sys/fs/cgroup")]).map(|it| it.join(name));
        all.filter(|it| it.is_dir()).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Ok(process) = self.process.get_mut() {
            let _gone = process.kill();
            let _gone = process.wait();
        }
        for group in self.own_groups() {
            let _stays = fs::remove_dir(group);
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.place.path().join("log")).unwrap_or_default();
            println!("log of the runtime:\n{log}");
        }
    }
}

fn start(place: &Path, group: &str) -> Child {
    let log = File::options().create(true).append(true).open(place.join("log")).unwrap();
    fs::create_dir_all(place.join("shared")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_ferrolet"))
        .arg("runtime")
        .arg("--root")
        .arg(place.join("root"))
        .arg("--run")
        .arg(place.join("run"))
        .arg(format!("--listen=unix://{}", place.join("runtime.sock").display()))
        .args(["--cgroup-parent", group, "-v", "4", "--load"])
        .arg(place.join("busybox.tar"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn labels(uid: &str, container: Option<&str>) -> BTreeMap<String, String> {
    let pod = [
        ("io.kubernetes.pod.uid", uid),
        ("io.kubernetes.pod.name", "web"),
        ("io.kubernetes.pod.namespace", "default"),
    ];
    let container = container.map(|it| ("io.kubernetes.container.name", it));
    pod.into_iter().chain(container).map(|(key, it)| (key.to_owned(), it.to_owned())).collect()
}

/// On the node's network, with processes of each container's own.
fn security() -> SecuritySpec {
    SecuritySpec {
        privileged: false,
        namespaces: Namespaces {
            network: NamespaceMode::Node,
            pid: NamespaceMode::Container,
            ipc: NamespaceMode::Pod,
            target: String::new(),
            user_mappings: Vec::new(),
        },
        run_as_user: None,
        run_as_username: String::new(),
        run_as_group: None,
        supplemental_groups: Vec::new(),
        supplemental_groups_policy: SupplementalGroupsPolicy::Merge,
        read_only_root: false,
        no_new_privileges: false,
        add_capabilities: Vec::new(),
        drop_capabilities: Vec::new(),
        seccomp: SeccompProfile::Unconfined,
        apparmor: None,
        selinux: None,
        masked_paths: Vec::new(),
        readonly_paths: Vec::new(),
    }
}

/// What `docker save` writes for an image with busybox in it.
fn archive(path: &Path) {
    let append = |archive: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        archive.append_data(&mut header, name, content).unwrap();
    };
    let busybox = BUSYBOXES.into_iter().find_map(|it| fs::read(it).ok());
    let busybox = busybox.expect("busybox is installed");
    let mut layer = tar::Builder::new(Vec::new());
    append(&mut layer, "bin/busybox", 0o755, &busybox);
    for applet in ["sh", "awk", "cat", "echo", "sleep", "env", "true"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        header.set_mode(0o755);
        layer.append_link(&mut header, format!("bin/{applet}"), "bin/busybox").unwrap();
    }
    append(&mut layer, "etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n");
    let layer = layer.into_inner().unwrap();
    let config = serde_json::json!({
        "os": "linux",
        "config": { "Env": ["PATH=/bin"], "Cmd": ["sh"] },
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(&layer).to_string()] },
    });
    let listed =
        serde_json::json!([{ "Config": "c.json", "RepoTags": [IMAGE], "Layers": ["l.tar"] }]);
    let mut image = tar::Builder::new(Vec::new());
    append(&mut image, "c.json", 0o644, config.to_string().as_bytes());
    append(&mut image, "l.tar", 0o644, &layer);
    append(&mut image, "manifest.json", 0o644, listed.to_string().as_bytes());
    File::create(path).unwrap().write_all(&image.into_inner().unwrap()).unwrap();
}

/// Waits for something that nothing announces.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what} in time"))
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

#[tokio::test]
async fn a_pod_runs_logs_answers_and_goes() {
    if !is_equipped() {
        return;
    }
    let bench = Bench::new("pod").await;
    let spec = bench.sandbox("uid-1");
    let sandbox = bench.client.run_sandbox(&spec).await.unwrap();
    let taken = bench.client.run_sandbox(&spec).await.unwrap_err();
    assert_eq!(taken.kind, RuntimeErrorKind::AlreadyExists, "{taken}");
    assert!(bench.observe(&spec).await.sandboxes[0].is_ready);

    let short = bench.run(&sandbox, &spec, ("short", "echo $COLOUR; echo err >&2; exit 3")).await;
    let exit = bench.exit(&spec, &short).await;
    assert_eq!((exit.code, exit.reason.as_str()), (3, "Error"));
    let mut text = bench.text("short");
    text.sort();
    assert_eq!(text, ["stderr F err", "stdout F green"]);

    let long =
        bench.run(&sandbox, &spec, ("long", "trap 'exit 5' TERM; echo up; sleep 999 & wait")).await;
    until("it is up", async || (bench.text("long") == ["stdout F up"]).then_some(())).await;
    let command = words(&["sh", "-c", "cat /proc/1/comm; echo no >&2; exit 4"]);
    let output = bench.client.exec(&long, &command, Duration::from_secs(60)).await.unwrap();
    assert_eq!(
        (output.code, output.stdout, output.stderr),
        (4, b"sh\n".to_vec(), b"no\n".to_vec())
    );
    let command = words(&["sleep", "999"]);
    let late = bench.client.exec(&long, &command, Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(late.kind, RuntimeErrorKind::DeadlineExceeded, "{late}");
    let command = words(&["no-such-program"]);
    let missing = bench.client.exec(&long, &command, Duration::from_secs(60)).await.unwrap_err();
    assert!(missing.message.contains("find executable no-such-program"), "{missing}");
    let smaller = LinuxResources { memory_limit: 128 << 20, ..LinuxResources::default() };
    bench.client.update_container(&long, &smaller).await.unwrap();

    let grace = ferrolet_types::GracePeriod::from_secs(120);
    bench.client.stop_container(&long, grace).await.unwrap();
    assert_eq!(bench.exit(&spec, &long).await.code, 5);
    bench.client.stop_container(&long, grace).await.unwrap();
    bench.client.remove_container(&long).await.unwrap();
    bench.client.remove_container(&long).await.unwrap();
    assert_eq!(bench.observe(&spec).await.containers.len(), 1);
    bench.clear(&sandbox).await;
}

#[tokio::test]
async fn a_container_that_does_not_start_says_why() {
    if !is_equipped() {
        return;
    }
    let bench = Bench::new("why").await;
    let spec = bench.sandbox("uid-2");
    let sandbox = bench.client.run_sandbox(&spec).await.unwrap();
    let id = bench.run(&sandbox, &spec, ("ok", "true")).await;
    bench.exit(&spec, &id).await;
    // The image is known and its program is not there.
    let pod = bench.observe(&spec).await;
    assert_eq!(pod.containers.len(), 1);
    let mut container = ContainerSpec {
        name: "broken".into(),
        command: words(&["/no/such/program"]),
        ..broken(&bench, &spec)
    };
    let id = bench.client.create_container(&sandbox, &spec, &container).await.unwrap();
    let error = bench.client.start_container(&id).await.unwrap_err();
    assert!(error.message.contains("/no/such/program: No such file or directory"), "{error}");
    let exit = bench.exit(&spec, &id).await;
    assert_eq!((exit.code, exit.reason.as_str()), (128, "StartError"));
    assert!(exit.message.contains("/no/such/program"), "{exit:?}");
    (container.image_ref, container.attempt) = ("example.test/absent:1".to_owned(), 1);
    let error = bench.client.create_container(&sandbox, &spec, &container).await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::NotFound, "{error}");
    bench.clear(&sandbox).await;
}

fn broken(bench: &Bench, spec: &SandboxSpec) -> ContainerSpec {
    ContainerSpec {
        name: "broken".into(),
        attempt: 0,
        image_ref: IMAGE.to_owned(),
        image: IMAGE.to_owned(),
        command: Vec::new(),
        args: Vec::new(),
        working_dir: String::new(),
        env: Vec::new(),
        mounts: Vec::new(),
        devices: Vec::new(),
        cdi_devices: Vec::new(),
        labels: labels(spec.uid.as_str(), Some("broken")),
        annotations: BTreeMap::new(),
        log_path: String::new(),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: LinuxResources::default(),
        security: bench.sandbox("x").security,
        stop_signal: None,
    }
}

#[tokio::test]
async fn nothing_that_runs_notices_when_the_runtime_is_killed() {
    if !is_equipped() {
        return;
    }
    let bench = Bench::new("kill").await;
    let spec = bench.sandbox("uid-3");
    let sandbox = bench.client.run_sandbox(&spec).await.unwrap();
    let half = N_LINES / 2;
    let write = |from: usize, to: usize| {
        format!("awk 'BEGIN {{ for (i = {from}; i < {to}; i++) printf \"%08d %0502d\\n\", i, 0 }}'")
    };
    let script = format!(
        "{}; while [ ! -e /shared/go ]; do sleep 0.05; done; {}; exit 7",
        write(0, half),
        write(half, N_LINES)
    );
    let writer = bench.run(&sandbox, &spec, ("writer", &script)).await;
    let idle = bench.run(&sandbox, &spec, ("idle", "sleep 9999")).await;
    let size = || fs::metadata(bench.log("writer")).map_or(0, |it| it.len());
    until("some of the log is there", async || (size() > 5 << 20).then_some(())).await;
    bench.kill();
    // All of the rest is written, and the container ends, while nobody is there.
    bench.share("go");
    let full = (N_LINES * 512) as u64;
    let size = || fs::metadata(bench.log("writer")).map_or(0, |it| it.len());
    until("the log is written", async || (size() > full).then_some(())).await;
    bench.start_again().await;

    assert!(bench.observe(&spec).await.sandboxes[0].is_ready);
    let exit = bench.exit(&spec, &writer).await;
    assert_eq!((exit.code, exit.reason.as_str()), (7, "Error"));
    assert!(matches!(bench.state(&spec, &idle).await, ContainerState::Running { .. }));
    let command = words(&["echo", "still", "here"]);
    let output = bench.client.exec(&idle, &command, Duration::from_secs(60)).await.unwrap();
    assert_eq!(output.stdout, b"still here\n");
    let mut n_lines = 0;
    for line in BufReader::new(File::open(bench.log("writer")).unwrap()).lines() {
        let line = line.unwrap();
        let text = line.split_once(" stdout F ").unwrap().1;
        assert_eq!((text.len(), &text[..8]), (511, format!("{n_lines:08}").as_str()));
        n_lines += 1;
    }
    assert_eq!(n_lines, N_LINES);
    // A name that an earlier start gave is still taken.
    let taken = bench.client.run_sandbox(&spec).await.unwrap_err();
    assert_eq!(taken.kind, RuntimeErrorKind::AlreadyExists, "{taken}");
    bench.clear(&sandbox).await;
}

#[tokio::test]
async fn a_pod_ends_with_its_monitor_and_says_so() {
    if !is_equipped() {
        return;
    }
    let bench = Bench::new("monitor").await;
    let (first, second) = (bench.sandbox("uid-4"), bench.sandbox("uid-5"));
    let sandbox = bench.client.run_sandbox(&first).await.unwrap();
    let other = bench.client.run_sandbox(&second).await.unwrap();
    let lost = bench.run(&sandbox, &first, ("lost", "sleep 9999")).await;
    let kept = bench.run(&other, &second, ("kept", "sleep 9999")).await;
    bench.kill_monitor(&sandbox);

    let exit = bench.exit(&first, &lost).await;
    assert_eq!((exit.code, exit.reason.as_str()), (137, "MonitorLost"));
    assert!(exit.message.contains("monitor"), "{exit:?}");
    assert!(!bench.observe(&first).await.sandboxes[0].is_ready);
    assert!(bench.observe(&second).await.sandboxes[0].is_ready);
    assert!(matches!(bench.state(&second, &kept).await, ContainerState::Running { .. }));
    // It is known also to the next start.
    bench.kill();
    bench.start_again().await;
    assert_eq!(bench.exit(&first, &lost).await.code, 137);
    bench.client.stop_sandbox(&sandbox).await.unwrap();
    bench.client.remove_sandbox(&sandbox).await.unwrap();
    bench.clear(&other).await;
}

/// What a server says by HTTP.
fn ask(address: &str) -> std::io::Result<String> {
    let address = address.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

/// The links of this test's network, without loopback.
fn links() -> Vec<String> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let names = table.lines().skip(2).filter_map(|it| it.split_once(':'));
    names.map(|it| it.0.trim().to_owned()).filter(|it| it != "lo").collect()
}

#[tokio::test]
async fn a_pods_network_outlives_the_runtime_and_goes_with_the_pod() {
    if !is_equipped() {
        return;
    }
    let bench = Bench::new("network").await;
    let mut spec = bench.sandbox("uid-6");
    spec.security.namespaces.network = NamespaceMode::Pod;
    spec.port_mappings = vec![PortMapping {
        protocol: "TCP",
        container_port: 8080,
        host_port: 18080,
        host_ip: String::new(),
    }];
    let sandbox = bench.client.run_sandbox(&spec).await.unwrap();
    assert_eq!(bench.observe(&spec).await.sandboxes[0].ips, ["10.88.0.2"]);
    fs::write(bench.place.path().join("shared/page"), "hello").unwrap();
    let server = "busybox httpd -f -p 8080 -h /shared";
    let server = bench.run(&sandbox, &spec, ("server", server)).await;
    let direct = "10.88.0.2:8080";
    until("the pod answers", async || ask(direct).ok()).await;
    // By its address, by the node's loopback address and by another address of the node.
    let ways = [direct, "127.0.0.1:18080", "10.88.0.1:18080"];
    assert_eq!(ways.map(|it| ask(it).unwrap()), ["hello"; 3]);
    let itself = words(&["busybox", "wget", "-q", "-O-", "http://10.88.0.1:18080/page"]);
    let patience = Duration::from_secs(60);
    let output = bench.client.exec(&server, &itself, patience).await.unwrap();
    assert_eq!((output.code, output.stdout), (0, b"hello".to_vec()), "{:?}", output.stderr);
    let before = links();
    assert_eq!(before.len(), 1, "{before:?}");

    bench.kill();
    // Nobody is needed for what there is.
    assert_eq!(ways.map(|it| ask(it).unwrap()), ["hello"; 3]);
    bench.start_again().await;
    assert_eq!(ways.map(|it| ask(it).unwrap()), ["hello"; 3]);
    assert_eq!((bench.observe(&spec).await.sandboxes[0].ips.len(), links()), (1, before));
    let output = bench.client.exec(&server, &itself, patience).await.unwrap();
    assert_eq!((output.code, output.stdout), (0, b"hello".to_vec()));
    // The port is still the first pod's.
    let mut other = spec.clone();
    (other.uid, other.labels) = (PodUid::new("uid-7"), labels("uid-7", None));
    let taken = bench.client.run_sandbox(&other).await.unwrap_err();
    assert!(taken.message.contains("18080/TCP"), "{taken}");
    bench.client.remove_sandbox(&sandbox).await.unwrap();
    assert_eq!(links(), [""; 0]);
    assert!(ask("127.0.0.1:18080").is_err());

    // Both are free again; the address rests for a while.
    let sandbox = bench.client.run_sandbox(&other).await.unwrap();
    assert_eq!(bench.observe(&other).await.sandboxes[0].ips, ["10.88.0.3"]);
    bench.clear(&sandbox).await;
    assert_eq!(links(), [""; 0]);
}
