//! curl against a node's main server: many requests in one process, as one identity.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::cluster::Identity;
use ferrolet_lab::process::output;

use crate::cluster::World;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: String,
    path: String,
    headers: Vec<String>,
    body: Option<String>,
}

impl Ask {
    pub(crate) fn new(method: &str, path: &str) -> Ask {
        Ask { method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: None }
    }

    /// The same with `/NS/` in the path standing for a namespace.
    pub(crate) fn in_namespace(mut self, namespace: &str) -> Ask {
        self.path = self.path.replace("/NS/", &format!("/{namespace}/"));
        self
    }

    /// The same with `/UID` in the path standing for a pod's.
    pub(crate) fn of_pod(mut self, uid: &str) -> Ask {
        self.path = self.path.replace("/UID", &format!("/{uid}"));
        self
    }

    /// The same with a header line.
    pub(crate) fn with(mut self, header: &str) -> Ask {
        self.headers.push(header.to_owned());
        self
    }

    /// The same with a body.
    pub(crate) fn sending(mut self, body: &str) -> Ask {
        self.body = Some(body.to_owned());
        self
    }
}

/// What came of it; a status of 0 when there was no answer.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

/// curl's arguments for a bearer of this token.
pub(crate) fn bearer(token: &str) -> Vec<String> {
    let header = format!("Authorization: Bearer {token}");
    vec!["--header".to_owned(), header]
}

/// curl's arguments for a certificate of this user.
pub(crate) fn certificate(world: &World<'_>, name: &str, groups: &[&str]) -> Result<Vec<String>> {
    let identity = world.cluster.user_identity(name, groups)?;
    shown(world, name, &identity)
}

/// curl's arguments for this certificate, which is put into files of that name.
pub(crate) fn shown(world: &World<'_>, name: &str, identity: &Identity) -> Result<Vec<String>> {
    let directory = world.node.node.directory();
    let mut args = Vec::new();
    for (flag, file, text) in [
        ("--cert", format!("{name}.crt"), &identity.certificate),
        ("--key", format!("{name}.key"), &identity.key),
    ] {
        let path = directory.join(file);
        fs::write(&path, text)?;
        args.extend([flag.to_owned(), path.display().to_string()]);
    }
    Ok(args)
}

/// curl's arguments for a method. It waits for a body unless it is told that it asks for the head
/// alone.
fn how_to_ask(method: &str) -> Vec<&str> {
    match method {
        "HEAD" => vec!["--head"],
        other => vec!["--request", other],
    }
}

/// curl against one server.
pub(crate) struct Curl {
    address: String,
    /// Where answers are put.
    directory: std::path::PathBuf,
}

impl Curl {
    pub(crate) fn new(world: &World<'_>) -> Result<Curl> {
        let address = world.main_address()?;
        let directory = world.node.node.directory().join("curl");
        fs::create_dir_all(&directory)?;
        Ok(Curl { address, directory })
    }

    /// Answers, in the order of the requests. Paths are sent as they are, with all their dots.
    pub(crate) fn ask(&self, how: &[String], asks: &[Ask]) -> Result<Vec<Heard>> {
        let mut command = Command::new("curl");
        let body_file = |n: usize| self.directory.join(format!("{n}.body"));
        for (n, ask) in asks.iter().enumerate() {
            // A request of an earlier round must not be taken for an answer of this one.
            let _ = fs::remove_file(body_file(n));
            if n > 0 {
                command.arg("--next");
            }
            command
                .args(["--silent", "--insecure", "--path-as-is", "--http1.1"])
                .args(["--max-time", "30"])
                .args(how_to_ask(&ask.method))
                .args(["--write-out", "%{http_code} %{content_type}\\n"])
                .args(how);
            for header in &ask.headers {
                command.args(["--header", header]);
            }
            if let Some(body) = &ask.body {
                command.args(["--data-binary", body]);
            }
            command
                .arg("--output")
                .arg(body_file(n))
                .arg(format!("https://{}{}", self.address, ask.path));
        }
        // The exit code is the last transfer's; what counts is what each of them wrote.
        let said = command.output().context("start curl")?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        ensure!(text.lines().count() == asks.len(), "curl says of {} requests: {text}", asks.len());
        let heard = text.lines().enumerate().map(|(n, line)| {
            let (status, content_type) = line.split_once(' ').unwrap_or((line, ""));
            let body = fs::read(body_file(n)).unwrap_or_default();
            Ok(Heard {
                status: status.parse().with_context(|| format!("read {line:?}"))?,
                content_type: content_type.to_owned(),
                body: String::from_utf8_lossy(&body).into_owned(),
            })
        });
        heard.collect()
    }

    /// The body of a good answer.
    pub(crate) fn body(&self, how: &[String], path: &str) -> Result<String> {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--insecure", "--max-time", "30"])
            .args(how)
            .arg("--fail")
            .arg(format!("https://{}{path}", self.address));
        output(&mut command)
    }
}
