//! Each identity against each path: who gets 200, 401, 403 or 500.

use ferrolet_ports::Subject;

use super::rig::{Authority, Rig, Wish};

const PATHS: [&str; 5] =
    ["/pods", "/healthz", "/configz", "/runningpods/", "/containerLogs/default/web/main"];

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[tokio::test]
async fn each_identity_gets_exactly_what_it_was_granted() {
    let rig = Rig::new(Wish::default()).await;
    rig.logs.append(&rig.log_path, b"hello\n");
    let admin = rig.admin();
    let nobody = rig.authority.client("nobody", &[]);
    let pods_only = rig.authority.client("pods-only", &[]);
    rig.reviews.allow("pods-only", "get", "pods");
    let proxy = rig.authority.client("proxy", &[]);
    rig.reviews.allow("proxy", "get", "proxy");
    let stranger = Authority::new("elsewhere").client("admin", &["system:masters"]);
    let server_certificate = rig.authority.server("admin");
    let nameless = rig.authority.client("", &["system:masters"]);
    let check = async |who, headers: &str, expected: [u16; 5]| {
        for (path, expected) in PATHS.iter().zip(expected) {
            let (status, body) = rig.ask(who, "GET", path, headers).await;
            assert_eq!(status, expected, "{path} {headers} {body}");
        }
    };
    check(Some(&admin), "", [200; 5]).await;
    check(Some(&nobody), "", [403; 5]).await;
    check(Some(&pods_only), "", [200, 403, 403, 200, 403]).await;
    check(Some(&proxy), "", [200; 5]).await;
    check(None, "", [401; 5]).await;
    check(Some(&stranger), "", [401; 5]).await;
    check(Some(&server_certificate), "", [401; 5]).await;
    check(Some(&nameless), "", [401; 5]).await;
    check(None, &bearer("wrong"), [401; 5]).await;
    check(None, "Authorization: Basic YWRtaW46YWRtaW4=\r\n", [401; 5]).await;
    let subject = Subject { name: "proxy".to_owned(), ..Subject::default() };
    rig.reviews.add_token("good", subject);
    check(None, &bearer("good"), [200; 5]).await;
    // A certificate that does not count does not spoil a token that does.
    check(Some(&stranger), &bearer("good"), [200; 5]).await;
}

/// Verb, method, path and the rights that open it; the end-to-end tests read the same list.
struct Row {
    verb: &'static str,
    method: &'static str,
    path: String,
    rights: Vec<&'static str>,
}

fn rows() -> Vec<Row> {
    let lines = include_str!("../auth/paths.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [verb, method, path, rights] = words[..] else {
            panic!("{line}");
        };
        let names = [("NAMESPACE", "default"), ("POD", "web"), ("CONTAINER", "main")];
        let path = names.iter().fold(path.to_owned(), |path, (from, to)| path.replace(from, to));
        Row { verb, method, path, rights: rights.split(',').collect() }
    });
    rows.collect()
}

const RIGHTS: [&str; 9] =
    ["metrics", "stats", "log", "pods", "healthz", "configz", "statusz", "checkpoint", "proxy"];
const VERBS: [&str; 4] = ["get", "create", "update", "delete"];

#[tokio::test]
async fn each_right_opens_its_paths_and_no_other() {
    let rig = Rig::new(Wish { anonymous: true, ..Wish::default() }).await;
    rig.logs.append(&rig.log_path, b"hello\n");
    let rows = rows();
    let check =
        async |who: Option<&super::rig::Identity>, headers: &str, verb: &str, right: &str| {
            for row in &rows {
                let (status, body) = rig.ask(who, row.method, &row.path, headers).await;
                // Whoever is let in may still hear that there is nothing to read here.
                let is_open = status != 403;
                let is_granted = verb == row.verb && row.rights.contains(&right);
                let what = format!("{verb} {right}: {} {} {body}", row.method, row.path);
                assert_eq!(is_open, is_granted, "{what}");
                assert_ne!(status, 401, "{what}");
            }
        };
    for right in RIGHTS {
        for verb in VERBS {
            let user = format!("certificate-{verb}-{right}");
            rig.reviews.allow(&user, verb, right);
            let shown = rig.authority.client(&user, &[]);
            check(Some(&shown), "", verb, right).await;
        }
    }
    // The same right for a token, and for whoever shows nothing, who is somebody too here.
    let user = "token-get-metrics";
    rig.reviews.allow(user, "get", "metrics");
    let subject = Subject { name: user.to_owned(), ..Subject::default() };
    rig.reviews.add_token(user, subject);
    check(None, &bearer(user), "get", "metrics").await;
    check(None, "", "none", "none").await;
    rig.reviews.allow("system:anonymous", "get", "metrics");
    let (status, _) = rig.ask(None, "GET", "/metrics/slis", "").await;
    assert_eq!(status, 403, "refusals are kept for their time");
}

/// The list is whole: every root of the main listener's paths is in it.
#[test]
fn the_list_of_paths_has_every_root() {
    let rows = rows();
    for root in crate::metrics::known_paths() {
        let start = format!("/{root}");
        assert!(rows.iter().any(|row| row.path.starts_with(&start)), "{start} is missing");
    }
}

#[tokio::test]
async fn nobody_in_particular_may_come_in_when_that_is_configured() {
    let rig = Rig::new(Wish { anonymous: true, ..Wish::default() }).await;
    rig.reviews.allow("system:anonymous", "get", "healthz");
    assert_eq!(rig.ask(None, "GET", "/healthz", "").await, (200, "ok".to_owned()));
    let forbidden = "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
    assert_eq!(rig.ask(None, "GET", "/pods", "").await, (403, forbidden.to_owned()));
    // A wrong credential is refused even so.
    let stranger = Authority::new("elsewhere").client("x", &[]);
    assert_eq!(rig.ask(Some(&stranger), "GET", "/healthz", "").await.0, 401);
    assert_eq!(rig.ask(None, "GET", "/healthz", &bearer("wrong")).await.0, 401);
}

#[tokio::test]
async fn everybody_known_may_everything_when_that_is_configured() {
    let rig =
        Rig::new(Wish { is_always_allowed: true, has_webhooks: false, ..Wish::default() }).await;
    let anybody = rig.authority.client("anybody", &[]);
    assert_eq!(rig.ask(Some(&anybody), "GET", "/pods", "").await.0, 200);
    assert_eq!(rig.ask(None, "GET", "/pods", "").await.0, 401);
    assert_eq!(rig.reviews.asked(), Vec::<String>::new());
    // Without reviews a token is nothing.
    assert_eq!(rig.ask(None, "GET", "/pods", &bearer("good")).await.0, 401);
}

#[tokio::test]
async fn commands_need_create_whatever_the_method() {
    let rig = Rig::new(Wish::default()).await;
    let reader = rig.authority.client("reader", &[]);
    rig.reviews.allow("reader", "get", "proxy");
    let upgrade = "Upgrade: websocket\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n";
    for path in [
        "/exec/default/web/main?output=1",
        "/attach/default/web/main?output=1",
        "/portForward/default/web?port=1",
    ] {
        for method in ["GET", "POST"] {
            let (status, body) = rig.ask(Some(&reader), method, path, upgrade).await;
            assert_eq!(status, 403, "{method} {path}");
            let words =
                "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n";
            assert_eq!(body, words);
        }
    }
    assert_eq!(rig.ask(Some(&reader), "POST", "/run/default/web/main?cmd=id", "").await.0, 403);
    assert!(rig.streams.asked().is_empty());
}

#[tokio::test]
async fn answers_of_the_api_server_are_kept() {
    let rig = Rig::new(Wish::default()).await;
    let reader = rig.authority.client("reader", &[]);
    rig.reviews.allow("reader", "get", "pods");
    rig.reviews.add_token("good", Subject { name: "reader".to_owned(), ..Subject::default() });
    for _ in 0..3 {
        assert_eq!(rig.ask(Some(&reader), "GET", "/pods", "").await.0, 200);
        assert_eq!(rig.ask(None, "GET", "/pods", &bearer("good")).await.0, 200);
        assert_eq!(rig.ask(Some(&reader), "GET", "/configz", "").await.0, 403);
    }
    let mut asked = rig.reviews.asked();
    asked.sort();
    // The two ways to be the reader differ in what else they tell, so each is asked about once.
    let once = [
        "reader get configz",
        "reader get pods",
        "reader get pods",
        "reader get proxy",
        "token good",
    ];
    assert_eq!(asked, once);
}

#[tokio::test]
async fn an_api_server_that_is_away_is_an_error_and_not_a_yes() {
    let rig = Rig::new(Wish::default()).await;
    let reader = rig.authority.client("reader", &[]);
    rig.reviews.set_away(true);
    let error = "Authorization error (user=reader, verb=get, resource=nodes, subresource=pods)";
    assert_eq!(rig.ask(Some(&reader), "GET", "/pods", "").await, (500, error.to_owned()));
    assert_eq!(rig.reviews.asked().len(), 5, "asked again, and not for ever");
}

#[tokio::test]
async fn strangers_learn_nothing_about_paths() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    for path in ["/", "/nowhere", "/exec", "/debug/nowhere"] {
        assert_eq!(rig.ask(None, "GET", path, "").await.0, 401, "{path}");
        assert_eq!(rig.ask(Some(&admin), "GET", path, "").await.0, 404, "{path}");
    }
    for path in [
        "/pods/../exec/default/web/main",
        "/logs/%2e%2e/etc/passwd",
        "/logs%2f..%2fetc",
        "/logs//etc",
        "/healthz/%00",
        "/./pods",
    ] {
        assert_eq!(rig.ask(Some(&admin), "GET", path, "").await.0, 400, "{path}");
    }
    assert_eq!(rig.ask(Some(&admin), "DELETE", "/pods", "").await.0, 405);
    assert_eq!(rig.ask(Some(&admin), "GET", "/run/default/web/main?cmd=id", "").await.0, 405);
    assert_eq!(
        rig.ask(Some(&admin), "GET", "/configz", "").await.1,
        "{\"kubeletconfig\":{\"port\":10250}}"
    );
}

#[tokio::test]
async fn switched_off_handlers_say_so() {
    let rig = Rig::new(Wish { has_debugging_handlers: false, ..Wish::default() }).await;
    let admin = rig.admin();
    let off = (405, "Debug endpoints are disabled.\n".to_owned());
    for path in [
        "/exec/default/web/main",
        "/containerLogs/default/web/main",
        "/runningpods/",
        "/logs/syslog",
        "/debug/pprof/heap",
    ] {
        assert_eq!(rig.ask(Some(&admin), "GET", path, "").await, off, "{path}");
    }
    assert_eq!(rig.ask(Some(&admin), "GET", "/pods", "").await.0, 200);
}

#[tokio::test]
async fn pages_about_the_process_have_rights_of_their_own() {
    let rig = Rig::new(Wish::default()).await;
    let reader = rig.authority.client("reader", &[]);
    let check = async |grant: &str, expected: [u16; 3]| {
        // Another user each time: refusals are remembered.
        let who = rig.authority.client(grant, &[]);
        rig.reviews.allow(grant, "get", grant);
        for (path, expected) in ["/configz", "/flagz", "/statusz"].iter().zip(expected) {
            let (status, _) = rig.ask(Some(&who), "GET", path, "").await;
            assert_eq!(status, expected, "{grant} {path}");
        }
    };
    check("configz", [200, 200, 403]).await;
    check("statusz", [403, 403, 200]).await;
    check("proxy", [200, 403, 403]).await;
    assert_eq!(rig.ask(Some(&reader), "GET", "/flagz", "").await.0, 403);
}
