//! Ways into the cluster: tokens, bootstrap, and certificates that are renewed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::Cluster;
use ferrolet_lab::cluster::{Access, Approval};
use serde_json::{Value, json};

use super::{SOON, cases};
use crate::build::sleeper;
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_client_certificate_is_renewed_before_it_ends,
    a_node_joins_by_bootstrap_once_its_request_is_approved,
    a_node_joins_with_a_token,
];

/// The certificate requests that a user has made.
fn requests_of(cluster: &Cluster, user: &str) -> Result<Vec<Value>> {
    let list = cluster.get("/apis/certificates.k8s.io/v1/certificatesigningrequests")?;
    let all = list["items"].as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().filter(|it| it["spec"]["username"] == user).collect())
}

/// Where the agent keeps the certificate that it uses now.
fn current(world: &World<'_>) -> Result<PathBuf> {
    let link = world.node.node.directory().join("pki/kubelet-client-current.pem");
    fs::canonicalize(&link).with_context(|| format!("resolve {}", link.display()))
}

fn is_private(path: &Path) -> Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::metadata(path)?.permissions().mode() & 0o077 == 0)
}

fn a_node_joins_by_bootstrap_once_its_request_is_approved(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let token = context.cluster()?.bootstrap_token(Approval::ByHand)?;
    let user = format!("system:bootstrap:{}", token.text().split('.').next().unwrap_or_default());
    let mut options = context.node_options();
    // With rotation upstream's kubelet is healthy while its request waits; without, it does not
    // even listen.
    options.configuration = json!({"rotateCertificates": true});
    let mut world = World::prepare(context, options, &Access::Bootstrap(token))?;
    world.node.node.launch()?;
    let cluster = world.cluster;
    let request = world
        .node
        .node
        .wait("a certificate request", SOON, |_| Ok(requests_of(cluster, &user)?.pop()))?;
    ensure!(
        request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
            && request["spec"]["usages"].to_string().contains("client auth"),
        "the request is {request}"
    );
    let name = request["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    world.node.node.wait_healthy()?;
    ensure!(cluster.find(&world.node.path())?.is_none(), "it joined without a certificate");
    cluster.kubectl(&["certificate", "approve", &name])?;
    world.node.wait_ready(cluster)?;
    let file = current(&world)?;
    ensure!(is_private(&file)?, "{} can be read by others", file.display());
    let config = fs::read_to_string(world.node.node.directory().join("kubeconfig"))?;
    ensure!(
        config.contains("kubelet-client-current.pem"),
        "its kubeconfig does not name the certificate:\n{config}"
    );
    // The second start needs neither token nor approval.
    world.node.node.kill()?;
    world.node.node.launch()?;
    world.node.node.wait_healthy()?;
    world.run(&world.pod("works", &[sleeper("main")]))?;
    Ok(Outcome::Passed)
}

fn a_client_certificate_is_renewed_before_it_ends(context: &mut Context<'_>) -> Result<Outcome> {
    let token = context.cluster()?.bootstrap_token(Approval::Automatic)?;
    let mut options = context.node_options();
    options.configuration = json!({"rotateCertificates": true});
    let mut world = World::prepare(context, options, &Access::Bootstrap(token))?;
    world.node.node.launch()?;
    let cluster = world.cluster;
    world.node.wait_ready(cluster)?;
    let first = current(&world)?;
    // The shared control plane signs for about two minutes.
    let patience = std::time::Duration::from_secs(150);
    world.cluster.wait("another certificate", patience, |_| {
        let now = current(&world)?;
        Ok((now != first).then_some(()))
    })?;
    let renewals = requests_of(cluster, &format!("system:node:{}", world.node_name()))?;
    ensure!(!renewals.is_empty(), "no request under the node's own name");
    world.run(&world.pod("works", &[sleeper("main")]))?;
    let refused = cluster.refusals(world.node_name())?;
    ensure!(refused.is_empty(), "the API server refused {refused:#?}");
    Ok(Outcome::Passed)
}

fn a_node_joins_with_a_token(context: &mut Context<'_>) -> Result<Outcome> {
    let mut options = context.node_options();
    options.name = Cluster::TOKEN_NODE.to_owned();
    let mut world = World::prepare(context, options, &Access::Token)?;
    world.node.node.launch()?;
    world.node.wait_ready(world.cluster)?;
    world.run(&world.pod("works", &[sleeper("main")]))?;
    Ok(Outcome::Passed)
}
