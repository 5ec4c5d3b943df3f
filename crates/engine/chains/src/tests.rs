//! Iptables: what is made, with which words, in which order, and when it is made again.

use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::IpFamily::{self, V4, V6};
use ferrolet_testkit::FakePacketFilter;
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    keep_chains,
    plan::{Found, chain_is_there, is_made, rule_is_there},
};

const MARTIANS: &str = "-m comment --comment block incoming localnet connections --dst 127.0.0.0/8 \
    ! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";
const MINUTE: Duration = Duration::from_secs(60);

fn keep(filter: &FakePacketFilter) -> JoinHandle<()> {
    tokio::spawn(keep_chains(Arc::new(filter.clone())))
}

/// Long enough for everything that does not wait for a minute.
async fn settle() {
    sleep(Duration::from_secs(10)).await;
}

/// What a family has when everything is there.
fn whole(family: IpFamily) -> Vec<String> {
    let firewall = match family {
        V4 => vec![
            "filter INPUT: -j KUBE-FIREWALL".to_owned(),
            "filter KUBE-FIREWALL".to_owned(),
            format!("filter KUBE-FIREWALL: {MARTIANS}"),
        ],
        V6 => Vec::new(),
    };
    let canary = ["filter KUBE-KUBELET-CANARY".to_owned()];
    let output = match family {
        V4 => vec!["filter OUTPUT: -j KUBE-FIREWALL".to_owned()],
        V6 => Vec::new(),
    };
    let rest =
        ["mangle KUBE-IPTABLES-HINT", "mangle KUBE-KUBELET-CANARY", "nat KUBE-KUBELET-CANARY"];
    [firewall, canary.into(), output, rest.map(str::to_owned).into()].concat()
}

#[test]
fn exit_codes_mean_what_upstream_takes_them_for() {
    let check = |code, made, rule, chain| {
        assert_eq!(is_made(code), made, "{code:?}");
        assert_eq!(rule_is_there(code), rule, "{code:?}");
        assert_eq!(chain_is_there(code), chain, "{code:?}");
    };
    check(Some(0), true, Found::Yes, Found::Yes);
    check(Some(1), true, Found::No, Found::No);
    check(Some(2), false, Found::Unclear, Found::No);
    check(Some(3), false, Found::Unclear, Found::No);
    check(Some(4), false, Found::Unclear, Found::Unclear);
    check(None, false, Found::Unclear, Found::Unclear);
}

#[tokio::test(start_paused = true)]
async fn everything_is_asked_for_in_upstreams_words_and_order() {
    let filter = FakePacketFilter::new();
    let check = |family, expected: &[&str]| assert_eq!(filter.take_asked(family), expected);
    let looked = "-w 5 -S POSTROUTING -t nat";
    let hint = "-w 5 -N KUBE-IPTABLES-HINT -t mangle";
    let canaries = [
        "-w 5 -N KUBE-KUBELET-CANARY -t mangle",
        "-w 5 -N KUBE-KUBELET-CANARY -t nat",
        "-w 5 -N KUBE-KUBELET-CANARY -t filter",
    ];
    let martians = |operation: &str| format!("-w 5 {operation} KUBE-FIREWALL -t filter {MARTIANS}");
    let first = keep(&filter);
    settle().await;
    let made = [
        looked,
        hint,
        "-w 5 -N KUBE-FIREWALL -t filter",
        "-w 5 -C OUTPUT -t filter -j KUBE-FIREWALL",
        "-w 5 -I OUTPUT -t filter -j KUBE-FIREWALL",
        "-w 5 -C INPUT -t filter -j KUBE-FIREWALL",
        "-w 5 -I INPUT -t filter -j KUBE-FIREWALL",
        &martians("-C"),
        &martians("-A"),
    ];
    check(V4, &[&made[..], &canaries].concat());
    check(V6, &[&[looked, hint][..], &canaries].concat());
    first.abort();

    // The next life of the agent finds it all and adds nothing.
    let _second = keep(&filter);
    settle().await;
    let found = [
        looked,
        hint,
        "-w 5 -N KUBE-FIREWALL -t filter",
        "-w 5 -C OUTPUT -t filter -j KUBE-FIREWALL",
        "-w 5 -C INPUT -t filter -j KUBE-FIREWALL",
        &martians("-C"),
    ];
    check(V4, &[&found[..], &canaries].concat());
    check(V6, &[&[looked, hint][..], &canaries].concat());
    for family in [V4, V6] {
        assert_eq!(filter.shown(family), whole(family));
    }

    // At rest: one question a minute and family.
    sleep(MINUTE * 10).await;
    for family in [V4, V6] {
        check(family, &["-w 5 -S KUBE-KUBELET-CANARY -t mangle"; 10]);
    }
}

#[tokio::test(start_paused = true)]
async fn jumps_come_before_the_rules_of_others() {
    let filter = FakePacketFilter::new();
    filter.add(V4, "filter", "INPUT", "-j ACCEPT");
    let _keeping = keep(&filter);
    settle().await;
    let shown = filter.shown(V4);
    assert_eq!(shown[..2], ["filter INPUT: -j KUBE-FIREWALL", "filter INPUT: -j ACCEPT"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_emptied_is_made_again_within_the_minute() {
    let filter = FakePacketFilter::new();
    let _keeping = keep(&filter);
    settle().await;
    for _ in 0..3 {
        filter.flush();
        sleep(MINUTE + Duration::from_secs(1)).await;
        for family in [V4, V6] {
            assert_eq!(filter.shown(family), whole(family));
        }
    }
}

/// Somebody who reloads a firewall empties one table after the other: who comes back too early is
/// swept away again.
#[tokio::test(start_paused = true)]
async fn a_flush_under_way_is_waited_for_but_not_for_ever() {
    let filter = FakePacketFilter::new();
    let _keeping = keep(&filter);
    settle().await;
    filter.take_asked(V4);
    filter.remove(V4, "mangle", "KUBE-KUBELET-CANARY");
    filter.remove(V4, "mangle", "KUBE-IPTABLES-HINT");
    sleep(Duration::from_secs(52)).await;
    let hint = "mangle KUBE-IPTABLES-HINT".to_owned();
    assert!(!filter.shown(V4).contains(&hint), "the others are awaited");
    let looks = filter.take_asked(V4);
    assert!(looks.iter().all(|it| it.starts_with("-w 5 -S ")), "{looks:?}");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(filter.shown(V4), whole(V4), "only a part was emptied");

    // The rest follows two seconds later: then it goes on at once.
    filter.take_asked(V4);
    filter.remove(V4, "mangle", "KUBE-KUBELET-CANARY");
    sleep(Duration::from_secs(57)).await;
    assert_eq!(filter.take_asked(V4).len(), 0, "not before its minute");
    sleep(Duration::from_secs(2)).await;
    filter.flush();
    sleep(Duration::from_millis(200)).await;
    assert_eq!(filter.shown(V4), whole(V4));
}

#[tokio::test(start_paused = true)]
async fn a_family_without_support_is_left_alone() {
    for missing in [V4, V6] {
        let filter = FakePacketFilter::new();
        filter.lose_program(missing);
        let _keeping = keep(&filter);
        sleep(MINUTE * 5).await;
        let other = if missing == V4 { V6 } else { V4 };
        assert_eq!(filter.shown(missing).len(), 0);
        assert_eq!(filter.take_asked(missing).len(), 1, "it is asked once");
        assert_eq!(filter.shown(other), whole(other));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_iptables_is_asked_once_and_nobody_minds() {
    type Break = fn(&FakePacketFilter);
    let breaks: [Break; 2] = [
        |filter| [V4, V6].into_iter().for_each(|it| filter.lose_program(it)),
        // The program is there, the kernel's part is not.
        |filter| filter.refuse("-S POSTROUTING", 3),
    ];
    for make_bad in breaks {
        let filter = FakePacketFilter::new();
        make_bad(&filter);
        let keeping = keep(&filter);
        sleep(MINUTE * 5).await;
        assert!(!keeping.is_finished(), "the agent would end with it");
        for family in [V4, V6] {
            assert_eq!(filter.take_asked(family), ["-w 5 -S POSTROUTING -t nat"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_stops_what_rests_on_it() {
    // The refused call, and what there is of IPv4 afterwards.
    let rows: [(&str, i32, &[&str]); 4] = [
        ("-N KUBE-IPTABLES-HINT", 4, &[]),
        ("-N KUBE-FIREWALL", 3, &["mangle KUBE-IPTABLES-HINT"]),
        (
            "-C INPUT",
            2,
            &[
                "filter KUBE-FIREWALL",
                "filter OUTPUT: -j KUBE-FIREWALL",
                "mangle KUBE-IPTABLES-HINT",
            ],
        ),
        ("-I OUTPUT", 1, &["filter KUBE-FIREWALL", "mangle KUBE-IPTABLES-HINT"]),
    ];
    for (words, code, expected) in rows {
        let filter = FakePacketFilter::new();
        filter.refuse(words, code);
        let keeping = keep(&filter);
        sleep(MINUTE * 5).await;
        assert_eq!(filter.shown(V4), expected, "{words}");
        assert!(!keeping.is_finished(), "{words}");
        // A node that refused at the start is left alone, as with upstream.
        filter.take_asked(V4);
        sleep(MINUTE * 5).await;
        assert_eq!(filter.take_asked(V4).len(), 0, "{words}");
    }
}

#[tokio::test(start_paused = true)]
async fn canaries_that_cannot_be_placed_are_tried_again_each_minute() {
    let filter = FakePacketFilter::new();
    filter.refuse("-N KUBE-KUBELET-CANARY -t nat", 4);
    let _keeping = keep(&filter);
    sleep(MINUTE * 3).await;
    assert!(!filter.shown(V4).contains(&"filter KUBE-KUBELET-CANARY".to_owned()));
    filter.relent();
    sleep(MINUTE).await;
    assert_eq!(filter.shown(V4), whole(V4));
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_cannot_be_seen_is_not_taken_for_gone() {
    let filter = FakePacketFilter::new();
    let _keeping = keep(&filter);
    settle().await;
    filter.take_asked(V4);
    // Somebody holds the lock for long.
    filter.refuse("-S KUBE-KUBELET-CANARY", 4);
    sleep(MINUTE * 5).await;
    let asked = filter.take_asked(V4);
    assert_eq!(asked, ["-w 5 -S KUBE-KUBELET-CANARY -t mangle"; 5]);
    filter.flush();
    filter.relent();
    sleep(MINUTE + Duration::from_secs(1)).await;
    assert_eq!(filter.shown(V4), whole(V4));
}
