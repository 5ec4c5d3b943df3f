//! The CSI driver of these tests (`tests/csi-driver`) in a process of its own, and what a cluster
//! needs to use it.
//!
//! [`serve`] is where a test begins: a node, the driver registered with it, and the object by which
//! the cluster knows it; [`claim`] makes a volume of the driver with a claim bound to it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context as _, Result};
use ferrolet_lab::{NodeOptions, Part};
use serde_json::{Value, json};

use crate::build::{script, with};
use crate::cases::{LATER, SOON};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

/// A driver process that goes with the test.
pub(crate) struct Driver {
    pub(crate) name: String,
    pub(crate) state: PathBuf,
    pub(crate) process: Child,
}

impl Driver {
    /// Starts it; `None` where it cannot be built.
    pub(crate) fn start(
        context: &Context<'_>,
        world: &World<'_>,
        options: &[&str],
    ) -> Result<Option<Driver>> {
        let program = match &context.options.csi_driver {
            Part::Available(program) => program,
            Part::Missing(_) => return Ok(None),
        };
        let name = name_in(world);
        let root = world.node.node.root();
        // Paths of sockets are short.
        let state = world.node.node.directory().join("drv");
        std::fs::create_dir_all(&state)?;
        let process = Command::new(program)
            .arg("-name")
            .arg(&name)
            .arg("-state")
            .arg(&state)
            .arg("-endpoint")
            .arg(state.join("s"))
            .arg("-registry")
            .arg(root.join("plugins_registry"))
            .args(options)
            .spawn()?;
        Ok(Some(Driver { name, state, process }))
    }

    /// Every call so far: method and request.
    pub(crate) fn calls(&self) -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.state.join("calls")).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        Ok(lines.collect::<Result<_, _>>()?)
    }

    /// The methods that were called for volumes, in order.
    pub(crate) fn methods(&self) -> Result<Vec<String>> {
        let calls = self.calls()?;
        let methods = calls.iter().filter_map(|it| it["method"].as_str());
        let volumes = methods.filter(|it| it.ends_with("Volume"));
        Ok(volumes.map(str::to_owned).collect())
    }

    /// The first request of a method.
    pub(crate) fn request(&self, method: &str) -> Result<Value> {
        let calls = self.calls()?;
        let call = calls.iter().find(|it| it["method"] == method);
        Ok(call.with_context(|| format!("no {method}"))?["request"].clone())
    }

    /// Lets a method fail with a gRPC code, or hang; `None` mends it.
    pub(crate) fn set_fault(&self, method: &str, word: Option<&str>) -> Result<()> {
        let file = self.state.join("faults").join(method);
        match word {
            Some(word) => std::fs::write(file, word)?,
            None => std::fs::remove_file(file)?,
        }
        Ok(())
    }

    /// From now on the node takes this many volumes.
    pub(crate) fn set_limit(&self, limit: u32) -> Result<()> {
        Ok(std::fs::write(self.state.join("limit"), limit.to_string())?)
    }

    /// From now on this is wrong with a volume, or with the driver's `storage`: lines of kind,
    /// reason and a sentence.
    pub(crate) fn set_health(&self, of: &str, lines: &str) -> Result<()> {
        let directory = self.state.join("health");
        std::fs::create_dir_all(&directory)?;
        let draft = self.state.join("health-draft");
        std::fs::write(&draft, lines)?;
        // Whole, because the driver may be reading.
        Ok(std::fs::rename(draft, directory.join(of))?)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        // What a test leaves here outlives its namespaces.
        let own = self.state.parent().map(loops_below);
        for (device, _) in own.into_iter().flatten().flatten() {
            Command::new("losetup").arg("-d").arg(device).status().ok();
        }
    }
}

/// The driver's name in this world.
pub(crate) fn name_in(world: &World<'_>) -> String {
    format!("{}.ferrolet.dev", world.namespace)
}

/// A node with the driver registered and known to the cluster by that specification; `None` where
/// it cannot be built.
pub(crate) fn serve<'c>(
    context: &mut Context<'c>,
    options: &[&str],
    spec: Value,
) -> Result<Option<(World<'c>, Driver)>> {
    let node = context.node_options();
    serve_on(context, node, options, spec)
}

/// The same on a node with options of the test's own.
pub(crate) fn serve_on<'c>(
    context: &mut Context<'c>,
    node: NodeOptions,
    options: &[&str],
    spec: Value,
) -> Result<Option<(World<'c>, Driver)>> {
    let mut world = World::start_with(context, node)?;
    let Some(driver) = Driver::start(context, &world, options)? else {
        return Ok(None);
    };
    wait_registered(&mut world, &driver)?;
    apply_rules(&world, spec)?;
    Ok(Some((world, driver)))
}

/// A test that the driver is missing for.
pub(crate) fn no_driver() -> Outcome {
    Outcome::Skipped("the driver cannot be built".to_owned())
}

/// What the cluster's administrator says of the driver.
pub(crate) fn apply_rules(world: &World<'_>, spec: Value) -> Result<()> {
    world.apply(&json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name_in(world)},
        "spec": spec,
    }))
}

/// Waits until the node says that it has the driver, and answers with what it says.
pub(crate) fn wait_registered(world: &mut World<'_>, driver: &Driver) -> Result<Value> {
    let path = format!("/apis/storage.k8s.io/v1/csinodes/{}", world.node_name());
    let name = driver.name.clone();
    world.wait("the driver in the node's CSINode", SOON, |cluster, _| {
        let node = cluster.find(&path)?.context("no CSINode")?;
        let drivers = node["spec"]["drivers"].as_array().cloned();
        let found = drivers.into_iter().flatten().find(|it| it["name"] == name.as_str());
        Ok(found)
    })
}

/// A volume of the driver with `more` in its specification, and a claim of that name bound to it;
/// answers with the volume's name.
pub(crate) fn claim(world: &World<'_>, driver: &Driver, name: &str, more: Value) -> Result<String> {
    let volume = format!("{}-{name}", world.namespace);
    let spec = with(
        json!({
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "volumeMode": "Filesystem",
            "csi": {"driver": driver.name, "volumeHandle": volume},
        }),
        more,
    );
    let wanted = json!({"spec": {
        "accessModes": spec["accessModes"],
        "storageClassName": "",
        "volumeMode": spec["volumeMode"],
        "volumeName": volume,
        "resources": {"requests": spec["capacity"]},
    }});
    world.apply(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": spec,
    }))?;
    world.apply(&world.object("PersistentVolumeClaim", name, wanted))?;
    Ok(volume)
}

/// A pod that writes who it is into the claim's volume, as a member of group 4242.
pub(crate) fn claimant(world: &World<'_>, name: &str, claim: &str) -> Value {
    let mut main = script("main", "id > /data/file; exec sleep 100000");
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    with(
        world.pod(name, &[main]),
        json!({"spec": {
            "securityContext": {"fsGroup": 4242},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        }}),
    )
}

/// Waits until the controller asks for a volume to be attached; answers with the name of its
/// request.
pub(crate) fn wait_attachment(world: &mut World<'_>, volume: &str) -> Result<String> {
    world.wait("the attachment", LATER, |cluster, _| {
        let all = cluster.get("/apis/storage.k8s.io/v1/volumeattachments")?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let mut items = items.into_iter();
        let own = items.find(|it| it["spec"]["source"]["persistentVolumeName"] == volume);
        Ok(own.and_then(|it| it["metadata"]["name"].as_str().map(str::to_owned)))
    })
}

/// Says what became of a request, as whoever attaches does.
pub(crate) fn settle_attachment(world: &World<'_>, name: &str, status: &Value) -> Result<()> {
    let patch = json!({"status": status}).to_string();
    let words = ["patch", "volumeattachment", name, "--subresource=status"];
    let rest = ["--type=merge", "-p", patch.as_str()];
    world.cluster.kubectl(&[&words[..], &rest].concat())?;
    Ok(())
}

/// Waits until nothing of the driver's is staged on the node any more.
pub(crate) fn wait_left(world: &mut World<'_>, driver: &Driver) -> Result<()> {
    world.wait("the volume to leave the node", LATER, |_, _| {
        let methods = driver.methods()?;
        let is_last = methods.last().is_some_and(|it| it == "NodeUnstageVolume");
        Ok(is_last.then_some(()))
    })
}

/// Loop devices that stand for something below a directory, and what each stands for.
pub(crate) fn loops_below(directory: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block")? {
        let entry = entry?;
        let file = entry.path().join("loop/backing_file");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if Path::new(text.trim()).starts_with(directory) {
            let device = Path::new("/dev").join(entry.file_name());
            found.push((device, text.trim().to_owned()));
        }
    }
    Ok(found)
}
