use super::*;

const HEAD: &str =
    "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n";
const ONE: &str = "- name: ecr\n  matchImages: ['*.dkr.ecr.*.amazonaws.com', 'registry.test:5000/team']\n  defaultCacheDuration: 12h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  args: [get]\n  env:\n  - {name: AWS_PROFILE, value: x}\n";

#[test]
fn a_whole_file_is_read() {
    let token = "  tokenAttributes:\n    serviceAccountTokenAudience: registry\n    cacheType: Token\n    requireServiceAccount: true\n    requiredServiceAccountAnnotationKeys: [example.org/role]\n    optionalServiceAccountAnnotationKeys: [team]\n";
    let read = parse_config(&format!("{HEAD}{ONE}{token}")).unwrap();
    let provider = &read[0];
    assert_eq!(provider.name, "ecr");
    assert_eq!(provider.default_cache, Duration::from_secs(12 * 3600));
    assert_eq!(provider.args, ["get"]);
    assert_eq!(provider.env, [("AWS_PROFILE".to_owned(), "x".to_owned())]);
    assert!(provider.is_for("1.dkr.ecr.eu.amazonaws.com/app"));
    assert!(!provider.is_for("registry.test:5000/other"));
    let token = provider.token.as_ref().unwrap();
    assert_eq!(token.cache, TokenCache::Token);
    assert_eq!(token.required_annotations, ["example.org/role"]);
    // JSON is YAML too.
    let json = r#"{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"CredentialProviderConfig","providers":[]}"#;
    assert_eq!(parse_config(json).unwrap(), []);
}

#[test]
fn files_are_merged_and_names_must_differ() {
    let file = || parse_config(&format!("{HEAD}{ONE}")).unwrap();
    assert_eq!(merge(vec![file()]).unwrap().len(), 1);
    let check = |files, message: &str| {
        assert_eq!(merge(files).unwrap_err().to_string(), message);
    };
    check(vec![file(), file()], "provider \"ecr\" is configured more than once");
    check(vec![], "providers: at least one is needed");
}

#[test]
fn every_fault_names_its_field_and_value() {
    let check = |text: String, parts: &[&str]| {
        let error = parse_config(&text).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "no {part:?} in {error:?}");
        }
    };
    check(
        "kind: Pod\napiVersion: v1".to_owned(),
        &["kind: \"Pod\" must be CredentialProviderConfig", "apiVersion: \"v1\" must be"],
    );
    check("[]".to_owned(), &["must be an object"]);
    check("a: [".to_owned(), &["line"]);
    check(
        format!("{HEAD}{}", ONE.replace("args:", "arguments:")),
        &["providers[0].arguments: no such field"],
    );
    check(
        format!("{HEAD}- name: ../evil\n"),
        &[
            "providers[0].name: \"../evil\" must be",
            "providers[0].matchImages: at least one",
            "providers[0].apiVersion: \"\" must be one of",
            "providers[0].defaultCacheDuration: is needed",
        ],
    );
    check(
        format!("{HEAD}{}", ONE.replace("12h", "-1s")),
        &["providers[0].defaultCacheDuration: \"-1s\" must be a duration"],
    );
    check(
        format!("{HEAD}{}", ONE.replace("'*.dkr.ecr.*.amazonaws.com'", "'a b'")),
        &["providers[0].matchImages: \"a b\" is not a pattern"],
    );
    check(
        format!(
            "{HEAD}{}  tokenAttributes: {{cacheType: Own, more: 1}}\n",
            ONE.replace("k8s.io/v1\n  args", "k8s.io/v1beta1\n  args")
        ),
        &[
            "providers[0].tokenAttributes.more: no such field",
            "providers[0].tokenAttributes: needs apiVersion credentialprovider.kubelet.k8s.io/v1",
            "serviceAccountTokenAudience: is needed",
            "cacheType: \"Own\" must be ServiceAccount or Token",
            "requireServiceAccount: must be true or false",
        ],
    );
    check(
        format!(
            "{HEAD}{ONE}  tokenAttributes: {{serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [x, x, 'b ad']}}\n"
        ),
        &[
            "requiredServiceAccountAnnotationKeys: may only be set",
            "\"x\" is named twice",
            "\"b ad\" is not the key of an annotation",
        ],
    );
}
