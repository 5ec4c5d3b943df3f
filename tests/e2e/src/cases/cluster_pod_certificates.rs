//! Certificates of pods: the node makes the key and the request, the test signs it as a signer
//! would.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{LATER, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_pod_gets_a_key_and_the_certificate_that_its_signer_issues,
    a_pod_whose_certificate_is_denied_waits_and_says_why,
];

fn wants_certificate(world: &World<'_>, name: &str, kind: &str) -> Value {
    let mut main = script("main", "exec sleep 100000");
    main["volumeMounts"] = json!([{"name": "creds", "mountPath": "/creds"}]);
    with(
        world.pod(name, &[main]),
        json!({"spec": {"volumes": [{"name": "creds", "projected": {"sources": [{"podCertificate": {
            "signerName": "example.com/test",
            "keyType": kind,
            "credentialBundlePath": "bundle.pem",
            "certificateChainPath": "chain.pem",
        }}]}}]}}),
    )
}

/// The request that the node made for a pod.
fn wait_request(world: &mut World<'_>, pod: &str) -> Result<Value> {
    let pod = pod.to_owned();
    world.wait("the pod's certificate request", LATER, |cluster, namespace| {
        let path =
            format!("/apis/certificates.k8s.io/v1/namespaces/{namespace}/podcertificaterequests");
        let all = cluster.get(&path)?;
        let mut items = all["items"].as_array().cloned().unwrap_or_default().into_iter();
        Ok(items.find(|it| it["spec"]["podName"] == pod.as_str()))
    })
}

fn answer(world: &World<'_>, request: &Value, status: &Value) -> Result<()> {
    let name = request["metadata"]["name"].as_str().context("no name")?;
    let patch = json!({"status": status}).to_string();
    world.kubectl(&[
        "patch",
        "podcertificaterequest",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ])?;
    Ok(())
}

fn run(program: &str, words: &[&str]) -> Result<String> {
    let done = Command::new(program).args(words).output()?;
    ensure!(
        done.status.success(),
        "{program} {words:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// Issues a certificate for a request; answers with the status that says so.
fn issue(request: &Value, directory: &Path) -> Result<Value> {
    let file = |name: &str| directory.join(name).display().to_string();
    let text = request["spec"]["stubPKCS10Request"].as_str();
    std::fs::write(file("request.b64"), text.context("no proof of the key")?)?;
    run(
        "openssl",
        &["base64", "-d", "-A", "-in", &file("request.b64"), "-out", &file("request.der")],
    )?;
    run(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &file("ca.key"),
            "-out",
            &file("ca.pem"),
            "-days",
            "2",
            "-subj",
            "/CN=test",
        ],
    )?;
    run(
        "openssl",
        &[
            "x509",
            "-req",
            "-inform",
            "DER",
            "-in",
            &file("request.der"),
            "-CA",
            &file("ca.pem"),
            "-CAkey",
            &file("ca.key"),
            "-CAcreateserial",
            "-days",
            "1",
            "-out",
            &file("leaf.pem"),
        ],
    )?;
    let date = |which: &str| -> Result<String> {
        let told = run(
            "openssl",
            &["x509", "-in", &file("leaf.pem"), "-noout", which, "-dateopt", "iso_8601"],
        )?;
        let (_, date) = told.split_once('=').context("no date")?;
        Ok(date.replacen(' ', "T", 1))
    };
    let (begin, end) = (date("-startdate")?, date("-enddate")?);
    let refresh = run("date", &["-u", "-d", &format!("{end} - 2 hours"), "+%FT%TZ"])?;
    Ok(json!({
        "certificateChain": std::fs::read_to_string(file("leaf.pem"))?,
        "notBefore": begin,
        "notAfter": end,
        "beginRefreshAt": refresh,
        "conditions": [{"type": "Issued", "status": "True", "reason": "Issued", "message": "it is issued",
            "lastTransitionTime": begin}],
    }))
}

fn a_pod_gets_a_key_and_the_certificate_that_its_signer_issues(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if Command::new("openssl").arg("version").output().is_err() {
        return Ok(Outcome::Skipped("openssl is not installed".to_owned()));
    }
    let mut world = World::start(context)?;
    // One of each library that makes keys.
    let pods =
        [("certified", "ECDSAP256"), ("certified-long", "ECDSAP521"), ("certified-old", "RSA3072")];
    for (name, kind) in pods {
        world.apply(&wants_certificate(&world, name, kind))?;
    }
    for (name, _) in pods {
        let directory = world.node.node.directory().join(name);
        std::fs::create_dir_all(&directory)?;
        certify(context, &mut world, name, &directory)?;
    }
    Ok(Outcome::Passed)
}

/// Signs what the node asks for in a pod's name, and looks at what the pod gets.
fn certify(
    context: &mut Context<'_>,
    world: &mut World<'_>,
    name: &str,
    directory: &Path,
) -> Result<()> {
    let request = wait_request(world, name)?;
    ensure!(
        request["spec"]["nodeName"] == world.node_name()
            && request["spec"]["serviceAccountName"] == "default"
            && request["metadata"]["ownerReferences"][0]["kind"] == "Pod",
        "the request is {request}"
    );
    let status = issue(&request, directory)?;
    answer(world, &request, &status)?;
    let seen = world.wait_ready_later(name)?;
    let containerd = context.containerd()?;
    let bundle = world.read_inside(containerd, &seen, "/creds/bundle.pem")?;
    let chain = status["certificateChain"].as_str().unwrap_or_default();
    ensure!(
        bundle.starts_with("-----BEGIN PRIVATE KEY-----") && bundle.trim().ends_with(chain.trim()),
        "the bundle of {name} is not the key and its certificate"
    );
    // The key is the certificate's.
    let place = directory.join("bundle.pem").display().to_string();
    std::fs::write(&place, &bundle)?;
    let of_key = run("openssl", &["pkey", "-in", &place, "-pubout"])?;
    let of_certificate = run("openssl", &["x509", "-in", &place, "-noout", "-pubkey"])?;
    ensure!(of_key == of_certificate, "the key of {name} is another one's");
    Ok(())
}

fn a_pod_whose_certificate_is_denied_waits_and_says_why(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    world.apply(&wants_certificate(&world, "denied", "ECDSAP256"))?;
    let request = wait_request(&mut world, "denied")?;
    let now = run("date", &["-u", "+%FT%TZ"])?;
    let status = json!({"conditions": [{"type": "Denied", "status": "True", "reason": "NotYou",
        "message": "go away", "lastTransitionTime": now}]});
    answer(&world, &request, &status)?;
    let seen = world.wait_known("denied")?;
    let said = world.wait_event(&seen, "Denied")?;
    ensure!(
        said.ends_with("was denied, reason=\"NotYou\", message=\"go away\""),
        "it says {said:?}"
    );
    let expected =
        "PodCertificateRequest was permanently denied: reason=\"NotYou\" message=\"go away\"";
    world.cluster.wait("the mount's refusal", LATER, |_| {
        let events = world.events(&seen)?;
        let found = events.iter().any(|it| {
            it["reason"] == "FailedMount"
                && it["message"].as_str().is_some_and(|it| it.ends_with(expected))
        });
        Ok(found.then_some(()))
    })?;
    Ok(Outcome::Passed)
}
