//! New resources put in force while a pod runs.

use super::*;

/// Running containers take new bounds, those whose policy says so restart, and the pod's
/// bounds follow before starts.
#[test]
fn granted_resources_are_put_in_force_before_anything_starts() {
    let names = |list: &str| -> std::collections::BTreeSet<ContainerName> {
        list.split_whitespace().map(ContainerName::new).collect()
    };
    let check = |updates: &str, restarts: &str, containers: Vec<ObservedContainer>, plan: &str| {
        let two = pod("Never", vec![], vec![container("a"), container("b")]);
        let mut scene = Scene::new(two).with(containers);
        scene.resize.updates = names(updates);
        scene.resize.restarts = names(restarts);
        assert_eq!(scene.plan(), plan, "{updates}/{restarts}");
    };
    let runs = |name: &str| seen_container(name, 0, running());
    check("", "", vec![runs("a"), runs("b")], "");
    check("a", "", vec![runs("a"), runs("b")], "resize a");
    check("a b", "", vec![runs("a"), runs("b")], "resize a+b");
    check("a", "b", vec![runs("a"), runs("b")], "stop b-0 30s Resized; resize a; start b#1~0");
    check("b", "", vec![runs("a")], "resize ; start b");
    let done = seen_container("b", 0, exited(0, NOW - 20, NOW - 10));
    check("b", "", vec![runs("a"), done], "");
}

/// The pod's own resources need no container's.
#[test]
fn resources_of_the_pod_itself_are_put_in_force_too() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.resize.is_pod_level = true;
    assert_eq!(scene.plan(), "resize ");
}

/// A resize that failed is tried again after a pause, and nothing else waits for it.
#[test]
fn a_failed_resize_waits_alone() {
    let two = pod("Always", vec![], vec![container("a"), container("b")]);
    let mut scene = Scene::new(two).with(vec![seen_container("a", 0, running())]);
    scene.resize.updates.insert(ContainerName::new("a"));
    scene.resize.failure = Some(Failure { message: "no".to_owned(), count: 1, at: at(NOW) });
    let step = scene.step();
    assert_eq!(in_words(&step), "start b");
    assert_eq!(step.wake_at, Some(at(NOW + 1)));
}

/// A sidecar and an init container that runs are resized like any other.
#[test]
fn init_containers_and_sidecars_are_resized() {
    let list = pod("Always", vec![sidecar("s"), container("i")], vec![container("c")]);
    let mut scene = Scene::new(list)
        .with(vec![seen_container("i", 0, running()), seen_container("s", 0, running())]);
    scene.resize.updates.insert(ContainerName::new("i"));
    scene.resize.updates.insert(ContainerName::new("s"));
    assert_eq!(scene.plan(), "resize s+i");
    let mut scene = Scene::new(pod("Always", vec![sidecar("s")], vec![container("c")]))
        .with(vec![seen_container("c", 0, running()), seen_container("s", 0, running())]);
    scene.resize.restarts.insert(ContainerName::new("s"));
    assert_eq!(scene.plan(), "stop s-0 30s Resized; resize ; start s#1~0");
}
