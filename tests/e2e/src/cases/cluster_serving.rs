//! The certificate that the node serves with: its own, from files, or signed by the cluster.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::cluster::{Authority, Identity};
use serde_json::json;

use super::{LATER, SOON, cases};
use crate::cluster::World;
use crate::context::Context;
use crate::curl::{self, Ask, Curl};
use crate::runner::{Outcome, without};

cases![
    a_serving_certificate_from_files_is_reloaded_when_they_change,
    a_serving_certificate_is_asked_for_and_used_once_approved,
    callers_of_a_new_authority_are_known_without_a_restart,
    without_orders_a_node_serves_with_a_certificate_of_its_own;
    long:
    a_serving_certificate_is_renewed_before_it_ends,
];

/// The first certificate that the node's port shows, as openssl prints it.
fn served(world: &World<'_>) -> Result<String> {
    let node = world.node.object(world.cluster)?;
    let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    let ip =
        node["status"]["addresses"][0]["address"].as_str().context("the node has no address")?;
    let shown = Command::new("openssl")
        .args(["s_client", "-connect", &format!("{ip}:{port}")])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .context("start openssl")?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    let from = text.find(begin).context("no certificate was shown")?;
    let to = text.find(end).context("no whole certificate was shown")?;
    Ok(text[from..to + end.len()].to_owned())
}

fn is_same(one: &str, other: &str) -> bool {
    let letters = |text: &str| text.split_whitespace().collect::<String>();
    letters(one) == letters(other)
}

fn without_orders_a_node_serves_with_a_certificate_of_its_own(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("openssl") {
        return Ok(skipped);
    }
    let mut world = World::start(context)?;
    let file = world.node.node.directory().join("pki/kubelet.crt");
    let made = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    ensure!(made.contains(served(&world)?.trim()), "it serves another one");
    // The next start takes the same one, so that clients that pinned it go on.
    world.node.node.kill()?;
    world.node.node.launch()?;
    world.node.node.wait_healthy()?;
    world.node.wait_ready(world.cluster)?;
    ensure!(fs::read_to_string(&file)? == made, "the next start made another one");
    Ok(Outcome::Passed)
}

fn a_serving_certificate_from_files_is_reloaded_when_they_change(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("openssl") {
        return Ok(skipped);
    }
    let mut options = context.node_options();
    let directory = context.bench.directory(&format!("node-{}", options.name))?;
    let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    let authority = Authority::new("somebody else")?;
    let put = |identity: &Identity| -> Result<()> {
        put_whole(&certificate, &identity.certificate)?;
        put_whole(&key, &identity.key)
    };
    let names = [context.bench.node_ip()];
    let (first, second) = (authority.server("one", &names)?, authority.server("two", &names)?);
    put(&first)?;
    options.configuration = json!({"tlsCertFile": certificate, "tlsPrivateKeyFile": key});
    let mut world = World::start_with(context, options)?;
    ensure!(is_same(&served(&world)?, &first.certificate), "it serves another one");
    put(&second)?;
    // Upstream looks once a minute.
    let patience = Duration::from_secs(90);
    let seen = world.cluster.wait("the new certificate", patience, |_| {
        let seen = served(&world)?;
        Ok(is_same(&seen, &second.certificate).then_some(()))
    });
    world.node.node.expect_running()?;
    seen?;
    Ok(Outcome::Passed)
}

fn callers_of_a_new_authority_are_known_without_a_restart(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("curl") {
        return Ok(skipped);
    }
    let mut options = context.node_options();
    let directory = context.bench.directory(&format!("node-{}", options.name))?;
    let file = directory.join("authorities.crt");
    let known = fs::read_to_string(context.cluster()?.authority_file())?;
    fs::write(&file, &known)?;
    options.configuration = json!({"authentication": {
        "anonymous": {"enabled": false},
        "webhook": {"enabled": true},
        "x509": {"clientCAFile": file},
    }});
    let mut world = World::start_with(context, options)?;
    let curl = Curl::new(&world)?;
    let authority = Authority::new("somebody else")?;
    let master = authority.client("master", &["system:masters"])?;
    let (theirs, ours) = (
        curl::shown(&world, "theirs", &master)?,
        curl::certificate(&world, "ours", &["system:masters"])?,
    );
    let status = |how: &[String]| -> Result<u16> {
        Ok(curl.ask(how, &[Ask::new("GET", "/healthz")])?[0].status)
    };
    // A node that has just started is not well at once.
    world.wait("only our authority to count", SOON, |_, _| {
        let got = (status(&ours)?, status(&theirs)?);
        ensure!(got == (200, 401), "they get {got:?}");
        Ok(Some(()))
    })?;
    // A file that is no certificate changes nothing.
    put_whole(&file, "nonsense\n")?;
    let got = (status(&ours)?, status(&theirs)?);
    ensure!(got == (200, 401), "with nonsense they get {got:?}");
    put_whole(&file, &format!("{known}{}", authority.certificate()))?;
    // Upstream looks at once, or else once a minute.
    let patience = Duration::from_secs(90);
    world.wait("both authorities to count", patience, |_, _| {
        let got = (status(&ours)?, status(&theirs)?);
        ensure!(got == (200, 200), "they get {got:?}");
        Ok(Some(()))
    })?;
    put_whole(&file, &known)?;
    world.wait("the new authority to be forgotten", patience, |_, _| {
        let got = (status(&ours)?, status(&theirs)?);
        ensure!(got == (200, 401), "they get {got:?}");
        Ok(Some(()))
    })?;
    world.node.node.expect_running()?;
    Ok(Outcome::Passed)
}

/// Replaces a file whole at once, as tools that renew certificates do.
fn put_whole(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, text)?;
    Ok(fs::rename(&draft, path)?)
}

fn a_serving_certificate_is_asked_for_and_used_once_approved(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("openssl") {
        return Ok(skipped);
    }
    let mut options = context.node_options();
    options.configuration = json!({"serverTLSBootstrap": true});
    let ip = context.bench.node_ip();
    let mut world = World::start_with(context, options)?;
    approve_next(&mut world, SOON)?;
    let shown = wait_signed(&world, "")?;
    let details = in_words(&shown)?;
    let user = format!("system:node:{}", world.node_name());
    ensure!(details.contains(&user) && details.contains(&ip), "the certificate is for\n{details}");
    Ok(Outcome::Passed)
}

fn a_serving_certificate_is_renewed_before_it_ends(context: &mut Context<'_>) -> Result<Outcome> {
    if let Some(skipped) = without("openssl") {
        return Ok(skipped);
    }
    let mut options = context.node_options();
    options.configuration = json!({"serverTLSBootstrap": true});
    let mut world = World::start_with(context, options)?;
    approve_next(&mut world, SOON)?;
    let first = wait_signed(&world, "")?;
    // The shared control plane signs for about two minutes.
    approve_next(&mut world, Duration::from_secs(150))?;
    let second = wait_signed(&world, &first)?;
    let is_good = |certificate: &str| -> Result<bool> {
        let mut child = openssl(&["x509", "-noout", "-checkend", "0"], certificate)?;
        Ok(child.wait()?.success())
    };
    ensure!(is_good(&second)?, "the new certificate has expired");
    ensure!(is_good(&first)?, "the old one was used to its end");
    Ok(Outcome::Passed)
}

/// Waits for a request to serve that nobody has answered, and approves it.
fn approve_next(world: &mut World<'_>, patience: Duration) -> Result<()> {
    let user = format!("system:node:{}", world.node_name());
    let cluster = world.cluster;
    let request = world.node.node.wait("a request to serve", patience, |_| {
        let list = cluster.get("/apis/certificates.k8s.io/v1/certificatesigningrequests")?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        Ok(all.into_iter().find(|it| {
            it["spec"]["username"] == user.as_str()
                && it["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
                && it["status"]["conditions"].is_null()
        }))
    })?;
    let name = request["metadata"]["name"].as_str().unwrap_or_default();
    cluster.kubectl(&["certificate", "approve", name])?;
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
    cluster.wait("the request to be signed", LATER, |cluster| {
        let signed = cluster.get(&path)?;
        Ok(signed["status"]["certificate"].is_string().then_some(()))
    })
}

/// Waits until the node serves with what the cluster signed, and not with `before`.
fn wait_signed(world: &World<'_>, before: &str) -> Result<String> {
    let pki = world.node.node.directory().join("pki");
    let file = pki.join("kubelet-server-current.pem");
    let what = "the signed certificate to be served";
    world.cluster.wait(what, LATER, |_| {
        let shown = served(world)?;
        let kept = fs::read_to_string(&file)?;
        let is_kept = kept
            .split("-----END CERTIFICATE-----")
            .next()
            .is_some_and(|head| is_same(&format!("{head}-----END CERTIFICATE-----"), &shown));
        Ok((is_kept && !is_same(&shown, before)).then_some(shown))
    })
}

/// A certificate in words.
fn in_words(certificate: &str) -> Result<String> {
    let child = openssl(&["x509", "-noout", "-text"], certificate)?;
    Ok(String::from_utf8_lossy(&child.wait_with_output()?.stdout).into_owned())
}

/// openssl with this on its standard input.
fn openssl(args: &[&str], input: &str) -> Result<Child> {
    use std::io::Write;
    let mut child =
        Command::new("openssl").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("standard input is piped")?.write_all(input.as_bytes())?;
    Ok(child)
}
