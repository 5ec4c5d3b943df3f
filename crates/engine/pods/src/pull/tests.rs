//! Plugins and records on fakes, with paused time. Whole pods that pull are in
//! `tests/loops/images.rs`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_images::{
    Coordinates, Credential, ImageName, Login, Source,
    provider::{Provider, parse_config},
    record::PullCredentials,
    verify::Verification,
};
use ferrolet_ports::{
    ImageError, Images as _, PullFile,
    metrics::{self, process},
};
use ferrolet_testkit::{FakeLogins, FakeObjects, FakePullFiles, World, pod};
use futures::future::join;

use super::{
    Refusal,
    plugins::Plugins,
    records::{Known, PullRecords},
};

const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

fn provider(rest: &str) -> Vec<Provider> {
    let text = format!(
        "{{apiVersion: kubelet.config.k8s.io/v1, kind: CredentialProviderConfig, providers: [{{name: p, matchImages: ['*.test'], defaultCacheDuration: 10m, apiVersion: {V1}{rest}}}]}}"
    );
    parse_config(&text).unwrap()
}

fn answer(scope: &str, duration: Option<&str>) -> String {
    let duration = duration.map_or(String::new(), |it| format!(",\"cacheDuration\":\"{it}\""));
    format!(
        "{{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"{V1}\",\"cacheKeyType\":\"{scope}\"{duration},\"auth\":{{\"*.test\":{{\"username\":\"u\",\"password\":\"p\"}}}}}}"
    )
}

/// Credential providers: the cache by image, registry or node, for the duration that the
/// answer names.
#[tokio::test(start_paused = true)]
async fn answers_are_kept_as_long_and_as_wide_as_they_say() {
    let check = async |scope: &'static str, duration: Option<&'static str>, n_runs: [usize; 4]| {
        let logins = FakeLogins::default();
        logins.set_plugin(Duration::ZERO, move |_| Ok(answer(scope, duration)));
        let plugins = Plugins::new(provider(""), Arc::new(logins.clone()));
        let web = pod("web").build();
        let ask = async |place: &str| {
            let found = plugins.credentials(None, &web, place).await;
            assert_eq!(found.len(), 1, "{scope} {place}");
            assert_eq!(found[0].source, Source::Node);
            logins.calls().len()
        };
        let mut seen = [ask("a.test/x").await, 0, 0, 0];
        ask("a.test/x").await;
        seen[1] = ask("a.test/y").await;
        seen[2] = ask("b.test/x").await;
        tokio::time::advance(Duration::from_secs(301)).await;
        seen[3] = ask("a.test/x").await;
        assert_eq!(seen, n_runs, "{scope} {duration:?}");
    };
    check("Image", None, [1, 2, 3, 3]).await;
    check("Registry", None, [1, 1, 2, 2]).await;
    check("Global", None, [1, 1, 1, 1]).await;
    check("Global", Some("5m"), [1, 1, 1, 2]).await;
    check("Global", Some("0s"), [1, 3, 4, 5]).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_want_the_same_share_a_run_and_others_are_not_asked() {
    let logins = FakeLogins::default();
    logins.set_plugin(Duration::from_secs(5), |_| Ok(answer("Image", Some("0s"))));
    let plugins = Plugins::new(provider(""), Arc::new(logins.clone()));
    let web = pod("web").build();
    let (one, two) = join(
        plugins.credentials(None, &web, "a.test/x"),
        plugins.credentials(None, &web, "a.test/x"),
    )
    .await;
    assert_eq!((one.len(), two.len(), logins.calls().len()), (1, 1, 1));
    assert!(plugins.credentials(None, &web, "a.example/x").await.is_empty());
    assert_eq!(logins.calls().len(), 1);
}

/// Credential providers: a plugin that fails gives nothing and harms nobody; runs that failed
/// are counted.
#[tokio::test(start_paused = true)]
async fn a_plugin_that_fails_or_babbles_has_nothing() {
    let logins = FakeLogins::default();
    let plugins = Plugins::new(provider(""), Arc::new(logins.clone()));
    let web = pod("web").build();
    for output in
        [Err("exit status 1".to_owned()), Ok("secret".to_owned()), Ok(answer("Node", None))]
    {
        logins.set_plugin(Duration::ZERO, move |_| output.clone());
        assert!(plugins.credentials(None, &web, "a.test/x").await.is_empty());
    }
    logins.set_plugin(Duration::ZERO, |_| Ok(answer("Image", None)));
    assert_eq!(plugins.credentials(None, &web, "a.test/x").await.len(), 1);
    // No other test has a plugin that fails.
    let counter = metrics::KUBELET_CREDENTIAL_PROVIDER_PLUGIN_ERRORS_TOTAL;
    let expected = [counter.sample([&provider("")[0].name], 1.0)];
    assert_eq!(process().samples_of(counter), expected);
}

/// Credential providers: tokenAttributes.
#[tokio::test(start_paused = true)]
async fn a_plugin_gets_the_token_and_annotations_of_the_pods_account() {
    let world = World::new();
    let objects = FakeObjects::new(world.clock());
    let logins = FakeLogins::default();
    logins.set_plugin(Duration::ZERO, |_| Ok(answer("Image", None)));
    let token = ", tokenAttributes: {serviceAccountTokenAudience: reg, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [role], optionalServiceAccountAnnotationKeys: [team]}";
    let plugins = Plugins::new(provider(token), Arc::new(logins.clone()));
    let with_account = pod("web")
        .edit(|pod| {
            let spec = pod.spec.get_or_insert_default();
            spec.service_account_name = Some("robot".to_owned());
        })
        .build();
    let ask = async |pod: &ferrolet_types::Pod| {
        plugins.credentials(Some(&objects), pod, "a.test/x").await
    };
    assert!(ask(&pod("static").build()).await.is_empty(), "no account");
    assert!(ask(&with_account).await.is_empty(), "no such account");
    objects.set_service_account("robot", &[("team", "a")]);
    assert!(ask(&with_account).await.is_empty(), "no annotation");
    assert!(logins.calls().is_empty());
    objects.set_service_account("robot", &[("team", "a"), ("role", "puller")]);
    let found = ask(&with_account).await;
    let robot = Coordinates {
        namespace: "default".to_owned(),
        name: "robot".to_owned(),
        uid: "uid-robot".to_owned(),
    };
    assert_eq!(found[0].source, Source::ServiceAccount(robot));
    let input = &logins.calls()[0].input;
    for part in ["token-1", "\"role\":\"puller\"", "\"team\":\"a\""] {
        assert!(input.contains(part), "no {part} in {input}");
    }
}

fn secret(name: &str, password: &str) -> Credential {
    Credential {
        login: Login { password: password.to_owned(), ..Login::default() },
        source: Source::Secret(Coordinates {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
        }),
    }
}

const IMAGE: &str = "a.test/app:1";

async fn look(records: &PullRecords, name: &ImageName) -> &'static str {
    match records.look(IMAGE, name, "sha256:1").await {
        Known::NotNeeded => "not needed",
        Known::Allowed => "allowed",
        Known::PullAgain => "pull",
        Known::Depends(_) => "depends",
    }
}

/// Credential verification: the intent before the pull, the record after.
#[tokio::test(start_paused = true)]
async fn a_pull_leaves_a_record_and_no_intent() {
    let (world, files) = (World::new(), FakePullFiles::default());
    let policy = Verification::UnlessPreloaded;
    let records = PullRecords::new(Arc::new(files.clone()), policy, world.clock());
    let name = ImageName::parse(IMAGE).unwrap();
    assert_eq!(look(&records, &name).await, "not needed");
    let intent = records.begin(IMAGE).await.unwrap();
    assert_eq!(look(&records, &name).await, "pull");
    assert_eq!(files.contents(PullFile::Intent).len(), 1);
    intent.succeeded(&name, "sha256:1", Some(&secret("pull", "p"))).await;
    assert!(files.contents(PullFile::Intent).is_empty());
    let Known::Depends(known) = records.look(IMAGE, &name, "sha256:1").await else {
        panic!("the record says whose it is");
    };
    let is_proven = async |offered: Credential| {
        let offered = [offered];
        records.is_proven(&name, "sha256:1", &known, &offered).await
    };
    assert!(!is_proven(secret("other", "q")).await);
    assert!(is_proven(secret("pull", "p")).await);
    assert!(is_proven(secret("copy", "p")).await);
    let record = files.contents(PullFile::Record).concat();
    assert!(record.contains("\"name\":\"copy\""), "{record}");
    // A failed pull changes nothing.
    records.begin(IMAGE).await.unwrap().failed().await;
    assert!(files.contents(PullFile::Intent).is_empty());
    // One that everybody could have made opens the image to everybody.
    let intent = records.begin(IMAGE).await.unwrap();
    intent.succeeded(&name, "sha256:1", None).await;
    assert_eq!(look(&records, &name).await, "allowed");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_was_dropped_keeps_its_intent_until_one_succeeds() {
    let (world, files) = (World::new(), FakePullFiles::default());
    let policy = Verification::UnlessPreloaded;
    let records = PullRecords::new(Arc::new(files.clone()), policy, world.clock());
    let name = ImageName::parse(IMAGE).unwrap();
    drop(records.begin(IMAGE).await.unwrap());
    assert_eq!(look(&records, &name).await, "pull");
    records.begin(IMAGE).await.unwrap().failed().await;
    assert_eq!(look(&records, &name).await, "pull");
    let intent = records.begin(IMAGE).await.unwrap();
    intent.succeeded(&name, "sha256:1", None).await;
    assert!(files.contents(PullFile::Intent).is_empty());
}

/// Credential verification: intents at the start.
#[tokio::test(start_paused = true)]
async fn an_intent_of_an_earlier_life_becomes_a_record_without_credentials() {
    let (world, files) = (World::new(), FakePullFiles::default());
    world.add_image(IMAGE);
    let id = world.images().image_status(IMAGE).await.unwrap().unwrap().id;
    for image in [IMAGE, "a.test/absent:1"] {
        let content = ferrolet_images::record::encode_intent(image);
        let name = ferrolet_images::record::file_name(image);
        files.put(PullFile::Intent, &name, &content);
    }
    files.put(PullFile::Intent, "sha256-bad", "nonsense");
    let policy = Verification::UnlessPreloaded;
    let records = PullRecords::new(Arc::new(files.clone()), policy, world.clock());
    records.recover(world.images().as_ref()).await;
    assert_eq!(files.contents(PullFile::Intent).len(), 2);
    let name = ImageName::parse(IMAGE).unwrap();
    assert!(matches!(records.look(IMAGE, &name, &id).await, Known::PullAgain));
    let record =
        ferrolet_images::record::decode_record(files.contents(PullFile::Record)[0].as_bytes())
            .unwrap();
    assert_eq!(record.credentials, BTreeMap::<String, PullCredentials>::new());
}

/// Errors of pulls have upstream's reasons, for the event and for the status.
#[test]
fn errors_of_a_pull_map_to_reasons() {
    let plain = |text: &str| ImageError::Unspecified(text.to_owned());
    let unavailable = || ImageError::RegistryUnavailable("503".to_owned());
    let unsigned = || ImageError::SignatureValidationFailed("no key".to_owned());
    for (causes, reason, event, message) in [
        (vec![plain("no such tag")], "ErrImagePull", "no such tag", "no such tag"),
        (
            vec![unavailable()],
            "RegistryUnavailable",
            "RegistryUnavailable: 503",
            "image pull failed for a/b because the registry is unavailable: 503",
        ),
        (
            vec![unsigned()],
            "SignatureValidationFailed",
            "SignatureValidationFailed: no key",
            "image pull failed for a/b because the signature validation failed: no key",
        ),
        (vec![plain("one"), plain("two")], "ErrImagePull", "[one, two]", "[one, two]"),
    ] {
        let refusal = Refusal::of("a/b", &causes);
        let found = (refusal.reason.as_str(), refusal.event.as_str(), refusal.message.as_str());
        assert_eq!(found, (reason, event, message), "{causes:?}");
    }
}
