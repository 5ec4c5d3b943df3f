//! The book in use: lists, choices, reuse, checkpoints, and that nobody gets what another has.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_spec::{Device as Node, Mount, PluginResources};
use ferrolet_types::{Amounts, PodUid, Quantity, Timestamp, pod::PodView as _};
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::json;

use crate::{
    Checkpoint, CheckpointEntry, CheckpointError, Device, DeviceAsk, DeviceBook, Need, PluginId,
    PluginOptions, Refusal, asks, combined, reusable,
};

const GPU: &str = "example.com/gpu";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second)
}

fn ids(names: &str) -> BTreeSet<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

/// `a b! c@0`: a healthy one, one that is not, one close to NUMA node 0.
fn devices(text: &str) -> BTreeMap<String, Device> {
    let device = |word: &str| {
        let (word, numa_nodes) = match word.split_once('@') {
            Some((word, nodes)) => (word, nodes.split('+').map(|it| it.parse().unwrap()).collect()),
            None => (word, Vec::new()),
        };
        let is_healthy = !word.ends_with('!');
        (word.trim_end_matches('!').to_owned(), Device { is_healthy, numa_nodes })
    };
    text.split_whitespace().map(device).collect()
}

fn book(text: &str) -> DeviceBook {
    let mut book = DeviceBook::default();
    book.connect(GPU, PluginId(1), PluginOptions::default());
    book.list(GPU, devices(text));
    book
}

fn give(book: &mut DeviceBook, pod: &str, container: &str, names: &str) {
    let (answer, uid) = (PluginResources::default(), PodUid::new(pod));
    book.allocate((&uid, container, GPU), &ids(names), answer, Vec::new());
}

struct Ask<'a> {
    n: usize,
    reusable: &'a str,
    affinity: Option<&'a [i64]>,
    preferred: &'a str,
    is_running: bool,
}

const PLAIN: Ask<'static> =
    Ask { n: 1, reusable: "", affinity: None, preferred: "", is_running: false };

/// What pod `p` gets for container `c`, in words.
fn chosen(book: &DeviceBook, ask: &Ask<'_>) -> String {
    let affinity: Option<BTreeSet<i64>> = ask.affinity.map(|it| it.iter().copied().collect());
    let need = Need {
        uid: &PodUid::new("p"),
        container: "c",
        resource: GPU,
        n: ask.n,
        reusable: &ids(ask.reusable),
        affinity: affinity.as_ref(),
        is_running: ask.is_running,
    };
    match book.need(&need) {
        Ok(None) => "nothing".to_owned(),
        Ok(Some(choice)) => match choice.settle(&ids(ask.preferred)) {
            Ok(chosen) => chosen.into_iter().collect::<Vec<_>>().join(" "),
            Err(refusal) => refusal.to_string(),
        },
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn a_container_gets_what_is_free_and_well() {
    let mut free = book("a b! c d");
    let check = |book: &DeviceBook, ask: Ask<'_>, expected: &str| {
        assert_eq!(chosen(book, &ask), expected);
    };
    check(&free, PLAIN, "a");
    check(&free, Ask { n: 3, ..PLAIN }, "a c d");
    check(
        &free,
        Ask { n: 4, ..PLAIN },
        "requested number of devices unavailable for example.com/gpu. Requested: 4, Available: 3",
    );
    give(&mut free, "other", "x", "a d");
    check(&free, PLAIN, "c");
    check(
        &free,
        Ask { n: 2, ..PLAIN },
        "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1",
    );
    free.release(&PodUid::new("other"));
    check(&free, Ask { n: 3, ..PLAIN }, "a c d");
}

#[test]
fn what_a_plugin_prefers_comes_first_and_only_what_is_free() {
    let mut free = book("a b c d");
    assert_eq!(chosen(&free, &Ask { n: 2, preferred: "d c", ..PLAIN }), "c d");
    assert_eq!(chosen(&free, &Ask { n: 2, preferred: "d", ..PLAIN }), "a d");
    assert_eq!(chosen(&free, &Ask { n: 1, preferred: "zzz", ..PLAIN }), "a");
    give(&mut free, "other", "x", "d");
    assert_eq!(chosen(&free, &Ask { n: 1, preferred: "d", ..PLAIN }), "a");
    // Devices of an init container come before anybody's preference.
    assert_eq!(chosen(&free, &Ask { n: 2, reusable: "d", preferred: "c", ..PLAIN }), "c d");
}

#[test]
fn devices_close_to_the_wanted_nodes_come_before_others() {
    let free = book("a@0 b@0 c@1 d@1 e f@0+1");
    let check = |n, affinity: &[i64], preferred: &str, expected: &str| {
        let ask = Ask { n, affinity: Some(affinity), preferred, ..PLAIN };
        assert_eq!(chosen(&free, &ask), expected);
    };
    check(1, &[1], "", "c");
    check(2, &[1], "f e", "c f");
    check(3, &[1], "e", "c d f");
    check(4, &[1], "", "a c d f");
    check(4, &[1], "e", "c d e f");
    check(6, &[0], "", "a b c d e f");
    let without = book("a b");
    assert_eq!(chosen(&without, &Ask { affinity: Some(&[0]), ..PLAIN }), "a");
}

#[test]
fn refusals_are_in_upstreams_words() {
    let mut had = book("a b");
    give(&mut had, "p", "c", "a");
    assert_eq!(chosen(&had, &PLAIN), "nothing");
    assert_eq!(
        chosen(&had, &Ask { n: 2, ..PLAIN }),
        r#"pod "p" container "c" changed request for resource "example.com/gpu" from 1 to 2"#
    );
    had.list(GPU, devices("a! b"));
    assert_eq!(
        chosen(&had, &PLAIN),
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu"
    );
    had.list(GPU, devices("a! b!"));
    assert_eq!(
        chosen(&had, &PLAIN),
        "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"
    );
    assert_eq!(chosen(&had, &Ask { is_running: true, ..PLAIN }), "nothing");
    had.disconnect(GPU, PluginId(1), at(0));
    had.expire(at(301));
    assert_eq!(chosen(&had, &PLAIN), "cannot allocate unregistered device example.com/gpu");
    assert!(had.is_device_resource(GPU), "somebody has one");
    assert!(Refusal::Unregistered(GPU.to_owned()).may_pass());
}

fn amounts(pairs: &[(&str, i64)]) -> Amounts {
    pairs.iter().map(|(name, n)| ((*name).to_owned(), Quantity::from_value(*n))).collect()
}

#[test]
fn a_plugin_that_stays_away_five_minutes_takes_its_resource_along() {
    let mut book = book("a b! c");
    let shown = book.amounts();
    assert_eq!(shown.capacity, amounts(&[(GPU, 3)]));
    assert_eq!(shown.allocatable, amounts(&[(GPU, 2)]));
    book.connect(GPU, PluginId(2), PluginOptions { preferred: true, ..PluginOptions::default() });
    // One of two that goes is nobody's loss.
    book.disconnect(GPU, PluginId(2), at(0));
    assert_eq!((book.amounts().allocatable, book.expires_at()), (amounts(&[(GPU, 2)]), None));
    assert_eq!(book.plugin_of(GPU), Some((PluginId(1), PluginOptions::default())));
    book.disconnect(GPU, PluginId(7), at(0));
    assert_eq!(book.expires_at(), None, "nobody knows that one");

    give(&mut book, "p", "c", "a");
    assert_eq!(book.disconnect(GPU, PluginId(1), at(10)), [PodUid::new("p")].into());
    assert_eq!(book.amounts().allocatable, amounts(&[(GPU, 0)]));
    assert_eq!(book.amounts().capacity, amounts(&[(GPU, 3)]));
    assert!(!book.expire(at(310)));
    assert!(book.expires_at().unwrap() > at(310));
    assert!(book.expire(at(311)));
    let gone = book.amounts();
    assert_eq!((gone.capacity, gone.removed), (Amounts::new(), vec![GPU.to_owned()]));

    book.connect(GPU, PluginId(3), PluginOptions::default());
    book.list(GPU, devices("a"));
    let back = book.amounts();
    assert_eq!((back.capacity, back.removed), (amounts(&[(GPU, 1)]), Vec::new()));
}

#[test]
fn whoever_has_a_device_hears_of_its_health() {
    let mut book = book("a b");
    give(&mut book, "p", "c", "a");
    assert_eq!(book.list(GPU, devices("a b!")), BTreeSet::new());
    assert_eq!(book.list(GPU, devices("a! b!")), [PodUid::new("p")].into());
    let health = |book: &DeviceBook| book.health(&PodUid::new("p"), "c")[GPU]["a"];
    assert!(!health(&book));
    // One that vanished and comes back is news.
    book.list(GPU, devices("b"));
    assert!(health(&book), "nobody says otherwise");
    assert_eq!(book.list(GPU, devices("a b")), [PodUid::new("p")].into());
}

fn pod(spec: serde_json::Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"uid": "p"}, "spec": spec})).unwrap()
}

#[test]
fn containers_ask_in_order_and_take_over_what_init_containers_had() {
    let limits = |n: &str| json!({"limits": {GPU: n, "cpu": "1", "other.com/x": "2"}});
    let pod = pod(json!({
        "initContainers": [
            {"name": "first", "resources": limits("2")},
            {"name": "proxy", "restartPolicy": "Always", "resources": limits("1")},
            {"name": "none", "resources": limits("0")},
        ],
        "containers": [{"name": "web", "resources": limits("1")}, {"name": "aid", "resources": limits("1")}],
    }));
    let mut book = book("a b c d");
    let asked = asks(&pod, &book);
    let words: Vec<String> = asked.iter().map(|it| format!("{} {}", it.container, it.n)).collect();
    assert_eq!(words, ["first 2", "proxy 1", "web 1", "aid 1"]);

    let mut served = Vec::new();
    for DeviceAsk { container, resource, n } in asked {
        let free = reusable(&pod, &container, &book).remove(&resource).unwrap_or_default();
        let (uid, affinity) = (pod.uid(), None);
        let need = Need {
            uid: &uid,
            container: &container,
            resource: &resource,
            n,
            reusable: &free,
            affinity,
            is_running: false,
        };
        let chosen = book.need(&need).unwrap().unwrap().settle(&BTreeSet::new()).unwrap();
        served.push(chosen.iter().cloned().collect::<Vec<_>>().join(" "));
        book.allocate((&uid, &container, &resource), &chosen, PluginResources::default(), vec![]);
    }
    // The sidecar keeps what it took from the first; the others take what is left of it, then more.
    assert_eq!(served, ["a b", "a", "b", "c"]);
}

#[test]
fn what_a_claim_stands_for_is_no_plugins_business() {
    let mut pod = pod(json!({"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]}));
    let book = book("a");
    assert_eq!(asks(&pod, &book).len(), 1);
    assert_eq!(asks(&pod, &DeviceBook::default()).len(), 0, "nobody offers it");
    pod.status = serde_json::from_value(json!({"extendedResourceClaimStatus": {
        "resourceClaimName": "x",
        "requestMappings": [{"containerName": "c", "resourceName": GPU, "requestName": "r"}],
    }}))
    .unwrap();
    assert_eq!(asks(&pod, &book), []);
}

#[test]
fn the_first_answer_wins_and_differences_are_told() {
    let mount = |path: &str, from: &str| Mount {
        container_path: path.to_owned(),
        host_path: from.to_owned(),
        ..Mount::default()
    };
    let node = |path: &str, from: &str| Node {
        container_path: path.to_owned(),
        host_path: from.to_owned(),
        permissions: "rw".to_owned(),
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let first = PluginResources {
        env: vec![pair("A", "1")],
        mounts: vec![mount("/m", "/1")],
        devices: vec![node("/dev/x", "/dev/1")],
        cdi_devices: vec!["v/c=1".to_owned()],
        annotations: [pair("k", "1")].into(),
    };
    let second = PluginResources {
        env: vec![pair("A", "2"), pair("B", "2")],
        mounts: vec![mount("/m", "/1"), mount("/n", "/2")],
        devices: vec![node("/dev/x", "/dev/2")],
        cdi_devices: vec!["v/c=1".to_owned(), "v/c=2".to_owned()],
        annotations: [pair("k", "2")].into(),
    };
    let (all, conflicts) = combined([&first, &second]);
    assert_eq!(all.env, [pair("A", "1"), pair("B", "2")]);
    assert_eq!(all.mounts, [mount("/m", "/1"), mount("/n", "/2")]);
    assert_eq!(all.devices, [node("/dev/x", "/dev/1")]);
    assert_eq!(all.cdi_devices, ["v/c=1", "v/c=2"]);
    assert_eq!(all.annotations, [pair("k", "1")].into());
    assert_eq!(conflicts, ["A", "/dev/x", "k"]);
}

/// Written by Go with upstream's types: every kind of emptiness, text with quotes and line breaks,
/// NUMA nodes that sort as numbers.
const WRITTEN_BY_GO: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"uid","ContainerName":"c","ResourceName":"a.com/x","DeviceIDs":{"-1":["d1","d\"2é\n"],"0":["d3"]},"AllocResp":"CgRhYmNk/w=="},{"PodUID":"u2","ContainerName":"c2","ResourceName":"r","DeviceIDs":null,"AllocResp":""},{"PodUID":"u3","ContainerName":"c2","ResourceName":"r","DeviceIDs":{},"AllocResp":null},{"PodUID":"u3","ContainerName":"c2","ResourceName":"r","DeviceIDs":{"10":[],"9":null},"AllocResp":"MDEyMzQ1Njc4OWFiY2RlZmdo"}],"RegisteredDevices":{"a.com/x":["d1"]}},"Checksum":1988083967}"#;

#[test]
fn upstreams_checkpoints_are_read() {
    let read = Checkpoint::decode(WRITTEN_BY_GO.as_bytes()).unwrap();
    assert_eq!(read.entries.len(), 4);
    let first = &read.entries[0];
    assert_eq!((first.uid.as_str(), first.ids[&-1][1].as_str()), ("uid", "d\"2é\n"));
    assert_eq!(first.answer, b"\n\x04abcd\xff");
    assert_eq!(read.registered["a.com/x"], ["d1"]);
    for good in [
        r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1944006890}"#,
        r#"{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":2932075448}"#,
        r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"a.com/x":null,"b.com/y":[],"c.com/z":["2","1"]}},"Checksum":3463200022}"#,
    ] {
        assert!(Checkpoint::decode(good.as_bytes()).is_ok(), "{good}");
    }
}

#[test]
fn a_checkpoint_that_was_changed_or_is_none_is_refused() {
    let changed = WRITTEN_BY_GO.replace("\"d3\"", "\"d4\"");
    let refused = Checkpoint::decode(changed.as_bytes());
    assert!(matches!(refused, Err(CheckpointError::Checksum { told: 1_988_083_967, .. })));
    for bad in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"Data":{}}"#,
        r#"{"Data":[],"Checksum":1}"#,
        r#"{"Data":{"PodDeviceEntries":{}},"Checksum":1}"#,
        r#"{"Data":{"PodDeviceEntries":[7]},"Checksum":1}"#,
        r#"{"Data":{"PodDeviceEntries":[{"PodUID":7}]},"Checksum":1}"#,
        r#"{"Data":{"PodDeviceEntries":[{"AllocResp":"?"}]},"Checksum":1}"#,
        r#"{"Data":{"PodDeviceEntries":[{"DeviceIDs":{"x":[]}}]},"Checksum":1}"#,
        r#"{"Data":{"RegisteredDevices":[]},"Checksum":1}"#,
    ] {
        let refused = Checkpoint::decode(bad.as_bytes());
        assert!(matches!(refused, Err(CheckpointError::Shape(_))), "{bad}: {refused:?}");
    }
}

#[test]
fn what_is_written_is_read_and_pods_keep_what_they_have_over_a_restart() {
    let mut before = book("a@1 b c");
    give(&mut before, "p", "c", "a b");
    let written = before.checkpoint().encode();
    let checkpoint = Checkpoint::decode(&written).unwrap();
    assert_eq!(checkpoint, before.checkpoint());
    assert_eq!(checkpoint.entries[0].ids, [(1, vec!["a".into()]), (-1, vec!["b".into()])].into());
    assert_eq!(checkpoint.registered[GPU], ["a", "b", "c"]);

    let understood = |_: &CheckpointEntry| Ok::<_, ()>(PluginResources::default());
    let (mut after, unreadable) = DeviceBook::recalled(checkpoint.clone(), at(0), understood);
    assert_eq!(unreadable.len(), 0);
    assert_eq!(after.amounts().capacity, amounts(&[(GPU, 0)]));
    assert_eq!(after.amounts().awaited, [GPU]);
    assert_eq!(
        chosen(&after, &Ask { n: 2, ..PLAIN }),
        "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"
    );
    assert_eq!(chosen(&after, &Ask { n: 2, is_running: true, ..PLAIN }), "nothing");
    after.connect(GPU, PluginId(9), PluginOptions::default());
    after.list(GPU, devices("a b c"));
    assert_eq!(after.amounts().awaited.len(), 0);
    assert_eq!(chosen(&after, &Ask { n: 2, ..PLAIN }), "nothing");
    assert_eq!(after.in_use(GPU), ids("a b"));

    let (book, unreadable) = DeviceBook::recalled(checkpoint, at(0), |_| Err("what?"));
    assert_eq!((book.pods.len(), unreadable.len()), (0, 1));
}

#[test]
fn two_who_choose_at_once_do_not_get_the_same() {
    let mut book = book("a b");
    assert!(book.reserve(GPU, &ids("a"), &ids("")));
    assert!(!book.reserve(GPU, &ids("a"), &ids("")));
    assert_eq!(chosen(&book, &PLAIN), "b");
    assert!(book.reserve(GPU, &ids("a"), &ids("a")), "a pod takes over what is its own");
    book.unreserve(GPU, &ids("a"));
    assert!(!book.reserve(GPU, &ids("a"), &ids("")));
    book.unreserve(GPU, &ids("a"));
    assert!(book.reserve(GPU, &ids("a"), &ids("")));
}

#[derive(Clone, Debug)]
enum Move {
    Start(u8, usize),
    End(u8),
    List(Vec<bool>),
    Restart,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        (0..6u8, 1..4usize).prop_map(|(pod, n)| Move::Start(pod, n)),
        (0..6u8).prop_map(Move::End),
        prop::collection::vec(any::<bool>(), 8).prop_map(Move::List),
        Just(Move::Restart),
    ];
    prop::collection::vec(one, 1..60)
}

proptest! {
    /// Whatever happens in whatever order, no device has two owners, and nobody loses one.
    #[test]
    fn no_device_is_given_twice(moves in moves()) {
        let mut book = book("d0 d1 d2 d3 d4 d5 d6 d7");
        for (n_move, step) in moves.into_iter().enumerate() {
            let before = book.checkpoint();
            match step {
                Move::Start(pod, n) => {
                    let uid = PodUid::new(format!("p{pod}"));
                    let need = Need {
                        uid: &uid, container: "c", resource: GPU, n,
                        reusable: &BTreeSet::new(), affinity: None, is_running: false,
                    };
                    if let Ok(Some(choice)) = book.need(&need) {
                        let chosen = choice.settle(&BTreeSet::new()).unwrap();
                        prop_assert_eq!(chosen.len(), n);
                        book.allocate((&uid, "c", GPU), &chosen, PluginResources::default(), vec![]);
                    }
                }
                Move::End(pod) => {
                    book.release(&PodUid::new(format!("p{pod}")));
                }
                Move::List(health) => {
                    let list = health.iter().enumerate().map(|(n, well)| format!("d{n}{}", if *well { "" } else { "!" }));
                    book.list(GPU, devices(&list.collect::<Vec<_>>().join(" ")));
                    prop_assert_eq!(&book.checkpoint().entries, &before.entries);
                }
                Move::Restart => {
                    let read = Checkpoint::decode(&before.encode()).unwrap();
                    let (again, _) = DeviceBook::recalled(read, at(0), |_| Ok::<_, ()>(PluginResources::default()));
                    book = again;
                    book.connect(GPU, PluginId(n_move as u64 + 10), PluginOptions::default());
                    book.list(GPU, devices("d0 d1 d2 d3 d4 d5 d6 d7"));
                    prop_assert_eq!(&book.checkpoint().entries, &before.entries);
                }
            }
            let given: Vec<String> = book.checkpoint().entries.iter().flat_map(|it| it.ids.values().flatten().cloned()).collect();
            let distinct: BTreeSet<&String> = given.iter().collect();
            prop_assert_eq!(given.len(), distinct.len());
        }
    }
}
