use super::*;

fn check(text: &str, expect: Expect, message: &str) {
    check_bytes(text.as_bytes(), expect, message);
}

fn check_bytes(bytes: &[u8], expect: Expect, message: &str) {
    let found = decode(bytes, expect).map(|pods| pods.len());
    let found = found.map_err(|error| error.to_string());
    assert_eq!(found, Err(message.to_owned()), "{}", String::from_utf8_lossy(bytes));
}

/// A pod with one container, whose fields are `container` and whose own are `spec`.
fn pod(spec: &str, container: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  {spec}\n  containers:\n  - name: main\n    {container}\n"
    )
}

#[test]
fn a_pod_reads_from_yaml_and_from_json() {
    let yaml = pod("hostNetwork: yes", "image: busybox");
    let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},
        "spec":{"hostNetwork":true,"containers":[{"name":"main","image":"busybox"}]}}"#;
    let from_yaml = decode(yaml.as_bytes(), Expect::OnePod).unwrap();
    assert_eq!(from_yaml, decode(json.as_bytes(), Expect::OnePod).unwrap());
    assert_eq!(from_yaml[0].spec.as_ref().unwrap().host_network, Some(true));
}

#[test]
fn empty_documents_around_a_pod_do_not_matter() {
    let text = format!("---\n# nothing\n---\n{}---\n", pod("hostNetwork: no", "image: b"));
    assert_eq!(decode(text.as_bytes(), Expect::OnePod).unwrap().len(), 1);
    let with_mark = format!("\u{feff}{}", pod("hostNetwork: no", "image: b"));
    assert_eq!(decode(with_mark.as_bytes(), Expect::OnePod).unwrap().len(), 1);
}

#[test]
fn unknown_fields_are_named_with_value_and_suggestion() {
    check(
        &pod("hostnetwork: true", "portz: [{containerPort: 80}]"),
        Expect::OnePod,
        "spec.containers[0].portz: unknown field \"portz\" with value [{\"containerPort\":80}], did you mean \"ports\"?; \
         spec.hostnetwork: unknown field \"hostnetwork\" with value true, did you mean \"hostNetwork\"?",
    );
    check(
        &pod("zzzzzzzz: 1", "image: b"),
        Expect::OnePod,
        "spec.zzzzzzzz: unknown field \"zzzzzzzz\" with value 1",
    );
}

#[test]
fn wrong_types_are_named_with_value_and_expectation() {
    let cases = [
        (
            "hostPort",
            "ports: [{containerPort: http}]",
            "spec.containers[0].ports[0].containerPort: invalid value \"http\": expected a whole number, found a string",
        ),
        (
            "quoted number",
            "ports: [{containerPort: \"80\"}]",
            "spec.containers[0].ports[0].containerPort: invalid value \"80\": expected a whole number, found a string",
        ),
        (
            "large",
            "ports: [{containerPort: 4294967296}]",
            "spec.containers[0].ports[0].containerPort: invalid value 4294967296: must be between -2147483648 and 2147483647",
        ),
        (
            "fraction",
            "ports: [{containerPort: 80.5}]",
            "spec.containers[0].ports[0].containerPort: invalid value 80.5: must be a whole number",
        ),
        (
            "unquoted",
            "env: [{name: PORT, value: 8080}]",
            "spec.containers[0].env[0].value: invalid value 8080: expected a string, found a number; quote it",
        ),
        (
            "truth",
            "env: [{name: A, value: yes}]",
            "spec.containers[0].env[0].value: invalid value true: expected a string, found a boolean; quote it",
        ),
        (
            "map",
            "ports: {containerPort: 80}",
            "spec.containers[0].ports: invalid value {\"containerPort\":80}: expected a list, found an object",
        ),
        (
            "text",
            "command: sleep 1",
            "spec.containers[0].command: invalid value \"sleep 1\": expected a list, found a string",
        ),
        (
            "bool",
            "tty: \"true\"",
            "spec.containers[0].tty: invalid value \"true\": expected true or false, found a string",
        ),
        (
            "quantity",
            "resources: {limits: {memory: 64MB}}",
            "spec.containers[0].resources.limits[memory]: invalid value \"64MB\": must be a quantity such as 500m, 1.5 or 64Mi",
        ),
        (
            "null entry",
            "ports: [null]",
            "spec.containers[0].ports[0]: invalid value null: expected an object, found nothing",
        ),
    ];
    for (_, container, message) in cases {
        check(&pod("hostNetwork: no", container), Expect::OnePod, message);
    }
}

#[test]
fn numbers_are_read_as_go_reads_them() {
    let text = pod(
        "terminationGracePeriodSeconds: 10.0",
        "resources: {limits: {cpu: 1, memory: 1e3, a/b: 0.50}}\n    args: [a, null]",
    );
    let pod = decode(text.as_bytes(), Expect::OnePod).unwrap().remove(0);
    let spec = pod.spec.unwrap();
    assert_eq!(spec.termination_grace_period_seconds, Some(10));
    let limits = spec.containers[0].resources.clone().unwrap().limits.unwrap();
    let limits: Vec<_> = limits.iter().map(|(name, it)| (name.as_str(), it.0.as_str())).collect();
    assert_eq!(limits, [("a/b", "0.5"), ("cpu", "1"), ("memory", "1000")]);
    assert_eq!(spec.containers[0].args, Some(vec!["a".to_owned(), String::new()]));
}

#[test]
fn what_is_no_manifest_is_refused_with_one_message() {
    check("", Expect::OnePod, "the manifest is empty");
    check("  \n# only a comment\n---\n", Expect::OnePod, "the manifest is empty");
    check("just text", Expect::OnePod, "expected an object, found \"just text\"");
    check("[1]", Expect::OnePod, "expected an object, found [1]");
    check(
        "kind: Deployment\napiVersion: apps/v1",
        Expect::OnePod,
        "kind: invalid value \"Deployment\": a manifest file holds one Pod",
    );
    check("a: b", Expect::OnePod, "kind: missing; a manifest file holds one Pod");
    check(
        "kind: PodList\napiVersion: v1\nitems: []",
        Expect::OnePod,
        "kind: invalid value \"PodList\": a manifest file holds one Pod",
    );
    check("kind: Pod", Expect::OnePod, "apiVersion: missing; expected v1");
    check(
        "kind: Pod\napiVersion: v2",
        Expect::Pods,
        "apiVersion: invalid value \"v2\": must be v1",
    );
    let twice = format!("{0}---\n{0}", pod("hostNetwork: no", "image: b"));
    check(&twice, Expect::OnePod, "the manifest holds 2 YAML documents where one is expected");
    check_bytes(
        b"\x7fELF\x02\x01\x01\x00\x00",
        Expect::OnePod,
        "the manifest is not text: byte 0x02 at offset 4",
    );
    check_bytes(
        b"kind: \xff\xfe",
        Expect::OnePod,
        "the manifest is not text: byte 0xff at offset 6",
    );
    check_bytes(&vec![b' '; MAX_BYTES + 1], Expect::OnePod, "the manifest is larger than 10 MiB");
}

#[test]
fn broken_texts_say_where_they_break() {
    for text in [
        "kind: Pod\n  metadata: {name: a}\n",
        "kind: [Pod\n",
        "kind: Pod\nkind: Pod\n",
        "{\"kind\": \"Pod\", \"kind\": \"Pod\"}",
        "{\"kind\": \"Pod\", ",
        "kind: Pod\nmetadata: {name: a, name: b}\n",
        "kind: Pod\nx: .nan\n",
    ] {
        match decode(text.as_bytes(), Expect::OnePod) {
            Err(ManifestError::Syntax(message)) => {
                assert!(message.contains("line") && !message.contains('\n'), "{text}: {message}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_duplicate_key_is_named() {
    let error = decode(b"kind: Pod\nmetadata: {name: a, name: b}\n", Expect::OnePod).unwrap_err();
    assert!(error.to_string().contains("name"), "{error}");
}

#[test]
fn a_truncated_manifest_is_refused_wherever_it_was_cut() {
    let text = pod("hostNetwork: true", "image: busybox");
    let whole = text.trim_end().len();
    let n_good =
        (0..whole).filter(|cut| decode(&text.as_bytes()[..*cut], Expect::OnePod).is_ok()).count();
    // Some cuts leave a smaller pod that is well formed; validation refuses it for what is missing.
    assert!(n_good < whole / 2, "{n_good} of {whole}");
}

#[test]
fn an_alias_bomb_stays_small() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let list = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    text.push_str("kind: Pod\napiVersion: v1\n");
    match decode(text.as_bytes(), Expect::OnePod) {
        Err(ManifestError::Syntax(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn deep_nesting_is_refused_without_overflowing() {
    let yaml = format!("kind: Pod\nx: {}", "[".repeat(100_000));
    let json = format!("{{\"kind\": \"Pod\", \"x\": {}", "[".repeat(100_000));
    for text in [yaml, json] {
        assert!(matches!(decode(text.as_bytes(), Expect::OnePod), Err(ManifestError::Syntax(_))));
    }
}

#[test]
fn lists_hold_pods_and_faults_name_the_entry() {
    let list = "kind: PodList\napiVersion: v1\nmetadata: {}\nitems:\n- metadata: {name: a}\n- kind: Pod\n  metadata: {name: b}\n";
    let pods = decode(list.as_bytes(), Expect::Pods).unwrap();
    assert_eq!(pods.len(), 2);
    assert_eq!(pods[1].metadata.name.as_deref(), Some("b"));
    check(
        "kind: List\napiVersion: v1\nitems:\n- {kind: Service}\n- {spec: {contaners: []}}\nextra: 1\n",
        Expect::Pods,
        "extra: unknown field \"extra\" with value 1; items[0].kind: invalid value \"Service\": must be Pod; \
         items[1].spec.contaners: unknown field \"contaners\" with value [], did you mean \"containers\"?",
    );
}
