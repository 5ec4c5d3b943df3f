//! What a request is called when the API server is asked about it: a verb, and one or more
//! subresources of the node.
//!
//! Upstream's mapping (pkg/kubelet/server/auth.go), with one change: whatever runs commands or
//! opens streams into a pod needs `create`, whichever method it comes with. Upstream takes the verb
//! from the method, so that a WebSocket's GET runs commands with `get` alone
//! (kubernetes/kubernetes#83465).

use axum::http::Method;

/// What is asked for. Any one of the subresources is enough; they are tried in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: &'static str,
    pub(crate) subresources: &'static [&'static str],
}

/// Paths, and everything below them.
const TABLE: &[(&[&str], &[&str])] = &[
    (&["/allocatedPods", "/pods", "/runningpods"], &["pods", "proxy"]),
    (&["/healthz"], &["healthz", "proxy"]),
    (&["/configz"], &["configz", "proxy"]),
    (&["/stats"], &["stats"]),
    (&["/metrics"], &["metrics"]),
    (&["/logs"], &["log"]),
    (&["/checkpoint"], &["checkpoint"]),
    (&["/statusz"], &["statusz"]),
    (&["/flagz"], &["configz"]),
];
const INTO_PODS: [&str; 4] = ["/exec", "/attach", "/portForward", "/run"];

pub(crate) fn attributes(method: &Method, path: &str) -> Attributes {
    let is_below = |root: &&str| {
        path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let row = TABLE.iter().find(|(roots, _)| roots.iter().any(&is_below));
    Attributes {
        verb: if INTO_PODS.iter().any(is_below) { "create" } else { verb(method) },
        subresources: row.map_or(&["proxy"], |(_, subresources)| subresources),
    }
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        // Upstream leaves the verb empty, and nobody is allowed nothing. HEAD reads like GET but is
        // not granted by it.
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_become_verbs_and_subresources() {
        let check = |method: &str, path: &str, verb: &str, subresources: &[&str]| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let got = attributes(&method, path);
            assert_eq!((got.verb, got.subresources), (verb, subresources), "{method} {path}");
        };
        check("GET", "/pods", "get", &["pods", "proxy"]);
        check("GET", "/pods/", "get", &["pods", "proxy"]);
        check("GET", "/podsx", "get", &["proxy"]);
        check("GET", "/runningpods/", "get", &["pods", "proxy"]);
        check("GET", "/allocatedPods/a/b", "get", &["pods", "proxy"]);
        check("GET", "/healthz", "get", &["healthz", "proxy"]);
        check("GET", "/healthz/ping", "get", &["healthz", "proxy"]);
        check("GET", "/configz", "get", &["configz", "proxy"]);
        check("GET", "/flagz", "get", &["configz"]);
        check("GET", "/statusz", "get", &["statusz"]);
        check("GET", "/stats/summary", "get", &["stats"]);
        check("POST", "/stats/summary", "create", &["stats"]);
        check("GET", "/metrics", "get", &["metrics"]);
        check("GET", "/metrics/cadvisor", "get", &["metrics"]);
        check("DELETE", "/metrics/slis", "delete", &["metrics"]);
        check("GET", "/logs/", "get", &["log"]);
        check("GET", "/logs/syslog", "get", &["log"]);
        check("POST", "/checkpoint/a/b/c", "create", &["checkpoint"]);
        check("GET", "/containerLogs/a/b/c", "get", &["proxy"]);
        check("PUT", "/debug/flags/v", "update", &["proxy"]);
        check("PATCH", "/anything", "patch", &["proxy"]);
        check("HEAD", "/pods", "", &["pods", "proxy"]);
        check("JUNK", "/pods", "", &["pods", "proxy"]);
        for path in ["/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/run/a/b/c"] {
            check("GET", path, "create", &["proxy"]);
            check("POST", path, "create", &["proxy"]);
        }
    }
}
