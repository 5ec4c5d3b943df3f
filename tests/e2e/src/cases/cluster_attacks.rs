//! A container that swaps entries of its volumes for links to elsewhere while the agent works in
//! them.
//!
//! Carries the rows of the security history about volumes (docs/testing.md): CVE-2017-1002101 and
//! CVE-2021-25741 (sub paths), CVE-2017-1002102 (writing and taking away). The prey is a directory
//! beside the volumes; nothing of it may be read, written, given away or mounted, however the swaps
//! fall. The same function runs for a few seconds and for a minute.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::cluster::Api;
use ferrolet_lab::image::{Entry, ImageSpec};
use ferrolet_lab::{PodView, parts};
use serde_json::{Value, json};

use super::{GONE, LATER, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    swapped_links_never_lead_out_of_a_volume;
    long: swapped_links_never_lead_out_of_a_volume_for_a_minute,
];

const ATTACKER: &str = "docker.io/library/swap:1";
/// In every path of the prey and nowhere else.
const PREY: &str = "canary";
const WORD: &str = "the-canary-sings";
const GROUP: u64 = 4242;
/// What victims mount, each in an order of its own.
const PARTS: [&str; 5] = ["target", "target/inner", "target/made/new", "deep/target/inner", "file"];

fn swapped_links_never_lead_out_of_a_volume(context: &mut Context<'_>) -> Result<Outcome> {
    attack(context, Duration::from_secs(6))
}

fn swapped_links_never_lead_out_of_a_volume_for_a_minute(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    attack(context, Duration::from_secs(60))
}

fn attack(context: &mut Context<'_>, span: Duration) -> Result<Outcome> {
    let program = match parts::swapper() {
        Ok(program) => program,
        Err(error) => return Ok(Outcome::Skipped(format!("no attacker: {error:#}"))),
    };
    let mut options = context.node_options();
    // The more often containers start, the more often parts are mounted.
    options.configuration = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}});
    let mut world = World::start_with(context, options)?;
    context.containerd()?.import(&[ImageSpec {
        name: ATTACKER.to_owned(),
        entries: vec![Entry::program("/swap", &program)?],
        ..ImageSpec::default()
    }])?;
    let field = Field::lay_out(world.node.node.directory())?;
    let before = field.prey()?;

    let bystander = bystander(&world)?;
    let bystander = world.run(&bystander)?;
    let reader = reader(&world)?;
    let reader = world.run(&reader)?;
    world.run(&swapper(&world, &field))?;
    world.run(&thief(&world, &field, &reader))?;

    let api = Api::new(&world.cluster.proxy_address())?;
    let began = Instant::now();
    let mut tally = Tally::default();
    while began.elapsed() < span {
        tally.n_rounds += 1;
        let names = send_victims(&world, &api, &field, tally.n_rounds)?;
        change_objects(&world, &api, tally.n_rounds)?;
        let victims = wait_judged(&world, &api, &names, tally.n_rounds)?;
        for victim in &victims {
            tally.count(&world, victim)?;
        }
        ensure_nothing_leaked(&field, &before)?;
        // Taken away under attack: nothing may be deleted elsewhere.
        for name in &names {
            let path = format!("/api/v1/namespaces/{}/pods/{name}", world.namespace);
            api.ask("DELETE", &path, r#"{"gracePeriodSeconds":0}"#)?;
        }
    }
    ensure!(tally.n_started > 0 && tally.n_refused > 0, "the attack was no attack: {tally:?}");

    // The volumes under attack go too, first with the attacker at work and then for good.
    world.kubectl(&["delete", "pod", "reader", "--wait=false", "--grace-period=0"])?;
    world.wait_gone(&reader, LATER)?;
    for name in ["swapper", "thief"] {
        world.kubectl(&["delete", "pod", name, "--wait=false", "--grace-period=0"])?;
    }
    let directory = look::pod_directory(&world.node.node, &reader);
    world.wait("the attacked volumes to be gone", GONE, |_, _| {
        Ok((!directory.exists()).then_some(()))
    })?;
    ensure_nothing_leaked(&field, &before)?;
    let now = world.wait_ready("bystander")?;
    ensure!(
        now.uid() == bystander.uid() && now.restarts() == 0,
        "the bystander was hit: {}",
        now.state()
    );
    Ok(Outcome::Passed)
}

/// What the attack came to.
#[derive(Debug, Default)]
struct Tally {
    n_rounds: usize,
    n_started: u64,
    n_refused: usize,
}

impl Tally {
    /// Looks at what one victim saw, and at how it fared.
    fn count(&mut self, world: &World<'_>, victim: &PodView) -> Result<()> {
        let container = victim.container("main")?;
        let is_started = container.exit_code().is_some() || container.last_exit_code().is_some();
        self.n_started += u64::from(is_started) + container.restarts();
        self.n_refused += usize::from(
            container.waiting_message().is_some_and(|it| it.contains("failed to prepare subPath")),
        );
        let directory = look::log_directory(&world.node.node, victim).join("main");
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            ensure!(
                !text.contains(WORD) && !text.contains(PREY),
                "a container saw what is outside its volume: {text}"
            );
        }
        Ok(())
    }
}

/// The directories of the attack.
struct Field {
    arena: PathBuf,
    prey: PathBuf,
}

impl Field {
    /// A volume with entries to be swapped, and beside it what the links lead to.
    fn lay_out(directory: &Path) -> Result<Field> {
        let field = Field { arena: directory.join("arena"), prey: directory.join(PREY) };
        fs::create_dir_all(field.prey.join("inner"))?;
        fs::write(field.prey.join("secret"), WORD)?;
        fs::write(field.prey.join("inner/secret"), WORD)?;
        fs::create_dir_all(field.arena.join("target/inner"))?;
        fs::create_dir_all(field.arena.join("deep/target/inner"))?;
        fs::write(field.arena.join("file"), "fine")?;
        let (up, secret) = (format!("../{PREY}"), format!("../{PREY}/secret"));
        symlink(up, field.arena.join("aside"))?;
        symlink(&field.prey, field.arena.join("deep/aside"))?;
        symlink(secret, field.arena.join("aside-file"))?;
        Ok(field)
    }

    /// Everything that a leak would change: names, contents, owners, modes and times.
    fn prey(&self) -> Result<BTreeMap<PathBuf, String>> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![self.prey.clone()];
        while let Some(path) = waiting.pop() {
            let meta = fs::symlink_metadata(&path)?;
            let content = if meta.is_dir() {
                for entry in fs::read_dir(&path)? {
                    waiting.push(entry?.path());
                }
                String::new()
            } else {
                fs::read_to_string(&path)?
            };
            let (mode, owner, group) = (meta.mode(), meta.uid(), meta.gid());
            let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
            let facts = format!("{mode:o} {owner}:{group} {times:?} {} {content}", meta.ino());
            found.insert(path, facts);
        }
        Ok(found)
    }
}

fn ensure_nothing_leaked(field: &Field, before: &BTreeMap<PathBuf, String>) -> Result<()> {
    let now = field.prey()?;
    ensure!(now == *before, "it was {before:#?} and is {now:#?}");
    let table = ferrolet_lab::mounts::table()?;
    // What is mounted is the fourth word, where it is mounted the fifth.
    let mut mounted = table.lines().filter_map(|line| line.split(' ').nth(3));
    match mounted.find(|root| root.contains(PREY)) {
        Some(root) => bail!("{root} is mounted"),
        None => Ok(()),
    }
}

fn bystander(world: &World<'_>) -> Result<Value> {
    world.apply(&world.object("ConfigMap", "calm", json!({"data": {"a": "b"}})))?;
    let mut main = sleeper("main");
    main["volumeMounts"] = json!([{"name": "calm", "mountPath": "/calm"}]);
    Ok(with(
        world.pod("bystander", &[main]),
        json!({"spec": {"volumes": [{"name": "calm", "configMap": {"name": "calm"}}]}}),
    ))
}

/// Has the volumes that are written anew again and again.
fn reader(world: &World<'_>) -> Result<Value> {
    for (kind, field) in [("ConfigMap", "data"), ("Secret", "stringData")] {
        world.apply(&world.object(kind, "stormy", json!({field: {"secret": "0", "b": "0"}})))?;
    }
    let mut main = sleeper("main");
    main["volumeMounts"] = json!([
        {"name": "settings", "mountPath": "/settings"},
        {"name": "keys", "mountPath": "/keys"},
    ]);
    let items = json!([{"key": "secret", "path": "secret"}, {"key": "b", "path": "inner/secret"}]);
    Ok(with(
        world.pod("reader", &[main]),
        json!({"spec": {
            "securityContext": {"fsGroup": GROUP},
            "volumes": [
                {"name": "settings", "configMap": {"name": "stormy", "items": items}},
                {"name": "keys", "secret": {"secretName": "stormy", "items": items}},
            ],
        }}),
    ))
}

fn attacker(world: &World<'_>, name: &str, words: &[String], volumes: &[(&str, &Path)]) -> Value {
    let main = json!({
        "name": "main",
        "image": ATTACKER,
        "imagePullPolicy": "Never",
        "command": words,
        "volumeMounts": volumes.iter()
            .map(|(name, _)| json!({"name": name, "mountPath": format!("/{name}")}))
            .collect::<Vec<_>>(),
    });
    let volumes: Vec<Value> = volumes
        .iter()
        .map(|(name, path)| json!({"name": name, "hostPath": {"path": path}}))
        .collect();
    with(world.pod(name, &[main]), json!({"spec": {"volumes": volumes}}))
}

/// Swaps directories and a file of the arena for links to the prey.
fn swapper(world: &World<'_>, field: &Field) -> Value {
    let words = [
        "/swap",
        "swap",
        "/v/target",
        "/v/aside",
        "/v/deep/target",
        "/v/deep/aside",
        "/v/file",
        "/v/aside-file",
    ];
    attacker(world, "swapper", &words.map(str::to_owned), &[("v", field.arena.as_path())])
}

/// Replaces everything in the reader's volumes by links to the prey.
fn thief(world: &World<'_>, field: &Field, reader: &PodView) -> Value {
    let volumes = look::pod_directory(&world.node.node, reader).join("volumes");
    let settings = volumes.join("kubernetes.io~configmap/settings");
    let keys = volumes.join("kubernetes.io~secret/keys");
    let words = [
        "/swap".to_owned(),
        "steal".to_owned(),
        field.prey.display().to_string(),
        "/settings".to_owned(),
        "/keys".to_owned(),
    ];
    attacker(world, "thief", &words, &[("settings", settings.as_path()), ("keys", keys.as_path())])
}

/// Pods that mount parts of the arena, read and write there, end, and start again.
fn send_victims(world: &World<'_>, api: &Api, field: &Field, round: usize) -> Result<Vec<String>> {
    // Read what is there, write, and show every mount: none of it may be the prey's.
    let text = "for it in /m/*; do cat $it $it/secret $it/inner/secret; echo hit > $it/hit; done 2>/dev/null; \
                cut -d' ' -f4 /proc/self/mountinfo; exit 0";
    let mut names = Vec::new();
    for n in 0..PARTS.len() {
        let name = format!("victim-{round}-{n}");
        let mut main = script("main", text);
        // Two parts each, in different orders; more would hardly ever be right at the same moment.
        let parts = [PARTS[n], PARTS[(n + 2) % PARTS.len()]];
        main["volumeMounts"] = parts
            .iter()
            .enumerate()
            .map(
                |(at, part)| json!({"name": "v", "mountPath": format!("/m/{at}"), "subPath": part}),
            )
            .collect();
        let pod = with(
            world.pod(&name, &[main]),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": field.arena}}]}}),
        );
        let collection = format!("/api/v1/namespaces/{}/pods", world.namespace);
        api.create(&collection, &pod)?;
        names.push(name);
    }
    Ok(names)
}

fn change_objects(world: &World<'_>, api: &Api, n: usize) -> Result<()> {
    for (kind, field) in [("configmaps", "data"), ("secrets", "stringData")] {
        let path = format!("/api/v1/namespaces/{}/{kind}/stormy", world.namespace);
        let value = n.to_string();
        let change = json!({field: {"secret": value, "b": value}});
        let answer = api.ask("PATCH", &path, &change.to_string())?;
        ensure!(answer.status == 200, "PATCH {path}: {}", answer.body);
    }
    Ok(())
}

/// Waits until each victim has been started or refused, and keeps the reader's objects changing
/// meanwhile.
fn wait_judged(
    world: &World<'_>,
    api: &Api,
    names: &[String],
    round: usize,
) -> Result<Vec<PodView>> {
    let mut n_changes = round * 1000;
    let mut judged = Vec::new();
    for name in names {
        let path = format!("/api/v1/namespaces/{}/pods/{name}", world.namespace);
        let found = world
            .cluster
            .wait(&format!("{name} to be judged"), LATER, |cluster| {
                n_changes += 1;
                change_objects(world, api, n_changes)?;
                let pod = PodView(cluster.get(&path)?);
                let container = pod.container("main");
                let is_judged = container.is_ok_and(|it| {
                    it.exit_code().is_some()
                        || it.last_exit_code().is_some()
                        || it.waiting_reason() == Some("CreateContainerConfigError")
                });
                Ok(is_judged.then_some(pod))
            })
            .context("a victim was neither started nor refused")?;
        judged.push(found);
    }
    Ok(judged)
}
