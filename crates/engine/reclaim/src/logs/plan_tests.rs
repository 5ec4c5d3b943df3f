use super::*;

const POLICY: Policy =
    Policy { max_size: 1000, max_files: 5, max_workers: 1, interval: Duration::from_secs(10) };

fn sizes(found: &[(&str, u64)]) -> Vec<LogSize> {
    found.iter().map(|(path, size)| LogSize { path: (*path).to_owned(), size: *size }).collect()
}

#[test]
fn a_log_that_grows_is_looked_at_when_it_should_be_full() {
    let mut watch = Watch::default();
    let mut look = |found: &[(&str, u64)], secs: u64, all| {
        watch.look(&POLICY, &sizes(found), Duration::from_secs(secs), all)
    };
    let first = look(&[("a", 100), ("b", 999)], 0, Coverage::All);
    assert_eq!((first.next, first.hot.len()), (Duration::from_secs(1), 0));
    // `a` grows by 200 a second: 700 are missing.
    let second = look(&[("a", 300), ("b", 999)], 1, Coverage::All);
    assert_eq!((second.next, second.hot), (Duration::from_millis(3500), vec!["a".to_owned()]));
    // Only `a` is looked at in between; it slows down.
    let third = look(&[("a", 310)], 3, Coverage::Hot);
    assert_eq!((third.next, third.hot.len()), (Duration::from_secs(10), 0));
    let full = look(&[("a", 1000), ("b", 999)], 10, Coverage::All);
    assert_eq!(full.due, ["a"]);
}

#[test]
fn a_new_log_has_grown_from_nothing_and_a_rotated_one_too() {
    let mut watch = Watch::default();
    let secs = Duration::from_secs;
    watch.look(&POLICY, &[], secs(0), Coverage::All);
    let new = watch.look(&POLICY, &sizes(&[("a", 900)]), secs(1), Coverage::All);
    assert_eq!(new.next, SHORTEST);
    watch.rotated("a");
    let after = watch.look(&POLICY, &sizes(&[("a", 500)]), secs(1), Coverage::Hot);
    assert_eq!(after.next, secs(1));
}

#[test]
fn a_log_that_is_gone_is_missed_until_it_is_back_or_forgotten() {
    let mut watch = Watch::default();
    let mut look = |found: &[(&str, u64)], all| {
        watch.look(&POLICY, &sizes(found), POLICY.interval, all).missing
    };
    assert!(look(&[("a", 1), ("b", 1)], Coverage::All).is_empty());
    // A look at some says nothing about the others.
    assert!(look(&[("a", 1)], Coverage::Hot).is_empty());
    assert_eq!(look(&[("a", 1)], Coverage::All), ["b"]);
    assert_eq!(look(&[], Coverage::All), ["a", "b"]);
    assert_eq!(look(&[("b", 1)], Coverage::All), ["a"]);
    watch.forget("a");
    assert!(
        watch.look(&POLICY, &sizes(&[("b", 1)]), POLICY.interval, Coverage::All).missing.is_empty()
    );
}

#[test]
fn a_full_log_that_nobody_writes_is_left_alone_until_it_grows() {
    let mut watch = Watch::default();
    let mut look = |size, is_settled| {
        let look = watch.look(&POLICY, &sizes(&[("a", size)]), POLICY.interval, Coverage::All);
        if is_settled {
            watch.settle("a");
        }
        look.due.len()
    };
    assert_eq!(look(2000, true), 1);
    assert_eq!(look(2000, true), 0);
    assert_eq!(look(2001, true), 1);
    // Gone, and another one in its place.
    assert_eq!(look(10, false), 0);
}

/// Log rotation: how many files, and their names.
#[test]
fn a_rotation_keeps_the_newest_files_and_overwrites_none() {
    let now = Timestamp::from_second(1_767_225_600);
    let check = |beside: &[&str], work, remove: &[&str], to: Option<&str>| {
        let beside: Vec<String> = beside.iter().map(|it| (*it).to_owned()).collect();
        let plan = rotation(&POLICY, "0.log", &beside, work, now);
        assert_eq!(plan.remove, remove, "{beside:?}");
        assert_eq!(plan.to.as_deref(), to, "{beside:?}");
    };
    let new = Some("0.log.20260101-000000");
    check(&[], Work::Idle, &[], new);
    check(&["0.log.1"], Work::Idle, &[], new);
    check(&["0.log.4", "0.log.1.gz", "0.log.3.gz", "0.log.2.gz"], Work::Idle, &["0.log.1.gz"], new);
    // Left over from a crash half-way.
    let crashed = ["0.log.1", "0.log.1.gz", "0.log.2.tmp", "0.log.2"];
    check(&crashed, Work::Idle, &["0.log.1", "0.log.2.tmp"], new);
    check(&crashed, Work::Compressing, &[], new);
    check(&["0.log.20260101-000000"], Work::Idle, &[], None);
    check(&["0.log.20260101-000000.gz"], Work::Idle, &[], None);
    let two = Policy { max_files: 2, ..POLICY };
    let plan = rotation(&two, "0.log", &["0.log.1".to_owned()], Work::Idle, now);
    assert_eq!(plan.remove, ["0.log.1"]);
}

/// Log rotation: compression.
#[test]
fn all_but_the_newest_are_compressed() {
    let names = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let beside = names(&["0.log.3", "0.log.1.gz", "0.log.2", "0.log.2.tmp"]);
    assert_eq!(to_compress(beside), names(&["0.log.2"]));
    assert_eq!(to_compress(names(&["0.log.1"])), names(&[]));
    assert_eq!(to_compress(names(&[])), names(&[]));
}
