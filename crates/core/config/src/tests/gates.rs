//! Feature gates: what is known, what is refused, what groups do.

use std::collections::BTreeMap;

use crate::{FeatureGates, Lock, Stage};

fn set(pairs: &[(&str, bool)]) -> Result<FeatureGates, Vec<String>> {
    let settings: BTreeMap<String, bool> =
        pairs.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
    FeatureGates::from_settings(&settings)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

#[test]
fn every_known_gate_is_accepted_at_its_default() {
    let known = FeatureGates::known();
    assert!(known.len() >= 229, "{}", known.len());
    assert!(known.is_sorted_by_key(|gate| gate.name));
    let all: Vec<_> = known.iter().map(|gate| (gate.name, gate.default)).collect();
    assert_eq!(set(&all), Ok(FeatureGates::default()));
}

#[test]
fn gates_stand_as_in_the_specification() {
    for (name, default, stage, since, lock) in [
        ("AllowDNSOnlyNodeCSR", false, Stage::Deprecated, "1.31", Lock::Free),
        ("ContainerCheckpoint", true, Stage::Beta, "1.30", Lock::Free),
        ("DynamicResourceAllocation", true, Stage::Ga, "1.35", Lock::Fixed),
        ("EventedPLEG", false, Stage::Alpha, "1.26", Lock::Free),
        ("GitRepoVolumeDriver", false, Stage::Deprecated, "1.36", Lock::Fixed),
        ("KubeletCrashLoopBackOffMax", true, Stage::Beta, "1.35", Lock::Free),
        ("LoggingAlphaOptions", false, Stage::Alpha, "1.24", Lock::Free),
        ("NodeSwap", true, Stage::Ga, "1.34", Lock::Fixed),
        ("WatchListClient", true, Stage::Beta, "1.35", Lock::Free),
    ] {
        let gate = FeatureGates::known().iter().find(|gate| gate.name == name).expect(name);
        assert_eq!(
            (gate.default, gate.stage, gate.since, gate.lock),
            (default, stage, since, lock),
            "{name}"
        );
    }
}

#[test]
fn unknown_locked_and_unsupported_settings_are_refused_together() {
    let faults = set(&[("NodeSwapp", true), ("NodeSwap", false)]).unwrap_err();
    assert_eq!(
        faults,
        [
            "featureGates.NodeSwap = false: this feature gate is locked on since 1.34",
            "featureGates.NodeSwapp = true: unknown feature gate; did you mean \"NodeSwap\"?",
        ]
    );
    let faults = set(&[("PodLevelResources", false)]).unwrap_err();
    assert!(
        faults
            .iter()
            .any(|fault| fault.contains("needs the feature gate PodLevelResources, which is off")),
        "{faults:?}"
    );
}

#[test]
fn a_group_moves_the_gates_that_nobody_named() {
    let gates = set(&[("AllAlpha", true), ("AllBeta", true), ("EventedPLEG", false)]).unwrap();
    assert!(gates.enabled("GRPCContainerProbeTLS"));
    assert!(!gates.enabled("EventedPLEG"));
    assert!(!gates.enabled("NoSuchGate"));
    assert!(FeatureGates::default().enabled("ContainerCheckpoint"));
}

#[test]
fn a_gate_that_makes_no_difference_here_is_said_so() {
    let loaded = super::load_file(
        "featureGates: {ImageVolumeWithDigest: true, KubeletSeparateDiskGC: false, ContextualLogging: false, \
         ContainerStopSignals: true, CRIListStreaming: false, WatchListClient: false}",
    )
    .unwrap();
    assert_eq!(
        loaded.warnings,
        [
            "feature gates that are set and have no effect: ImageVolumeWithDigest=true (not built yet), \
             KubeletSeparateDiskGC=false (always on here)"
        ]
    );
}

#[test]
fn the_list_of_gates_that_nobody_reads_has_known_names_that_can_be_set() {
    assert!(crate::UNREAD.is_sorted_by_key(|(name, _)| name));
    for (name, _) in crate::UNREAD {
        let gate = FeatureGates::known().iter().find(|gate| gate.name == *name).expect(name);
        assert_eq!(gate.lock, Lock::Free, "{name} cannot be set anyway");
    }
}
