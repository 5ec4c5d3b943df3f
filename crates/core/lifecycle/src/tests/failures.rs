//! What did not work: shown, waited for, tried again; and what is left of containers.

use super::*;

/// Back-off of pulls, 10 s doubled to 300 s.
#[test]
fn a_failed_pull_shows_its_error_then_backs_off_then_is_tried_again() {
    let check = |failed_ago: i64, count: u32, reason: &str, plan: &str| {
        let mut scene = Scene::new(simple()).with(vec![]);
        let kind = FailureKind::ImagePull { image: "busybox".to_owned() };
        let at = at(NOW - failed_ago);
        let error = StartError {
            kind,
            reason: WaitingReason::ErrImagePull,
            message: "no such image".to_owned(),
        };
        let failure = StartFailure { error, count, at };
        scene.failures.insert(ContainerName::new("c"), failure);
        let step = scene.step();
        assert_eq!(step.waiting["c"].reason.as_str(), reason, "{failed_ago} s ago");
        assert_eq!(in_words(&step), plan, "{failed_ago} s ago");
    };
    check(0, 1, "ErrImagePull", "");
    check(2, 1, "ImagePullBackOff", "");
    check(10, 1, "ErrImagePull", "start c");
    check(10, 2, "ImagePullBackOff", "");
    check(20, 2, "ErrImagePull", "start c");
}

/// The back-off is an image's, whether a container runs from it or mounts it; an image
/// that is not wanted any more holds nobody.
#[test]
fn a_failed_pull_holds_up_whoever_needs_that_image() {
    let check = |failed: &str, waits: bool| {
        let mut it = container("c");
        let mount = |name: &str| k8s_openapi::api::core::v1::VolumeMount {
            name: name.to_owned(),
            ..Default::default()
        };
        it.volume_mounts = Some(vec![mount("v")]);
        let volume = |name: &str, image: &str| k8s_openapi::api::core::v1::Volume {
            name: name.to_owned(),
            image: Some(k8s_openapi::api::core::v1::ImageVolumeSource {
                reference: Some(image.to_owned()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let mut spec = pod("Always", vec![], vec![it]);
        spec.spec.as_mut().unwrap().volumes =
            Some(vec![volume("v", "weights"), volume("w", "unused")]);
        let mut scene = Scene::new(spec).with(vec![]);
        let error = StartError {
            kind: FailureKind::ImagePull { image: failed.to_owned() },
            reason: WaitingReason::ErrImagePull,
            message: String::new(),
        };
        let failure = StartFailure { error, count: 1, at: at(NOW - 2) };
        scene.failures.insert(ContainerName::new("c"), failure);
        let step = scene.step();
        let back_off = step.waiting.get("c").filter(|it| it.reason != WaitingReason::ErrImagePull);
        assert_eq!(step.stages.is_empty(), waits, "{failed}");
        assert_eq!(back_off.is_some(), waits, "{failed}");
        let named = back_off.is_none_or(|why| why.message.contains(failed));
        assert!(named, "{back_off:?}");
    };
    check("busybox", true);
    check("weights", true);
    check("unused", false);
    check("an-earlier-one", false);
}

/// The last start error of each container is what status shows.
#[test]
fn another_failure_of_a_container_keeps_its_reason_until_the_next_try() {
    let mut scene = Scene::new(simple()).with(vec![]);
    let message = "no command".to_owned();
    let error = StartError::other(WaitingReason::CreateContainerError, message);
    let failure = StartFailure { error, count: 3, at: at(NOW - 1) };
    scene.failures.insert(ContainerName::new("c"), failure);
    let step = scene.step();
    assert_eq!(step.waiting["c"].reason, WaitingReason::CreateContainerError);
    assert_eq!(step.wake_at, Some(at(NOW + 3)));
}

/// Requeue after an error; ours begins with a second.
#[test]
fn a_failed_sandbox_is_tried_again_after_a_growing_pause() {
    let check = |count: u32, ago: i64, plan: &str| {
        let mut scene = Scene::new(simple());
        let message = "no network".to_owned();
        let at = at(NOW - ago);
        scene.pod_failure = Some(Failure { message, count, at });
        assert_eq!(scene.plan(), plan, "try {count}, {ago} s ago");
    };
    check(1, 0, "");
    check(1, 1, "sandbox 0");
    check(4, 7, "");
    check(4, 8, "sandbox 0");
    check(40, 10, "sandbox 0");
}

/// On the death of a container: as many dead instances of each stay as the node's limit says,
/// and at least one.
#[test]
fn old_corpses_are_removed_with_their_logs() {
    for (limit, plan) in [
        (Some(0), "remove c-2 and log, remove c-1 and log"),
        (Some(1), "remove c-2 and log, remove c-1 and log"),
        (Some(2), "remove c-1 and log"),
        (Some(5), ""),
        (None, "remove c-2 and log, remove c-1 and log"),
    ] {
        let mut scene = Scene::new(simple()).with(vec![
            seen_container("c", 4, running()),
            seen_container("c", 3, exited(1, NOW - 90, NOW - 80)),
            seen_container("c", 2, exited(1, NOW - 190, NOW - 180)),
            seen_container("c", 1, exited(1, NOW - 290, NOW - 280)),
        ]);
        scene.kept = KeptContainers::within(limit);
        assert_eq!(scene.plan(), plan, "{limit:?}");
    }
}

/// Steps 6 to 9, for a pod of an earlier life.
#[test]
fn a_restarted_agent_makes_sure_of_the_set_up_of_a_running_pod_and_touches_no_container() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.setup = Setup::default();
    assert_eq!(scene.plan(), "cgroup, files, volumes");
}
