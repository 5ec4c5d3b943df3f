//! Two configurations compared: what changes now, what waits.

use serde_json::json;

use super::load_file;
use crate::{
    Effect::{AfterRestart, Now},
    change::LIVE,
    compare, is_known_field,
};

#[test]
fn each_field_that_differs_is_named_with_when_it_takes_effect() {
    let check = |old: &str, new: &str, expected: &[(&str, crate::Effect)]| {
        let (old, new) = (load_file(old).unwrap().raw, load_file(new).unwrap().raw);
        let found = compare(&old, &new);
        let found: Vec<_> = found.iter().map(|it| (it.path.as_str(), it.effect)).collect();
        assert_eq!(found, expected);
        let after = old.with_live_fields_of(&new);
        assert!(compare(&after, &new).iter().all(|it| it.effect == AfterRestart));
    };
    check("", "", &[]);
    check("maxPods: 110", "", &[]);
    check("podsPerCore: 0\nclusterDNS: []", "", &[]);
    check("maxPods: 5", "port: 1", &[("port", AfterRestart), ("maxPods", Now)]);
    check(
        "",
        "maxParallelImagePulls: 2",
        &[("serializeImagePulls", AfterRestart), ("maxParallelImagePulls", AfterRestart)],
    );
    check("logging: {verbosity: 2}", "logging: {verbosity: 3}", &[("logging.verbosity", Now)]);
    check("", "staticPodPath: /a", &[("staticPodPath", AfterRestart)]);
    check("staticPodPath: /a", "", &[("staticPodPath", AfterRestart)]);
    check(
        "",
        "featureGates: {ContainerStopSignals: true}\nimageGCHighThresholdPercent: 90",
        &[("imageGCHighThresholdPercent", Now), ("featureGates", AfterRestart)],
    );
}

#[test]
fn a_change_shows_both_values_and_no_secrets() {
    let raw = |fields: &str| load_file(fields).unwrap().raw;
    let found = compare(&raw("maxPods: 5"), &raw("staticPodURLHeader: {A: [secret]}"));
    assert_eq!((&found[0].old, &found[0].new), (&Some(json!(5)), &Some(json!(110))));
    assert_eq!(found[1].path, "staticPodURLHeader");
    assert_eq!((&found[1].old, &found[1].new), (&None, &Some(json!("<masked>"))));
}

#[test]
fn live_fields_are_fields() {
    assert!(LIVE.iter().all(|path| is_known_field(path)));
    assert!(LIVE.is_sorted());
}
