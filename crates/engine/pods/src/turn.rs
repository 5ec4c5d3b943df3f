//! One turn of a worker: from what it remembers, what it was told and the time to what is to be
//! done. Pure: values in, values out; sending, writing and remembering are the worker's.

use std::collections::BTreeMap;

use ferrolet_lifecycle::BackOffPolicy;
use ferrolet_lifecycle::{Facts, KeptContainers, PodState, ResizeFacts, Step, decide};
use ferrolet_resources::{
    NodeResources, PodResources, ResizeNeed, is_resizing, pod_cgroup, resize_needs, with_resources,
};
use ferrolet_status::{Computed, ContainerFact, RuntimeFacts, Stage, StatusInputs, compute};
use ferrolet_types::{ContainerName, Timestamp, observed::ObservedResources, pod::Phase};
use k8s_openapi::api::core::v1::{Pod as PodObject, PodStatus};

use crate::{
    inbox::Orders,
    memory::Memory,
    probing::{Probes, with_probes},
    reading::bounds_in_force,
    resizing::{Resizing, Said, Waited},
};

/// What is true of the node for one turn.
pub(crate) struct NodeNow<'a> {
    pub(crate) resources: &'a NodeResources,
    pub(crate) host_ips: &'a [String],
    pub(crate) back_off: BackOffPolicy,
    /// How many dead containers of each name are kept; `None` for no limit.
    pub(crate) n_dead_kept: Option<usize>,
    /// The pod's runtime handler makes nested mounts read-only.
    pub(crate) has_recursive_read_only: bool,
    pub(crate) shows_stop_signal: bool,
    /// Drivers of dynamic resources hold something for the pod.
    pub(crate) holds_claims: bool,
}

/// What one turn came to.
pub(crate) struct Turn {
    /// What to do, with verdict and events.
    pub(crate) step: Step,
    pub(crate) resize: ResizeLook,
}

/// What a look at the pod's resources showed.
pub(crate) struct ResizeLook {
    facts: ResizeFacts,
    /// How far the resize is now.
    pub(crate) resizing: Resizing,
    /// What is in force, where nobody had noted it: what runs was made from what was granted.
    pub(crate) first_actuated: Option<PodResources>,
    /// What is to be told.
    pub(crate) said: Option<Said>,
    /// A wait for room that has ended.
    pub(crate) waited: Option<Waited>,
}

/// Takes one turn.
pub(crate) fn plan_turn(
    memory: &Memory,
    orders: &Orders,
    node: &NodeNow<'_>,
    now: Timestamp,
) -> Turn {
    let resize = look_at_resources(memory, now);
    let basis = StatusBasis {
        resizing: &resize.resizing,
        actuated: memory.made.actuated().or(resize.first_actuated.as_ref()),
        ..StatusBasis::of(memory)
    };
    let computed = compute_status(memory, &basis, node, now);
    let is_evicted = computed.as_ref().is_some_and(|it| it.is_evicted);
    let probes = memory.seen.probes.iter();
    let probes = probes.map(|(name, probed)| (name.clone(), probed.verdicts)).collect();
    let facts = Facts {
        pod: memory.asked.pod().map(AsRef::as_ref),
        wish: orders.wish,
        seen: memory.seen.observation(),
        phase: computed.as_ref().map_or(Phase::Running, |it| it.phase),
        setup: memory.made.setup(),
        holds_claims: node.holds_claims,
        started_at: started_at(memory),
        is_judged: memory.asked.verdict().is_some(),
        eviction: orders.eviction.as_ref(),
        waiting: memory.shown.waiting(),
        hold: memory.shown.hold(),
        failures: memory.made.failures(),
        pod_failure: memory.made.pod_failure(),
        probes: &probes,
        resize: &resize.facts,
        is_restarting_all: computed.as_ref().is_some_and(|it| it.is_restarting_all),
        network_trouble: orders.network_trouble.as_deref(),
        back_off: node.back_off,
        kept: if is_evicted {
            KeptContainers::None
        } else {
            KeptContainers::within(node.n_dead_kept)
        },
    };
    Turn { step: decide(memory.state, &facts, now), resize }
}

/// When the pod began, as its status says: ours, else the one it came with.
fn started_at(memory: &Memory) -> Option<Timestamp> {
    let own = memory.asked.pod().and_then(|pod| pod.status.as_ref());
    let started = memory.shown.status.as_ref().or(own)?.start_time.as_ref()?;
    Some(Timestamp(started.0))
}

/// Where granted resources are not in force, and what that says of a resize.
fn look_at_resources(memory: &Memory, now: Timestamp) -> ResizeLook {
    let mut look = ResizeLook {
        facts: ResizeFacts::default(),
        resizing: memory.made.resizing.clone(),
        first_actuated: None,
        said: None,
        waited: None,
    };
    let Some(pod) = memory.asked.pod() else {
        return look;
    };
    if memory.state != PodState::Running {
        look.resizing.ended(now);
        look.waited = look.resizing.take_waited();
        return look;
    }
    if memory.made.actuated().is_none() {
        look.first_actuated = Some(PodResources::of(pod));
    }
    let actuated = memory.made.actuated().or(look.first_actuated.as_ref());
    let needs = actuated.map(|actuated| resize_needs(pod, actuated)).unwrap_or_default();
    let is_under_way = is_resizing(pod, &needs, |name| {
        let newest = memory.seen.observation().newest_container(name);
        newest.is_some_and(|it| it.state.is_running())
    });
    look.said = look.resizing.looked_at(pod, is_under_way, now);
    let named = |need: ResizeNeed| {
        let those = needs.containers.iter().filter(|(_, it)| **it == need);
        those.map(|(name, _)| ContainerName::new(name.as_str())).collect()
    };
    look.facts = ResizeFacts {
        updates: named(ResizeNeed::Update),
        restarts: named(ResizeNeed::Restart),
        is_pod_level: needs.is_pod_level,
        failure: look.resizing.failure.clone(),
    };
    look
}

/// What a status is computed from besides what the worker remembers anyway.
pub(crate) struct StatusBasis<'a> {
    pub(crate) probes: &'a Probes,
    pub(crate) previous: Option<&'a PodStatus>,
    pub(crate) resizing: &'a Resizing,
    pub(crate) actuated: Option<&'a PodResources>,
}

impl<'a> StatusBasis<'a> {
    /// Everything as the worker remembers it.
    pub(crate) fn of(memory: &'a Memory) -> Self {
        Self {
            probes: &memory.seen.probes,
            previous: memory.shown.status.as_ref(),
            resizing: &memory.made.resizing,
            actuated: memory.made.actuated(),
        }
    }
}

/// The pod's status; `None` for something that nobody asked for.
pub(crate) fn compute_status(
    memory: &Memory,
    basis: &StatusBasis<'_>,
    node: &NodeNow<'_>,
    now: Timestamp,
) -> Option<Computed> {
    let pod = memory.asked.pod()?;
    Some(compute(&StatusInputs {
        pod,
        previous: basis.previous,
        observation: memory.seen.observation(),
        runtime: RuntimeFacts {
            name: memory.seen.runtime_name(),
            has_recursive_read_only: node.has_recursive_read_only,
            shows_stop_signal: node.shows_stop_signal,
        },
        containers: &container_facts(memory, basis),
        stage: match memory.state {
            PodState::Running => Stage::Running,
            PodState::Stopping { .. } => Stage::Terminating,
            PodState::Stopped => Stage::Stopped,
            PodState::Settled | PodState::Gone => Stage::Terminated,
        },
        verdict: memory.asked.verdict(),
        resize: &basis.resizing.conditions(),
        pod_cgroup: basis.actuated.map(|it| pod_bounds(pod, it, node.resources)),
        volume_health: memory.seen.volume_health(),
        host_ips: node.host_ips,
        now,
    }))
}

/// What is known of each container besides the observation.
fn container_facts(
    memory: &Memory,
    basis: &StatusBasis<'_>,
) -> BTreeMap<ContainerName, ContainerFact> {
    let mut facts: BTreeMap<ContainerName, ContainerFact> = BTreeMap::new();
    for (name, waiting) in memory.shown.waiting() {
        facts.entry(name.clone()).or_default().waiting = Some(waiting.clone());
    }
    for (name, actuated) in basis.actuated.iter().flat_map(|it| &it.containers) {
        let fact = facts.entry(ContainerName::new(name.as_str())).or_default();
        fact.actuated = Some(actuated.clone());
    }
    for (name, devices) in memory.seen.devices() {
        facts.entry(name.clone()).or_default().devices.clone_from(devices);
    }
    for (name, probed) in basis.probes {
        let fact = facts.remove(name).unwrap_or_default();
        facts.insert(name.clone(), with_probes(fact, probed));
    }
    facts
}

/// The bounds that the pod's cgroup has by now, as the kernel would tell them.
fn pod_bounds(pod: &PodObject, actuated: &PodResources, node: &NodeResources) -> ObservedResources {
    let in_force = with_resources(pod, actuated);
    let cgroup = pod_cgroup(in_force.as_ref().unwrap_or(pod), &node.cgroups);
    bounds_in_force(&cgroup.limits, node.cgroup_mode)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ferrolet_lifecycle::{StepEvent, Wish};
    use ferrolet_pod::EndReason;
    use ferrolet_testkit::pod;
    use ferrolet_types::{Eviction, EvictionReason, GracePeriod, pod::PodView as _};

    use super::*;
    use crate::{grants::Assigned, inbox::Inbox};

    fn turn(memory: &Memory, inbox: &Inbox) -> Turn {
        let node = NodeNow {
            resources: &ferrolet_spec::SpecSettings::example().resources,
            host_ips: &[],
            back_off: BackOffPolicy::upstream(std::time::Duration::from_secs(300)),
            n_dead_kept: None,
            has_recursive_read_only: false,
            shows_stop_signal: false,
            holds_claims: false,
        };
        plan_turn(memory, &inbox.take(), &node, Timestamp::from_second(100))
    }

    #[test]
    fn a_turn_changes_nothing_and_answers_with_everything_that_is_to_change() {
        let web = pod("web").uid("u").build();
        let now = Timestamp::from_second(100);
        let mut memory = Memory::new(web.uid(), None, Some(web.clone()), now);
        let inbox = Inbox::new(Some(Assigned::whole(web.clone())), Wish::Run, None);
        let first = turn(&memory, &inbox);
        assert!(!first.step.stages.is_empty());
        assert!(first.resize.first_actuated.is_some_and(|it| it.is_same(&PodResources::of(&web))));
        assert_eq!((first.step.verdict, first.step.events), (None, Vec::new()));
        assert!(memory.made.actuated().is_none());

        let grace = GracePeriod::from_secs(3);
        inbox.evict(Eviction {
            uid: web.uid(),
            reason: EvictionReason::Evicted,
            message: "too much".to_owned(),
            annotations: BTreeMap::new(),
            disruption: None,
            grace: Some(grace),
        });
        let evicted = turn(&memory, &inbox).step;
        let reason = evicted.verdict.as_ref().map(|it| &it.reason);
        assert_eq!(reason, Some(&EndReason::Evicted));
        let told: Vec<StepEvent> =
            evicted.verdict.clone().map(StepEvent::Ends).into_iter().collect();
        assert_eq!(evicted.events, told);
        assert!(memory.asked.verdict().is_none());

        evicted.verdict.into_iter().for_each(|it| memory.asked.end(it));
        assert_eq!(turn(&memory, &inbox).step.verdict, None);
    }
}
