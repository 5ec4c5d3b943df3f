//! Who may ask the node what: tokens and certificates against paths, judged by a real API server;
//! and metrics-server's request.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::cluster::Api;
use serde_json::{Value, json};

use super::{SOON, cases};
use crate::build::script;
use crate::cluster::World;
use crate::context::Context;
use crate::curl::{Ask, Curl, bearer, certificate};
use crate::runner::{Outcome, without};

cases![
    each_identity_gets_exactly_the_paths_that_it_was_granted,
    the_request_of_metrics_server_is_answered,
    whoever_shows_nothing_is_judged_as_nobody_where_that_is_configured,
    what_the_api_server_says_of_a_caller_is_asked_for_once,
];

/// What each path needs; the server's own tests read the same list.
const ROWS: &str = include_str!("../../../../crates/adapters/server/src/auth/paths.txt");

/// The parts of a node that rights are given for, and with which verb.
const GRANTS: [(&str, &str); 14] = [
    ("get", "metrics"),
    ("get", "stats"),
    ("get", "log"),
    ("get", "pods"),
    ("get", "configz"),
    ("get", "healthz"),
    ("get", "statusz"),
    ("get", "checkpoint"),
    ("get", "proxy"),
    ("create", "proxy"),
    ("create", "checkpoint"),
    ("create", "stats"),
    ("update", "proxy"),
    ("delete", "metrics"),
];

const RBAC: &str = "rbac.authorization.k8s.io";

/// A row: verb, method, path and the rights that open it.
struct Row {
    verb: &'static str,
    ask: Ask,
    rights: Vec<&'static str>,
}

fn rows(namespace: &str) -> Result<Vec<Row>> {
    let lines = ROWS.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [verb, method, path, rights] = words[..] else {
            anyhow::bail!("{line:?} is no row");
        };
        let path = path.replace("NAMESPACE", namespace);
        let path = path.replace("POD", "talker").replace("CONTAINER", "main");
        Ok(Row { verb, ask: Ask::new(method, &path), rights: rights.split(',').collect() })
    });
    rows.collect()
}

fn each_identity_gets_exactly_the_paths_that_it_was_granted(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("curl") {
        return Ok(skipped);
    }
    let mut world = World::start(context)?;
    let pod = world.pod("talker", &[script("main", "echo hello; exec sleep 100000")]);
    world.run(&pod)?;
    let curl = Curl::new(&world)?;
    let rows = rows(&world.namespace)?;
    let asks: Vec<Ask> = rows.iter().map(|row| row.ask.clone()).collect();
    // Whoever is let in may still hear that there is nothing of this name; who is not hears exactly
    // this.
    let check = |who: &str, how: &[String], refused: &dyn Fn(&Row) -> Option<u16>| -> Result<()> {
        for (row, heard) in rows.iter().zip(curl.ask(how, &asks)?) {
            let (got, expected) = (heard.status, refused(row));
            let is_right = match expected {
                Some(status) => got == status,
                None => got != 0 && got != 401 && got != 403,
            };
            ensure!(is_right, "{who} gets {got} for {:?}", row.ask);
        }
        Ok(())
    };
    for (verb, right) in GRANTS {
        let rule =
            json!([{"apiGroups": [""], "resources": [format!("nodes/{right}")], "verbs": [verb]}]);
        let token = account(&world, &format!("{verb}-{right}"), &rule)?;
        check(&format!("{verb} {right}"), &bearer(&token), &|row| {
            let is_granted = row.verb == verb && row.rights.contains(&right);
            (!is_granted).then_some(403)
        })?;
    }
    let token = account(&world, "nobody", &json!([]))?;
    check("a token without rights", &bearer(&token), &|_| Some(403))?;
    check("nobody at all", &[], &|_| Some(401))?;
    check("a wrong token", &bearer("wrong"), &|_| Some(401))?;
    let nobody = certificate(&world, "nobody", &[])?;
    check("a certificate without rights", &nobody, &|_| Some(403))?;
    let master = certificate(&world, "master", &["system:masters"])?;
    check("an administrator", &master, &|_| None)?;
    let starts = [
        "rest_client_requests_total{code=\"201\",",
        "rest_client_request_duration_seconds_count{host=",
        "rest_client_response_size_bytes_count{host=",
        "apiserver_client_certificate_expiration_seconds_count ",
        "apiserver_delegated_authn_request_total{code=\"201\"}",
        "apiserver_delegated_authz_request_total{code=\"201\"}",
        "authentication_token_cache_request_total{status=\"hit\"} ",
        "kubelet_node_startup_post_registration_duration_seconds ",
        "kubelet_pleg_last_seen_seconds ",
        "kubelet_pod_start_sli_duration_seconds_count 1",
        "kubelet_pod_status_sync_duration_seconds_count ",
        "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"\"} 1",
        "storage_operation_duration_seconds_count{migrated=\"false\",operation_name=\"volume_mount\",\
         status=\"success\",volume_plugin=\"kubernetes.io/projected\"} ",
    ];
    world.wait("figures of a node in a cluster", SOON, |_, _| {
        let figures = curl.body(&master, "/metrics")?;
        for start in starts {
            ensure!(
                figures.lines().any(|line| line.starts_with(start)),
                "{start} is not in {figures}"
            );
        }
        Ok(Some(()))
    })?;
    Ok(Outcome::Passed)
}

fn the_request_of_metrics_server_is_answered(context: &mut Context<'_>) -> Result<Outcome> {
    if let Some(skipped) = without("curl") {
        return Ok(skipped);
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

fn whoever_shows_nothing_is_judged_as_nobody_where_that_is_configured(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("curl") {
        return Ok(skipped);
    }
    let mut options = context.node_options();
    options.configuration = json!({
        "authentication": {
            "anonymous": {"enabled": true},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": context.cluster()?.authority_file()},
        },
        // Short, so that a right that is given counts soon.
        "authorization": {"mode": "Webhook", "webhook": {"cacheUnauthorizedTTL": "1s"}},
    });
    let mut world = World::start_with(context, options)?;
    let curl = Curl::new(&world)?;
    let asks = ["/pods", "/healthz", "/configz"].map(|path| Ask::new("GET", path));
    let statuses = |how: &[String]| -> Result<Vec<u16>> {
        let heard = curl.ask(how, &asks)?;
        Ok(heard.iter().map(|it| it.status).collect())
    };
    let refused = curl.ask(&[], &asks)?.remove(0);
    let words =
        "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])";
    ensure!(refused.status == 403 && refused.body.starts_with(words), "nobody hears {refused:?}");
    // Whoever shows something that does not count is not nobody.
    let wrong = statuses(&bearer("wrong"))?;
    ensure!(wrong == [401; 3], "a wrong token gets {wrong:?}");
    let name = world.node_name().to_owned();
    let rule = json!([{"apiGroups": [""], "resources": ["nodes/pods"], "resourceNames": [name], "verbs": ["get"]}]);
    let nobody = json!({"apiGroup": RBAC, "kind": "User", "name": "system:anonymous"});
    grant(&world, "nobody-in-particular", &rule, &nobody)?;
    world.wait("the right to count", SOON, |_, _| {
        let got = statuses(&[])?;
        ensure!(got == [200, 403, 403], "nobody gets {got:?}");
        Ok(Some(()))
    })?;
    Ok(Outcome::Passed)
}

fn what_the_api_server_says_of_a_caller_is_asked_for_once(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("curl") {
        return Ok(skipped);
    }
    let mut world = World::start(context)?;
    let rule = json!([{"apiGroups": [""], "resources": ["nodes/stats"], "verbs": ["get"]}]);
    let token = account(&world, "reader", &rule)?;
    let curl = Curl::new(&world)?;
    // Five times what is allowed, five times what is not.
    let paths = ["/stats/summary", "/statusz"].repeat(5);
    let asks: Vec<Ask> = paths.iter().map(|path| Ask::new("GET", path)).collect();
    let heard = curl.ask(&bearer(&token), &asks)?;
    let statuses: Vec<u16> = heard.iter().map(|it| it.status).collect();
    ensure!(statuses == [200, 403].repeat(5), "it gets {statuses:?}");
    let name = world.node_name().to_owned();
    // An audit line is written after its answer.
    world.wait("the reviews in the audit log", SOON, |cluster, _| {
        let asked = cluster.asked_by(&name)?;
        let n_of = |kind: &str| asked.iter().filter(|it| it.uri.contains(kind)).count();
        let n = (n_of("/tokenreviews"), n_of("/subjectaccessreviews"));
        ensure!(n == (1, 2), "there are {n:?} reviews");
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
                rest.and_then(|rest| rest.split('"').next()).unwrap_or_default().to_owned()
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

/// Gives somebody these rules for nodes.
fn grant(world: &World<'_>, name: &str, rules: &Value, subject: &Value) -> Result<()> {
    // Roles are not in a namespace; their names are this test's own through it.
    let role = format!("{}-{name}", world.namespace);
    let objects = [
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
            "metadata": {"name": role}, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }),
    ];
    let post = Api::new(&world.cluster.proxy_address())?;
    for (kind, object) in ["clusterroles", "clusterrolebindings"].iter().zip(&objects) {
        post.create(&format!("/apis/{RBAC}/v1/{kind}"), object)?;
    }
    Ok(())
}

/// Waits until the API server itself knows of a right: it hears of its own objects a moment after
/// they were made, and whoever asks too early hears a no, which the node keeps.
fn wait_granted(world: &World<'_>, user: &str, rule: &Value) -> Result<()> {
    let resource = rule["resources"][0].as_str().unwrap_or_default();
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {
            "verb": rule["verbs"][0], "resource": resource, "subresource": part, "name": world.node_name(),
        }},
    });
    let post = Api::new(&world.cluster.proxy_address())?;
    world.cluster.wait("a right to be known", SOON, |_| {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = post.ask("POST", path, &review.to_string())?;
        let said: Value = serde_json::from_str(&answer.body)?;
        ensure!(said["status"]["allowed"] == true, "it says {said}");
        Ok(Some(()))
    })
}

/// A service account with these rules for nodes, and its token.
fn account(world: &World<'_>, name: &str, rules: &Value) -> Result<String> {
    let namespace = &world.namespace;
    let post = Api::new(&world.cluster.proxy_address())?;
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    post.create(&accounts, &world.object("ServiceAccount", name, json!({})))?;
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    grant(world, name, rules, &subject)?;
    let user = format!("system:serviceaccount:{namespace}:{name}");
    for rule in rules.as_array().into_iter().flatten() {
        wait_granted(world, &user, rule)?;
    }
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = post.ask("POST", &path, &request.to_string())?;
    let made: Value = serde_json::from_str(&answer.body)?;
    let token = made["status"]["token"].as_str();
    Ok(token.with_context(|| format!("no token in {:.300}", answer.body))?.to_owned())
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
        assert_eq!((batch.node.cpu, batch.node.memory, batch.node.at), (1.5, 9.0, 7000));
        let key = ("n".to_owned(), "p".to_owned(), "a".to_owned());
        let point = &batch.containers[&key];
        assert_eq!((point.cpu, point.start, point.memory), (2.0, 3.0, 0.0));
    }
}
