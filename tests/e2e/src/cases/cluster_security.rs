//! What a container may do: users, groups, capabilities, system calls, kernel parameters. Each is
//! asked from inside.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{LATER, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![a_container_is_confined_as_its_security_context_says];

/// A question, the context in which it is asked, and the answer.
struct Row {
    name: &'static str,
    /// A shell script; what it writes is the answer.
    asks: &'static str,
    pod: Value,
    container: Value,
    answer: String,
}

/// The kernel's bounds of the agent itself, which a privileged container has too.
fn own_capabilities() -> Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|it| it.strip_prefix("CapBnd:"));
    Ok(line.context("no CapBnd")?.trim().to_owned())
}

fn rows() -> Result<Vec<Row>> {
    let row = |name, asks, pod, container, answer: &str| Row {
        name,
        asks,
        pod,
        container,
        answer: answer.to_owned(),
    };
    let sysctls = |name: &str, value: &str| json!({"sysctls": [{"name": name, "value": value}]});
    let seccomp = |profile: Value| json!({"seccompProfile": profile});
    let effective = "grep CapEff /proc/self/status | cut -f 2";
    Ok(vec![
        row(
            "identity",
            "id -u; id -g; id -G",
            json!({"fsGroup": 2000, "supplementalGroups": [3000]}),
            json!({"runAsUser": 1001, "runAsGroup": 1002}),
            "1001\n1002\n1002 2000 3000",
        ),
        row(
            "capabilities",
            effective,
            json!({}),
            json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
            "0000000000000400",
        ),
        row("privileged", effective, json!({}), json!({"privileged": true}), &own_capabilities()?),
        row(
            "read-only",
            "touch /x 2> /dev/null || echo refused",
            json!({}),
            json!({"readOnlyRootFilesystem": true}),
            "refused",
        ),
        row(
            "no-more-privileges",
            "grep NoNewPrivs /proc/self/status | cut -f 2",
            json!({}),
            json!({"allowPrivilegeEscalation": false}),
            "1",
        ),
        row(
            "seccomp-default",
            "grep Seccomp: /proc/self/status | cut -f 2",
            seccomp(json!({"type": "RuntimeDefault"})),
            json!({}),
            "2",
        ),
        row(
            "seccomp-none",
            "grep Seccomp: /proc/self/status | cut -f 2",
            seccomp(json!({"type": "RuntimeDefault"})),
            seccomp(json!({"type": "Unconfined"})),
            "0",
        ),
        row(
            "seccomp-own",
            "chmod 700 /tmp 2> /dev/null || echo refused",
            json!({}),
            seccomp(json!({"type": "Localhost", "localhostProfile": "no-chmod.json"})),
            "refused",
        ),
        row(
            "masked",
            "cat /proc/keys 2> /dev/null | wc -l; touch /proc/sys/kernel/domainname 2> /dev/null || echo refused",
            json!({}),
            json!({}),
            "0\nrefused",
        ),
        row(
            "sysctl-safe",
            "cat /proc/sys/net/ipv4/ip_unprivileged_port_start",
            sysctls("net.ipv4.ip_unprivileged_port_start", "80"),
            json!({}),
            "80",
        ),
        row(
            "sysctl-slashes",
            "cat /proc/sys/kernel/shm_rmid_forced",
            sysctls("kernel/shm_rmid_forced", "1"),
            json!({}),
            "1",
        ),
        row(
            "sysctl-allowed",
            "cat /proc/sys/kernel/msgmax",
            sysctls("kernel.msgmax", "10000"),
            json!({}),
            "10000",
        ),
    ])
}

fn a_container_is_confined_as_its_security_context_says(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"allowedUnsafeSysctls": ["kernel.msg*"]});
    let mut world = World::start_with(context, options)?;
    let profiles = world.node.node.root().join("seccomp");
    fs::create_dir_all(&profiles)?;
    let no_chmod = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls":
        [{"names": ["chmod", "fchmodat", "fchmodat2"], "action": "SCMP_ACT_ERRNO"}]});
    fs::write(profiles.join("no-chmod.json"), no_chmod.to_string())?;
    let rows = rows()?;
    for row in &rows {
        let asks = format!("({}) > /dev/termination-log", row.asks);
        let container = with(script("main", &asks), json!({"securityContext": row.container}));
        let pod = with(
            world.pod(row.name, &[container]),
            json!({"spec": {"restartPolicy": "Never", "securityContext": row.pod}}),
        );
        world.apply(&pod)?;
    }
    for row in &rows {
        let seen = world
            .wait_pod(row.name, "to have answered", LATER, |pod| pod.phase() == "Succeeded")?;
        let said = seen.container("main")?.0["state"]["terminated"]["message"].clone();
        let said = said.as_str().unwrap_or_default().trim();
        ensure!(said == row.answer, "{}: {said:?}, not {:?}", row.name, row.answer);
    }
    Ok(Outcome::Passed)
}
