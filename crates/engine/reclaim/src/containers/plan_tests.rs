use ferrolet_types::SandboxId;

use super::*;

const NOW: i64 = 10_000;

fn container(pod: &str, name: &str, made: i64, state: ListedState) -> ListedContainer {
    ListedContainer {
        id: ContainerId::from(format!("{pod}-{name}-{made}").as_str()),
        uid: PodUid::from(pod),
        name: ContainerName::from(name),
        sandbox: SandboxId::from("s"),
        state,
        image_ref: String::new(),
        created_at: Some(Timestamp::from_second(made)),
    }
}

fn dead(pod: &str, name: &str, made: i64) -> ListedContainer {
    container(pod, name, made, ListedState::Exited)
}

fn check(policy: Policy, containers: Vec<ListedContainer>, expected: &[&str]) {
    let listing = RuntimeListing { sandboxes: Vec::new(), containers };
    let known = BTreeSet::from([PodUid::from("p"), PodUid::from("q")]);
    let found = excess(&policy, &listing, &known, Timestamp::from_second(NOW));
    let ids: Vec<&str> = found.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, expected);
}

const DEFAULT: Policy =
    Policy { minimum_age: Duration::ZERO, per_container: Some(1), in_all: None };

/// Dead containers: one of each stays; pods that are gone lose all.
#[test]
fn the_newest_dead_of_each_container_stays() {
    let all = || {
        vec![
            dead("p", "a", 1),
            dead("p", "a", 3),
            dead("p", "a", 2),
            dead("p", "b", 1),
            container("p", "a", 4, ListedState::Running),
            container("p", "a", 0, ListedState::Created),
            dead("stranger", "a", 1),
            dead("stranger", "a", 2),
        ]
    };
    check(DEFAULT, all(), &["p-a-1", "p-a-2"]);
    let any = Policy { per_container: None, ..DEFAULT };
    check(any, all(), &[]);
    let none = Policy { per_container: Some(0), ..DEFAULT };
    check(none, all(), &["p-a-1", "p-b-1", "p-a-2", "p-a-3"]);
    let old = Policy { minimum_age: Duration::from_secs(9_999), ..DEFAULT };
    check(old, all(), &[]);
}

/// Dead containers: the cap of the whole node.
#[test]
fn the_whole_node_has_a_limit_that_containers_share() {
    let policy = Policy { per_container: None, in_all: Some(2), ..DEFAULT };
    let all = vec![dead("p", "a", 1), dead("p", "a", 2), dead("p", "b", 3), dead("q", "a", 4)];
    // One for each of three, and then the oldest of those.
    check(policy, all, &["p-a-1", "p-a-2"]);
    check(policy, vec![dead("p", "a", 1), dead("p", "a", 2)], &[]);
}

/// Dead containers: an unknown state is killed first.
#[test]
fn a_container_that_nobody_knows_about_is_stopped_first() {
    let listing = RuntimeListing {
        sandboxes: Vec::new(),
        containers: vec![container("p", "a", 1, ListedState::Unknown), dead("p", "a", 2)],
    };
    let known = BTreeSet::from([PodUid::from("p")]);
    let found = excess(&DEFAULT, &listing, &known, Timestamp::from_second(NOW));
    assert_eq!(found.len(), 1);
    assert!(found[0].is_unknown);
}

/// Links to logs.
#[test]
fn a_link_stays_while_its_container_lives() {
    let listing = RuntimeListing {
        sandboxes: Vec::new(),
        containers: vec![
            ListedContainer {
                id: ContainerId::from("aaa"),
                ..container("p", "a", 1, ListedState::Running)
            },
            ListedContainer { id: ContainerId::from("bbb"), ..dead("p", "b", 1) },
        ],
    };
    let links =
        ["web_default_a-aaa.log", "web_default_b-bbb.log", "web_default_c-ccc.log", "odd.log"];
    let links = links.map(str::to_owned).to_vec();
    assert_eq!(
        dead_links(links, &listing),
        ["web_default_b-bbb.log", "web_default_c-ccc.log", "odd.log"]
    );
}

/// Node-level reclaim: pods that have ended lose every dead container, others what is beyond
/// the limits.
#[test]
fn a_node_that_runs_short_gives_up_all_that_is_left_of_ended_pods() {
    let listing = RuntimeListing {
        sandboxes: Vec::new(),
        containers: vec![
            dead("p", "a", 1),
            dead("p", "a", 2),
            dead("q", "a", 3),
            container("q", "b", 4, ListedState::Running),
        ],
    };
    let (living, ended) =
        (BTreeSet::from([PodUid::from("p")]), BTreeSet::from([PodUid::from("q")]));
    let found = remains(&DEFAULT, &listing, (&living, &ended), Timestamp::from_second(NOW));
    let ids: Vec<&str> = found.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["q-a-3", "p-a-1"]);
}
