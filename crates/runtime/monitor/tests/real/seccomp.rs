//! Filters of system calls in the kernel, as root: what a profile says is what a container and a
//! command in it meet.

use ferrolet_runtime_protocol::launch::Process;
use ferrolet_runtime_seccomp::{Action, Arch, Filter, Profile, Rule, default_profile};

use crate::bench::{Bench, CAPABILITIES, is_root};

fn confine(process: &mut Process, filter: &Filter) {
    process.seccomp.clone_from(&filter.program);
    process.seccomp_flags = filter.flags;
}

/// Tries to make namespaces of each kind, to change a root, and what programs do all the time.
const SCRIPT: &str = "grep -E '^Seccomp:' /proc/self/status; \
    for it in -m -u -i -n -p -U -C; do unshare $it true 2>/dev/null && echo made $it; done; \
    unshare -U true 2>&1 | sed 's/.*: //'; mount -t tmpfs x /tmp 2>/dev/null && echo mounted; \
    /usr/sbin/chroot / /bin/true && echo chroot; ls / >/dev/null && (exit 3) || echo $?";

#[tokio::test]
async fn the_default_profile_holds_in_a_container_and_in_its_commands() {
    if !is_root() {
        return;
    }
    let arch = Arch::native().unwrap();
    let filter = default_profile(arch, CAPABILITIES).compile().unwrap();
    let expected = ["Seccomp:\t2", "Operation not permitted", "chroot", "3"];
    let mut bench = Bench::new().await;
    for no_new_privs in [false, true] {
        let mut spec = bench.script(&format!("default-{no_new_privs}"), SCRIPT);
        let process = spec.process.as_mut().unwrap();
        process.no_new_privs = no_new_privs;
        confine(process, &filter);
        let (code, log) = bench.run(&spec).await;
        let seen: Vec<&str> = log.lines().map(|it| it.trim_start_matches("stdout F ")).collect();
        assert_eq!((code, seen.as_slice()), (0, &expected[..]), "{no_new_privs}");
    }
    bench.launch(&bench.sleeper("web")).await;
    let command =
        bench.start("web", SCRIPT, |it| confine(it.process.as_mut().unwrap(), &filter)).await;
    let text = crate::bench::read_all(&command).await;
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    assert_eq!(command.exit.wait().await.unwrap().code, 0);
    bench.kill("web").await;
    bench.exit().await;
    bench.end().await;
}

#[tokio::test]
async fn each_action_is_the_kernels() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new().await;
    let cases = [
        (Action::Errno(13), "Permission denied 1"),
        (Action::Errno(38), "Function not implemented 1"),
        (Action::KillProcess, "159"),
        (Action::KillThread, "159"),
        (Action::Trap, "159"),
        // Nobody traces it.
        (Action::Trace(7), "Function not implemented 1"),
        (Action::Log, "0"),
        (Action::Allow, "0"),
    ];
    for (at, (action, expected)) in cases.into_iter().enumerate() {
        let names = ["chmod", "fchmodat", "fchmodat2"].map(str::to_owned).to_vec();
        let rules = vec![Rule { names, action, conditions: Vec::new() }];
        let arches = vec![Arch::native().unwrap()];
        let profile = Profile { default: Action::Allow, arches, rules, flags: 0 };
        let script = "chmod 700 /tmp >/tmp/out 2>&1; code=$?; \
            grep -oE '(Perm|Func).*' /tmp/out | tr '\\n' ' '; echo $code";
        let mut spec = bench.script(&format!("action-{at}"), script);
        confine(spec.process.as_mut().unwrap(), &profile.compile().unwrap());
        let (code, log) = bench.run(&spec).await;
        // A shell that saw a signal says so on stderr.
        let seen = log.lines().find_map(|it| it.strip_prefix("stdout F ")).unwrap();
        assert_eq!((code, seen), (0, expected), "{action:?}: {log}");
    }
    bench.end().await;
}
