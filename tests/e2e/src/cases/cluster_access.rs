//! Who may ask the node what: tokens and certificates against paths, judged by a real API server; and metrics-server's request.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::cluster::Api;
use ferrolet_lab::process::{find_program, output};
use serde_json::{Value, json};

use super::{SOON, cases};
use crate::build::script;
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    each_identity_gets_exactly_the_paths_that_it_was_granted,
    the_request_of_metrics_server_is_answered,
];

/// The parts of a node that rights are given for.
const SUBRESOURCES: [&str; 8] = [
    "metrics", "stats", "log", "pods", "configz", "healthz", "statusz", "proxy",
];

/// Paths, and which right opens each.
const PATHS: [(&str, &[&str]); 14] = [
    ("/metrics", &["metrics"]),
    ("/metrics/cadvisor", &["metrics"]),
    ("/metrics/resource", &["metrics"]),
    ("/metrics/probes", &["metrics"]),
    ("/metrics/slis", &["metrics"]),
    ("/stats/summary", &["stats"]),
    ("/logs/", &["log"]),
    ("/pods", &["pods", "proxy"]),
    ("/runningpods/", &["pods", "proxy"]),
    ("/healthz", &["healthz", "proxy"]),
    ("/configz", &["configz", "proxy"]),
    ("/flagz", &["configz"]),
    ("/statusz", &["statusz"]),
    ("/containerLogs/NAMESPACE/talker/main", &["proxy"]),
];

fn each_identity_gets_exactly_the_paths_that_it_was_granted(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if find_program("curl").is_none() {
        return Ok(Outcome::Skipped("curl is not installed".to_owned()));
    }
    let mut world = World::start(context)?;
    let pod = world.pod("talker", &[script("main", "echo hello; exec sleep 100000")]);
    world.run(&pod)?;
    let curl = Curl::new(&world)?;
    let namespace = world.namespace.clone();
    let check =
        |who: &str, how: &[String], expected: &dyn Fn(&[&str]) -> &'static str| -> Result<()> {
            let paths: Vec<String> = PATHS
                .iter()
                .map(|(path, _)| path.replace("NAMESPACE", &namespace))
                .collect();
            let got = curl.statuses(how, &paths)?;
            for ((path, rights), got) in PATHS.iter().zip(got) {
                ensure!(got == expected(rights), "{who} gets {got} for {path}");
            }
            Ok(())
        };
    for right in SUBRESOURCES {
        let rule =
            json!([{"apiGroups": [""], "resources": [format!("nodes/{right}")], "verbs": ["get"]}]);
        let token = account(&world, &format!("{right}-reader"), &rule)?;
        check(right, &bearer(&token), &|rights| {
            if rights.contains(&right) {
                "200"
            } else {
                "403"
            }
        })?;
    }
    let token = account(&world, "nobody", &json!([]))?;
    check("a token without rights", &bearer(&token), &|_| "403")?;
    check("nobody at all", &[], &|_| "401")?;
    check("a wrong token", &bearer("wrong"), &|_| "401")?;
    let nobody = certificate(&world, "nobody", &[])?;
    check("a certificate without rights", &nobody, &|_| "403")?;
    let master = certificate(&world, "master", &["system:masters"])?;
    check("an administrator", &master, &|_| "200")?;
    let figures = curl.body(&master, "/metrics")?;
    for start in [
        "rest_client_requests_total{code=\"201\",",
        "rest_client_request_duration_seconds_count{host=",
        "rest_client_response_size_bytes_count{host=",
        "apiserver_delegated_authn_request_total{code=\"201\"}",
        "apiserver_delegated_authz_request_total{code=\"201\"}",
        "kubelet_pod_start_sli_duration_seconds_count 1",
        "kubelet_pod_status_sync_duration_seconds_count ",
        "storage_operation_duration_seconds_count{migrated=\"false\",operation_name=\"volume_mount\",\
         status=\"success\",volume_plugin=\"kubernetes.io/projected\"} ",
    ] {
        ensure!(
            figures.lines().any(|line| line.starts_with(start)),
            "{start} is not in {figures}"
        );
    }
    // To read is not to run: commands need create, whatever the method.
    let rule = json!([{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}]);
    let reader = bearer(&account(&world, "looks-only", &rule)?);
    for verb in ["exec", "attach"] {
        let path = format!("/{verb}/{namespace}/talker/main?output=1&command=id");
        let got = curl.statuses(&reader, &[path])?;
        ensure!(got == ["403"], "a reader gets {got:?} for {verb}");
    }
    Ok(Outcome::Passed)
}

fn the_request_of_metrics_server_is_answered(context: &mut Context<'_>) -> Result<Outcome> {
    if find_program("curl").is_none() {
        return Ok(Outcome::Skipped("curl is not installed".to_owned()));
    }
    let mut world = World::start(context)?;
    let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exec sleep 100000";
    let pod = world.pod("busy", &[script("main", busy), script("second", busy)]);
    world.run(&pod)?;
    // The role that metrics-server's own manifest gives it for nodes.
    let rule = json!([{"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}]);
    let token = account(&world, "metrics-server", &rule)?;
    let curl = Curl::new(&world)?;
    let mut how = bearer(&token);
    // As its Go client asks: no word about types, compressed if possible, HTTP/2.
    how.extend(
        [
            "--http2",
            "--compressed",
            "--header",
            "Accept:",
            "--header",
            "User-Agent: metrics-server/v0.8.0 (linux/amd64) kubernetes/$Format",
        ]
        .map(str::to_owned),
    );
    let namespace = world.namespace.clone();
    world.wait("complete figures of both containers", SOON, |_, _| {
        let text = curl.body(&how, "/metrics/resource")?;
        let seen = Batch::read(&text)?;
        for container in ["main", "second"] {
            let labels = (namespace.clone(), "busy".to_owned(), container.to_owned());
            let point = seen.containers.get(&labels);
            // It drops whole pods of which one container has not all three.
            ensure!(
                point.is_some_and(|it| it.cpu > 0.0 && it.memory > 0.0 && it.start > 0.0),
                "{container} is {point:?}"
            );
        }
        ensure!(
            seen.node.cpu > 0.0 && seen.node.memory > 0.0 && seen.node.at > 0,
            "the node is {:?}",
            seen.node
        );
        Ok(Some(()))
    })?;
    Ok(Outcome::Passed)
}

/// What metrics-server keeps of an answer.
#[derive(Default)]
struct Batch {
    node: Point,
    containers: BTreeMap<(String, String, String), Point>,
}

#[derive(Debug, Default)]
struct Point {
    cpu: f64,
    memory: f64,
    start: f64,
    at: i64,
}

impl Batch {
    fn read(text: &str) -> Result<Batch> {
        let mut batch = Batch::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let labels = line
                .split_once('{')
                .and_then(|(_, rest)| rest.split_once('}'))
                .map_or("", |(labels, _)| labels);
            let tail = line.rsplit_once('}').map_or_else(
                || line.split_once(' ').map_or("", |(_, tail)| tail),
                |(_, tail)| tail.trim_start(),
            );
            let mut words = tail.split(' ');
            let value: f64 = words.next().unwrap_or_default().parse()?;
            let at = words.next().map_or(Ok(0), str::parse)?;
            let label = |name: &str| {
                let start = format!("{name}=\"");
                let rest = labels.split_once(start.as_str()).map(|(_, rest)| rest);
                rest.and_then(|rest| rest.split('"').next())
                    .unwrap_or_default()
                    .to_owned()
            };
            let point = if name.starts_with("node_") {
                &mut batch.node
            } else {
                let key = (label("namespace"), label("pod"), label("container"));
                batch.containers.entry(key).or_default()
            };
            match name {
                "node_cpu_usage_seconds_total" | "container_cpu_usage_seconds_total" => {
                    point.cpu = value;
                    point.at = at;
                }
                "node_memory_working_set_bytes" | "container_memory_working_set_bytes" => {
                    point.memory = value;
                }
                "container_start_time_seconds" => point.start = value,
                _ => {}
            }
        }
        Ok(batch)
    }
}

/// A service account with these rules for nodes, and its token.
fn account(world: &World<'_>, name: &str, rules: &Value) -> Result<String> {
    // Roles are not in a namespace; their names are this test's own through it.
    let namespace = &world.namespace;
    let role = format!("{namespace}-{name}");
    let api = "rbac.authorization.k8s.io";
    let objects = [
        world.object("ServiceAccount", name, json!({})),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRole",
            "metadata": {"name": role}, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }),
    ];
    let post = Api::new(&world.cluster.proxy_address())?;
    for (collection, object) in [
        format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
        format!("/apis/{api}/v1/clusterroles"),
        format!("/apis/{api}/v1/clusterrolebindings"),
    ]
    .iter()
    .zip(&objects)
    {
        post.create(collection, object)?;
    }
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = post.ask("POST", &path, &request.to_string())?;
    let made: Value = serde_json::from_str(&answer.body)?;
    let token = made["status"]["token"].as_str();
    Ok(token
        .with_context(|| format!("no token in {:.300}", answer.body))?
        .to_owned())
}

fn bearer(token: &str) -> Vec<String> {
    let header = format!("Authorization: Bearer {token}");
    vec!["--header".to_owned(), header]
}

/// curl's arguments for a certificate of this user.
fn certificate(world: &World<'_>, name: &str, groups: &[&str]) -> Result<Vec<String>> {
    let identity = world.cluster.user_identity(name, groups)?;
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

/// curl against the node's main server.
struct Curl {
    address: String,
}

impl Curl {
    fn new(world: &World<'_>) -> Result<Curl> {
        let address = world.main_address()?;
        Ok(Curl { address })
    }

    fn command(&self, how: &[String]) -> Command {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--insecure", "--max-time", "30"])
            .args(how);
        command
    }

    /// Status codes, in the order of the paths.
    fn statuses(&self, how: &[String], paths: &[String]) -> Result<Vec<String>> {
        let mut command = self.command(how);
        command.args(["--write-out", "%{http_code}\n"]);
        for path in paths {
            command
                .args(["--output", "/dev/null"])
                .arg(format!("https://{}{path}", self.address));
        }
        let text = output(&mut command)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The body of a good answer.
    fn body(&self, how: &[String], path: &str) -> Result<String> {
        let mut command = self.command(how);
        command
            .arg("--fail")
            .arg(format!("https://{}{path}", self.address));
        output(&mut command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_metrics_server_reads_it() {
        let text = "# TYPE node_cpu_usage_seconds_total counter\n\
                    node_cpu_usage_seconds_total 1.5 7000\n\
                    node_memory_working_set_bytes 9 7000\n\
                    container_cpu_usage_seconds_total{container=\"a\",namespace=\"n\",pod=\"p\"} 2 7000\n\
                    container_start_time_seconds{container=\"a\",namespace=\"n\",pod=\"p\"} 3\n";
        let batch = Batch::read(text).unwrap();
        assert_eq!(
            (batch.node.cpu, batch.node.memory, batch.node.at),
            (1.5, 9.0, 7000)
        );
        let key = ("n".to_owned(), "p".to_owned(), "a".to_owned());
        let point = &batch.containers[&key];
        assert_eq!((point.cpu, point.start, point.memory), (2.0, 3.0, 0.0));
    }
}
