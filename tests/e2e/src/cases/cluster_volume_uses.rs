//! Ways of using volumes: parts named by expressions, certificates that the cluster trusts, groups
//! given only where they are not, and files that containers cannot change.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;

use super::cluster_storage::{claiming, on_this_node, remove_and_wait, volume_and_claim};
use super::{LATER, SOON, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_part_is_named_by_an_expression,
    certificates_that_the_cluster_trusts_are_files,
    a_volume_whose_top_has_the_group_is_left_alone_on_request,
    files_from_the_api_cannot_be_changed_from_inside,
];

fn a_part_is_named_by_an_expression(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let main = with(
        script("main", "echo mine > /logs/file; exec sleep 100000"),
        json!({
            "env": [
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "DEEP", "value": "$(POD)/deep"},
            ],
            "volumeMounts": [
                {"name": "shared", "mountPath": "/logs", "subPathExpr": "$(DEEP)"},
                {"name": "shared", "mountPath": "/all"},
                {"name": "shared", "mountPath": "/plain", "subPathExpr": "$$(POD)"},
            ],
        }),
    );
    let pod = with(
        world.pod("speaker", &[main]),
        json!({"spec": {"volumes": [{"name": "shared", "emptyDir": {}}]}}),
    );
    let seen = world.run(&pod)?;
    let containerd = context.containerd()?;
    world.cluster.wait("the pod's file", LATER, |_| {
        let text = world.read_inside(containerd, &seen, "/all/speaker/deep/file")?;
        Ok((text == "mine\n").then_some(()))
    })?;
    let volume =
        look::pod_directory(&world.node.node, &seen).join("volumes/kubernetes.io~empty-dir/shared");
    ensure!(volume.join("speaker/deep/file").is_file(), "no such file");
    ensure!(volume.join("$(POD)").is_dir(), "an escaped expression was expanded");
    remove_and_wait(&mut world, &seen)?;
    Ok(Outcome::Passed)
}

fn certificates_that_the_cluster_trusts_are_files(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let authority = fs::read_to_string(world.cluster.authority_file())?;
    let signer = format!("{}.ferrolet.dev/signer", world.namespace);
    // Under the signer's name as the API wants it, and one without a signer.
    let of_signer = |name: &str| format!("{}:{name}", signer.replace('/', ":"));
    let alone = format!("{}-alone", world.namespace);
    let late = format!("{}-late", world.namespace);
    // The same certificate twice: it is there once.
    for name in ["one", "two"] {
        world.apply(&json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "ClusterTrustBundle",
            "metadata": {"name": of_signer(name), "labels": {"live": "yes"}},
            "spec": {"signerName": signer, "trustBundle": authority},
        }))?;
    }
    world.apply(&json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": alone},
        "spec": {"trustBundle": authority},
    }))?;
    let mut main = script("main", "exec sleep 100000");
    main["volumeMounts"] = json!([{"name": "trust", "mountPath": "/trust"}]);
    let bundle = |more: serde_json::Value| json!({"clusterTrustBundle": more});
    let labels = json!({"matchLabels": {"live": "yes"}});
    let pod = with(
        world.pod("trusting", &[main]),
        json!({"spec": {"volumes": [{"name": "trust", "projected": {"sources": [
            bundle(json!({"name": alone, "path": "alone.pem"})),
            bundle(json!({"signerName": signer, "labelSelector": labels, "path": "signer.pem"})),
            bundle(json!({"name": late, "path": "none.pem", "optional": true})),
        ]}}]}}),
    );
    let seen = world.run(&pod)?;
    let containerd = context.containerd()?;
    let read = |file: &str| world.read_inside(containerd, &seen, file);
    for file in ["/trust/alone.pem", "/trust/signer.pem"] {
        let text = read(file)?;
        ensure!(text.matches("BEGIN CERTIFICATE").count() == 1, "{file} is {text:?}");
        let whole = |text: &str| text.split_whitespace().collect::<String>();
        ensure!(whole(&authority).contains(&whole(&text)), "{file} holds another certificate");
    }
    ensure!(read("/trust/none.pem")?.is_empty(), "there is no such bundle");
    // One that comes while the pod runs is there in a moment.
    world.apply(&json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": late},
        "spec": {"trustBundle": authority},
    }))?;
    world.cluster.wait("the late bundle in the volume", SOON, |_| {
        let text = read("/trust/none.pem")?;
        Ok(text.contains("BEGIN CERTIFICATE").then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn a_volume_whose_top_has_the_group_is_left_alone_on_request(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let disk = world.node.node.directory().join("disk");
    fs::create_dir_all(&disk)?;
    fs::write(disk.join("file"), "x")?;
    let group = |path: &Path| fs::metadata(path).map(|it| it.gid());
    // The top is right, what is in it is not.
    chown(&disk, None, Some(4242))?;
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o2775))?;
    chown(disk.join("file"), None, Some(0))?;
    let spec = on_this_node(&world, &disk, json!({}));
    let (volume, claim) = volume_and_claim(&world, "lazy", spec);
    world.apply(&volume)?;
    world.apply(&claim)?;
    let pod = |name: &str| {
        with(
            claiming(&world, name, "exec sleep 100000", "lazy"),
            json!({"spec": {"securityContext": {
                "fsGroup": 4242, "fsGroupChangePolicy": "OnRootMismatch",
            }}}),
        )
    };
    let (first, second) = (pod("first"), pod("second"));
    world.apply(&first)?;
    let first = world.wait_ready_later("first")?;
    let found = group(&disk.join("file"))?;
    ensure!(found == 0, "the file was given to group {found}");
    remove_and_wait(&mut world, &first)?;
    // One bit of the top is missing: all of it is gone through.
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o775))?;
    world.apply(&second)?;
    let second = world.wait_ready_later("second")?;
    let found = group(&disk.join("file"))?;
    ensure!(found == 4242, "the file belongs to group {found}");
    let mode = fs::metadata(disk.join("file"))?.mode() & 0o7777;
    ensure!(mode & 0o660 == 0o660, "its mode is {mode:o}");
    remove_and_wait(&mut world, &second)?;
    Ok(Outcome::Passed)
}

/// CVE-2017-1002102 began with containers that could write into such volumes.
fn files_from_the_api_cannot_be_changed_from_inside(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    for (kind, field) in [("ConfigMap", "data"), ("Secret", "stringData")] {
        world.apply(&world.object(kind, "fixed", json!({field: {"a": "x"}})))?;
    }
    let text = "for it in map secret down all; do \
                touch /$it/new; rm /$it/a; ln -s /etc /$it/link; mv /$it/..data /$it/moved; done 2>&1 | \
                grep -vc 'Read-only file system'; exec sleep 100000";
    let mut main = script("main", text);
    main["volumeMounts"] = ["map", "secret", "down", "all"]
        .iter()
        // Asking for more does not help.
        .map(|name| json!({"name": name, "mountPath": format!("/{name}"), "readOnly": false}))
        .collect();
    let field = json!({"path": "a", "fieldRef": {"fieldPath": "metadata.name"}});
    let pod = with(
        world.pod("fixed", &[main]),
        json!({"spec": {"volumes": [
            {"name": "map", "configMap": {"name": "fixed"}},
            {"name": "secret", "secret": {"secretName": "fixed"}},
            {"name": "down", "downwardAPI": {"items": [field]}},
            {"name": "all", "projected": {"sources": [{"downwardAPI": {"items": [field]}}]}},
        ]}}),
    );
    let seen = world.run(&pod)?;
    let lines = world.settled_log(&seen, "main")?;
    ensure!(lines == ["0"], "{lines:?} attempts were not refused");
    let containerd = context.containerd()?;
    for name in ["map", "secret", "down", "all"] {
        let text = world.read_inside(containerd, &seen, &format!("/{name}/a"))?;
        ensure!(!text.is_empty(), "/{name}/a is gone");
    }
    Ok(Outcome::Passed)
}
