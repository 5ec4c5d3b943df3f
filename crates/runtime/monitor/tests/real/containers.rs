//! Containers for real, as root: this machine's programs in a temporary root.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use crate::bench::{self, Bench, is_root, volume, wait_until};
use ferrolet_runtime_client::{Command, Monitor, Stdio, own_mounts};
use ferrolet_runtime_protocol::launch::{LaunchSpec, Process, Stdin};
use ferrolet_runtime_protocol::message::{Attach, Signal, TerminalSize};
use ferrolet_runtime_protocol::sandbox::PidShare;

#[tokio::test]
async fn a_container_runs_logs_and_ends_and_nothing_is_left() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new().await;
    let spec = bench.script("web", "echo out; echo err >&2; printf unfinished; exit 7");
    let (code, log) = bench.run(&spec).await;
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!((code, lines), (7, vec!["stderr F err", "stdout F out", "stdout P unfinished"]));
    let record = fs::read(bench.place.path().join("pod/web/exit")).unwrap();
    let record: ferrolet_runtime_protocol::record::ContainerRecord =
        prost::Message::decode(&*record).unwrap();
    assert_eq!(record.exit.unwrap().code, 7);
    bench.monitor.forget("web").await.unwrap();
    assert_eq!(bench.monitor.snapshot().await.unwrap().0.containers, []);
    bench.end().await;
}

#[tokio::test]
async fn a_failure_names_its_step_and_its_path() {
    if !is_root() {
        return;
    }
    let bench = Bench::new().await;
    let base = bench.script("web", "true");
    let mut missing = base.clone();
    missing.mounts.push(volume(Path::new("/nowhere/at/all"), "/data"));
    assert_eq!(bench.failure(&missing).await, ("open volume /nowhere/at/all".into(), libc::ENOENT));
    // A fresh upper directory each time: one that was mounted volatile is not used again.
    let n_specs = std::cell::Cell::new(0);
    let change = |change: &dyn Fn(&mut Process)| {
        n_specs.set(n_specs.get() + 1);
        let mut spec = bench.script(&format!("web-{}", n_specs.get()), "true");
        change(spec.process.as_mut().unwrap());
        spec
    };
    let command = change(&|it| it.args = vec!["nothing-like-it".into()]);
    let found = bench.failure(&command).await;
    assert_eq!(found, ("find executable nothing-like-it".into(), libc::ENOENT));
    let command = change(&|it| it.args = vec!["/etc/passwd".into()]);
    assert_eq!(bench.failure(&command).await, ("execute /etc/passwd".into(), libc::EACCES));
    let user = change(&|it| it.user.as_mut().unwrap().user = "nobody-here".into());
    assert_eq!(bench.failure(&user).await, ("no such user in image: nobody-here".into(), 0));
    // What failed left nothing: the name is free, and so are the groups.
    assert_eq!(bench.monitor.snapshot().await.unwrap().0.containers, []);
    bench.end().await;
}

#[tokio::test]
async fn commands_run_in_a_container_with_pipes_and_with_a_terminal() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new().await;
    bench.launch(&bench.sleeper("web")).await;
    let (code, text) = bench.exec("web", "echo $$ $(cat /proc/1/comm); exit 3").await;
    assert!(text.ends_with(" sleep\n") && code == 3, "{code} {text}");

    // Stdin goes in, and its end is seen.
    let command = bench.start("web", "cat; echo end", |it| it.stdin = true).await;
    let Stdio::Pipes { stdin: Some(stdin), .. } = &command.stdio else { panic!() };
    rustix::io::write(stdin, b"hello\n").unwrap();
    let Command { stdio, exit, .. } = command;
    let Stdio::Pipes { stdin, stdout: Some(stdout), .. } = stdio else { panic!() };
    drop(stdin);
    let text = tokio::task::spawn_blocking(move || bench::read_to_end(&stdout)).await.unwrap();
    assert_eq!((text.as_str(), exit.wait().await.unwrap().code), ("hello\nend\n", 0));

    let size = TerminalSize { width: 91, height: 33 };
    let command =
        bench.start("web", "stty size; tty", |it| (it.tty, it.stdout) = (Some(size), false)).await;
    let text = bench::read_all(&command).await;
    assert_eq!(
        (text.as_str(), command.exit.wait().await.unwrap().code),
        ("33 91\r\n/dev/pts/0\r\n", 0)
    );

    // A command and everything it started.
    let command = bench.start("web", "setsid sleep 999 & sleep 998", |_| {}).await;
    let signal =
        Signal { container: "web".into(), command: 4, signal: libc::SIGKILL, everything: true };
    bench.monitor.signal(signal).await.unwrap();
    assert_eq!(command.exit.wait().await.unwrap().code, 137);
    // What is dead stays until its parent looks, and the container's first process never does.
    let alive = "cat /proc/[0-9]*/stat | grep '(sleep)' | grep -vc ' Z '";
    let (_, left) = bench.exec("web", alive).await;
    // The container's own.
    assert_eq!(left, "1\n");
    bench.kill("web").await;
    assert_eq!(bench.exit().await.1.code, 137);
    bench.end().await;
}

#[tokio::test]
async fn attached_clients_see_output_and_feed_stdin() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new().await;
    let mut spec = bench.script("cat", "while read line; do echo got $line; done; echo bye");
    spec.stdin = Stdin::Once.into();
    bench.launch(&spec).await;
    let attach = Attach { container: "cat".into(), stdin: true, stdout: true, stderr: false };
    let attached = bench.monitor.attach(attach.clone()).await.unwrap();
    let (stdin, stdout) = (attached.stdin.unwrap(), attached.stdout.unwrap());
    rustix::io::write(&stdin, b"one\ntwo\n").unwrap();
    // The only end of stdin there is: with it the container's input ends.
    let second = bench.monitor.attach(attach).await.unwrap();
    assert!(second.stdin.is_none() && second.stdout.is_some());
    drop(stdin);
    let text = tokio::task::spawn_blocking(move || bench::read_to_end(&stdout)).await.unwrap();
    assert_eq!(text, "got one\ngot two\nbye\n");
    assert_eq!(bench.exit().await.1.code, 0);
    assert_eq!(bench.log("cat"), "stdout F got one\nstdout F got two\nstdout F bye\n");

    let mut spec = bench.script("tty", "tty; stty -echo; read line; echo got $line");
    (spec.tty, spec.stdin) = (true, Stdin::Open.into());
    bench.launch(&spec).await;
    let attach = Attach { container: "tty".into(), stdin: true, stdout: true, stderr: true };
    let attached = bench.monitor.attach(attach).await.unwrap();
    assert!(attached.tty && attached.stderr.is_none());
    wait_until(|| bench.log("tty").contains("/dev/pts/0")).await;
    rustix::io::write(attached.stdin.as_ref().unwrap(), b"line\n").unwrap();
    assert_eq!(bench.exit().await.1.code, 0);
    let log = bench.log("tty").replace('\r', "");
    assert!(log.ends_with("stdout F got line\n"), "{log}");
    bench.end().await;
}

#[tokio::test]
async fn a_container_out_of_memory_is_said_to_be() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new().await;
    let spec = bench.script("hungry", "exec tail /dev/zero");
    bench.launch(&spec).await;
    let (_, exit) = bench.exit().await;
    assert_eq!((exit.code, exit.oom_killed), (137, true));
    let spec = bench.script("killed", "kill -9 $$");
    bench.launch(&spec).await;
    bench
        .launch(&bench.script("patient", "trap 'exit 5' TERM; while :; do sleep 0.01; done"))
        .await;
    let (_, exit) = bench.exit().await;
    // The first process of a process namespace cannot kill itself.
    assert_eq!((exit.code, exit.oom_killed), (0, false));
    let term = Signal {
        container: "patient".into(),
        signal: libc::SIGTERM,
        command: 0,
        everything: false,
    };
    let traps_term = |it: &str| {
        let caught = it.strip_prefix("SigCgt:\t").and_then(|it| u64::from_str_radix(it, 16).ok());
        caught.is_some_and(|it| it & 1 << (libc::SIGTERM - 1) != 0)
    };
    let (_, pidfds) = bench.monitor.snapshot().await.unwrap();
    assert_eq!(pidfds.len(), 1);
    let pid = bench.monitor.snapshot().await.unwrap().0.containers.last().unwrap().pid;
    wait_until(|| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().any(traps_term)
    })
    .await;
    bench.monitor.signal(term).await.unwrap();
    assert_eq!(bench.exit().await.1.code, 5);
    bench.end().await;
}

#[tokio::test]
async fn a_monitor_has_one_thread_and_little_memory_and_cannot_be_looked_into() {
    if !is_root() {
        return;
    }
    let bench = Bench::new().await;
    let pid = bench.monitor_pid;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("Threads:\t1\n"), "{status}");
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    println!("monitor {pid} idle: {rollup}");
    // Not dumpable: its files are root's, whoever it might have become.
    let exe = format!("/proc/{pid}/exe");
    let refused = fs::OpenOptions::new().write(true).open(exe).unwrap_err();
    let errno = refused.raw_os_error().unwrap();
    assert!([libc::EROFS, libc::ETXTBSY].contains(&errno), "{refused}");
    bench.end().await;
}

#[tokio::test]
async fn the_pods_processes_can_be_shared() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::with(|it| it.pid = PidShare::Pod.into()).await;
    let pod = PidShare::Pod.into();
    let first = bench.sleeper("first");
    bench.launch(&LaunchSpec { pid: pod, ..first }).await;
    let second = bench.script("second", "cat /proc/1/comm; cat /proc/[0-9]*/comm | grep -c sleep");
    let seen = bench.run(&LaunchSpec { pid: pod, ..second }).await;
    assert_eq!(seen, (0, "stdout F pod-init\nstdout F 1\n".to_owned()));
    bench.end().await;

    let mut bench = Bench::new().await;
    bench.launch(&bench.sleeper("first")).await;
    let second = bench.script("second", "cat /proc/1/comm");
    let target = PidShare::Target.into();
    let second = LaunchSpec { pid: target, pid_target: "first".into(), ..second };
    assert_eq!(bench.run(&second).await, (0, "stdout F sleep\n".to_owned()));
    bench.end().await;
}

#[tokio::test]
async fn a_log_is_reopened_and_rotated_while_the_container_writes() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new().await;
    let mut spec =
        bench.script("web", "echo one; while [ ! -e /tmp/go ]; do sleep 0.01; done; echo two");
    let shared = bench.place.path().join("shared");
    fs::create_dir(&shared).unwrap();
    spec.mounts.push(volume(&shared, "/tmp"));
    bench.launch(&spec).await;
    wait_until(|| bench.log("web") == "stdout F one\n").await;
    let (log, aside) = (bench.place.path().join("web.log"), bench.place.path().join("web.log.1"));
    fs::rename(&log, &aside).unwrap();
    bench.monitor.reopen_log("web").await.unwrap();
    bench.monitor.log_limit("web", 1 << 20).await.unwrap();
    fs::write(shared.join("go"), "").unwrap();
    assert_eq!(bench.exit().await.1.code, 0);
    assert_eq!(bench.log("web"), "stdout F two\n");
    assert_eq!(bench::text(&fs::read_to_string(aside).unwrap()), "stdout F one\n");
    bench.end().await;
}

/// The service of the test below, in a process of its own: starts a pod that logs and waits.
#[tokio::test]
async fn service_that_is_killed() {
    let Ok(place) = std::env::var("FERROLET_KILLED_SERVICE") else { return };
    let place = Path::new(&place);
    let spawner = bench::spawner();
    let spawned = spawner.spawn(bench::sandbox(place)).await.unwrap();
    let (monitor, _greeting) = Monitor::connect(&place.join("pod")).await.unwrap();
    // 100 MB of lines, each with its number.
    let script = "seq -f %099.0f 1 1000000; exit 9";
    let spec = bench::container(place, "web", script);
    monitor.launch(spec, own_mounts().unwrap().as_fd()).await.unwrap();
    fs::write(place.join("monitor-pid"), spawned.started.pid.to_string()).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_service_killed_in_the_middle_of_100_mb_of_log_is_not_missed() {
    if !is_root() {
        return;
    }
    let place = tempfile::Builder::new().prefix("ferrolet-monitor-").tempdir().unwrap();
    bench::make_root(place.path());
    let mut service = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "containers::service_that_is_killed"])
        .env("FERROLET_KILLED_SERVICE", place.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let log = place.path().join("web.log");
    let size = || fs::metadata(&log).map_or(0, |it| it.len());
    wait_until(|| place.path().join("monitor-pid").exists() && size() > 1 << 20).await;
    service.kill().unwrap();
    service.wait().unwrap();
    let pid: i32 = fs::read_to_string(place.path().join("monitor-pid")).unwrap().parse().unwrap();
    let at_the_kill = size();

    let (monitor, _greeting) = Monitor::connect(&place.path().join("pod")).await.unwrap();
    wait_until(|| place.path().join("pod/web/exit").exists()).await;
    let (snapshot, pidfds) = monitor.snapshot().await.unwrap();
    let exit = snapshot.containers[0].exit.clone().unwrap();
    assert_eq!((exit.code, snapshot.containers[0].lost_lines, pidfds.len()), (9, 0, 0));
    println!("killed at {at_the_kill} bytes of {}", size());
    let content = fs::read(&log).unwrap();
    let mut n_lines = 0_u64;
    for line in content.split(|it| *it == b'\n').filter(|it| !it.is_empty()) {
        n_lines += 1;
        let line = std::str::from_utf8(line).unwrap();
        let (_, text) = line.split_once(" stdout F ").unwrap();
        assert_eq!(text.parse::<u64>().unwrap(), n_lines);
    }
    assert_eq!(n_lines, 1_000_000);
    monitor.end().await.unwrap();
    wait_until(|| !Path::new(&format!("/proc/{pid}")).exists()).await;
    bench::clear(place.path(), pid);
}
