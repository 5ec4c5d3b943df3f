use super::*;
use crate::docker::Login;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second)
}

fn named(name: &str) -> Coordinates {
    Coordinates { namespace: "ns".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") }
}

fn secret(name: &str, fingerprint: &str) -> PullCredentials {
    PullCredentials {
        secrets: vec![SecretUse { secret: named(name), fingerprint: fingerprint.to_owned() }],
        ..PullCredentials::default()
    }
}

fn account(name: &str) -> PullCredentials {
    PullCredentials { service_accounts: vec![named(name)], ..PullCredentials::default() }
}

fn node_wide() -> PullCredentials {
    PullCredentials::of(None)
}

/// As the upstream kubelet 1.37 writes them.
#[test]
fn files_have_upstreams_shape_and_names() {
    assert_eq!(
        encode_intent("docker.io/testing/test:latest"),
        "{\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"image\":\"docker.io/testing/test:latest\",\"kind\":\"ImagePullIntent\"}\n"
    );
    assert_eq!(
        file_name("docker.io/testing/test:latest"),
        "sha256-aef2af226629a35d5f3ef0fdbb29fdbebf038d0acd8850590e8c48e1e283aa56"
    );
    let mut credentials = secret("pull", "hash");
    credentials.service_accounts.push(named("robot"));
    let record = PulledRecord {
        last_updated: at(1_767_225_600),
        image_ref: "sha256:abc".to_owned(),
        credentials: BTreeMap::from([
            ("a.test/x".to_owned(), credentials),
            ("b.test/x".to_owned(), node_wide()),
        ]),
    };
    let text = encode_record(&record);
    assert!(text.contains("\"lastUpdatedTime\":\"2026-01-01T00:00:00Z\""), "{text}");
    assert!(text.contains("\"b.test/x\":{\"nodePodsAccessible\":true}"), "{text}");
    assert_eq!(decode_record(text.as_bytes()).unwrap(), record);
    assert_eq!(decode_intent(encode_intent("x").as_bytes()).unwrap(), "x".to_owned());
}

#[test]
fn an_older_version_is_read_and_a_stranger_is_not() {
    let old =
        br#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1alpha1","image":"x"}"#;
    assert_eq!(decode_intent(old).unwrap(), "x");
    let check = |text: &str, message: &str| {
        assert_eq!(decode_record(text.as_bytes()).unwrap_err().to_string(), message);
    };
    check("}", "is not a JSON object");
    check(r#"{"kind":"Pod","apiVersion":"v1"}"#, "kind \"Pod\" of \"v1\" is not known here");
    let head = r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1""#;
    check(&format!("{head},\"more\":1}}"), "field more is not what it should be");
    check(
        &format!("{head},\"lastUpdatedTime\":\"yesterday\"}}"),
        "field lastUpdatedTime is not what it should be",
    );
    check(
        &format!("{head},\"credentialMapping\":{{\"a\":{{\"kubernetesSecrets\":[1]}}}}}}"),
        "field kubernetesSecrets is not what it should be",
    );
}

#[test]
fn credentials_add_up() {
    let first = |credentials| after_pull(None, "a", "ref", credentials, at(1));
    let check = |before: PullCredentials, new: PullCredentials, after: Option<PullCredentials>| {
        let record = first(Some(before));
        let merged = after_pull(record, "a", "ref", Some(new), at(2));
        assert_eq!(merged.map(|it| it.credentials["a"].clone()), after);
    };
    let both = |a: &PullCredentials, b: &PullCredentials| PullCredentials {
        secrets: [a.secrets.clone(), b.secrets.clone()].concat(),
        service_accounts: [a.service_accounts.clone(), b.service_accounts.clone()].concat(),
        is_node_wide: false,
    };
    let (one, two) = (secret("one", "1"), secret("two", "2"));
    check(one.clone(), one.clone(), None);
    check(two.clone(), one.clone(), Some(both(&one, &two)));
    check(one.clone(), secret("one", "new"), Some(secret("one", "new")));
    check(one.clone(), account("robot"), Some(both(&one, &account("robot"))));
    check(one.clone(), node_wide(), Some(node_wide()));
    check(node_wide(), one.clone(), None);
    check(one.clone(), PullCredentials::default(), None);
    // How it came here is not known: the record is there, and empty.
    let unknown = first(None).unwrap();
    assert!(unknown.credentials.is_empty());
    assert_eq!(after_pull(Some(unknown), "a", "ref", None, at(2)), None);
    // Another repository of the same image has its own list.
    let record = after_pull(first(Some(one)), "b", "ref", Some(two), at(2)).unwrap();
    assert_eq!(record.credentials.len(), 2);
    assert_eq!(record.last_updated, at(2));
}

#[test]
fn what_opened_the_registry_says_who_may_use_the_image() {
    let credential = |source| Credential { login: Login::default(), source };
    let node = credential(Source::Node);
    let robot = credential(Source::ServiceAccount(named("robot")));
    let pull = credential(Source::Secret(named("pull")));
    assert!(PullCredentials::of(None).is_node_wide);
    assert!(PullCredentials::of(Some(&node)).is_node_wide);
    assert_eq!(PullCredentials::of(Some(&robot)), account("robot"));
    assert_eq!(PullCredentials::of(Some(&pull)), secret("pull", &pull.fingerprint()));
}
