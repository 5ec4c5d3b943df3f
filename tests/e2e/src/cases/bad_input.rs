//! Manifests that are wrong: one clear message each, no harm to other pods, and the last good one
//! stays.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use ferrolet_lab::Node;
use ferrolet_lab::wait::stays_true;
use serde_json::json;

use super::{SOON, cases, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    bad_manifests_are_named_and_harm_nobody,
    a_manifest_that_turns_bad_leaves_its_pod_running,
    a_manifest_cut_off_while_being_written_is_read_when_complete,
    two_pods_of_one_name_in_two_files_do_not_fight,
    hidden_and_swap_files_and_directories_are_passed_over,
];

/// An agent that rescans every second, with one pod that must not be touched.
fn node_with_witness(context: &mut Context<'_>) -> Result<(Node, String)> {
    let mut options = context.node_options();
    options.configuration = json!({"fileCheckFrequency": "1s"});
    let mut node = context.node_with(options)?;
    node.put_pod(&pod("witness", &[sleeper("main")]))?;
    let id = wait_running(&mut node, "witness")?.container("main")?.id().to_owned();
    Ok((node, id))
}

fn ensure_untouched(node: &Node, id: &str) -> Result<()> {
    let now = node.pod("witness")?.container("main")?;
    ensure!(now.id() == id && now.is_running(), "another pod was touched: {}", now.0);
    Ok(())
}

/// Lines of the agent's log that speak of a file.
fn said_of(node: &Node, file: &str) -> Vec<String> {
    node.log_text().lines().filter(|line| line.contains(file)).map(str::to_owned).collect()
}

/// Whether a line is at warning or error level.
#[expect(clippy::ptr_arg, reason = "a filter over strings wants exactly this")]
fn is_complaint(line: &String) -> bool {
    line.starts_with(['E', 'W'])
}

fn complaints(lines: &[String]) -> usize {
    lines.iter().filter(|line| is_complaint(line)).count()
}

fn alias_bomb() -> String {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let row = vec![format!("*a{}", n - 1); 9].join(", ");
        text.push_str(&format!("a{n}: &a{n} [{row}]\n"));
    }
    text
}

fn bad_manifests_are_named_and_harm_nobody(context: &mut Context<'_>) -> Result<Outcome> {
    let (mut node, id) = node_with_witness(context)?;
    let good = pod("bad", &[sleeper("main")]);
    let yaml = |value: &serde_json::Value| value.to_string();
    let huge = format!("{{\"padding\": \"{}\"}}", "x".repeat(10 << 20));
    // The words of each message: the field and the value, or the place, that a person has to look
    // at.
    let cases: Vec<(&str, String, &[&str])> = vec![
        (
            "broken.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: broken\n".to_owned(),
            &["not valid YAML or JSON", "line "],
        ),
        (
            "unknown-field.yaml",
            yaml(&with(good.clone(), json!({"spec": {"containerz": []}}))),
            &["spec.containerz", "unknown field"],
        ),
        (
            "wrong-type.yaml",
            yaml(&with(good.clone(), json!({"spec": {"terminationGracePeriodSeconds": "soon"}}))),
            &["spec.terminationGracePeriodSeconds", "soon"],
        ),
        ("huge.yaml", huge, &["larger than 10485760 bytes"]),
        ("bomb.yaml", alias_bomb(), &["not valid YAML or JSON"]),
        (
            "junk.yaml",
            "\u{0}\u{1}\u{2}\u{7f}ELF\u{0}".to_owned(),
            &["not text", "0x00 at offset 0"],
        ),
        (
            "other-kind.yaml",
            "apiVersion: v1\nkind: Service\nmetadata: {name: svc}\n".to_owned(),
            &["kind: ", "Service"],
        ),
        (
            "no-containers.yaml",
            yaml(&with(good, json!({"spec": {"containers": []}}))),
            &["spec.containers: required"],
        ),
    ];
    for (file, content, _) in &cases {
        node.put_manifest(file, content)?;
    }
    fs::create_dir(node.manifest_path("folder.yaml"))?;
    // A link to itself cannot be read by anybody, root included.
    std::os::unix::fs::symlink("loop.yaml", node.manifest_path("loop.yaml"))?;
    let odd: [(&str, &[&str]); 2] =
        [("folder.yaml", &["is a directory"]), ("loop.yaml", &["cannot read the manifest"])];
    let told = cases.iter().map(|(file, _, words)| (*file, *words));
    let told: Vec<(&str, &[&str])> = told.chain(odd).collect();
    for (file, words) in &told {
        node.wait(&format!("a message about {file}"), SOON, |node| {
            let lines: Vec<String> = said_of(node, file).into_iter().filter(is_complaint).collect();
            let found = lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
            ensure!(found, "no complaint names {words:?}: {lines:#?}");
            Ok(Some(()))
        })?;
    }
    // Four rescans later each file has still been complained about once.
    stays_true("the witness runs", Duration::from_secs(4), || {
        Ok(ensure_untouched(&node, &id).is_ok())
    })?;
    for (file, _) in &told {
        let n = complaints(&said_of(&node, file));
        ensure!(n == 1, "{n} complaints about {file}");
    }
    ensure!(node.pods()?.len() == 1, "a bad manifest became a pod");
    Ok(Outcome::Passed)
}

fn a_manifest_that_turns_bad_leaves_its_pod_running(context: &mut Context<'_>) -> Result<Outcome> {
    let (mut node, id) = node_with_witness(context)?;
    for bad in [
        "{not yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: witness}\nspec: {containers: 7}\n",
    ] {
        node.put_manifest("witness.yaml", bad)?;
        node.wait("a message about the file", SOON, |node| {
            Ok((complaints(&said_of(node, "witness.yaml")) > 0).then_some(()))
        })?;
        stays_true("the pod runs", Duration::from_secs(4), || {
            Ok(ensure_untouched(&node, &id).is_ok())
        })?;
    }
    node.put_pod(&pod("witness", &[script("main", "echo good again; exec sleep 100000")]))?;
    node.wait_pod("witness", "running on the new manifest", SOON, |pod| {
        pod.container("main").is_ok_and(|it| it.is_running() && it.id() != id)
    })?;
    Ok(Outcome::Passed)
}

fn a_manifest_cut_off_while_being_written_is_read_when_complete(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let (mut node, id) = node_with_witness(context)?;
    let whole = serde_json::to_string_pretty(&pod("slow", &[sleeper("main")]))?;
    let path = node.manifest_path("slow.yaml");
    for part in [whole.len() / 3, whole.len() / 2, whole.len()] {
        fs::write(&path, &whole[..part])?;
        stays_true("the witness runs", Duration::from_millis(500), || {
            Ok(ensure_untouched(&node, &id).is_ok())
        })?;
    }
    wait_running(&mut node, "slow")?;
    Ok(Outcome::Passed)
}

fn two_pods_of_one_name_in_two_files_do_not_fight(context: &mut Context<'_>) -> Result<Outcome> {
    let (mut node, id) = node_with_witness(context)?;
    let second = pod("witness", &[script("main", "echo second; exec sleep 100000")]);
    node.put_manifest("zz-copy.yaml", &second.to_string())?;
    node.wait("a message about the second file", SOON, |node| {
        let lines = said_of(node, "zz-copy.yaml");
        let told = lines.iter().filter(|line| is_complaint(line));
        let told: Vec<&String> = told.filter(|line| line.contains("witness.yaml")).collect();
        ensure!(told.len() <= 1, "told more than once: {told:#?}");
        Ok(told.first().map(|_| ()))
    })?;
    stays_true("the first one runs", Duration::from_secs(4), || {
        let pods = node.pods()?;
        let n_running =
            pods.iter().filter(|pod| pod.containers().iter().any(|it| it.is_running())).count();
        let first = pods
            .iter()
            .any(|pod| pod.containers().iter().any(|it| it.id() == id && it.is_running()));
        Ok(first && n_running == 1)
    })?;
    Ok(Outcome::Passed)
}

fn hidden_and_swap_files_and_directories_are_passed_over(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let (mut node, id) = node_with_witness(context)?;
    let text = pod("ghost", &[sleeper("main")]).to_string();
    node.put_manifest(".ghost.yaml.swp", &text)?;
    node.put_manifest(".hidden.yaml", &text)?;
    fs::create_dir(node.manifest_path("folder.yaml"))?;
    fs::write(node.manifest_path("folder.yaml").join("inner.yaml"), &text)?;
    std::os::unix::fs::symlink("/no/such/file", node.manifest_path("dangling.yaml"))?;
    node.put_pod(&pod("after", &[sleeper("main")]))?;
    wait_running(&mut node, "after")?;
    stays_true("only the two pods", Duration::from_secs(3), || {
        ensure_untouched(&node, &id)?;
        Ok(node.pods()?.len() == 2)
    })?;
    Ok(Outcome::Passed)
}
