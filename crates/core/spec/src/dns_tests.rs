use serde_json::{Value, json};

use super::*;

fn pod(spec: Value) -> Pod {
    let mut spec = spec;
    spec["containers"] = json!([]);
    let metadata = json!({"name": "web", "namespace": "ns", "uid": "u"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn node() -> NodeDns {
    NodeDns {
        cluster_dns: vec!["10.96.0.10".to_owned()],
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: Some(
            parse_resolv_conf(
                "nameserver 1.1.1.1\nsearch corp.example. cluster.local\noptions edns0\n",
            )
            .unwrap(),
        ),
        node_ips: vec!["10.0.0.1".to_owned()],
    }
}

fn text(spec: &DnsSpec) -> String {
    format!("{} | {} | {}", spec.servers.join(" "), spec.searches.join(" "), spec.options.join(" "))
}

fn check(spec: Value, node: &NodeDns, expected: &str) -> Vec<Notice> {
    let found = pod_dns(&pod(spec), node);
    assert_eq!(text(&found.spec), expected);
    found.notices
}

const CLUSTER: &str =
    "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local corp.example | ndots:5";
const HOST: &str = "1.1.1.1 | corp.example cluster.local | edns0";

/// DNS: the policies.
#[test]
fn the_policy_chooses_between_cluster_node_and_nothing() {
    for (spec, expected) in [
        (json!({}), CLUSTER),
        (json!({"dnsPolicy": "ClusterFirst"}), CLUSTER),
        (json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}), HOST),
        (json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}), CLUSTER),
        (json!({"dnsPolicy": "Default"}), HOST),
        (json!({"dnsPolicy": "None"}), " |  | "),
        (json!({"dnsPolicy": "Bogus"}), CLUSTER),
    ] {
        assert!(check(spec, &node(), expected).is_empty());
    }
}

#[test]
fn the_pods_own_configuration_is_merged_in() {
    let own = json!({
        "nameservers": ["9.9.9.9", "10.96.0.10"], "searches": ["own.example", "svc.cluster.local"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]});
    check(
        json!({ "dnsConfig": own }),
        &node(),
        "10.96.0.10 9.9.9.9 | ns.svc.cluster.local svc.cluster.local cluster.local corp.example own.example | ndots:2 edns0",
    );
    check(
        json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["9.9.9.9"]}}),
        &node(),
        "9.9.9.9 |  | ",
    );
}

/// DNS: `MissingClusterDNS`.
#[test]
fn a_node_without_cluster_dns_falls_back_and_says_so() {
    let lonely = NodeDns { cluster_dns: Vec::new(), ..node() };
    let notices = check(json!({}), &lonely, HOST);
    let said = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. \
                Falling back to \"Default\" policy.";
    assert_eq!((notices[0].about, notices[0].message.as_str()), (NoticeAbout::Node, said));
    assert_eq!(notices[1].message, format!("pod: \"web_ns(u)\". {said}"));
    assert!(notices.iter().all(|n| n.reason == "MissingClusterDNS"));
}

#[test]
fn without_a_resolver_lookups_go_to_the_node_itself() {
    let dual = NodeDns {
        resolv_conf: None,
        node_ips: vec!["fd00::1".to_owned(), "10.0.0.1".to_owned()],
        ..node()
    };
    check(json!({"dnsPolicy": "Default"}), &dual, "::1 127.0.0.1 | . | ");
    check(json!({"dnsPolicy": "Default"}), &NodeDns::default(), "127.0.0.1 | . | ");
}

/// DNS: three servers, 32 search paths, 2048 characters; `DNSConfigForming`.
#[test]
fn what_exceeds_the_limits_is_cut_with_a_warning() {
    let many: Vec<String> = (0..40).map(|n| format!("d{n}.example")).collect();
    let kept = many[..32].join(" ");
    let own =
        json!({"nameservers": ["1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"], "searches": many});
    let notices = check(
        json!({"dnsPolicy": "None", "dnsConfig": own}),
        &node(),
        &format!("1.0.0.1 1.0.0.2 1.0.0.3 | {kept} | "),
    );
    let messages: Vec<&str> = notices.iter().map(|n| n.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.0.0.1 1.0.0.2 1.0.0.3",
            &format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {kept}"
            ),
        ]
    );
    let long: Vec<String> = (0..10).map(|n| format!("{n}{}", "x".repeat(240))).collect();
    let kept = long[..8].join(" ");
    let searches = [long, vec!["y".repeat(254)]].concat();
    check(
        json!({"dnsPolicy": "None", "dnsConfig": {"searches": searches}}),
        &node(),
        &format!(" | {kept} | "),
    );
}

#[test]
fn resolver_files_are_read_as_resolvers_do() {
    let conf = |text: &str| parse_resolv_conf(text).map(|c| text_of(&c));
    assert_eq!(
        conf(
            "# nameserver 0.0.0.0\n  nameserver 1.2.3.4\nnameserver fd00::1 x\nsearch a\nsearch b. . c\noptions ndots:1 x\noptions ndots:3\n;\n"
        ),
        Ok("1.2.3.4 fd00::1 | b c | ndots:3 x".to_owned())
    );
    assert_eq!(conf(""), Ok(" |  | ".to_owned()));
    assert_eq!(conf("search"), Ok(" |  | ".to_owned()));
    assert_eq!(conf("nameserver \t\n"), Err(ResolvConfError));
}

fn text_of(conf: &ResolvConf) -> String {
    text(&DnsSpec {
        servers: conf.servers.clone(),
        searches: conf.searches.clone(),
        options: conf.options.clone(),
    })
}

/// DNS: the resolver file is checked.
#[test]
fn a_resolver_file_that_does_not_fit_is_named() {
    let many = |n: usize, chars: usize| vec!["x".repeat(chars); n];
    let said = |searches: Vec<String>, domain: &str| {
        let text = format!("search {}\n", searches.join(" "));
        check_resolv_conf(Ok(&text), "/r", domain).map(|n| n.message)
    };
    let unread = check_resolv_conf(Err("open /r: no such file"), "/r", "").unwrap();
    assert_eq!(
        (unread.about, unread.reason, unread.message.as_str()),
        (NoticeAbout::Node, "CheckLimitsForResolvConf", "open /r: no such file")
    );
    let unparsed = check_resolv_conf(Ok("nameserver\n"), "/r", "").unwrap();
    assert_eq!(unparsed.message, ResolvConfError.to_string());
    assert_eq!(said(many(29, 1), "c"), None);
    assert_eq!(
        said(many(30, 1), "c").unwrap(),
        "Resolv.conf file '/r' contains search line consisting of more than 29 domains!"
    );
    assert_eq!(said(many(32, 1), ""), None);
    assert_eq!(
        said(many(1, 254), "").unwrap(),
        "Resolv.conf file \"/r\" contains a search path which length is more than allowed 253 chars!"
    );
    assert_eq!(
        said(many(20, 200), "").unwrap(),
        "Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!"
    );
}
