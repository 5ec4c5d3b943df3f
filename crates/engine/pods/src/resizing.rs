//! How far the resize of one pod is: its two conditions, kept as upstream keeps them, and the words
//! for its events. Pure.
//!
//! ```text
//!   desired ≠ allocated ─► PodResizePending (Deferred, Infeasible) ─ room ─► allocated ─► PodResizeInProgress ─► done
//!                                                                                             └ Error, tried again
//! ```
//!
//! Owned by the worker's memory. After a restart of the agent the conditions come back from the
//! API's copy of the pod.

use std::time::Duration;

use ferrolet_lifecycle::Failure;
use ferrolet_resources::Rejection;
use ferrolet_types::{Pod, Timestamp, pod::PodView};
use k8s_openapi::{
    api::core::v1::{Container, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

pub(crate) const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";
pub(crate) const DEFERRED: &str = "Deferred";
const ERROR: &str = "Error";

/// The state of one pod's resize.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Resizing {
    pending: Option<PodCondition>,
    in_progress: Option<PodCondition>,
    /// What went wrong when resources were put in force, until that succeeds.
    pub(crate) failure: Option<Failure>,
    /// A wait that is over and was not counted yet.
    waited: Option<Waited>,
}

/// How long a resize waited for room, and how that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waited {
    pub(crate) took: Duration,
    pub(crate) end: WaitEnd,
}

/// How a wait for room ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// There was room.
    Accepted,
    /// Nobody wants it any more.
    Reverted,
    /// The pod ended.
    Terminated,
}

impl WaitEnd {
    /// Upstream's word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Reverted => "reverted",
            Self::Terminated => "terminated",
        }
    }
}

/// Something to say about a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Resizing {
    /// Takes over what an earlier life of the agent had published.
    pub(crate) fn from_status(pod: &Pod, now: Timestamp) -> Self {
        let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
        let mut resizing = Self::default();
        for old in conditions.filter(|it| it.status == "True") {
            let renewed = || {
                let reason = old.reason.as_deref().unwrap_or_default();
                let message = old.message.as_deref().unwrap_or_default();
                let generation = old.observed_generation;
                Some(condition(&old.type_, None, (reason, message), generation, now))
            };
            match old.type_.as_str() {
                PENDING => resizing.pending = renewed(),
                IN_PROGRESS => resizing.in_progress = renewed(),
                _ => {}
            }
        }
        resizing
    }

    /// The conditions, as the status shows them.
    pub(crate) fn conditions(&self) -> Vec<PodCondition> {
        self.pending.iter().chain(&self.in_progress).cloned().collect()
    }

    /// The node grants what is desired, or says why not.
    pub(crate) fn judged(
        &mut self,
        desired: &Pod,
        pending: Option<&Rejection>,
        now: Timestamp,
    ) -> Option<Said> {
        let Some(why) = pending else {
            self.waits_no_longer(WaitEnd::Reverted, now);
            return None;
        };
        let is_final = why.reason == Rejection::INFEASIBLE;
        let reason = if is_final { Rejection::INFEASIBLE } else { DEFERRED };
        let generation = desired.metadata.generation;
        let old = self.pending.take();
        let is_news = old.as_ref().is_none_or(|old| {
            old.reason.as_deref() != Some(reason) || old.observed_generation != generation
        });
        let told = (reason, why.message.as_str());
        self.pending = Some(condition(PENDING, old.as_ref(), told, generation, now));
        is_news.then(|| Said {
            is_warning: true,
            reason: if is_final { "ResizeInfeasible" } else { "ResizeDeferred" },
            message: summary(
                &format!("Pod resize {}", why.reason),
                desired,
                generation,
                &why.message,
            ),
        })
    }

    /// New resources were granted.
    pub(crate) fn started(&mut self, allocated: &Pod, now: Timestamp) -> Said {
        let generation = allocated.metadata.generation;
        self.waits_no_longer(WaitEnd::Accepted, now);
        self.failure = None;
        self.in_progress = Some(condition(IN_PROGRESS, None, ("", ""), generation, now));
        Said {
            is_warning: false,
            reason: "ResizeStarted",
            message: summary("Pod resize started", allocated, generation, ""),
        }
    }

    /// What is granted is in force, or is not yet.
    pub(crate) fn looked_at(
        &mut self,
        allocated: &Pod,
        is_under_way: bool,
        now: Timestamp,
    ) -> Option<Said> {
        if is_under_way {
            let generation = allocated.metadata.generation;
            let begin = || condition(IN_PROGRESS, None, ("", ""), generation, now);
            self.in_progress.get_or_insert_with(begin);
            return None;
        }
        self.failure = None;
        let done = self.in_progress.take()?;
        Some(Said {
            is_warning: false,
            reason: "ResizeCompleted",
            message: summary("Pod resize completed", allocated, done.observed_generation, ""),
        })
    }

    /// Putting resources in force failed.
    pub(crate) fn failed(
        &mut self,
        allocated: &Pod,
        message: &str,
        now: Timestamp,
    ) -> Option<Said> {
        let count = self.failure.as_ref().map_or(1, |it| it.count.saturating_add(1));
        self.failure = Some(Failure { message: message.to_owned(), count, at: now });
        let old = self.in_progress.take();
        let generation =
            old.as_ref().map_or(allocated.metadata.generation, |old| old.observed_generation);
        let is_news = old.as_ref().is_none_or(|old| {
            (old.reason.as_deref(), old.message.as_deref()) != (Some(ERROR), Some(message))
        });
        let told = (ERROR, message);
        self.in_progress = Some(condition(IN_PROGRESS, old.as_ref(), told, generation, now));
        is_news.then(|| Said {
            is_warning: true,
            reason: "ResizeError",
            message: summary("Pod resize error", allocated, generation, message),
        })
    }

    /// A pod that has ended is not resized any more.
    pub(crate) fn ended(&mut self, now: Timestamp) {
        self.waits_no_longer(WaitEnd::Terminated, now);
        *self = Self { waited: self.waited.take(), ..Self::default() };
    }

    /// The wait that ended since this was last asked.
    pub(crate) fn take_waited(&mut self) -> Option<Waited> {
        self.waited.take()
    }

    fn waits_no_longer(&mut self, end: WaitEnd, now: Timestamp) {
        let waiting = self.pending.take();
        let deferred = waiting.filter(|it| it.reason.as_deref() == Some(DEFERRED));
        let since = deferred.and_then(|it| it.last_transition_time);
        if let Some(Time(since)) = since {
            let took = now.since(Timestamp(since));
            self.waited = Some(Waited { took, end });
        }
    }
}

/// A condition that holds; its transition is the change of its reason.
fn condition(
    kind: &str,
    old: Option<&PodCondition>,
    (reason, message): (&str, &str),
    generation: Option<i64>,
    now: Timestamp,
) -> PodCondition {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let since = old
        .filter(|old| old.reason == text(reason))
        .and_then(|old| old.last_transition_time.clone());
    PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: text(reason),
        message: text(message),
        observed_generation: generation.filter(|it| *it != 0),
        last_probe_time: Some(Time(now.0)),
        last_transition_time: since.or(Some(Time(now.0))),
    }
}

/// What is resized to what, in one line of JSON.
fn summary(prefix: &str, pod: &Pod, generation: Option<i64>, error: &str) -> String {
    let spec = pod.spec_ref();
    let list = |containers: &[Container]| -> Value {
        containers
            .iter()
            .map(|it| json!({"name": it.name, "resources": it.resources.clone().unwrap_or_default()}))
            .collect()
    };
    let mut parts = Vec::new();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (key, containers) in [("initContainers", init), ("containers", &spec.containers)] {
        if !containers.is_empty() {
            parts.push(format!("\"{key}\":{}", list(containers)));
        }
    }
    parts.push(format!("\"generation\":{}", generation.unwrap_or(0)));
    if !error.is_empty() {
        parts.push(format!("\"error\":{}", Value::from(error)));
    }
    format!("{prefix}: {{{}}}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn pod(cpu: &str, generation: i64) -> Pod {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": "p", "generation": generation},
                "spec": {"initContainers": [{"name": "i"}],
                         "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
            }))
            .unwrap(),
        )
    }

    fn brief(resizing: &Resizing) -> Vec<String> {
        let told = |it: PodCondition| {
            let since = it.last_transition_time.unwrap().0.as_second();
            format!(
                "{} {} {} g{} @{since}",
                it.type_,
                it.reason.unwrap_or_default(),
                it.message.unwrap_or_default(),
                it.observed_generation.unwrap_or(0)
            )
        };
        resizing.conditions().into_iter().map(told).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second)
    }

    /// Deferred, granted, failed, done.
    #[test]
    fn the_life_of_a_resize_is_told_in_conditions_and_events() {
        let mut resizing = Resizing::default();
        let full = Rejection { reason: "OutOfcpu".to_owned(), message: "no room".to_owned() };
        let said = resizing.judged(&pod("2", 2), Some(&full), at(10)).unwrap();
        assert_eq!(said.reason, "ResizeDeferred");
        assert_eq!(
            said.message,
            r#"Pod resize OutOfcpu: {"initContainers":[{"name":"i","resources":{}}],"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}],"generation":2,"error":"no room"}"#
        );
        assert_eq!(brief(&resizing), ["PodResizePending Deferred no room g2 @10"]);
        assert_eq!(resizing.judged(&pod("2", 2), Some(&full), at(20)), None);
        assert_eq!(brief(&resizing), ["PodResizePending Deferred no room g2 @10"]);

        let said = resizing.started(&pod("2", 2), at(30));
        assert_eq!(said.reason, "ResizeStarted");
        assert!(said.message.starts_with("Pod resize started: {"));
        assert_eq!(brief(&resizing), ["PodResizeInProgress   g2 @30"]);
        let waited = resizing.take_waited().unwrap();
        assert_eq!((waited.took.as_secs(), waited.end.word()), (20, "accepted"));

        let said = resizing.failed(&pod("2", 2), "busy", at(40)).unwrap();
        assert_eq!((said.is_warning, said.reason), (true, "ResizeError"));
        assert_eq!(resizing.failed(&pod("2", 2), "busy", at(50)), None);
        assert_eq!(brief(&resizing), ["PodResizeInProgress Error busy g2 @40"]);
        assert_eq!(resizing.failure.as_ref().unwrap().count, 2);
        assert_eq!(resizing.looked_at(&pod("2", 3), true, at(55)), None);

        let said = resizing.looked_at(&pod("2", 3), false, at(60)).unwrap();
        assert_eq!(said.reason, "ResizeCompleted");
        assert!(said.message.ends_with(r#""generation":2}"#), "{}", said.message);
        assert_eq!(resizing, Resizing::default());
    }

    /// How long a resize was deferred is counted once, by how that ended; what cannot be
    /// never waited.
    #[test]
    fn a_wait_for_room_ends_in_one_of_three_ways() {
        type End = fn(&mut Resizing);
        let check = |reason: &str, end: End, expected: Option<&str>| {
            let why = Rejection { reason: reason.to_owned(), message: "no".to_owned() };
            let mut resizing = Resizing::default();
            resizing.judged(&pod("2", 2), Some(&why), at(10));
            assert_eq!(resizing.take_waited(), None);
            end(&mut resizing);
            let waited = resizing.take_waited();
            assert_eq!(waited.map(|it| it.end.word()), expected, "{reason}");
            assert!(waited.is_none_or(|it| it.took.as_secs() == 5));
            assert_eq!(resizing.take_waited(), None);
        };
        let accepted: End = |it| drop(it.started(&pod("2", 2), at(15)));
        let reverted: End = |it| drop(it.judged(&pod("1", 3), None, at(15)));
        let terminated: End = |it| it.ended(at(15));
        check("OutOfcpu", accepted, Some("accepted"));
        check("OutOfcpu", reverted, Some("reverted"));
        check("OutOfcpu", terminated, Some("terminated"));
        for end in [accepted, reverted, terminated] {
            check(Rejection::INFEASIBLE, end, None);
        }
    }

    #[test]
    fn what_an_earlier_agent_published_goes_on() {
        let mut old = (*pod("1", 4)).clone();
        old.status = serde_json::from_value(json!({"conditions": [
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "no", "observedGeneration": 4},
            {"type": "Ready", "status": "True"}]}))
        .unwrap();
        let resizing = Resizing::from_status(&Arc::new(old), at(5));
        assert_eq!(brief(&resizing), ["PodResizePending Infeasible no g4 @5"]);
    }
}
