//! Pods of random shape: which containers, which policies, and what their processes do.

use std::time::Duration;

use ferrolet_testkit::{PodBuilder, Script, World, pod};
use ferrolet_types::{Pod, pod::PodView as _, pod::RestartPolicy};
use k8s_openapi::{
    api::core::v1::{Container, ContainerResizePolicy, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::{
    dice::Dice,
    manners::{Manners, RESET},
};

/// An image that every node has.
pub(crate) const HERE: &str = "registry.example/here:1";
/// Another one, for containers that change.
pub(crate) const HERE_TOO: &str = "registry.example/here:2";
/// An image that must be fetched.
const REMOTE: &str = "registry.example/remote:1";
/// An image that nobody has.
pub(crate) const MISSING: &str = "registry.example/missing:1";
/// Bytes of memory that the last container of every pod begins with.
const FIRST_MEMORY: i64 = 64 << 20;

/// A pod as it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub(crate) is_static: bool,
    pub(crate) policy: RestartPolicy,
    pub(crate) grace: i64,
    pub(crate) has_volume: bool,
    /// How long it may be active.
    pub(crate) deadline: Option<i64>,
    /// New bounds of its last container need a restart.
    pub(crate) restarts_to_resize: bool,
    pub(crate) init: Vec<Part>,
    pub(crate) sidecars: Vec<Part>,
    pub(crate) regular: Vec<Part>,
}

/// One container of a shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) image: &'static str,
    /// What its processes do, one after the other; the last one repeats.
    pub(crate) series: Vec<Script>,
    /// Probes, hooks and rules of its own.
    pub(crate) manners: Manners,
}

impl Shape {
    pub(crate) fn roll(dice: &mut Dice) -> Self {
        use RestartPolicy::{Always, Never, OnFailure};
        let policy = *dice.pick(&[Always, Always, OnFailure, Never]);
        let parts = |dice: &mut Dice, kind: &str, most: u64, roll: Rolls| {
            let n = dice.below(most + 1);
            let part = |index: u64| Part {
                name: format!("{kind}{index}"),
                image: match dice.below(32) {
                    0 => MISSING,
                    1..=10 => REMOTE,
                    _ => HERE,
                },
                series: (roll.series)(dice),
                manners: (roll.manners)(dice),
            };
            (0..n).map(part).collect::<Vec<_>>()
        };
        let mut regular = parts(dice, "main", 2, REGULAR);
        regular.push(Part {
            name: "last".to_owned(),
            image: HERE,
            series: roll_regular(dice),
            manners: Manners::roll_regular(dice),
        });
        let is_static = dice.percent(60);
        // Nobody keeps the start of a static pod, so its deadline counts anew with every agent.
        let deadline = (dice.percent(8) && !is_static).then(|| *dice.pick(&[2, 40, 400]));
        Self {
            is_static,
            policy,
            grace: *dice.pick(&[1, 5, 30, 30]),
            has_volume: dice.percent(30),
            deadline,
            restarts_to_resize: dice.percent(30),
            init: parts(dice, "init", 2, INIT),
            sidecars: parts(dice, "side", 1, SIDECAR),
            regular,
        }
    }

    /// The pod of this shape, and its scripts put into the world.
    pub(crate) fn build(&self, name: &str, uid: &str, world: &World) -> Pod {
        let mut builder = pod(name).uid(uid).restart_policy(self.policy).grace(self.grace);
        if self.is_static {
            builder = builder.static_file();
        }
        if self.has_volume {
            builder = builder.empty_dir("data");
        }
        let add =
            |builder: PodBuilder, parts: &[Part], add: fn(PodBuilder, &str, &str) -> PodBuilder| {
                parts.iter().fold(builder, |builder, part| add(builder, &part.name, part.image))
            };
        builder = add(builder, &self.sidecars, PodBuilder::sidecar);
        builder = add(builder, &self.init, PodBuilder::init);
        builder = add(builder, &self.regular, PodBuilder::container);
        for part in self.parts() {
            builder = builder.edit_container(&part.name, |it| {
                part.manners.put_into(it, self.policy);
            });
        }
        builder = builder.edit_spec(|spec| spec.active_deadline_seconds = self.deadline);
        builder = builder.edit_container("last", |it| {
            bound(it, FIRST_MEMORY);
            let policy = if self.restarts_to_resize { "RestartContainer" } else { "NotRequired" };
            it.resize_policy = Some(vec![ContainerResizePolicy {
                resource_name: "memory".to_owned(),
                restart_policy: policy.to_owned(),
            }]);
        });
        let pod = builder.build();
        for part in self.parts() {
            world.script_series(&pod.key(), &part.name, part.series.clone());
        }
        pod
    }

    /// True when nothing that it does by itself is a reason to stop a container of it.
    pub(crate) fn is_calm(&self) -> bool {
        self.policy == RestartPolicy::Always
            && self.deadline.is_none()
            && self.parts().all(|part| part.manners.is_calm())
    }

    /// True when it may end by itself: no regular container of it always restarts, or an init
    /// container may fail for good.
    pub(crate) fn can_end(&self) -> bool {
        let mut regular = self.regular.iter();
        let can_fail = self.policy == RestartPolicy::Never && !self.init.is_empty();
        self.deadline.is_some()
            || can_fail
            || regular.all(|it| self.policy_of(it) != RestartPolicy::Always)
    }

    /// The policy of a regular container.
    pub(crate) fn policy_of(&self, part: &Part) -> RestartPolicy {
        part.manners.own_policy.unwrap_or(self.policy)
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.sidecars.iter().chain(&self.init).chain(&self.regular)
    }
}

impl Part {
    /// What its processes do in the long run.
    pub(crate) fn last(&self) -> &Script {
        self.series.last().unwrap_or(&Script::Runs)
    }

    /// True when it makes its pod start anew again and again.
    pub(crate) fn resets_for_ever(&self) -> bool {
        self.manners.resets && matches!(self.last(), Script::ExitsAfter(_, RESET))
    }

    /// True when it runs until somebody stops it, in the long run.
    pub(crate) fn stays(&self) -> bool {
        matches!(self.last(), Script::Runs | Script::StopsAfter(_) | Script::IgnoresSignal)
    }
}

/// Bounds a container's memory, and asks for as much.
pub(crate) fn bound(container: &mut Container, memory: i64) {
    let amount = Quantity(memory.to_string());
    let list = std::collections::BTreeMap::from([("memory".to_owned(), amount)]);
    container.resources = Some(ResourceRequirements {
        limits: Some(list.clone()),
        requests: Some(list),
        ..Default::default()
    });
}

/// How the containers of one kind are rolled.
#[derive(Clone, Copy)]
struct Rolls {
    series: fn(&mut Dice) -> Vec<Script>,
    manners: fn(&mut Dice) -> Manners,
}

const REGULAR: Rolls = Rolls { series: roll_regular, manners: Manners::roll_regular };
const SIDECAR: Rolls = Rolls { series: roll_sidecar, manners: Manners::roll_sidecar };
const INIT: Rolls = Rolls {
    series: roll_init,
    // The API lets an init container have none.
    manners: |_| Manners::default(),
};

/// The images of every world.
pub(crate) fn stock(world: &World) {
    world.add_image(HERE);
    world.add_image(HERE_TOO);
    world.add_pullable_image(REMOTE, Duration::from_secs(5));
}

fn roll_regular(dice: &mut Dice) -> Vec<Script> {
    let secs = |dice: &mut Dice, n| Duration::from_secs(dice.below(n));
    let one = |dice: &mut Dice| match dice.below(10) {
        0..=3 => Script::Runs,
        4 => Script::StopsAfter(secs(dice, 20)),
        5 => Script::IgnoresSignal,
        6 => Script::ExitsAfter(secs(dice, 30), 0),
        7 => Script::ExitsAfter(secs(dice, 30), *dice.pick(&[1, 1, RESET])),
        8 => Script::FailsToStart("no such file".to_owned()),
        _ => Script::FailsToCreate("no such device".to_owned()),
    };
    let n = 1 + dice.below(3);
    (0..n).map(|_| one(dice)).collect()
}

fn roll_init(dice: &mut Dice) -> Vec<Script> {
    let takes = Duration::from_secs(dice.below(4));
    let good = Script::ExitsAfter(takes, 0);
    match dice.below(8) {
        0 => vec![Script::ExitsAfter(takes, 1), good],
        1 => vec![Script::FailsToStart("no such file".to_owned()), good],
        2 => vec![good, Script::ExitsAfter(takes, 2)],
        _ => vec![good],
    }
}

fn roll_sidecar(dice: &mut Dice) -> Vec<Script> {
    match dice.below(4) {
        0 => vec![Script::ExitsAfter(Duration::from_secs(dice.below(20)), 1), Script::Runs],
        1 => vec![Script::IgnoresSignal],
        _ => vec![Script::Runs],
    }
}
