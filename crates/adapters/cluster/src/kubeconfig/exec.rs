//! A program that prints credentials: what a kubeconfig says of it, what it is told, what its answer
//! means. Pure; [`crate::exec`] runs it.

use std::{path::Path, sync::Arc};

use ferrolet_ports::ProgramAsk;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Cluster;
use crate::client::Told;

/// The versions of the protocol.
const VERSIONS: [&str; 2] =
    ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
const KIND: &str = "ExecCredential";
/// The variable by which a program is told whom it is asked for.
const INFO: &str = "KUBERNETES_EXEC_INFO";

/// A program that prints credentials. Clones share what it said last.
#[derive(Clone, Debug)]
pub struct ExecPlugin {
    ask: ProgramAsk,
    api_version: String,
    install_hint: String,
    told: Arc<Told>,
}

impl PartialEq for ExecPlugin {
    fn eq(&self, other: &Self) -> bool {
        (&self.ask, &self.api_version) == (&other.ask, &other.api_version)
    }
}

impl Eq for ExecPlugin {}

/// What is wrong with what a kubeconfig says of it.
pub(super) struct ExecFault {
    pub(super) field: &'static str,
    pub(super) value: String,
    pub(super) reason: &'static str,
}

/// What a program answered.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecCredential {
    /// The bearer's token.
    pub token: Option<String>,
    /// A certificate and its key (PEM).
    pub certificate: Option<(String, String)>,
    /// From when on it is no good; `None` for as long as the server takes it.
    pub expires: Option<Timestamp>,
}

impl ExecPlugin {
    pub(super) fn read(
        given: &Map<String, Value>,
        directory: &Path,
        cluster: &Cluster,
    ) -> Result<Self, ExecFault> {
        let text = |name: &str| given.get(name).and_then(Value::as_str).unwrap_or_default();
        let fault =
            |field, value: &str, reason| ExecFault { field, value: value.to_owned(), reason };
        let api_version = text("apiVersion");
        if !VERSIONS.contains(&api_version) {
            let reason =
                "must be client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1";
            return Err(fault("apiVersion", api_version, reason));
        }
        let command = text("command");
        if command.is_empty() {
            return Err(fault("command", "", "must name a program"));
        }
        match text("interactiveMode") {
            "Never" | "IfAvailable" => {}
            "" if api_version == VERSIONS[1] => {}
            "" => return Err(fault("interactiveMode", "", "must be given: Never or IfAvailable")),
            mode => {
                let reason = "nobody sits at a node; must be Never or IfAvailable";
                return Err(fault("interactiveMode", mode, reason));
            }
        }
        // A path is meant from the kubeconfig's directory; a name is looked for in the search path.
        let program = match command.contains('/') {
            true => directory.join(command).display().to_string(),
            false => command.to_owned(),
        };
        let list =
            |name: &str| given.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let words = list("args").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let mut environment: Vec<(String, String)> = list("env")
            .iter()
            .filter_map(|it| Some((it.get("name")?.as_str()?, it.get("value")?.as_str()?)))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let wants_cluster = given.get("provideClusterInfo").and_then(Value::as_bool) == Some(true);
        let info = info(api_version, cluster, wants_cluster);
        environment.push((INFO.to_owned(), info.to_string()));
        Ok(Self {
            ask: ProgramAsk { program, words, environment },
            api_version: api_version.to_owned(),
            install_hint: text("installHint").to_owned(),
            told: Arc::default(),
        })
    }

    /// The program.
    pub fn command(&self) -> &str {
        &self.ask.program
    }

    /// What is run.
    pub fn ask(&self) -> &ProgramAsk {
        &self.ask
    }

    /// How to get the program, in its author's words; empty where he has none.
    pub fn install_hint(&self) -> &str {
        &self.install_hint
    }

    /// The token that was told last.
    pub(crate) fn told(&self) -> Arc<Told> {
        self.told.clone()
    }

    /// Understands an answer.
    pub fn decode(&self, answer: &[u8]) -> Result<ExecCredential, String> {
        let answer: Value =
            serde_json::from_slice(answer).map_err(|error| format!("decoding stdout: {error}"))?;
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).filter(|it| !it.is_empty()).map(str::to_owned)
        };
        if text(&answer, "kind").as_deref() != Some(KIND) {
            return Err(format!("exec plugin answered with something else than an {KIND}"));
        }
        let version = text(&answer, "apiVersion").unwrap_or_default();
        if version != self.api_version {
            return Err(format!(
                "exec plugin is configured to use API version {}, plugin returned version {version}",
                self.api_version
            ));
        }
        let status = answer.get("status").filter(|it| it.is_object());
        let status = status.ok_or("exec plugin didn't return a status field")?;
        let pair = (text(status, "clientCertificateData"), text(status, "clientKeyData"));
        let certificate = match pair {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("exec plugin returned only certificate or key, not both".to_owned()),
        };
        let token = text(status, "token");
        if token.is_none() && certificate.is_none() {
            return Err("exec plugin didn't return a token or cert/key pair".to_owned());
        }
        let expires = text(status, "expirationTimestamp").map(|text| {
            let wrong =
                |error| format!("exec plugin returned expirationTimestamp {text:?}: {error}");
            text.parse::<Timestamp>().map_err(wrong)
        });
        Ok(ExecCredential { token, certificate, expires: expires.transpose()? })
    }
}

/// What the program is told: whether it may ask a person, and if it wants, about the cluster.
fn info(api_version: &str, cluster: &Cluster, wants_cluster: bool) -> Value {
    let mut spec = json!({"interactive": false});
    if wants_cluster {
        let mut told = json!({"server": cluster.server});
        if !cluster.certificate_authority_data.is_empty() {
            told["certificate-authority-data"] = json!(cluster.certificate_authority_data);
        }
        if !cluster.tls_server_name.is_empty() {
            told["tls-server-name"] = json!(cluster.tls_server_name);
        }
        if cluster.insecure_skip_tls_verify {
            told["insecure-skip-tls-verify"] = json!(true);
        }
        spec["cluster"] = told;
    }
    json!({"apiVersion": api_version, "kind": KIND, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(fields: &Value) -> Result<ExecPlugin, String> {
        let given = fields.as_object().unwrap();
        let cluster = Cluster { server: "https://a:1".to_owned(), ..Cluster::default() };
        ExecPlugin::read(given, Path::new("/etc/kubernetes"), &cluster)
            .map_err(|fault| format!("{}: {}", fault.field, fault.reason))
    }

    #[test]
    fn a_program_is_run_with_its_words_and_told_about_the_cluster() {
        let plugin = plugin(&json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "bin/login", "args": ["get", "token"],
            "env": [{"name": "REGION", "value": "x"}], "interactiveMode": "Never", "provideClusterInfo": true,
        }))
        .unwrap();
        assert_eq!(plugin.command(), "/etc/kubernetes/bin/login");
        assert_eq!(plugin.ask().words, ["get", "token"]);
        assert_eq!(plugin.ask().environment[0], ("REGION".to_owned(), "x".to_owned()));
        let told: Value = serde_json::from_str(&plugin.ask().environment[1].1).unwrap();
        let expected = json!({"interactive": false, "cluster": {"server": "https://a:1"}});
        assert_eq!(told["spec"], expected);
    }

    #[test]
    fn what_cannot_be_run_is_refused_by_field() {
        let v1 = "client.authentication.k8s.io/v1";
        for (fields, expected) in [
            (
                json!({"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "a"}),
                "apiVersion: ",
            ),
            (json!({"apiVersion": v1, "interactiveMode": "Never"}), "command: "),
            (json!({"apiVersion": v1, "command": "a"}), "interactiveMode: "),
            (
                json!({"apiVersion": v1, "command": "a", "interactiveMode": "Always"}),
                "interactiveMode: ",
            ),
        ] {
            let error = plugin(&fields).unwrap_err();
            assert!(error.starts_with(expected), "{fields}: {error}");
        }
        let old = json!({"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws"});
        assert_eq!(plugin(&old).unwrap().command(), "aws");
    }

    #[test]
    fn answers_are_understood_or_refused_in_upstreams_words() {
        let beta = "client.authentication.k8s.io/v1beta1";
        let plugin = plugin(&json!({"apiVersion": beta, "command": "a"})).unwrap();
        let decode = |version: &str, status: Value| {
            let answer = json!({"apiVersion": version, "kind": "ExecCredential", "status": status});
            plugin.decode(answer.to_string().as_bytes())
        };
        let good =
            decode(beta, json!({"token": "t", "expirationTimestamp": "2026-01-02T03:04:05Z"}));
        let good = good.ok().unwrap();
        assert_eq!((good.token.as_deref(), good.certificate), (Some("t"), None));
        assert_eq!(good.expires.unwrap().to_string(), "2026-01-02T03:04:05Z");
        let pair = decode(beta, json!({"clientCertificateData": "c", "clientKeyData": "k"}));
        assert_eq!(pair.ok().unwrap().certificate, Some(("c".to_owned(), "k".to_owned())));
        for (version, status, expected) in [
            (beta, json!(null), "didn't return a status"),
            (beta, json!({}), "didn't return a token or cert/key pair"),
            (beta, json!({"token": "t", "clientKeyData": "k"}), "not both"),
            (beta, json!({"token": "t", "expirationTimestamp": "soon"}), "expirationTimestamp"),
            (
                "client.authentication.k8s.io/v1",
                json!({"token": "t"}),
                "configured to use API version",
            ),
        ] {
            let error = decode(version, status).err().unwrap();
            assert!(error.contains(expected), "{error}");
        }
        assert!(plugin.decode(b"\xff").is_err());
        assert!(plugin.decode(b"[]").is_err());
    }
}
