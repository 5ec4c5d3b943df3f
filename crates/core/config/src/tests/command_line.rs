//! The command line: pflag's habits, the table of flags, the help text.

use std::collections::BTreeSet;

use serde_json::json;

use super::{command_line, file, load_all, load_flags};
use crate::{
    CommandLine, Invocation, RawConfig, VersionFormat, flag_names, flag_values, help_text,
    is_known_field, version_text,
};

const TABLE: &str = include_str!("../../tests/golden/flags.tsv");

fn parse(arguments: &[&str]) -> Result<Invocation, String> {
    CommandLine::parse(arguments.iter().map(|text| (*text).to_owned()))
        .map_err(|error| error.to_string())
}

/// The specification's rows: name, type, default, field, deprecated.
fn rows() -> impl Iterator<Item = [&'static str; 5]> {
    TABLE.lines().map(|line| line.split('\t').collect::<Vec<_>>().try_into().expect("five columns"))
}

#[test]
fn the_flags_are_those_of_the_specification() {
    let others = [
        "logging-format",
        "log-flush-frequency",
        "v",
        "vmodule",
        "log-text-split-stream",
        "log-text-info-buffer-size",
        "log-json-split-stream",
        "log-json-info-buffer-size",
        "housekeeping-interval",
        "version",
        "help",
    ];
    let ours = ["offline-start", "page-address", "run-once-within", "shutdown-on-sigterm"];
    let upstreams = rows().map(|[name, ..]| name).chain(others);
    let expected: BTreeSet<_> = upstreams.chain(ours).collect();
    let found: BTreeSet<_> = flag_names().collect();
    assert_eq!(found, expected);
    assert_eq!(flag_names().count(), 131 + ours.len());
}

#[test]
fn each_flag_sets_its_field_has_its_default_and_is_deprecated_as_specified() {
    let help = help_text();
    for [name, kind, default, field, deprecated] in rows() {
        let marked =
            help.contains(&format!(" *--{name}\n")) || help.contains(&format!(" *--{name} "));
        assert_eq!(marked, deprecated == "yes", "{name}");
        let (_, shown) = flag_values(&command_line(&[]))
            .into_iter()
            .find(|(known, _)| *known == name)
            .expect(name);
        match (kind, default.split(' ').next().unwrap()) {
            (_, "\"\"" | "(none)" | "(none") => {
                assert!(["", "[]"].contains(&shown.as_str()), "{name}: {shown}")
            }
            ("duration", default) => {
                assert_eq!(
                    crate::duration::parse(&shown),
                    crate::duration::parse(default),
                    "{name}: {shown}"
                );
            }
            ("list", default) => assert_eq!(shown, format!("[{default:?}]"), "{name}"),
            ("bool", "false") => {
                assert!(["false", ""].contains(&shown.as_str()), "{name}: {shown}")
            }
            ("int32", "0") => assert!(["0", ""].contains(&shown.as_str()), "{name}: {shown}"),
            (_, default) => assert_eq!(shown, default, "{name}"),
        }
        if field != "-" {
            assert!(is_known_field(field), "{name}: {field}");
        }
    }
}

/// A value for each type; what the field must then hold.
#[test]
fn every_flag_that_writes_a_field_writes_it() {
    for [name, kind, _, field, _] in rows().filter(|row| row[3] != "-") {
        let text = match (name, kind) {
            ("address" | "healthz-bind-address", _) => "10.1.2.3",
            ("manifest-url-header", _) => "a:b",
            ("feature-gates", _) => "EventedPLEG=true",
            ("eviction-hard" | "eviction-soft", _) => "memory.available<1Gi",
            ("reserved-memory", _) => "0:memory=1Gi",
            ("register-with-taints", _) => "a=b:NoSchedule",
            (_, "map/list") => "a=b",
            (_, "list") => "a,b",
            (_, "bool") => "true",
            (_, "duration") => "7s",
            (_, "int32" | "int64") => "77",
            _ => "word",
        };
        let expected = match (name, kind) {
            ("address" | "healthz-bind-address", _) => json!("10.1.2.3"),
            ("manifest-url-header", _) => json!({"a": ["b"]}),
            ("feature-gates", _) => json!({"EventedPLEG": true}),
            ("eviction-hard" | "eviction-soft", _) => json!({"memory.available": "1Gi"}),
            ("reserved-memory", _) => json!([{"numaNode": 0, "limits": {"memory": "1Gi"}}]),
            ("register-with-taints", _) => {
                json!([{"key": "a", "value": "b", "effect": "NoSchedule"}])
            }
            (_, "map/list") => json!({"a": "b"}),
            (_, "list") => json!(["a", "b"]),
            (_, "bool") => json!(true),
            (_, "duration") => json!("7s"),
            (_, "int32" | "int64") => json!(77),
            _ => json!("word"),
        };
        let mut raw = RawConfig::default();
        command_line(&[&format!("--{name}={text}")]).apply(&mut raw);
        assert_eq!(raw.get(field), Some(&expected), "{name}");
    }
}

#[test]
fn flags_are_written_as_pflag_allows() {
    for (arguments, path, expected) in [
        (&["--max-pods=7"][..], "maxPods", json!(7)),
        (&["--max-pods", "7"], "maxPods", json!(7)),
        (&["--max_pods", "7"], "maxPods", json!(7)),
        (&["--max_pods=7", "--max-pods=8"], "maxPods", json!(8)),
        (&["--oom-score-adj", "-5"], "oomScoreAdj", json!(-5)),
        (&["--fail-swap-on"], "failSwapOn", json!(true)),
        (&["--fail-swap-on=false"], "failSwapOn", json!(false)),
        (&["--fail_swap_on=F"], "failSwapOn", json!(false)),
        (&["-v", "4"], "logging.verbosity", json!(4)),
        (&["-v=4"], "logging.verbosity", json!(4)),
        (&["-v4"], "logging.verbosity", json!(4)),
        (&["--v=4"], "logging.verbosity", json!(4)),
        (
            &["--vmodule=a=1,b=2"],
            "logging.vmodule",
            json!([
            {"filePattern": "a", "verbosity": 1}, {"filePattern": "b", "verbosity": 2}]),
        ),
        (
            &["--cluster-dns=10.0.0.1", "--cluster-dns=10.0.0.2"],
            "clusterDNS",
            json!(["10.0.0.1", "10.0.0.2"]),
        ),
        (&["--cluster-domain="], "clusterDomain", json!("")),
        (
            &["--system-reserved", "cpu=1,memory=2Gi"],
            "systemReserved",
            json!({"cpu": "1", "memory": "2Gi"}),
        ),
        (&["--manifest-url-header=a_b:c,a_b:d"], "staticPodURLHeader", json!({"a_b": ["c", "d"]})),
        (
            &["--reserved-memory=0:memory=1Gi;1:memory=2Gi"],
            "reservedMemory",
            json!([
            {"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 1, "limits": {"memory": "2Gi"}}]),
        ),
        (&["--seccomp-default"], "seccompDefault", json!(true)),
    ] {
        let mut raw = RawConfig::default();
        command_line(arguments).apply(&mut raw);
        assert_eq!(raw.get(path), Some(&expected), "{arguments:?}");
    }
}

#[test]
fn what_is_not_understood_is_explained() {
    for (arguments, expected) in [
        (&["--max-podz=7"][..], "unknown flag --max-podz; did you mean --max-pods?"),
        (&["--zebra"], "unknown flag --zebra"),
        (&["-x"], "unknown flag -x"),
        (&["start"], "unknown command \"start\""),
        (&["--fail-swap-on", "false"], "unknown command \"false\""),
        (&["--", "--config"], "unknown command \"--config\""),
        (&["--max-pods"], "flag --max-pods needs a value"),
        (&["--max-pods=x"], "--max-pods: \"x\" is not a whole number"),
        (
            &["--port=9999999999"],
            "--port: \"9999999999\" is out of range, -2147483648 to 2147483647",
        ),
        (&["--fail-swap-on=maybe"], "--fail-swap-on: \"maybe\" is neither true nor false"),
        (&["--sync-frequency=5"], "--sync-frequency: \"5\" is not a duration such as 1m30s"),
        (&["--address=x"], "--address: \"x\" is not an IP address"),
        (&["--feature-gates=A"], "--feature-gates: \"A\" is not key=value"),
        (&["--feature-gates=A=7"], "--feature-gates: A: \"7\" is neither true nor false"),
        (
            &["--register-with-taints=a=b:Never"],
            "--register-with-taints: \"Never\" is not NoSchedule, PreferNoSchedule or NoExecute",
        ),
        (&["--manifest-url-header=secret"], "--manifest-url-header: a header is not name:value"),
        (
            &["--node-ip=1.1.1.1,2.2.2.2"],
            "--node-ip: \"1.1.1.1,2.2.2.2\" must be one address, or one of each family",
        ),
        (&["--node-labels=-=x"], "--node-labels: \"-\" is not a label key"),
        (
            &["--version=old"],
            "--version: \"old\" is neither true nor raw nor a version such as v1.37.1-mine",
        ),
        (&["--max-pods=x", "--port=y"], "--port: \"y\" is not a whole number"),
    ] {
        let error = parse(arguments).expect_err("not understood");
        assert!(error.ends_with(expected), "{arguments:?}: {error}");
    }
    assert_eq!(parse(&["--max-pods=x", "--port=y"]).unwrap_err().lines().count(), 2);
}

#[test]
fn node_labels_of_kubernetes_are_restricted() {
    for (label, allowed) in [
        ("a=b", true),
        ("a", true),
        ("example.com/a=b", true),
        ("kubernetes.io/hostname=x", true),
        ("node.kubernetes.io/x=y", true),
        ("foo.node.kubernetes.io/x=y", true),
        ("kubelet.kubernetes.io/x=y", true),
        ("kubernetes.io/x=y", false),
        ("node-role.kubernetes.io/control-plane=", false),
        ("x.k8s.io/y=z", false),
        ("notkubernetes.io/x=y", true),
    ] {
        assert_eq!(parse(&[&format!("--node-labels={label}")]).is_ok(), allowed, "{label}");
    }
}

#[test]
fn own_flags_have_their_defaults_and_take_values() {
    let flags = command_line(&[]).flags;
    assert_eq!(flags.root_dir.to_str(), Some("/var/lib/kubelet"));
    assert_eq!(flags.cert_dir.to_str(), Some("/var/lib/kubelet/pki"));
    assert_eq!(flags.maximum_dead_containers_per_container, Some(1));
    assert_eq!(flags.maximum_dead_containers, None);
    assert_eq!(flags.housekeeping_interval.as_secs(), 10);
    assert_eq!(flags.config, None);
    let flags =
        command_line(&["--config", "x.yaml", "--node-ip=10.0.0.1,fd00::1", "--node-labels=a=b,c"])
            .flags;
    assert_eq!(flags.config.unwrap().to_str(), Some("x.yaml"));
    assert_eq!(flags.node_ips.len(), 2);
    assert_eq!(flags.node_labels["c"], "");
}

#[test]
fn an_agent_stays_unless_it_is_told_to_run_pods_once_and_has_no_cluster() {
    assert_eq!(command_line(&[]).flags.run_once_within, None);
    let once = command_line(&["--run-once-within=2m"]).flags;
    assert_eq!(once.run_once_within.map(|it| it.as_secs()), Some(120));
    for (flags, part) in [
        (&["--run-once-within=1m", "--kubeconfig=k"][..], "--kubeconfig"),
        (&["--run-once-within=-1s"], "must not be negative"),
        (&["--run-once-within=soon"], "run-once-within"),
    ] {
        let error = parse(flags).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_signal_ends_pods_only_where_they_get_time() {
    assert!(!command_line(&[]).flags.shutdown_on_sigterm);
    let safe = command_line(&["--address=127.0.0.1", "--shutdown-on-sigterm"]);
    let error = load_all(&safe, None, &[]).unwrap_err().to_string();
    assert!(
        error.contains("--shutdown-on-sigterm") && error.contains("shutdownGracePeriod"),
        "{error}"
    );
    let periods = file("shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s");
    let loaded = load_all(&safe, Some(periods), &[]).unwrap();
    assert!(loaded.flags.shutdown_on_sigterm);
    assert_eq!(loaded.config.shutdown.longest().as_secs(), 30);
}

#[test]
fn help_and_version_come_first() {
    assert_eq!(parse(&["--help"]), Ok(Invocation::Help));
    assert_eq!(parse(&["-h", "--max-pods=x"]), Ok(Invocation::Help));
    assert_eq!(parse(&["--version"]), Ok(Invocation::Version(VersionFormat::Short)));
    assert_eq!(parse(&["--version=raw"]), Ok(Invocation::Version(VersionFormat::Raw)));
    assert!(matches!(parse(&["--version=false"]), Ok(Invocation::Run(_))));
    assert_eq!(version_text(VersionFormat::Short), "Kubernetes v1.37.1 (ferrolet 0.1.0)");
    assert!(version_text(VersionFormat::Raw).contains("GitVersion:\"v1.37.1\""));
}

#[test]
fn the_help_text_fits_and_names_every_flag() {
    let help = help_text();
    for name in flag_names() {
        assert!(help.contains(&format!("--{name}")), "{name}");
    }
    for line in help.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert_eq!(line.trim_end(), line);
    }
    assert!(
        help.contains(" *--max-pods N                    Pods on this node at most. [110]\n"),
        "{help}"
    );
}

#[test]
fn a_zero_given_by_a_flag_is_not_replaced_by_a_default() {
    let error = load_flags(&["--sync-frequency=0"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid configuration: command line: syncFrequency = 0s: must be more than 0s"
    );
    let error = load_flags(&["--container-runtime-endpoint="]).unwrap_err();
    assert!(
        error.to_string().contains("containerRuntimeEndpoint = \"\": must not be empty"),
        "{error}"
    );
}

#[test]
fn flags_that_contradict_or_name_what_is_gone_are_refused_as_upstream_does() {
    for (arguments, expected) in [
        (["--cloud-provider=aws"], "built-in cloud providers are disabled"),
        (["--exit-on-lock-contention"], "no lock file specified"),
    ] {
        let error = CommandLine::parse(arguments.map(str::to_owned)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(command_line(&["--cloud-provider="]).flags.cloud_provider, None);
    let external = command_line(&["--cloud-provider=external"]).flags.cloud_provider;
    assert_eq!(external.as_deref(), Some("external"));
}

#[test]
fn a_flag_that_can_do_nothing_here_says_why() {
    let remarks = |arguments: &[&str]| load_flags(arguments).unwrap().warnings;
    let said = remarks(&["--housekeeping-interval=3s", "--experimental-mounter-path=/m"]);
    assert!(said.iter().any(|it| it.starts_with("--housekeeping-interval has no effect: ")));
    assert!(said.iter().any(|it| it.starts_with("--experimental-mounter-path has no effect: ")));
    let silent = remarks(&["--housekeeping-interval=10s"]);
    assert!(!silent.iter().any(|it| it.contains("has no effect")), "{silent:?}");
}

#[test]
fn a_version_of_ours_with_a_suffix_is_reported() {
    assert_eq!(command_line(&[]).flags.kubelet_version, "v1.37.1");
    for told in ["v1.37.1", "v1.37.1-gke.100", "v1.37.1+k3s1"] {
        assert_eq!(command_line(&[&format!("--version={told}")]).flags.kubelet_version, told);
    }
    for told in ["v1.36.0", "v1.37.10", "v1.37.1-", "v1", "1.37.1", "v1.37.1-a b"] {
        let error = CommandLine::parse([format!("--version={told}")]).unwrap_err();
        assert!(error.to_string().contains("--version: "), "{told}: {error}");
    }
}
