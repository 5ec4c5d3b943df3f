//! Volumes that cannot be made: what is said of them, in upstream's words and on that pod, and that
//! all is well once the cause is gone. Everybody else runs on.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::PodView;
use ferrolet_lab::cluster::Access;
use serde_json::{Value, json};

use super::{LATER, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    every_bad_volume_is_told_of_retried_and_heals,
    paths_that_lead_out_are_refused_at_the_door,
    a_repository_is_not_fetched,
    a_full_and_a_read_only_disk_hold_up_only_what_must_write,
];

/// What takes the cause away.
type Cure<'a> = Box<dyn Fn(&World<'_>) -> Result<()> + 'a>;

/// One bad volume.
struct Row<'a> {
    name: &'static str,
    volume: Value,
    /// Laid over the container; `volumeMounts` is there already.
    container: Value,
    reason: &'static str,
    says: String,
    cure: Cure<'a>,
}

const FAILED_MOUNT: &str = "FailedMount";
/// Parts of volumes are prepared when a container starts, and told of as such.
const FAILED_START: &str = "Failed";

fn every_bad_volume_is_told_of_retried_and_heals(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let bystander = world.run(&world.pod("bystander", &[sleeper("main")]))?;
    let directory = world.node.node.directory().join("paths");
    fs::create_dir_all(&directory)?;
    for (kind, name, data) in [
        ("ConfigMap", "half", json!({"data": {"here": "x"}})),
        ("Secret", "half", json!({"stringData": {"here": "x"}})),
        ("ConfigMap", "flat", json!({"data": {"a": "x"}})),
        ("ConfigMap", "deep", json!({"data": {"b": "x"}})),
        ("ConfigMap", "way", json!({"data": {"to": "../out"}})),
    ] {
        world.apply(&world.object(kind, name, data))?;
    }
    let authority = fs::read_to_string(world.cluster.authority_file())?;
    let rows = [missing_objects(&authority), bad_contents(), bad_paths(&directory)?];
    let rows: Vec<Row<'_>> = rows.into_iter().flatten().collect();
    for row in &rows {
        let mut main = sleeper("main");
        main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        let pod = with(
            world.pod(row.name, &[with(main, row.container.clone())]),
            json!({"spec": {"volumes": [with(json!({"name": "v"}), row.volume.clone())]}}),
        );
        world.apply(&pod)?;
    }
    for row in &rows {
        let seen = world.wait_known(row.name)?;
        wait_said(&world, &seen, row)?;
        ensure!(
            world.find_pod(row.name)?.context("the pod is gone")?.phase() == "Pending",
            "{} does not wait",
            row.name
        );
    }
    for row in &rows {
        (row.cure)(&world).with_context(|| format!("cure of {}", row.name))?;
    }
    for row in &rows {
        world.wait_pod(row.name, "Ready once the cause is gone", LATER, |pod| {
            pod.condition("Ready") == Some("True")
        })?;
    }
    ensure_untouched(&mut world, &bystander)?;
    Ok(Outcome::Passed)
}

fn wait_said(world: &World<'_>, pod: &PodView, row: &Row<'_>) -> Result<()> {
    let what = format!("the event {} of {}", row.reason, row.name);
    world.cluster.wait(&what, LATER, |_| {
        let events = world.events(pod)?;
        let mut alike = events.iter().filter(|it| it["reason"] == row.reason);
        let is_said =
            alike.any(|it| it["message"].as_str().is_some_and(|it| it.contains(&row.says)));
        let said: Vec<&Value> = events.iter().map(|it| &it["message"]).collect();
        ensure!(is_said, "no {:?} in {said:#?}", row.says);
        Ok(Some(()))
    })
}

fn ensure_untouched(world: &mut World<'_>, bystander: &PodView) -> Result<()> {
    let now = world.wait_ready(bystander.name())?;
    ensure!(
        now.uid() == bystander.uid() && now.restarts() == 0,
        "somebody else was hit: {}",
        now.state()
    );
    Ok(())
}

fn set_up_failed(why: &str) -> String {
    format!("MountVolume.SetUp failed for volume \"v\" : {why}")
}

fn missing_objects(authority: &str) -> Vec<Row<'_>> {
    vec![
        Row {
            name: "missing-map",
            volume: json!({"configMap": {"name": "lost"}}),
            container: json!({}),
            reason: FAILED_MOUNT,
            says: set_up_failed("configmap \"lost\" not found"),
            cure: Box::new(|world| {
                world.apply(&world.object("ConfigMap", "lost", json!({"data": {"a": "b"}})))
            }),
        },
        Row {
            name: "missing-secret",
            volume: json!({"secret": {"secretName": "lost"}}),
            container: json!({}),
            reason: FAILED_MOUNT,
            says: set_up_failed("secret \"lost\" not found"),
            cure: Box::new(|world| {
                world.apply(&world.object("Secret", "lost", json!({"stringData": {"a": "b"}})))
            }),
        },
        Row {
            name: "missing-bundle",
            volume: json!({"projected": {"sources": [
                {"clusterTrustBundle": {"name": "ferrolet-faults", "path": "ca.crt"}},
            ]}}),
            container: json!({}),
            reason: FAILED_MOUNT,
            says: "\"ferrolet-faults\" not found".to_owned(),
            cure: Box::new(move |world| {
                world.apply(&json!({
                    "apiVersion": "certificates.k8s.io/v1",
                    "kind": "ClusterTrustBundle",
                    "metadata": {"name": "ferrolet-faults"},
                    "spec": {"trustBundle": authority},
                }))
            }),
        },
    ]
}

fn bad_contents() -> Vec<Row<'static>> {
    vec![
        Row {
            name: "missing-key",
            volume: json!({"configMap": {"name": "half", "items": [{"key": "gone", "path": "x"}]}}),
            container: json!({}),
            reason: FAILED_MOUNT,
            says: set_up_failed("configmap references non-existent config key: gone"),
            cure: Box::new(|world| {
                let both = json!({"data": {"here": "x", "gone": "y"}});
                world.apply(&world.object("ConfigMap", "half", both))
            }),
        },
        Row {
            name: "missing-secret-key",
            volume: json!({"secret": {"secretName": "half", "items": [{"key": "gone", "path": "x"}]}}),
            container: json!({}),
            reason: FAILED_MOUNT,
            says: set_up_failed("references non-existent secret key: gone"),
            cure: Box::new(|world| {
                let both = json!({"stringData": {"here": "x", "gone": "y"}});
                world.apply(&world.object("Secret", "half", both))
            }),
        },
        // The API server cannot know that the whole of one source lies in the way of another.
        Row {
            name: "overlapping",
            volume: json!({"projected": {"sources": [
                {"configMap": {"name": "flat"}},
                {"configMap": {"name": "deep", "items": [{"key": "b", "path": "a/b"}]}},
            ]}}),
            container: json!({}),
            reason: FAILED_MOUNT,
            says: set_up_failed(""),
            cure: Box::new(|world| {
                world.apply(&world.object("ConfigMap", "flat", json!({"data": {"c": "x"}})))
            }),
        },
        Row {
            name: "expression-out",
            volume: json!({"emptyDir": {}}),
            container: json!({
                "env": [{"name": "TO", "valueFrom": {"configMapKeyRef": {"name": "way", "key": "to"}}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(TO)"}],
            }),
            reason: FAILED_START,
            says: "unable to provision SubPath `../out`: must not contain '..'".to_owned(),
            cure: Box::new(|world| {
                world.apply(&world.object("ConfigMap", "way", json!({"data": {"to": "in"}})))
            }),
        },
    ]
}

fn bad_paths(directory: &Path) -> Result<Vec<Row<'static>>> {
    let at = |name: &str| -> PathBuf { directory.join(name) };
    let (file, absent, pipe, tree) = (at("file"), at("absent"), at("socket"), at("tree"));
    fs::write(&file, "x")?;
    fs::create_dir(&pipe)?;
    fs::create_dir(&tree)?;
    symlink("/etc", tree.join("part"))?;
    let wrong = |path: &Path, why: &str| {
        set_up_failed(&format!("hostPath type check failed: {} {why}", path.display()))
    };
    let (says_file, says_pipe) =
        (wrong(&file, "is not a directory"), wrong(&pipe, "is not a socket file"));
    let says_absent = format!("{} is not a file", absent.display());
    let volume = |path: &Path, kind: &str| json!({"hostPath": {"path": path.display().to_string(), "type": kind}});
    Ok(vec![
        Row {
            name: "file-for-directory",
            volume: volume(&file, "Directory"),
            container: json!({}),
            reason: FAILED_MOUNT,
            says: says_file,
            cure: Box::new(move |_| {
                fs::remove_file(&file)?;
                Ok(fs::create_dir(&file)?)
            }),
        },
        Row {
            name: "absent-file",
            volume: volume(&absent, "File"),
            container: json!({}),
            reason: FAILED_MOUNT,
            says: says_absent,
            cure: Box::new(move |_| Ok(fs::write(&absent, "x")?)),
        },
        Row {
            name: "directory-for-socket",
            volume: volume(&pipe, "Socket"),
            container: json!({}),
            reason: FAILED_MOUNT,
            says: says_pipe,
            cure: Box::new(move |_| {
                fs::remove_dir(&pipe)?;
                // The name stays when the listener goes.
                UnixListener::bind(&pipe)?;
                Ok(())
            }),
        },
        Row {
            name: "part-out",
            volume: volume(&tree, ""),
            container: json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "part"}]}),
            reason: FAILED_START,
            says: "failed to prepare subPath for volumeMount \"v\" of container \"main\""
                .to_owned(),
            cure: Box::new(move |_| {
                fs::remove_file(tree.join("part"))?;
                Ok(fs::create_dir(tree.join("part"))?)
            }),
        },
    ])
}

/// What the API server refuses never reaches a node; a manifest of the node's own is read with the
/// same eyes.
fn paths_that_lead_out_are_refused_at_the_door(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let item =
        |path: &str| json!({"configMap": {"name": "c", "items": [{"key": "k", "path": path}]}});
    let twice = json!({"projected": {"sources": [item("same"), item("same")]}});
    for (volume, says) in [
        (item("../out"), "must not contain '..'"),
        (item("a/../../out"), "must not contain '..'"),
        (item("/out"), "must be a relative path"),
        (item("..data"), "must not start with '..'"),
        (twice, "conflicting duplicate paths"),
    ] {
        let mut main = sleeper("main");
        main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        let pod = with(
            world.pod("refused", &[main]),
            json!({"spec": {"volumes": [with(json!({"name": "v"}), volume)]}}),
        );
        let refusal = world.apply(&pod).err().map(|error| format!("{error:#}"));
        ensure!(
            refusal.as_ref().is_some_and(|it| it.contains(says)),
            "expected {says:?}, it says {refusal:?}"
        );
    }
    let outside = world.node.node.directory().join("outside");
    for (n, path) in ["../../../../../../outside", "/outside", "a/../../outside"].iter().enumerate()
    {
        let mut main = sleeper("main");
        main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        let pod = with(
            crate::build::pod(&format!("static-{n}"), &[main]),
            json!({"spec": {"volumes": [{"name": "v", "downwardAPI": {"items": [
                {"path": path, "fieldRef": {"fieldPath": "metadata.name"}},
            ]}}]}}),
        );
        world.node.node.put_pod(&pod)?;
    }
    // A manifest that is fine comes after them, so they have been read when it runs.
    let fine = crate::build::pod("static-fine", &[sleeper("main")]);
    world.node.node.put_pod(&fine)?;
    super::wait_running(&mut world.node.node, "static-fine")?;
    ensure!(!outside.exists(), "a file was written outside");
    for n in 0..3 {
        let is_running = world
            .node
            .node
            .pod(&format!("static-{n}"))
            .is_ok_and(|pod| pod.containers().iter().any(|it| it.is_running()));
        ensure!(!is_running, "a manifest whose path leads out runs");
    }
    Ok(Outcome::Passed)
}

/// CVE-2024-10220, CVE-2025-1767.
fn a_repository_is_not_fetched(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let mut main = sleeper("main");
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let pod = with(
        world.pod("fetcher", &[main]),
        json!({"spec": {"volumes": [{"name": "v", "gitRepo": {"repository": "file:///etc"}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_known("fetcher")?;
    let said = world.wait_event(&seen, FAILED_MOUNT)?;
    ensure!(
        said.starts_with(&set_up_failed("git-repo volume plugin has been disabled")),
        "it says {said:?}"
    );
    world.kubectl(&["delete", "pod", "fetcher", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    Ok(Outcome::Passed)
}

/// The agent's whole directory on a small disk of its own.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path) -> Result<SmallDisk> {
        SmallDisk::call(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"], path)?;
        Ok(SmallDisk(path.to_owned()))
    }

    fn call(words: &[&str], path: &Path) -> Result<()> {
        let ended = Command::new("mount").args(words).arg(path).output()?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        ensure!(ended.status.success(), "mount {words:?}: {said}");
        Ok(())
    }

    fn set_writable(&self, is_writable: bool) -> Result<()> {
        let word = if is_writable { "remount,rw" } else { "remount,ro" };
        SmallDisk::call(&["-o", word], &self.0)
    }

    /// Leaves this many bytes.
    fn fill(&self, left: u64) -> Result<PathBuf> {
        let filler = self.0.join("filler");
        let mut file = fs::File::create(&filler)?;
        while file.write_all(&[0; 4096]).is_ok() {}
        let size = file.metadata()?.len();
        file.set_len(size.saturating_sub(left))?;
        Ok(filler)
    }
}

fn a_full_and_a_read_only_disk_hold_up_only_what_must_write(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    // A full disk would otherwise be answered by eviction.
    options.configuration = json!({"evictionHard": {"memory.available": "1Mi"}});
    let mut world = World::prepare(context, options, &Access::Certificate)?;
    let disk = SmallDisk::mount(&world.node.node.root())?;
    world.node.node.launch()?;
    world.node.wait_ready(world.cluster)?;
    let bystander = world.run(&world.pod("bystander", &[sleeper("main")]))?;

    let large = json!({"data": {"a": "x".repeat(600_000)}});
    world.cluster.create(&world.object("ConfigMap", "large", large))?;
    let filler = disk.fill(256 * 1024)?;
    let mut main = script("main", "wc -c < /v/a; exec sleep 100000");
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let pod = with(
        world.pod("large", &[main]),
        json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "large"}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_known("large")?;
    let said = world.wait_event(&seen, "FailedMount")?;
    ensure!(
        said.starts_with(&set_up_failed(""))
            && said.to_lowercase().contains("no space left on device"),
        "it says {said:?}"
    );
    // Somebody who needs little gets it meanwhile.
    world.run(&world.pod("small", &[sleeper("main")]))?;
    fs::remove_file(filler)?;
    let seen = world.wait_ready_later("large")?;
    let lines = world.settled_log(&seen, "main")?;
    ensure!(lines == ["600000"], "the volume holds {lines:?}");

    disk.set_writable(false)?;
    world.apply(&world.pod("late", &[sleeper("main")]))?;
    let seen = world.wait_pod("late", "known to the API server", LATER, |_| true)?;
    let said = world.wait_event(&seen, "Failed")?;
    ensure!(
        said.starts_with("error making pod data directories: ")
            && said.to_lowercase().contains("read-only file system"),
        "it says {said:?}"
    );
    disk.set_writable(true)?;
    world.wait_ready_later("late")?;
    ensure_untouched(&mut world, &bystander)?;
    Ok(Outcome::Passed)
}
