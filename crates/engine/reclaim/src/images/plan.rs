//! Which images go. Pure.
//!
//! Age first: what nobody has used for `maximum_age`. Then space: from the high mark down to the
//! low one, what was used longest ago first. A plan is made whole before anything is removed, and
//! knows what holds the space when it is not enough.

use std::time::Duration;

use ferrolet_ports::DiskSpace;
use ferrolet_types::Timestamp;

use super::ledger::Known;

/// When images are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Unused images younger than this stay.
    pub minimum_age: Duration,
    /// Unused images older than this go; `None` for never by age alone.
    pub maximum_age: Option<Duration>,
    /// Collection starts at this use of the disk, in percent.
    pub high_percent: u8,
    /// It stops at this use, in percent.
    pub low_percent: u8,
}

impl Policy {
    /// Whether there is anything to do, ever.
    pub fn is_active(&self) -> bool {
        self.high_percent < 100 || self.maximum_age.is_some()
    }
}

/// How much of the disk is used, in percent, as upstream rounds it.
pub(super) fn percent_used(space: DiskSpace) -> u8 {
    let available = u128::from(space.available.min(space.capacity));
    let free = available * 100 / u128::from(space.capacity.max(1));
    100_u8.saturating_sub(u8::try_from(free).unwrap_or(100))
}

/// Images that go because of their age, and when the next one is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AgePlan {
    pub(super) remove: Vec<Known>,
    pub(super) next: Option<Timestamp>,
}

/// What is too old. An agent that has not watched for that long cannot know, so `began` counts too.
pub(super) fn by_age(
    policy: &Policy,
    known: &[Known],
    began: Timestamp,
    now: Timestamp,
) -> AgePlan {
    let mut plan = AgePlan { remove: Vec::new(), next: None };
    let Some(maximum) = policy.maximum_age else {
        return plan;
    };
    for image in known.iter().filter(|it| !it.is_used && !it.is_pinned) {
        let idle_since = image.last_used.unwrap_or(image.first_seen).max(began);
        let due = idle_since.after(maximum);
        if due < now {
            plan.remove.push(image.clone());
        } else {
            plan.next = Some(plan.next.map_or(due, |next| next.min(due)));
        }
    }
    plan
}

/// What to remove for space.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SpacePlan {
    /// The disk is below its high mark.
    Enough,
    /// It is not, and this is what can be done.
    Free(FreePlan),
}

/// What can be done about a full disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FreePlan {
    /// How full it is, in percent.
    pub(super) used_percent: u8,
    /// Bytes that have to become free.
    pub(super) needed: u64,
    /// What goes, in this order, until there is enough.
    pub(super) remove: Vec<Known>,
    /// What the images that stay hold, and why they stay.
    pub(super) held: Vec<Held>,
    /// When the next image is old enough to go, if the plan falls short.
    pub(super) next: Option<Timestamp>,
}

/// Images that stay for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) why: Why,
    pub(super) n_images: usize,
    pub(super) bytes: u64,
    /// The biggest one.
    pub(super) largest: String,
}

/// Why an image stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    Used,
    Pinned,
    Young,
}

impl Why {
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Used => "in use",
            Self::Pinned => "pinned",
            Self::Young => "younger than imageMinimumGCAge",
        }
    }
}

/// Everything that may go, what was used longest ago first: the node is short and wants all of it.
pub(super) fn unused(policy: &Policy, known: &[Known], now: Timestamp) -> Vec<Known> {
    let may_go = |it: &&Known| {
        let is_young = now.since(it.first_seen) < policy.minimum_age;
        !it.is_used && !it.is_pinned && !is_young
    };
    let mut all: Vec<Known> = known.iter().filter(may_go).cloned().collect();
    all.sort_by_key(|it| (it.last_used, it.first_seen, it.id.clone()));
    all
}

/// Plans for a disk.
pub(super) fn by_space(
    policy: &Policy,
    space: DiskSpace,
    known: &[Known],
    now: Timestamp,
) -> SpacePlan {
    let used_percent = percent_used(space);
    if used_percent < policy.high_percent {
        return SpacePlan::Enough;
    }
    let needed = still_needed(policy, space);
    let why = |image: &Known| {
        let is_young = now.since(image.first_seen) < policy.minimum_age;
        match (image.is_used, image.is_pinned, is_young) {
            (true, _, _) => Some(Why::Used),
            (_, true, _) => Some(Why::Pinned),
            (_, _, true) => Some(Why::Young),
            _ => None,
        }
    };
    let mut candidates: Vec<&Known> = known.iter().filter(|it| why(it).is_none()).collect();
    candidates.sort_by_key(|it| (it.last_used, it.first_seen, it.id.clone()));
    let (mut remove, mut planned) = (Vec::new(), 0_u64);
    for image in candidates {
        if planned >= needed {
            break;
        }
        planned = planned.saturating_add(image.size);
        remove.push(image.clone());
    }
    let held = [Why::Used, Why::Pinned, Why::Young]
        .into_iter()
        .filter_map(|reason| {
            let images: Vec<&Known> = known.iter().filter(|it| why(it) == Some(reason)).collect();
            let largest = images.iter().max_by_key(|it| (it.size, &it.name))?;
            Some(Held {
                why: reason,
                n_images: images.len(),
                bytes: images.iter().map(|it| it.size).sum(),
                largest: largest.name.clone(),
            })
        })
        .collect();
    let young = known.iter().filter(|it| why(it) == Some(Why::Young));
    let next = young.map(|it| it.first_seen.after(policy.minimum_age)).min();
    SpacePlan::Free(FreePlan {
        used_percent,
        needed,
        remove,
        held,
        next: next.filter(|_| planned < needed),
    })
}

/// Bytes that are missing to the low mark.
pub(super) fn still_needed(policy: &Policy, space: DiskSpace) -> u64 {
    let low = u128::from(100 - policy.low_percent.min(100));
    let wanted = u128::from(space.capacity) * low / 100;
    let missing = wanted.saturating_sub(u128::from(space.available.min(space.capacity)));
    u64::try_from(missing).unwrap_or(u64::MAX)
}

/// The complaint about a disk that could not be made free enough: upstream's, and then what holds
/// the space.
pub(super) fn complaint(plan: &FreePlan, space: DiskSpace, freed: u64) -> String {
    let mut text = format!(
        "Insufficient free disk space on the node's image filesystem ({}% of {} used). \
         Failed to free sufficient space by deleting unused images (freed {freed} bytes). \
         Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
        plan.used_percent,
        in_units(space.capacity),
    );
    let mut parts: Vec<String> = plan
        .held
        .iter()
        .map(|it| {
            let noun = if it.n_images == 1 { "image" } else { "images" };
            format!(
                "{} in {} {noun} {} (the largest: {})",
                in_units(it.bytes),
                it.n_images,
                it.why.in_words(),
                it.largest
            )
        })
        .collect();
    let by_images: u64 = plan.held.iter().map(|it| it.bytes).sum();
    let used = space.capacity.saturating_sub(space.available);
    let other = used.saturating_sub(by_images);
    parts.push(format!("{} in anything but images", in_units(other)));
    text.push_str(&format!(" What holds it: {}.", parts.join(", ")));
    text
}

/// A number of bytes as upstream writes it.
fn in_units(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut scale, mut unit) = (1_u64, 0);
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        scale *= 1024;
        unit += 1;
    }
    let tenths = (u128::from(bytes) * 10 + u128::from(scale) / 2) / u128::from(scale);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
