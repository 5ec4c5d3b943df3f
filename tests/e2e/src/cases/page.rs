//! The node's page, as a person sees it: in a browser, on a desk and on a phone.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::{Node, Part, http, process, wait_until};
use serde_json::{Value, json};

use super::{SOON, cases, wait_running};
use crate::build::{pod, script};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    the_page_tells_pods_reasons_events_and_logs,
    a_browser_shows_pods_a_chart_that_grows_and_a_log,
    a_page_for_other_machines_is_refused_at_start,
];

/// A node with a pod that talks, one that fails and its page on loopback.
fn busy_node(context: &mut Context<'_>) -> Result<Option<(Node, String)>> {
    if context.is_upstream() {
        return Ok(None);
    }
    let address = format!("127.0.0.1:{}", http::free_port()?);
    let mut options = context.node_options();
    options.arguments = vec![format!("--page-address={address}")];
    let mut node = context.node_with(options)?;
    let words = "echo words from the talker; exec sleep 100000";
    node.put_pod(&pod("talker", &[script("main", words)]))?;
    node.put_pod(&pod("broken", &[script("main", "exit 3")]))?;
    wait_running(&mut node, "talker")?;
    node.wait_pod("broken", "in back-off", SOON, |pod| {
        let state = &pod.0["status"]["containerStatuses"][0]["state"];
        state["waiting"]["reason"] == "CrashLoopBackOff"
    })?;
    Ok(Some((node, address)))
}

fn skipped() -> Outcome {
    Outcome::Skipped("upstream's kubelet has no page".to_owned())
}

fn the_page_tells_pods_reasons_events_and_logs(context: &mut Context<'_>) -> Result<Outcome> {
    let Some((node, address)) = busy_node(context)? else {
        return Ok(skipped());
    };
    let page = http::get(&address, "/page/")?;
    ensure!(
        page.status == 200 && page.body.contains("<title>"),
        "the page is {page:?}"
    );
    let data: Value = serde_json::from_str(&http::get(&address, "/page/data")?.body)?;
    ensure!(
        data["node"]["metadata"]["name"] == node.name(),
        "the node is {}",
        data["node"]["metadata"]
    );
    let info = &data["node"]["status"]["nodeInfo"];
    let runtime = info["containerRuntimeVersion"].as_str().unwrap_or_default();
    ensure!(runtime.starts_with("containerd://"), "it says {info}");
    let pods = data["pods"].as_array().context("there are no pods")?;
    let named = |name: &str| {
        let name = node.pod_name(name);
        let found = pods.iter().find(|it| it["name"] == name.as_str());
        found.with_context(|| format!("{name} is not shown"))
    };
    ensure!(
        named("talker")?["why"] == json!([]),
        "a pod that is well has a reason"
    );
    let reason = &named("broken")?["why"][0];
    ensure!(
        reason["reason"] == "CrashLoopBackOff",
        "the reason is {reason}"
    );
    let words = reason["message"].as_str().unwrap_or_default();
    ensure!(words.contains("exit code 3"), "the reason says {words:?}");
    let events = data["events"].as_array().context("there are no events")?;
    for wanted in ["Started", "BackOff"] {
        let is_told = events.iter().any(|event| event["reason"] == wanted);
        ensure!(is_told, "no event {wanted}");
    }
    let path = format!("/page/logs/default/{}/main", node.pod_name("talker"));
    let log = http::get(&address, &path)?;
    ensure!(
        log.body == "words from the talker\n",
        "the log is {:?}",
        log.body
    );
    ensure!(
        http::get(&address, "/exec/default/a/b")?.status == 404,
        "the page's listener serves more than the page"
    );
    Ok(Outcome::Passed)
}

fn a_browser_shows_pods_a_chart_that_grows_and_a_log(context: &mut Context<'_>) -> Result<Outcome> {
    let browser = match &context.options.browser {
        Part::Available(browser) => browser.clone(),
        Part::Missing(reason) => bail!(reason.clone()),
    };
    let Some((node, address)) = busy_node(context)? else {
        return Ok(skipped());
    };
    let profile = node.directory().join("browser");
    let look = |size: &str, path: &str, more: &[&str]| {
        let mut command = Command::new(&browser);
        command
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args(["--disable-dev-shm-usage", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--window-size={size}"))
            .arg("--virtual-time-budget=9000")
            .args(more)
            .arg(format!("http://{address}{path}"));
        process::output(&mut command)
    };
    let uid = node.pod("talker")?.0["metadata"]["uid"]
        .as_str()
        .context("the talker has no uid")?
        .to_owned();
    let seen = look("1280,1600", &format!("/page/#pod={uid}"), &["--dump-dom"])?;
    for wanted in [
        &node.pod_name("talker"),
        &node.pod_name("broken"),
        "CrashLoopBackOff",
        "words from the talker",
        "exit code 3",
        ">Ready<",
    ] {
        ensure!(
            seen.contains(wanted),
            "the browser does not show {wanted:?}"
        );
    }
    // A curve of three points: the chart was drawn again with each look at the node.
    let longest = seen.split("<polyline").skip(1).filter_map(|curve| {
        let points = curve.split_once("points=\"")?.1.split_once('"')?.0;
        Some(points.split(' ').count())
    });
    let longest = longest.max().unwrap_or(0);
    ensure!(longest >= 3, "the longest curve has {longest} points");
    for mark in [
        "class=\"scale\"",
        ">now<",
        " of 110",
        "aria-label=\"Network: in ",
    ] {
        ensure!(seen.contains(mark), "{mark} is not shown");
    }
    let pictures = context.options.keep.with_file_name("page");
    std::fs::create_dir_all(&pictures)?;
    let broken = node.pod("broken")?.0["metadata"]["uid"]
        .as_str()
        .context("the broken pod has no uid")?
        .to_owned();
    // On a desk and on a phone, light and dark; somebody looks at these.
    let (desk, phone) = ("1280,1300", "400,1700");
    let (light, dark) = (1, 0);
    let shots = [
        ("desk.png", desk, "/page/".to_owned(), light),
        ("desk-dark.png", desk, "/page/".to_owned(), dark),
        ("phone.png", phone, "/page/".to_owned(), light),
        ("pod.png", desk, format!("/page/#pod={uid}"), light),
        (
            "pod-phone-dark.png",
            phone,
            format!("/page/#pod={broken}"),
            dark,
        ),
    ];
    for (file, size, path, scheme) in shots {
        let file = pictures.join(file);
        let shot = format!("--screenshot={}", file.display());
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        look(size, &path, &[&shot, &scheme])?;
        ensure!(is_picture(&file), "{} is no picture", file.display());
    }
    Ok(Outcome::Passed)
}

fn is_picture(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000)
}

fn a_page_for_other_machines_is_refused_at_start(context: &mut Context<'_>) -> Result<Outcome> {
    if context.is_upstream() {
        return Ok(skipped());
    }
    let mut options = context.node_options();
    options.arguments = vec!["--page-address=0.0.0.0:4194".to_owned()];
    let mut node = context.prepare(options)?;
    node.launch()?;
    wait_until("the agent's refusal", SOON, || {
        let text = node.log_text();
        let is_told = text.contains("--page-address") && text.contains("0.0.0.0:4194");
        Ok(is_told.then_some(()))
    })?;
    Ok(Outcome::Passed)
}
