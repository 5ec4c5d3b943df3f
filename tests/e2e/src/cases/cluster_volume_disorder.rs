//! Volumes when something is out of order: calls that hang, what an earlier agent left, and the
//! calm when all is well.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::cluster::Access;
use ferrolet_lab::mounts;
use serde_json::{Value, json};

use super::cluster_storage::{LoopDevice, claiming, on_this_node, volume_and_claim};
use super::{GONE, LATER, SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_mount_a_look_and_a_walk_that_hang_hold_up_their_own_pods_only,
    what_an_earlier_agent_left_goes_unless_something_is_mounted_in_it,
    nothing_is_asked_while_nothing_changes;
    long: a_walk_that_takes_long_is_told_of,
];

/// A file system whose server never answers: whoever touches it hangs until it is given up.
struct Stuck {
    server: Option<File>,
    place: PathBuf,
}

impl Stuck {
    fn mount(place: PathBuf) -> Result<Stuck> {
        fs::create_dir_all(&place)?;
        let server = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = "fd=0,rootmode=40000,user_id=0,group_id=0";
        call(
            Command::new("mount")
                .args(["-i", "-t", "fuse", "-o", options, "stuck"])
                .arg(&place)
                .stdin(Stdio::from(server.try_clone()?)),
        )?;
        Ok(Stuck { server: Some(server), place })
    }

    /// Lets everybody go who hangs, and leaves an ordinary directory.
    fn give_up(&mut self) -> Result<()> {
        if self.server.take().is_some() {
            call(Command::new("umount").arg("-l").arg(&self.place))?;
        }
        Ok(())
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // A test that failed already has nothing to say about this.
        self.give_up().ok();
    }
}

/// A disk on which whoever writes waits until it thaws.
struct Frozen {
    place: PathBuf,
    is_frozen: bool,
    _device: LoopDevice,
}

impl Frozen {
    fn mount(place: PathBuf) -> Result<Frozen> {
        let device = LoopDevice::over(&place.with_extension("image"))?;
        fs::create_dir_all(&place)?;
        call(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device.0))?;
        call(Command::new("mount").arg(&device.0).arg(&place))?;
        let mut frozen = Frozen { place, is_frozen: false, _device: device };
        fs::write(frozen.place.join("file"), "x")?;
        call(Command::new("fsfreeze").arg("--freeze").arg(&frozen.place))?;
        frozen.is_frozen = true;
        Ok(frozen)
    }

    fn thaw(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_frozen) {
            call(Command::new("fsfreeze").arg("--unfreeze").arg(&self.place))?;
        }
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw().ok();
        call(Command::new("umount").arg("-l").arg(&self.place)).ok();
    }
}

fn call(command: &mut Command) -> Result<()> {
    let ended = command.output()?;
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    ensure!(ended.status.success(), "{command:?}: {said}");
    Ok(())
}

/// Has the node find a `mount` of ours first: for NFS it hangs while the file `hang` is there, and
/// then mounts memory.
fn stand_in_for_nfs(world: &mut World<'_>) -> Result<PathBuf> {
    let directory = world.node.node.directory().to_owned();
    let programs = directory.join("programs");
    fs::create_dir_all(&programs)?;
    let hang = directory.join("hang");
    fs::write(&hang, "")?;
    let mount = format!(
        "#!/bin/sh\ncase \" $* \" in *' -t nfs '*)\n\
         while test -e {}; do sleep 0.1; done\n\
         for target; do :; done\nexec /bin/mount -t tmpfs tmpfs \"$target\";;\nesac\nexec /bin/mount \"$@\"\n",
        hang.display()
    );
    // The agent goes by the name that it is called with.
    let agent = programs.join("called/kubelet");
    fs::create_dir_all(programs.join("called"))?;
    symlink(fs::canonicalize(directory.join("kubelet"))?, &agent)?;
    let wrapped =
        format!("#!/bin/sh\nPATH={}:$PATH exec {} \"$@\"\n", programs.display(), agent.display());
    for (path, text) in [(programs.join("mount"), mount), (programs.join("agent"), wrapped)] {
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    world.node.node.switch_agent(&programs.join("agent"))?;
    Ok(hang)
}

/// A claim to a directory of this node.
fn local_claim(world: &World<'_>, name: &str, disk: &Path) -> Result<()> {
    let spec = on_this_node(world, disk, json!({}));
    let (volume, claim) = volume_and_claim(world, name, spec);
    world.apply(&volume)?;
    world.apply(&claim)
}

/// A pod with one volume, in a group of its own.
fn pod_with(world: &World<'_>, name: &str, volume: Value) -> Value {
    let mut main = sleeper("main");
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    with(
        world.pod(name, &[main]),
        json!({"spec": {
            "securityContext": {"fsGroup": 4242},
            "volumes": [with(json!({"name": "v"}), volume)],
        }}),
    )
}

fn claim_of(name: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": name}})
}

fn a_mount_a_look_and_a_walk_that_hang_hold_up_their_own_pods_only(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if !Path::new("/dev/fuse").exists() {
        return Ok(Outcome::Skipped("there is no FUSE".to_owned()));
    }
    let options = context.node_options();
    let mut world = World::prepare(context, options, &Access::Certificate)?;
    let hang = stand_in_for_nfs(&mut world)?;
    world.node.node.launch()?;
    world.node.wait_ready(world.cluster)?;
    let directory = world.node.node.directory().to_owned();
    let mut looked_at = Stuck::mount(directory.join("stuck"))?;
    let mut walked = Frozen::mount(directory.join("disk"))?;
    fs::create_dir_all(directory.join("other-disk"))?;
    local_claim(&world, "stuck", &directory.join("disk"))?;
    local_claim(&world, "fine", &directory.join("other-disk"))?;
    let nfs = || json!({"nfs": {"server": "127.0.0.1", "path": "/x"}});
    let hanging = [
        ("mounts", nfs()),
        ("looks", json!({"hostPath": {"path": looked_at.place, "type": "Directory"}})),
        ("walks", claim_of("stuck")),
        ("leaves", nfs()),
    ];
    for (name, volume) in &hanging {
        world.apply(&pod_with(&world, name, volume.clone()))?;
    }
    for (name, _) in &hanging {
        world.wait_known(name)?;
    }
    // Others get volumes of the same kinds meanwhile, and one of those that hang can go.
    let tree = json!({"hostPath": {"path": directory, "type": "Directory"}});
    for (name, volume) in [("walked", claim_of("fine")), ("seen", tree)] {
        let pod = pod_with(&world, name, volume);
        world.run(&pod)?;
    }
    let leaves = world.find_pod("leaves")?.context("the pod is gone")?;
    world.kubectl(&["delete", "pod", "leaves", "--wait=false"])?;
    world.wait_gone(&leaves, LATER)?;
    for name in ["mounts", "looks", "walks"] {
        let seen = world.find_pod(name)?.context("the pod is gone")?;
        ensure!(seen.phase() == "Pending", "{name} does not hang: {}", seen.state());
    }
    fs::remove_file(hang)?;
    looked_at.give_up()?;
    walked.thaw()?;
    for name in ["mounts", "looks", "walks"] {
        world.wait_ready_later(name)?;
    }
    Ok(Outcome::Passed)
}

fn a_walk_that_takes_long_is_told_of(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let disk = world.node.node.directory().join("disk");
    let mut walked = Frozen::mount(disk.clone())?;
    local_claim(&world, "stuck", &disk)?;
    world.apply(&pod_with(&world, "walks", claim_of("stuck")))?;
    let seen = world.wait_known("walks")?;
    // After half a minute, and then every minute with the number of files.
    for words in ["is taking longer than expected, consider using OnRootMismatch", "processed "] {
        world.cluster.wait("a word about the walk", GONE, |_| {
            let events = world.events(&seen)?;
            let mut said = events
                .iter()
                .filter(|it| it["reason"] == "VolumePermissionChangeInProgress")
                .filter_map(|it| it["message"].as_str());
            let start = format!("Setting volume ownership for {}/volumes/", seen.uid());
            let is_said = said.any(|it| it.starts_with(&start) && it.contains(words));
            ensure!(is_said, "there are only {:?}", world.event_reasons(&seen)?);
            Ok(Some(()))
        })?;
    }
    walked.thaw()?;
    world.wait_ready_later("walks")?;
    Ok(Outcome::Passed)
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    call(Command::new("mount").arg("--bind").args([source, target]))
}

fn what_an_earlier_agent_left_goes_unless_something_is_mounted_in_it(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let directory = world.node.node.directory().to_owned();
    let (disk, outside) = (directory.join("disk"), directory.join("outside"));
    for place in [&disk, &outside] {
        fs::create_dir_all(place)?;
        fs::write(place.join("file"), "kept")?;
    }
    local_claim(&world, "data", &disk)?;
    let secret = json!({"stringData": {"a": "b"}});
    world.apply(&world.object("Secret", "keys", secret))?;
    let mut stays = claiming(&world, "stays", "exec sleep 100000", "data");
    stays["spec"]["volumes"].as_array_mut().context("it has volumes")?.extend([
        json!({"name": "keys", "secret": {"secretName": "keys"}}),
        json!({"name": "memory", "emptyDir": {"medium": "Memory"}}),
    ]);
    stays["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/part", "subPath": "part"},
        {"name": "keys", "mountPath": "/keys"},
        {"name": "memory", "mountPath": "/memory"},
    ]);
    let stays = world.run(&stays)?;
    let own = look::pod_directory(&world.node.node, &stays);
    let mut before = mounts::below(&own)?;
    before.sort();
    ensure!(before.len() >= 4, "there are only {before:?}");

    world.node.node.kill()?;
    let pods = world.node.node.root().join("pods");
    let [plain, bound, foreign] = ["a", "b", "c"].map(|it| {
        let digits = it.repeat(12);
        pods.join(format!("00000000-0000-4000-8000-{digits}"))
    });
    let files = plain.join("volumes/kubernetes.io~empty-dir/cache/deep");
    fs::create_dir_all(&files)?;
    fs::write(files.join("file"), "x")?;
    symlink(&outside, files.join("way-out"))?;
    bind(&disk, &bound.join("volumes/kubernetes.io~local-volume/pv"))?;
    // Nobody knows what this is: there is no record of it.
    let unknown = foreign.join("volumes/kubernetes.io~csi/pv/mount");
    bind(&outside, &unknown)?;
    world.node.node.launch()?;
    for left in [&plain, &bound] {
        let what = format!("{} to be gone", left.display());
        world.wait(&what, GONE, |_, _| Ok((!left.exists()).then_some(())))?;
    }
    world.wait_ready("stays")?;
    for place in [&disk, &outside] {
        ensure!(place.join("file").exists(), "{} was emptied", place.display());
    }
    ensure!(
        unknown.join("file").exists() && mounts::below(&foreign)? == [unknown.clone()],
        "what is mounted was touched"
    );
    let mut after = mounts::below(&own)?;
    after.sort();
    ensure!(after == before, "mounts of a pod that runs: {before:#?}, then {after:#?}");
    mounts::detach_below(&foreign)?;
    world.wait("the last to be gone", GONE, |_, _| Ok((!foreign.exists()).then_some(())))?;
    ensure!(outside.join("file").exists(), "what was mounted is gone");
    Ok(Outcome::Passed)
}

fn nothing_is_asked_while_nothing_changes(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let disk = world.node.node.directory().join("disk");
    fs::create_dir_all(&disk)?;
    local_claim(&world, "data", &disk)?;
    world.apply(&world.object("ConfigMap", "settings", json!({"data": {"a": "b"}})))?;
    world.apply(&world.object("Secret", "keys", json!({"stringData": {"a": "b"}})))?;
    let mut main = script("main", "exec sleep 100000");
    let names = ["map", "keys", "down", "data"];
    main["volumeMounts"] =
        names.iter().map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect();
    let pod = with(
        world.pod("calm", &[main]),
        json!({"spec": {"volumes": [
            {"name": "map", "configMap": {"name": "settings"}},
            {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "down", "downwardAPI": {"items": [
                {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
            ]}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ]}}),
    );
    world.run(&pod)?;
    let lease = format!(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}",
        world.node_name()
    );
    // The node shows that it lives twice: what it has to do for the pod is done at the first time.
    let mut last = world.cluster.get(&lease)?["spec"]["renewTime"].clone();
    let mut asked = Vec::new();
    for _ in 0..2 {
        last = world.wait("the next lease", SOON, |cluster, _| {
            let now = cluster.get(&lease)?["spec"]["renewTime"].clone();
            Ok((now != last).then_some(now))
        })?;
        asked.push(world.cluster.asked_by(world.node_name())?);
    }
    let own = format!("/namespaces/{}/", world.namespace);
    let about_volumes = |uri: &str| uri.contains(&own) || uri.contains("persistentvolume");
    let new = asked[1][asked[0].len()..].iter();
    let new: Vec<String> = new
        .filter(|it| about_volumes(&it.uri))
        .map(|it| format!("{} {}", it.verb, it.uri))
        .collect();
    ensure!(new.is_empty(), "it asked again: {new:#?}");
    Ok(Outcome::Passed)
}
