//! The node's page, as a person sees it: in a browser, on a desk and on a phone.

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::{Node, Part, http, wait_until};
use serde_json::{Value, json};

use super::{SOON, cases, wait_running};
use crate::browser::{Browser, Key, View};
use crate::build::{pod, script};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    the_page_tells_pods_reasons_events_and_logs,
    a_browser_shows_pods_a_chart_that_grows_and_a_log,
    a_browser_can_be_used_with_keys_alone,
    a_browser_shows_the_page_on_desk_and_phone_in_light_and_dark,
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
    ensure!(page.status == 200 && page.body.contains("<title>"), "the page is {page:?}");
    // Each look is another moment: a pod in back-off runs again now and then, and events and lines
    // come a little after what they tell of.
    wait_until("the node, its pods and its events", SOON, || {
        let data = serde_json::from_str(&http::get(&address, "/page/data")?.body)?;
        tells_all(&node, &data).map(Some)
    })?;
    let path = format!("/page/logs/default/{}/main", node.pod_name("talker"));
    wait_until("the talker's log", SOON, || {
        let log = http::get(&address, &path)?.body;
        ensure!(log == "words from the talker\n", "the log is {log:?}");
        Ok(Some(()))
    })?;
    ensure!(
        http::get(&address, "/exec/default/a/b")?.status == 404,
        "the page's listener serves more than the page"
    );
    Ok(Outcome::Passed)
}

/// The node, what is well and what is not, why, and what happened.
fn tells_all(node: &Node, data: &Value) -> Result<()> {
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
    ensure!(named("talker")?["why"] == json!([]), "a pod that is well has a reason");
    let reason = &named("broken")?["why"][0];
    ensure!(reason["reason"] == "CrashLoopBackOff", "the reason is {reason}");
    let words = reason["message"].as_str().unwrap_or_default();
    ensure!(words.contains("exit code 3"), "the reason says {words:?}");
    let events = data["events"].as_array().context("there are no events")?;
    for wanted in ["Started", "BackOff"] {
        let is_told = events.iter().any(|event| event["reason"] == wanted);
        ensure!(is_told, "no event {wanted}");
    }
    Ok(())
}

/// A browser that looks at a busy node, the node, and the address of its page; or why not.
fn looking(context: &mut Context<'_>) -> Result<Option<(Browser, Node, String)>> {
    let program = match &context.options.browser {
        Part::Available(browser) => browser.clone(),
        Part::Missing(reason) => bail!(reason.clone()),
    };
    let Some((node, address)) = busy_node(context)? else {
        return Ok(None);
    };
    let browser = Browser::start(&program, &node.directory().join("browser"))?;
    Ok(Some((browser, node, format!("http://{address}/page/"))))
}

fn uid(node: &Node, name: &str) -> Result<String> {
    let pod = node.pod(name)?;
    let uid = pod.0["metadata"]["uid"].as_str();
    Ok(uid.with_context(|| format!("{name} has no uid"))?.to_owned())
}

const ROWS: &str = "document.querySelectorAll('#pods tbody tr').length";

fn a_browser_shows_pods_a_chart_that_grows_and_a_log(context: &mut Context<'_>) -> Result<Outcome> {
    let Some((mut browser, node, address)) = looking(context)? else {
        return Ok(skipped());
    };
    browser.open(View::DESK, &address)?;
    browser.wait(&format!("{ROWS} === 2"))?;
    for wanted in [
        &node.pod_name("talker"),
        &node.pod_name("broken"),
        "CrashLoopBackOff",
        "exit code 3",
        "Ready",
        " of 110",
        "containerd://",
        "BackOff",
    ] {
        browser.wait(&format!("document.body.innerText.includes('{wanted}')"))?;
    }
    // The chart is drawn again with each look at the node, and its curve grows.
    let curve = "Math.max(0, ...[...document.querySelectorAll('#node-charts polyline')]\
                 .map((it) => it.getAttribute('points').split(' ').length))";
    browser.wait(&format!("{curve} >= 2"))?;
    let before = browser.ask(curve)?.as_u64().unwrap_or(0);
    browser.wait(&format!("{curve} > {before}"))?;
    for title in ["CPU", "Memory", "Disk", "Network"] {
        browser.wait(&format!(
            "[...document.querySelectorAll('#node-charts figcaption')]\
             .some((it) => it.innerText.startsWith('{title}'))"
        ))?;
    }
    // A pod, then one of its containers, each with a curve of its own, and the log.
    browser.open(View::DESK, &format!("{address}#pod={}", uid(&node, "talker")?))?;
    browser.wait("document.getElementById('log').innerText.includes('words from the talker')")?;
    let charts = "document.querySelectorAll('#pod-charts polyline').length";
    browser.wait(&format!("{charts} >= 1"))?;
    browser.wait("[...part.options].some((it) => it.value === 'main')")?;
    browser.ask("part.value = 'main', part.dispatchEvent(new Event('change'))")?;
    browser.wait(&format!("part.value === 'main' && {charts} >= 1"))?;
    browser.wait("document.getElementById('containers').innerText.includes('Running')")?;
    browser.wait("document.getElementById('pod-events').innerText.includes('Started')")?;
    Ok(Outcome::Passed)
}

fn a_browser_can_be_used_with_keys_alone(context: &mut Context<'_>) -> Result<Outcome> {
    let Some((mut browser, node, address)) = looking(context)? else {
        return Ok(skipped());
    };
    let (name, uid) = (node.pod_name("broken"), uid(&node, "broken")?);
    let is_on_row = format!("document.activeElement.dataset.uid === '{uid}'");
    browser.open(View::DESK, &address)?;
    browser.wait(&format!("{ROWS} === 2"))?;
    browser.press(Key::Slash)?;
    browser.wait("document.activeElement.id === 'filter' && filter.value === ''")?;
    browser.write(&name)?;
    browser.wait(&format!("{ROWS} === 1"))?;
    browser.press(Key::Tab)?;
    browser.wait("document.activeElement.id === 'unwell'")?;
    // Then the columns by which rows can be ordered.
    for order in ["name", "restarts", "age", "cpu", "memory"] {
        browser.press(Key::Tab)?;
        browser.wait(&format!("document.activeElement.dataset.order === '{order}'"))?;
        if order == "restarts" {
            browser.press(Key::Enter)?;
            browser.wait("document.activeElement.parentElement.ariaSort === 'descending'")?;
        }
    }
    browser.press(Key::Tab)?;
    browser.wait(&is_on_row)?;
    // The row is drawn anew every two seconds; whoever stands on it stays there.
    let drawn = "document.querySelector('#pods tbody tr')";
    browser.ask(&format!("{drawn}.dataset.old = 'yes'"))?;
    browser.wait(&format!("{drawn}.dataset.old !== 'yes'"))?;
    browser.wait(&is_on_row)?;
    browser.wait("getComputedStyle(document.activeElement).outlineStyle !== 'none'")?;
    browser.press(Key::Enter)?;
    browser.wait("document.getElementById('pod').open")?;
    browser.wait("document.getElementById('pod-why').innerText.includes('CrashLoopBackOff')")?;
    // Whatever can be reached is in the dialog, and has a name.
    for _ in 0..8 {
        browser.press(Key::Tab)?;
        browser.expect(
            "document.activeElement === document.body || \
             document.getElementById('pod').contains(document.activeElement)",
        )?;
    }
    browser.press(Key::Escape)?;
    browser.wait("!document.getElementById('pod').open")?;
    browser.wait(&is_on_row)?;
    // A dialog tells of its end a moment after it closed; the address follows then.
    browser.wait("location.hash === ''")?;
    Ok(Outcome::Passed)
}

/// The contrast of every text that is seen with what is behind it, as accessibility guidelines
/// count it: the least, and whose it is.
const CONTRAST: &str = r"(() => {
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((it) => it / 255)
    .map((it) => (it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4))
    .reduce((sum, it, index) => sum + it * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (node) => {
    for (let it = node; it; it = it.parentElement) {
      const colour = parse(getComputedStyle(it).backgroundColor);
      if (colour.length && (colour.length < 4 || colour[3] > 0.99)) return colour;
    }
    return [255, 255, 255];
  };
  let least = [21, ''];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((it) => it.nodeType === 3 && it.textContent.trim());
    if (!own || !node.getClientRects().length || node.closest('script, style, .sr, .skip')) continue;
    const [one, other] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < least[0]) least = [contrast, node.outerHTML.slice(0, 120)];
  }
  return least;
})()";

fn a_browser_shows_the_page_on_desk_and_phone_in_light_and_dark(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let Some((mut browser, node, address)) = looking(context)? else {
        return Ok(skipped());
    };
    // Somebody looks at these.
    let pictures = context.options.keep.with_file_name("page");
    std::fs::create_dir_all(&pictures)?;
    let places = [
        ("node", String::new()),
        ("talker", format!("#pod={}", uid(&node, "talker")?)),
        ("broken", format!("#pod={}", uid(&node, "broken")?)),
    ];
    let views = [
        ("desk", View::DESK),
        ("desk-dark", View::DESK.dark()),
        ("phone", View::PHONE),
        ("phone-dark", View::PHONE.dark()),
    ];
    for (view_name, view) in views {
        for (place, hash) in &places {
            browser.open(view, &format!("{address}{hash}"))?;
            browser.wait(&format!("{ROWS} === 2 && innerWidth === {}", view.width))?;
            if !hash.is_empty() {
                browser.wait("document.getElementById('pod').open")?;
                browser.wait("document.getElementById('log').innerText !== ''")?;
            }
            let what = format!("{place} on {view_name}");
            // Nothing is wider than what one looks with.
            let seen = browser.ask(
                "[document.documentElement.scrollWidth, innerWidth, \
                 document.getElementById('pod').scrollWidth, document.getElementById('pod').clientWidth]",
            )?;
            let width = |index: usize| seen[index].as_u64().unwrap_or(0);
            ensure!(
                width(0) <= width(1) && width(2) <= width(3),
                "{what} is wider than the window: {seen}"
            );
            let least = browser.ask(CONTRAST)?;
            ensure!(
                least[0].as_f64().is_some_and(|it| it >= 4.5),
                "{what} is hard to read: {least}"
            );
            browser.shoot(&pictures.join(format!("{place}-{view_name}.png")))?;
        }
        let paper = browser.ask("getComputedStyle(document.documentElement).backgroundColor")?;
        let is_dark = paper == "rgb(20, 23, 26)";
        ensure!(is_dark == view.is_dark, "{view_name} is on {paper}");
    }
    Ok(Outcome::Passed)
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
