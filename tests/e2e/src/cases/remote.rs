//! Directories of other machines: NFS, from a server on loopback that whoever prepared this machine
//! has started. The kernels of the machines that we build on have no NFS; the guest's has.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Result, ensure};
use ferrolet_lab::mounts;
use serde_json::json;

use super::{GONE, SOON, cases, wait_running};
use crate::build::{pod, script, with};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![; guest: what_a_server_exports_is_mounted_written_and_let_go];

/// What the server exports.
pub(crate) const EXPORTED: &str = "/srv/exported";
/// Where it listens.
pub(crate) const PORT: u16 = 2049;

fn what_a_server_exports_is_mounted_written_and_let_go(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let known = fs::read_to_string("/proc/filesystems")?;
    let exported = Path::new(EXPORTED);
    if !known.lines().any(|it| it.ends_with("\tnfs")) || !exported.is_dir() {
        return Ok(Outcome::Skipped(
            "this kernel knows no NFS, or nobody exports a directory here".to_owned(),
        ));
    }
    let mut node = context.node()?;
    node.wait("the server", SOON, |_| Ok(Some(TcpStream::connect(("127.0.0.1", PORT))?)))?;
    fs::write(exported.join("greeting"), "hello\n")?;
    for (name, is_read_only, text) in [
        (
            "writer",
            false,
            "cat /far/greeting; echo back > /far/answer; cat /far/answer; exec sleep 100000",
        ),
        (
            "reader",
            true,
            "cat /far/greeting; touch /far/x 2>/dev/null || echo refused; exec sleep 100000",
        ),
    ] {
        let mut main = script("main", text);
        main["volumeMounts"] = json!([{"name": "far", "mountPath": "/far"}]);
        let source = json!({"server": "127.0.0.1", "path": "/", "readOnly": is_read_only});
        node.put_pod(&with(
            pod(name, &[main]),
            json!({"spec": {"volumes": [{"name": "far", "nfs": source}]}}),
        ))?;
    }
    for (name, expected) in [("writer", ["hello", "back"]), ("reader", ["hello", "refused"])] {
        let seen = wait_running(&mut node, name)?;
        node.wait("the pod's words", SOON, |node| {
            let lines = look::log_lines(node, &seen, "main", 0)?;
            ensure!(lines == expected, "{name} says {lines:?}");
            Ok(Some(()))
        })?;
        let place = look::pod_directory(&node, &seen).join("volumes/kubernetes.io~nfs/far");
        ensure!(mounts::below(&place)? == [place.clone()], "{} is no mount", place.display());
    }
    ensure!(
        fs::read_to_string(exported.join("answer"))? == "back\n",
        "the server has not got what was written"
    );
    for name in ["writer", "reader"] {
        node.remove_manifest(&format!("{name}.yaml"))?;
    }
    let pods = node.root().join("pods");
    node.wait("everything to be let go", GONE, |_| {
        let left = mounts::below(&pods)?;
        ensure!(left.is_empty(), "{left:?} is still mounted");
        Ok(Some(()))
    })?;
    ensure!(exported.join("greeting").exists(), "the server's files went with the pods");
    Ok(Outcome::Passed)
}
