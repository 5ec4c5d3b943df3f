//! When pods are put out because the node runs short of something.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_types::Quantity;

use super::{
    reader::{Reader, words},
    syntax::parse_percent,
};
use crate::{duration, suggest};

words! {
    /// What is running short.
    #[derive(PartialOrd, Ord)]
    Signal {
        /// Memory of the node.
        MemoryAvailable = "memory.available",
        /// Space for volumes and logs.
        NodeFsAvailable = "nodefs.available",
        /// Inodes for volumes and logs.
        NodeFsInodesFree = "nodefs.inodesFree",
        /// Space for images.
        ImageFsAvailable = "imagefs.available",
        /// Inodes for images.
        ImageFsInodesFree = "imagefs.inodesFree",
        /// Space for containers' own files.
        ContainerFsAvailable = "containerfs.available",
        /// Inodes for containers' own files.
        ContainerFsInodesFree = "containerfs.inodesFree",
        /// Memory that pods may use.
        AllocatableMemoryAvailable = "allocatableMemory.available",
        /// Process numbers.
        PidAvailable = "pid.available",
    }
}

/// How much is short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdValue {
    /// An amount.
    Quantity(Quantity),
    /// A part of the capacity, in percent.
    Percent(f64),
}

/// Below this, pods go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// What is watched.
    pub signal: Signal,
    /// How little is too little.
    pub value: ThresholdValue,
    /// How long it may stay so; none means not at all (a hard threshold).
    pub grace_period: Option<Duration>,
    /// How much more is taken back once we began.
    pub minimum_reclaim: Option<ThresholdValue>,
}

/// Everything about eviction.
#[derive(Clone, Debug, PartialEq)]
pub struct Eviction {
    /// Hard thresholds, then soft ones.
    pub thresholds: Vec<Threshold>,
    /// How long a pressure condition outlives its cause.
    pub pressure_transition_period: Duration,
    /// The longest grace given to a pod at a soft threshold; none means the pod's own.
    pub max_pod_grace_period: Option<Duration>,
    /// Let the kernel tell us about memory instead of asking.
    pub kernel_memcg_notification: bool,
}

pub(super) fn read(r: &Reader<'_>) -> Eviction {
    let reclaims: BTreeMap<&str, ThresholdValue> = read_reclaims(r);
    let graces = read_graces(r);
    let mut thresholds = Vec::new();
    for (field, soft) in [("evictionHard", false), ("evictionSoft", true)] {
        for (name, text) in r.text_map(field) {
            let path = format!("{field}.{name}");
            let Some(signal) = signal(r, &path, &name, &text) else {
                continue;
            };
            let grace_period = graces.get(&name).copied();
            if let Some(value) = read_threshold(r, &path, &text) {
                if soft && grace_period.is_none() {
                    let why = format!("needs an entry in evictionSoftGracePeriod.{name}");
                    r.fault(&path, &text, why);
                }
                let minimum_reclaim = reclaims.get(signal.as_str()).copied();
                thresholds.push(Threshold {
                    signal,
                    value,
                    grace_period: grace_period.filter(|_| soft),
                    minimum_reclaim,
                });
            }
        }
    }
    let grace = r.int("evictionMaxPodGracePeriod");
    Eviction {
        thresholds,
        pressure_transition_period: r.duration("evictionPressureTransitionPeriod"),
        max_pod_grace_period: u64::try_from(grace).ok().map(Duration::from_secs),
        kernel_memcg_notification: r.flag("kernelMemcgNotification"),
    }
}

fn signal(r: &Reader<'_>, path: &str, name: &str, value: &str) -> Option<Signal> {
    let words = <Signal as super::reader::Word>::WORDS;
    let found = words.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    if found.is_none() {
        let message = suggest::or_suggest(
            "unknown eviction signal",
            name,
            words.iter().map(|(known, _)| *known),
        );
        r.fault(path, value, message);
    }
    found
}

/// A positive amount or a percentage; `0%` and `100%` switch a threshold off.
fn read_threshold(r: &Reader<'_>, path: &str, text: &str) -> Option<ThresholdValue> {
    if text == "0%" || text == "100%" {
        return None;
    }
    if text.ends_with('%') {
        let percent = parse_percent(text).filter(|percent| (0.0..=100.0).contains(percent));
        if percent.is_none() {
            r.fault(path, text, "must be between 0% and 100%");
        }
        return percent.map(ThresholdValue::Percent);
    }
    let quantity = r.checked_quantity(path, text)?;
    if quantity.value() <= 0 {
        r.fault(path, text, "must be more than zero");
    }
    Some(ThresholdValue::Quantity(quantity))
}

fn read_reclaims(r: &Reader<'_>) -> BTreeMap<&'static str, ThresholdValue> {
    let entries = r.text_map("evictionMinimumReclaim").into_iter().filter_map(|(name, text)| {
        let path = format!("evictionMinimumReclaim.{name}");
        let signal = signal(r, &path, &name, &text)?;
        if text.ends_with('%') {
            let percent = parse_percent(&text).filter(|percent| *percent > 0.0);
            if percent.is_none() {
                r.fault(&path, &text, "must be more than 0%");
            }
            return Some((signal.as_str(), ThresholdValue::Percent(percent?)));
        }
        let quantity = r.quantity(&path, &text);
        if quantity.value() < 0 {
            r.fault(&path, &text, "must not be negative");
        }
        Some((signal.as_str(), ThresholdValue::Quantity(quantity)))
    });
    entries.collect()
}

fn read_graces(r: &Reader<'_>) -> BTreeMap<String, Duration> {
    let entries = r.text_map("evictionSoftGracePeriod").into_iter().filter_map(|(name, text)| {
        let path = format!("evictionSoftGracePeriod.{name}");
        signal(r, &path, &name, &text)?;
        let nanos = duration::parse(&text).and_then(|nanos| u64::try_from(nanos).ok());
        if nanos.is_none() {
            r.fault(&path, &text, "must be a duration such as 1m30s, and not negative");
        }
        Some((name, Duration::from_nanos(nanos?)))
    });
    entries.collect()
}
