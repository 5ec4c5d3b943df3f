//! Volumes of this node and of the API, looked at closely: every type of host path, modes, owners
//! and media of files, and how a change comes to them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::PodView;
use serde_json::{Value, json};

use super::{SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_host_path_of_every_type_is_there_or_made,
    files_from_the_api_have_their_modes_owners_and_media,
    a_change_is_there_in_a_moment_by_a_swap_of_directories;
    long: a_token_is_new_before_it_is_old,
];

/// A second or two, and as much again for a machine on which other tests run.
const A_MOMENT: Duration = Duration::from_secs(4);
/// Four fifths of the shortest life that a token can have, ten seconds in which not all are renewed
/// at once, and a minute.
const RENEWED: Duration = Duration::from_secs(480 + 10 + 60);

fn mounts(names: &[&str]) -> Value {
    let mounts = names.iter();
    mounts.map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect()
}

fn any_block_device() -> Option<PathBuf> {
    let entries = fs::read_dir("/dev").ok()?.flatten();
    let mut blocks = entries.filter(|it| it.file_type().is_ok_and(|it| it.is_block_device()));
    blocks.next().map(|it| it.path())
}

fn a_host_path_of_every_type_is_there_or_made(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let place = world.node.node.directory().join("paths");
    fs::create_dir_all(place.join("tree"))?;
    fs::write(place.join("file"), "x")?;
    let _listener = UnixListener::bind(place.join("socket"))?;
    let block = any_block_device().context("this machine has no block device")?;
    let own = |name: &str| place.join(name);
    let rows = [
        ("any", own("file"), "", "-f"),
        ("made-tree", own("new/tree"), "DirectoryOrCreate", "-d"),
        ("found-tree", own("tree"), "DirectoryOrCreate", "-d"),
        ("tree", own("tree"), "Directory", "-d"),
        ("made-file", own("new-file"), "FileOrCreate", "-f"),
        ("file", own("file"), "File", "-f"),
        ("socket", own("socket"), "Socket", "-S"),
        ("char", PathBuf::from("/dev/null"), "CharDevice", "-c"),
        ("block", block, "BlockDevice", "-b"),
    ];
    let tests: Vec<String> = rows
        .iter()
        .map(|(name, _, _, test)| format!("test {test} /{name} || echo no {name}"))
        .collect();
    let mut main = script("main", &format!("{}; echo done; exec sleep 100000", tests.join("; ")));
    main["volumeMounts"] = mounts(&rows.each_ref().map(|it| it.0));
    let volumes: Vec<Value> = rows
        .iter()
        .map(
            |(name, path, kind, _)| json!({"name": name, "hostPath": {"path": path, "type": kind}}),
        )
        .collect();
    let pod = with(world.pod("paths", &[main]), json!({"spec": {"volumes": volumes}}));
    let seen = world.run(&pod)?;
    let lines = world.settled_log(&seen, "main")?;
    ensure!(lines == ["done"], "inside: {lines:?}");
    for (path, mode) in [("new/tree", 0o755), ("new-file", 0o644)] {
        let found = fs::metadata(place.join(path))?.mode() & 0o7777;
        ensure!(found == mode, "{path} was made with {found:o}");
    }
    Ok(Outcome::Passed)
}

/// Where a volume of the pod stands on the node.
fn volume_of(world: &World<'_>, pod: &PodView, plugin: &str, name: &str) -> PathBuf {
    let directory = look::pod_directory(&world.node.node, pod);
    directory.join("volumes").join(plugin).join(name)
}

/// What a token says of itself.
fn claims_of(token: &str) -> Result<Value> {
    let payload = token.split('.').nth(1).context("it is no token")?;
    let mut text = payload.replace('-', "+").replace('_', "/");
    while text.len() % 4 != 0 {
        text.push('=');
    }
    let mut decoder = Command::new("base64")
        .arg("--decode")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = decoder.stdin.take().context("it has an input")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    Ok(serde_json::from_slice(&decoder.wait_with_output()?.stdout)?)
}

fn seconds(claims: &Value, name: &str) -> i64 {
    claims[name].as_i64().unwrap_or_default()
}

fn files_from_the_api_have_their_modes_owners_and_media(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    world.apply(&world.object(
        "ConfigMap",
        "settings",
        json!({"data": {"a": "one"}, "immutable": true}),
    ))?;
    let keys = json!({"stringData": {"word": "hush", "open": "hello"}});
    world.apply(&world.object("Secret", "keys", keys))?;
    let names = ["map", "keys", "down", "all", "none", "memory"];
    let text = "for it in map keys down all memory; do grep \" /$it \" /proc/mounts | cut -d ' ' -f 3; done; \
                ls /none | wc -l; \
                dd if=/dev/zero of=/memory/file bs=1M count=2 2>&1 | grep -c 'No space left'; \
                grep ' /memory ' /proc/mounts | grep -c 'size=1024k'; exec sleep 100000";
    let mut main = script("main", text);
    main["volumeMounts"] = mounts(&names);
    let pod = |name: &str, security: Value| {
        with(
            world.pod(name, std::slice::from_ref(&main)),
            json!({"spec": {"securityContext": security, "volumes": [
                {"name": "map", "configMap": {"name": "settings"}},
                {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400, "items": [
                    {"key": "word", "path": "word"},
                    {"key": "open", "path": "deep/open", "mode": 0o444},
                ]}},
                {"name": "down", "downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                ]}},
                {"name": "all", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 1200, "audience": "lab"}},
                ]}},
                {"name": "none", "configMap": {"name": "nowhere", "optional": true}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            ]}}),
        )
    };
    let (plain, grouped) =
        (pod("plain", json!({"runAsUser": 1000})), pod("grouped", json!({"fsGroup": 4242})));
    let plain = world.run(&plain)?;
    let grouped = world.run(&grouped)?;
    let (secret, map, all) =
        ("kubernetes.io~secret", "kubernetes.io~configmap", "kubernetes.io~projected");
    for (pod, plugin, file, mode, owner) in [
        (&plain, secret, "keys/word", 0o400, (0, 0)),
        (&plain, secret, "keys/deep/open", 0o444, (0, 0)),
        (&plain, map, "map/a", 0o644, (0, 0)),
        (&plain, all, "all/token", 0o600, (1000, 0)),
        // A group may read whatever the mode says.
        (&grouped, secret, "keys/word", 0o440, (0, 4242)),
        (&grouped, secret, "keys/deep/open", 0o444, (0, 4242)),
        (&grouped, map, "map/a", 0o644, (0, 4242)),
        (&grouped, all, "all/token", 0o640, (0, 4242)),
    ] {
        let found = fs::metadata(volume_of(&world, pod, plugin, file))?;
        let seen = (found.mode() & 0o7777, (found.uid(), found.gid()));
        ensure!(seen == (mode, owner), "{file} of {}: {:o} {:?}", pod.name(), seen.0, seen.1);
    }
    let lines = world.settled_log(&grouped, "main")?;
    ensure!(
        lines.len() == 8 && lines[0] != "tmpfs" && lines[1..5].iter().all(|it| it == "tmpfs"),
        "only config maps are on the disk: {lines:?}"
    );
    ensure!(lines[5] == "0", "what is optional and missing holds {lines:?}");
    ensure!(lines[6..] == ["1", "1"], "memory is not bounded: {lines:?}");
    let token = fs::read_to_string(volume_of(&world, &plain, all, "all/token"))?;
    let claims = claims_of(&token)?;
    ensure!(
        claims["aud"] == json!(["lab"])
            && seconds(&claims, "exp") - seconds(&claims, "iat") == 1200
            && claims["kubernetes.io"]["pod"]["uid"] == plain.uid(),
        "the token says {claims}"
    );
    Ok(Outcome::Passed)
}

/// Waits for a file's text on the node, and says how long that took.
fn wait_text(world: &mut World<'_>, file: &Path, text: &str) -> Result<Duration> {
    let began = Instant::now();
    let what = format!("{text:?} in {}", file.display());
    world.wait(&what, SOON, |_, _| {
        let found = fs::read_to_string(file).unwrap_or_default();
        Ok((found == text).then_some(()))
    })?;
    Ok(began.elapsed())
}

fn a_change_is_there_in_a_moment_by_a_swap_of_directories(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    // Nothing but the watch can be so fast: a settled pod is looked at once a minute.
    let mut world = World::start(context)?;
    let objects = |value: &str| {
        [
            world.object("ConfigMap", "changing", json!({"data": {"a": value, value: "x"}})),
            world.object("Secret", "changing", json!({"stringData": {"a": value}})),
        ]
    };
    let (first, second) = (objects("one"), objects("two"));
    for object in &first {
        world.apply(object)?;
    }
    let mut main = sleeper("main");
    main["volumeMounts"] = mounts(&["map", "keys", "late"]);
    let pod = with(
        world.pod("watcher", &[main]),
        json!({"spec": {"volumes": [
            {"name": "map", "configMap": {"name": "changing"}},
            {"name": "keys", "secret": {"secretName": "changing"}},
            {"name": "late", "configMap": {"name": "late", "optional": true}},
        ]}}),
    );
    let seen = world.run(&pod)?;
    let map = volume_of(&world, &seen, "kubernetes.io~configmap", "map");
    let before = fs::read_link(map.join("..data"))?;
    ensure!(
        fs::read_link(map.join("a"))? == Path::new("..data/a") && map.join(&before).is_dir(),
        "it is not swapped as a whole"
    );
    let late = volume_of(&world, &seen, "kubernetes.io~configmap", "late");
    let keys = volume_of(&world, &seen, "kubernetes.io~secret", "keys");
    let coming = world.object("ConfigMap", "late", json!({"data": {"a": "here"}}));
    for (object, file, text) in [
        (&second[0], map.join("a"), "two"),
        (&second[1], keys.join("a"), "two"),
        (&coming, late.join("a"), "here"),
    ] {
        world.apply(object)?;
        let took = wait_text(&mut world, &file, text)?;
        ensure!(took < A_MOMENT, "{} took {took:?}", file.display());
    }
    let after = fs::read_link(map.join("..data"))?;
    ensure!(
        after != before && !map.join(&before).exists(),
        "{before:?} is still there beside {after:?}"
    );
    let mut names: Vec<String> = fs::read_dir(&map)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.retain(|name| !name.starts_with(".."));
    names.sort();
    ensure!(names == ["a", "two"], "the volume shows {names:?}");
    ensure!(world.wait_ready("watcher")?.restarts() == 0, "it was restarted");
    Ok(Outcome::Passed)
}

fn a_token_is_new_before_it_is_old(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let mut main = sleeper("main");
    main["volumeMounts"] = mounts(&["all"]);
    let pod = with(
        world.pod("bearer", &[main]),
        json!({"spec": {"volumes": [{"name": "all", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        ]}}]}}),
    );
    let seen = world.run(&pod)?;
    let file = volume_of(&world, &seen, "kubernetes.io~projected", "all/token");
    let first = fs::read_to_string(&file)?;
    let second = world.wait("another token", RENEWED, |_, _| {
        let now = fs::read_to_string(&file)?;
        Ok((now != first).then_some(now))
    })?;
    let (first, second) = (claims_of(&first)?, claims_of(&second)?);
    ensure!(
        seconds(&second, "iat") < seconds(&first, "exp")
            && seconds(&second, "exp") > seconds(&first, "exp"),
        "first {first}, then {second}"
    );
    Ok(Outcome::Passed)
}
