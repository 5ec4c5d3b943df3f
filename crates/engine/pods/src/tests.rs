//! The books of the dispatcher: one change in, commands out.

use ferrolet_lifecycle::Wish;
use ferrolet_testkit::{PodBuilder, pod, roomy_node};
use ferrolet_types::{Pod, PodChange, PodKey, PodUid, pod::PodView as _};

use crate::{
    grants::{Grants, Trigger},
    roster::{Command, Gate, Roster},
};

fn open() -> Gate<'static> {
    Gate { node: None, rules: None, placing: None, is_active: &|_| true }
}

fn web(uid: &str) -> PodBuilder {
    pod("web").uid(uid)
}

fn uid(text: &str) -> PodUid {
    PodUid::new(text)
}

/// Commands in brief, as a table shows them.
fn brief(commands: Vec<Command>) -> String {
    let brief = |command: Command| match command {
        Command::Start(assigned) => format!("start {}", assigned.pod.uid()),
        Command::Reject(pod, rejection) => format!("reject {} {}", pod.uid(), rejection.reason),
        Command::Preempt { uid, missing, .. } => format!("preempt {uid} for {missing}"),
        Command::TakeDown { uid, key } => match key {
            Some(key) => format!("take down {uid} {key}"),
            None => format!("take down {uid}"),
        },
        Command::Update(assigned) => format!("update {}", assigned.pod.uid()),
        Command::Wish(uid, Wish::Run) => format!("run {uid}"),
        Command::Wish(uid, Wish::End { grace }) => {
            format!("end {uid} {:?}", grace.map(|it| it.as_secs()))
        }
        Command::Wish(uid, Wish::Forget { .. }) => format!("forget {uid}"),
        Command::Wish(uid, Wish::Renew { .. }) => format!("renew {uid}"),
        Command::CountInfeasible(why) => format!("never {}", why.detail()),
        Command::CountLate { trigger, n } => format!("late {n} {}", trigger.word()),
    };
    let lines: Vec<String> = commands.into_iter().map(brief).collect();
    lines.join("; ")
}

/// One thing that happens to the roster.
enum Happens {
    Change(PodChange),
    Ready,
    Census(&'static str),
    Found(&'static str, Option<PodKey>),
    Finished(&'static str),
    Panicked(&'static str),
    Earlier(&'static str, Option<PodKey>),
}
use Happens::{Census, Change, Earlier, Finished, Found, Panicked, Ready};

fn check(story: Vec<(Happens, &str)>) {
    let mut roster = Roster::default();
    for (index, (happens, expected)) in story.into_iter().enumerate() {
        let commands = match happens {
            Change(change) => roster.change(change, &open()),
            Ready => roster.sources_ready(&open()),
            Census(uids) => roster.take_census(uids.split_whitespace().map(uid).collect()),
            Found(found, key) => roster.left_over(uid(found), key).into_iter().collect(),
            Finished(done) => roster.finished(&uid(done), &open()),
            Panicked(gone) => roster.panicked(&uid(gone), &open()),
            Earlier(lived, key) => {
                roster.lived_before([(uid(lived), key)]);
                Vec::new()
            }
        };
        assert_eq!(brief(commands), expected, "line {index}");
    }
}

fn added(pod: &Pod) -> Happens {
    Change(PodChange::Added(pod.clone()))
}

fn removed(pod: &Pod) -> Happens {
    Change(PodChange::Removed(pod.clone()))
}

/// One worker for each UID.
#[test]
fn a_pod_gets_one_worker_which_then_hears_of_changes() {
    let web = web("a").build();
    check(vec![
        (added(&web), "start a"),
        (Change(PodChange::Updated(web.clone())), "update a"),
        (Change(PodChange::Reconcile(web.clone())), "update a"),
        (removed(&web), "forget a"),
        (Change(PodChange::Reconcile(web.clone())), ""),
        (Finished("a"), ""),
        (removed(&web), ""),
        (added(&web), "start a"),
    ]);
}

/// Grace period: a deletion brings its own.
#[test]
fn a_deletion_carries_its_grace() {
    let now = ferrolet_types::Timestamp::from_second(0);
    let web = web("a");
    let deleting = web.clone().deleting(now, 7).build();
    check(vec![
        (added(&web.build()), "start a"),
        (Change(PodChange::Deleting(deleting)), "update a; end a Some(7)"),
    ]);
}

/// Static pods: one UID of a full name at a time.
#[test]
fn static_pods_of_one_name_take_turns() {
    let [a, b, c] = ["a", "b", "c"].map(|it| web(it).static_file().build());
    check(vec![
        (added(&a), "start a"),
        (added(&b), ""),
        (added(&c), ""),
        (Change(PodChange::Updated(c.clone())), ""),
        (removed(&a), "forget a"),
        (Finished("a"), "start b"),
        (removed(&c), ""),
        (removed(&b), "forget b"),
        (Finished("b"), ""),
    ]);
}

/// Static pods: only they wait.
#[test]
fn pods_of_the_api_do_not_wait_for_a_name() {
    check(vec![(added(&web("a").build()), "start a"), (added(&web("b").build()), "start b")]);
}

/// `create` for a UID that is terminating.
#[test]
fn a_pod_that_comes_back_too_early_starts_when_it_is_gone() {
    let (a, b) = (web("a").static_file().build(), web("b").static_file().build());
    check(vec![
        (added(&a), "start a"),
        (removed(&a), "forget a"),
        (added(&a), "renew a"),
        (removed(&a), "forget a"),
        (added(&a), "renew a"),
        (added(&b), ""),
        (Finished("a"), "start a"),
        (removed(&a), "forget a"),
        (Finished("a"), "start b"),
    ]);
}

/// Housekeeping: what nobody knows, and not before every source has spoken.
#[test]
fn what_nobody_asked_for_is_taken_down_once_every_source_has_spoken() {
    let a = web("a").build();
    let key = a.key();
    check(vec![
        (added(&a), "start a"),
        (Census("a x y"), ""),
        (Found("z", Some(key.clone())), ""),
        (Ready, "take down x; take down y"),
        (Census("a x y"), ""),
        (Found("z", Some(key)), "take down z default/web"),
        (Finished("x"), ""),
        (Census("a x"), "take down x"),
    ]);
}

/// Static pods, over a restart.
#[test]
fn a_static_pod_waits_for_what_an_earlier_life_made_of_its_manifest() {
    const OLD: &str = "0123456789abcdef0123456789abcdef";
    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
    let new = web("new").static_file().build();
    let same = web(OLD).static_file().build();
    let key = || Some(new.key());
    check(vec![
        (Earlier(OLD, key()), ""),
        (added(&new), "take down 0123456789abcdef0123456789abcdef default/web"),
        (Ready, ""),
        (Finished(OLD), "start new"),
    ]);
    // Nobody wanted the old one, so it is on its way out already when its name is wanted again.
    check(vec![
        (Earlier(OLD, key()), ""),
        (Ready, ""),
        (Census(OLD), "take down 0123456789abcdef0123456789abcdef default/web"),
        (added(&new), ""),
        (Finished(OLD), "start new"),
    ]);
    // The same manifest is the same pod, and what the API may still want is not touched before the
    // API has spoken.
    check(vec![
        (Earlier(OLD, key()), ""),
        (added(&same), "start 0123456789abcdef0123456789abcdef"),
    ]);
    check(vec![
        (Earlier(UUID, key()), ""),
        (added(&new), "start new"),
        (Ready, ""),
        (Census(UUID), "take down 01234567-89ab-cdef-0123-456789abcdef"),
    ]);
}

#[test]
fn a_pod_whose_worker_panicked_gets_another() {
    let (a, b) = (web("a").static_file().build(), web("b").static_file().build());
    check(vec![
        (added(&a), "start a"),
        (added(&b), ""),
        (Panicked("a"), "start a"),
        (removed(&a), "forget a"),
        (Panicked("a"), "take down a default/web"),
        (Finished("a"), "start b"),
    ]);
}

/// Pending queue: no more, then priority, then class, then how long it waits.
#[test]
fn resizes_are_judged_in_upstreams_order() {
    use k8s_openapi::{
        api::core::v1::{PodCondition, PodStatus},
        apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
    };
    let of = |uid: &str, memory: &str| {
        let amount = Quantity(memory.to_owned());
        let list = std::collections::BTreeMap::from([("memory".to_owned(), amount)]);
        web(uid).container("c", "i").edit_container("c", |it| {
            it.resources.get_or_insert_default().requests = Some(list);
        })
    };
    let waiting = |builder: PodBuilder, since: i64| {
        let condition = PodCondition {
            type_: "PodResizePending".to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(ferrolet_types::Timestamp::from_second(since).0)),
            ..Default::default()
        };
        builder.edit(|pod| {
            pod.status =
                Some(PodStatus { conditions: Some(vec![condition]), ..Default::default() });
        })
    };
    // In the order in which they come: what was granted, and what is wanted.
    let sure = |memory: &str| web("sure").container("c", "i").limits("c", "1", memory);
    let rows = [
        (of("new", "1Mi"), of("new", "2Mi")),
        (of("newer", "1Mi"), of("newer", "2Mi")),
        (of("late", "1Mi"), waiting(of("late", "2Mi"), 200)),
        (of("early", "1Mi"), waiting(of("early", "2Mi"), 100)),
        (sure("1Mi"), sure("2Mi")),
        (
            of("important", "1Mi"),
            of("important", "2Mi").edit_spec(|spec| spec.priority = Some(1000)),
        ),
        (of("modest", "2Mi"), of("modest", "1Mi")),
    ];
    let mut grants = Grants::default();
    let mut wanted = std::collections::BTreeMap::new();
    for (granted, desired) in rows {
        let (granted, desired) = (granted.build(), desired.build());
        grants.admit(&granted);
        grants.wants(Some(&granted), &desired);
        wanted.insert(desired.uid(), desired);
    }
    let judged = grants.retry(&wanted, &open(), |_, _| true);
    let judged: Vec<&str> = judged.changed.iter().map(PodUid::as_str).collect();
    assert_eq!(judged, ["modest", "important", "sure", "early", "late", "new", "newer"]);
    assert!(!grants.has_line());
}

/// Retry triggers and infeasible causes: what is counted, and by which word.
#[test]
fn resizes_that_waited_are_counted_by_what_made_room() {
    use ferrolet_node::NodeState;
    use ferrolet_resources::{
        CgroupMode, CgroupPolicy, NodeResources, ResizeRules, SwapBehavior, SwapPolicy,
    };
    use ferrolet_types::Quantity;
    let sure = |uid: &str, cpu: &str| {
        let built = web(uid).container("c", "i").limits("c", cpu, "1Mi");
        built.build()
    };
    let ended = |pod: &Pod| {
        let mut pod = (**pod).clone();
        pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        Pod::new(pod)
    };
    let amounts = [("cpu", 1000), ("memory", 1 << 40), ("pods", 10_000)];
    let amounts = amounts.map(|(name, n)| (name.to_owned(), Quantity::from_milli(n)));
    let node = NodeState { allocatable: amounts.into(), ..roomy_node() };
    let resources = NodeResources {
        cgroup_mode: CgroupMode::V2,
        cgroups: CgroupPolicy {
            cpu_cfs_quota: true,
            cfs_period_micros: 100_000,
            pids_limit: None,
            memory_qos: None,
            memory_reserve: None,
        },
        memory_capacity: 1 << 30,
        swap: SwapPolicy { is_controlled: false, behavior: SwapBehavior::NoSwap, capacity: 0 },
        huge_page_sizes: Vec::new(),
        single_process_oom_kill: false,
    };
    let gate = |has_static_cpus: bool| Gate {
        node: Some(&node),
        rules: Some(ResizeRules { node: &resources, has_static_cpus, has_static_memory: false }),
        placing: None,
        is_active: &|_| true,
    };
    let (small, other) = (sure("small", "200m"), sure("other", "700m"));
    let grown = sure("small", "600m");
    // What happens while the smaller pod waits for room, and what comes of it.
    let rows = [
        (PodChange::Removed(other.clone()), "forget other; update small; late 1 pods_removed"),
        (PodChange::Reconcile(ended(&other)), "update other; update small; late 1 pod_terminated"),
        (
            PodChange::Updated(sure("other", "300m")),
            "update other; update other; update small; late 1 pod_updated",
        ),
        (
            PodChange::Updated(sure("small", "250m")),
            "update small; update small; late 1 pod_updated",
        ),
        // What fits at once never waited.
        (PodChange::Updated(sure("other", "750m")), "update other; update other"),
    ];
    for (change, expected) in rows {
        let mut roster = Roster::default();
        roster.sources_ready(&gate(false));
        for pod in [&small, &other] {
            roster.change(PodChange::Added(pod.clone()), &gate(false));
        }
        let told = roster.change(PodChange::Updated(grown.clone()), &gate(false));
        assert_eq!(brief(told), "update small; update small");
        let told = roster.retry_resizes(Trigger::Period, &gate(false));
        assert_eq!(brief(told), "", "nothing has changed");
        assert_eq!(brief(roster.change(change, &gate(false))), expected);
    }
    // Time alone may be what it takes, when the node has grown.
    let mut roster = Roster::default();
    roster.sources_ready(&gate(false));
    for pod in [&small, &other] {
        roster.change(PodChange::Added(pod.clone()), &gate(false));
    }
    roster.change(PodChange::Updated(grown.clone()), &gate(false));
    let told = roster.retry_resizes(Trigger::Period, &open());
    assert_eq!(brief(told), "update small; late 1 periodic_retry");
    // Never is told once.
    let told = roster.change(PodChange::Updated(sure("small", "601m")), &gate(true));
    let never = "never guaranteed_pod_cpu_manager_static_policy";
    assert_eq!(brief(told), format!("update small; update small; {never}"));
    assert_eq!(brief(roster.retry_resizes(Trigger::Period, &gate(true))), "");
}
