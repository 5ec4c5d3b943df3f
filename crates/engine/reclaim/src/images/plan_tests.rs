use super::*;

const NOW: i64 = 100_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second)
}

fn image(id: &str, size: u64) -> Known {
    Known {
        id: id.to_owned(),
        name: format!("{id}:1"),
        size,
        first_seen: at(0),
        last_used: None,
        is_used: false,
        is_pinned: false,
    }
}

fn policy(high: u8, low: u8) -> Policy {
    Policy {
        minimum_age: Duration::from_secs(120),
        maximum_age: None,
        high_percent: high,
        low_percent: low,
    }
}

fn space(available: u64) -> DiskSpace {
    DiskSpace { capacity: 1000, available }
}

fn ids(images: &[Known]) -> Vec<&str> {
    images.iter().map(|it| it.id.as_str()).collect()
}

fn freed(plan: SpacePlan) -> FreePlan {
    match plan {
        SpacePlan::Free(plan) => plan,
        SpacePlan::Enough => panic!("the disk is full"),
    }
}

/// Images: only from the high mark on.
#[test]
fn nothing_goes_below_the_high_mark() {
    let known = [image("a", 100)];
    for (available, is_enough) in [(1000, true), (160, true), (159, false), (0, false)] {
        let plan = by_space(&policy(85, 80), space(available), &known, at(NOW));
        assert_eq!(plan == SpacePlan::Enough, is_enough, "{available}");
    }
    // A hundred means a disk without a percent to spare, when images go by age as well.
    for (available, is_enough) in [(10, true), (9, false)] {
        let plan = by_space(&policy(100, 80), space(available), &known, at(NOW));
        assert_eq!(plan == SpacePlan::Enough, is_enough, "{available} of 1000");
    }
    // More available than there is room for is a slip of the file system.
    assert_eq!(percent_used(space(2000)), 0);
    assert_eq!(percent_used(DiskSpace { capacity: 0, available: 0 }), 100);
}

/// Images: by last use, down to the low mark.
#[test]
fn what_was_used_longest_ago_goes_first_and_no_more_than_needed() {
    let used = |id: &str, size, second| Known { last_used: Some(at(second)), ..image(id, size) };
    let newer = Known { first_seen: at(10), ..image("newer", 60) };
    let known = [used("late", 60, 500), used("early", 60, 400), newer, image("never", 60)];
    let plan = |available| freed(by_space(&policy(85, 80), space(available), &known, at(NOW)));
    assert_eq!(plan(150).needed, 50);
    assert_eq!(ids(&plan(150).remove), ["never"]);
    assert_eq!(ids(&plan(100).remove), ["never", "newer"]);
    assert_eq!(ids(&plan(20).remove), ["never", "newer", "early"]);
    assert_eq!(plan(20).next, None);
}

/// Images: pinned, in use and younger than the least age are skipped.
#[test]
fn images_in_use_pinned_or_young_stay_and_the_plan_says_so() {
    let known = [
        Known { is_used: true, ..image("used", 300) },
        Known { is_pinned: true, ..image("pinned", 50) },
        Known { first_seen: at(NOW - 20), ..image("young", 70) },
        image("old", 10),
    ];
    let plan = freed(by_space(&policy(85, 80), space(100), &known, at(NOW)));
    assert_eq!(ids(&plan.remove), ["old"]);
    assert_eq!(plan.next, Some(at(NOW + 100)));
    let held: Vec<(Why, usize, u64)> =
        plan.held.iter().map(|it| (it.why, it.n_images, it.bytes)).collect();
    assert_eq!(held, [(Why::Used, 1, 300), (Why::Pinned, 1, 50), (Why::Young, 1, 70)]);
    assert_eq!(
        complaint(&plan, space(100), 10),
        "Insufficient free disk space on the node's image filesystem (90% of 1000 B used). Failed to free sufficient space by deleting unused images (freed 10 bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data. What holds it: 300 B in 1 image in use (the largest: used:1), 50 B in 1 image pinned (the largest: pinned:1), 70 B in 1 image younger than imageMinimumGCAge (the largest: young:1), 480 B in anything but images."
    );
}

/// Images: the greatest age comes first.
#[test]
fn age_counts_from_the_last_use_and_not_before_the_agent_began() {
    let policy = Policy { maximum_age: Some(Duration::from_secs(100)), ..policy(100, 99) };
    let known = [
        image("never", 1),
        Known { last_used: Some(at(900)), ..image("lately", 1) },
        Known { is_used: true, ..image("used", 1) },
        Known { is_pinned: true, ..image("pinned", 1) },
    ];
    let plan = |began, now| by_age(&policy, &known, at(began), at(now));
    assert_eq!(ids(&plan(0, 950).remove), ["never"]);
    assert_eq!(plan(0, 950).next, Some(at(1000)));
    assert_eq!(ids(&plan(0, 1001).remove), ["never", "lately"]);
    assert_eq!(ids(&plan(900, 950).remove), Vec::<&str>::new());
    assert_eq!(plan(900, 950).next, Some(at(1000)));
    let never = Policy { maximum_age: None, ..policy };
    assert_eq!(by_age(&never, &known, at(0), at(5000)).remove, []);
    assert!(policy.is_active() && !never.is_active());
}

#[test]
fn sizes_are_written_as_upstream_writes_them() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (10 << 20, "10.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (5000 << 40, "5000.0 TiB"),
    ] {
        assert_eq!(in_units(bytes), text);
    }
}
