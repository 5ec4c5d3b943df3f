//! What a worker is told: the latest pod, the latest wish, and what the runtime hinted at. Never a
//! queue of work.

use std::sync::{Arc, Mutex};

use ferrolet_lifecycle::{PodState, Wish};
use ferrolet_ports::TRACED;
use ferrolet_types::{
    Eviction, GracePeriod, VolumeHealthReport, hint::News, pod::PodView as _, probe::ProbeReport,
};
use tokio::sync::Notify;
use tracing::Span;

use crate::grants::Assigned;

/// More hints than this and the worker simply looks for itself.
const MOST_NEWS: usize = 32;

/// One worker's inbox. The dispatcher writes, the worker reads; neither waits for the other.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<Orders>,
    changed: Notify,
}

/// What a worker is told to do.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) pod: Option<Assigned>,
    pub(crate) wish: Wish,
    /// Why pods cannot be connected; `None` when they can.
    pub(crate) network_trouble: Option<Arc<str>>,
    pub(crate) news: Vec<News>,
    pub(crate) must_look: bool,
    pub(crate) reports: Vec<ProbeReport>,
    /// What drivers said of volumes, the latest of each.
    pub(crate) health: Vec<VolumeHealthReport>,
    /// Volumes that were refused have become ready: no need to wait.
    pub(crate) volumes_became_ready: bool,
    /// Its devices feel different, or their plugin is back: no need to wait.
    pub(crate) devices_changed: bool,
    /// The node cannot afford the pod any longer.
    pub(crate) eviction: Option<Eviction>,
    /// The trace of this version of the pod, from its arrival until it is in force; handed over
    /// once.
    pub(crate) trace: Span,
}

/// Begins the trace of a pod that came from its source.
fn begin_trace(pod: &Assigned) -> Span {
    tracing::trace_span!(
        target: TRACED,
        parent: None,
        "podUpdate",
        k8s.pod.uid = %pod.pod.uid(),
        k8s.pod = %pod.pod.key(),
        source = pod.pod.source().as_str(),
    )
}

impl Inbox {
    pub(crate) fn new(
        pod: Option<Assigned>,
        wish: Wish,
        network_trouble: Option<Arc<str>>,
    ) -> Self {
        let orders = Orders {
            trace: pod.as_ref().map_or_else(Span::none, begin_trace),
            pod,
            wish,
            network_trouble,
            news: Vec::new(),
            must_look: false,
            reports: Vec::new(),
            health: Vec::new(),
            volumes_became_ready: false,
            devices_changed: false,
            eviction: None,
        };
        Self { state: Mutex::new(orders), changed: Notify::new() }
    }

    /// Replaces the specification.
    pub(crate) fn set_pod(&self, pod: Assigned) {
        let trace = begin_trace(&pod);
        self.change(|orders| {
            orders.pod = Some(pod);
            orders.trace = trace;
        });
    }

    /// Asks for an end; an earlier, stricter wish stays.
    pub(crate) fn wish(&self, wish: Wish) {
        self.change(|orders| orders.wish = tighten(orders.wish, wish));
    }

    /// Passes a hint on.
    pub(crate) fn hint(&self, news: News) {
        self.change(|orders| {
            if orders.news.len() < MOST_NEWS {
                orders.news.push(news);
            } else {
                orders.must_look = true;
            }
        });
    }

    /// Passes a probe's report on; the newest of each probe is enough.
    pub(crate) fn report(&self, report: ProbeReport) {
        self.change(|orders| {
            orders
                .reports
                .retain(|old| (&old.container, old.kind) != (&report.container, report.kind));
            orders.reports.push(report);
        });
    }

    /// Passes on what a driver says of a volume; the latest of each volume is enough.
    pub(crate) fn report_health(&self, report: VolumeHealthReport) {
        self.change(|orders| {
            orders.health.retain(|old| old.volume != report.volume);
            orders.health.push(report);
        });
    }

    /// Says that volumes which were refused are ready now.
    pub(crate) fn volumes_became_ready(&self) {
        self.change(|orders| orders.volumes_became_ready = true);
    }

    /// Says that its devices feel different, or that their plugin is back.
    pub(crate) fn devices_changed(&self) {
        self.change(|orders| orders.devices_changed = true);
    }

    /// Ends the pod for the node's sake.
    pub(crate) fn evict(&self, eviction: Eviction) {
        self.change(|orders| {
            let grace = eviction.grace;
            // One that ends already needs no other reason to.
            if orders.wish == Wish::Run {
                orders.eviction = Some(eviction);
            }
            orders.wish = tighten(orders.wish, Wish::End { grace });
        });
    }

    /// Says why pods cannot be connected, or that they can.
    pub(crate) fn set_network(&self, trouble: Option<Arc<str>>) {
        self.change(|orders| orders.network_trouble = trouble);
    }

    /// The orders as they are now; hints are handed over once.
    pub(crate) fn take(&self) -> Orders {
        let mut orders = self.state.lock().expect("no panic while the lock is held");
        let taken = orders.clone();
        orders.trace = Span::none();
        orders.news.clear();
        orders.reports.clear();
        orders.health.clear();
        orders.volumes_became_ready = false;
        orders.devices_changed = false;
        orders.eviction = None;
        orders.must_look = false;
        taken
    }

    /// The wish as it is now.
    pub(crate) fn current_wish(&self) -> Wish {
        self.state.lock().expect("no panic while the lock is held").wish
    }

    /// Waits for a change since the last `changed`. Cancel-safe: a change that was not waited for
    /// is remembered.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits for what concerns a worker in the middle of something: a wish as for
    /// [`Inbox::tightened`], or reports other than those it knows. Cancel-safe: both are looked at,
    /// not taken.
    pub(crate) async fn heard(
        &self,
        known: Wish,
        state: PodState,
        reports: &[ProbeReport],
    ) -> Heard {
        loop {
            {
                let orders = self.state.lock().expect("no panic while the lock is held");
                if orders.wish != known && is_worth_an_interruption(orders.wish, state) {
                    // The loop that follows must see the change too.
                    self.changed.notify_one();
                    return Heard::Tightened;
                }
                if orders.reports != reports {
                    return Heard::Reports(orders.reports.clone());
                }
            }
            self.changed.notified().await;
        }
    }

    /// Waits until the wish asks for more than what is done in `state` for the wish `known`.
    /// Cancel-safe: the wish is looked at, not taken.
    pub(crate) async fn tightened(&self, known: Wish, state: PodState) {
        loop {
            let wish = self.current_wish();
            if wish != known && is_worth_an_interruption(wish, state) {
                // The loop that follows must see the change too.
                self.changed.notify_one();
                return;
            }
            self.changed.notified().await;
        }
    }

    fn change(&self, edit: impl FnOnce(&mut Orders)) {
        edit(&mut self.state.lock().expect("no panic while the lock is held"));
        self.changed.notify_one();
    }
}

/// What a worker hears of while it is at work.
pub(crate) enum Heard {
    /// The wish asks for more than what is being done.
    Tightened,
    /// What probes said since the work began.
    Reports(Vec<ProbeReport>),
}

/// A start is given up for any end. A stop is given up for a faster one only: begun again with the
/// same grace, it would take longer.
fn is_worth_an_interruption(wish: Wish, state: PodState) -> bool {
    let asked = match wish {
        Wish::Run => None,
        Wish::End { grace } | Wish::Forget { grace } | Wish::Renew { grace } => grace,
    };
    match state {
        PodState::Running => true,
        PodState::Stopping { grace, .. } => asked.is_some_and(|asked| asked < grace),
        PodState::Stopped | PodState::Settled | PodState::Gone => false,
    }
}

/// The stricter of two wishes: an end is never taken back, a grace never grows, what is to be
/// forgotten stays so unless it is to begin anew.
fn tighten(was: Wish, asked: Wish) -> Wish {
    match (was, asked) {
        (was, Wish::Run) => was,
        (Wish::Run, asked) => asked,
        // Whoever was to be forgotten may be wanted again, and the other way round.
        (Wish::End { grace: a } | Wish::Forget { grace: a }, Wish::Renew { grace: b })
        | (Wish::Renew { grace: a }, Wish::End { grace: b } | Wish::Renew { grace: b }) => {
            Wish::Renew { grace: shorter(a, b) }
        }
        (Wish::Forget { grace: a }, Wish::End { grace: b } | Wish::Forget { grace: b })
        | (Wish::End { grace: a } | Wish::Renew { grace: a }, Wish::Forget { grace: b }) => {
            Wish::Forget { grace: shorter(a, b) }
        }
        (Wish::End { grace: a }, Wish::End { grace: b }) => Wish::End { grace: shorter(a, b) },
    }
}

fn shorter(a: Option<GracePeriod>, b: Option<GracePeriod>) -> Option<GracePeriod> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is asked in whatever order, an end stays an end and a grace never grows.
    #[test]
    fn tightening_is_never_taken_back() {
        let graces = [None, Some(1), Some(5), Some(60)];
        let graces = graces.map(|it| it.map(GracePeriod::from_secs));
        let mut wishes = vec![Wish::Run];
        for grace in graces {
            wishes.extend([Wish::End { grace }, Wish::Forget { grace }, Wish::Renew { grace }]);
        }
        let grace_of = |wish: Wish| match wish {
            Wish::Run => None,
            Wish::End { grace } | Wish::Forget { grace } | Wish::Renew { grace } => grace,
        };
        for &was in &wishes {
            assert_eq!(tighten(was, was), was);
            for &asked in &wishes {
                let now = tighten(was, asked);
                assert_eq!(now == Wish::Run, was == Wish::Run && asked == Wish::Run);
                let shortest = [was, asked].into_iter().filter_map(grace_of).min();
                assert_eq!(grace_of(now), shortest, "{was:?} {asked:?}");
                assert_eq!(tighten(now, asked), now, "{was:?} {asked:?}");
                assert_eq!(tighten(was, Wish::Run), was);
            }
        }
    }

    #[test]
    fn a_wish_only_tightens() {
        let secs = |n| Some(GracePeriod::from_secs(n));
        let check = |was, asked, expected| assert_eq!(tighten(was, asked), expected);
        check(Wish::Run, Wish::Run, Wish::Run);
        check(Wish::Run, Wish::End { grace: None }, Wish::End { grace: None });
        check(Wish::End { grace: secs(5) }, Wish::Run, Wish::End { grace: secs(5) });
        check(
            Wish::End { grace: secs(5) },
            Wish::End { grace: secs(50) },
            Wish::End { grace: secs(5) },
        );
        check(
            Wish::End { grace: None },
            Wish::Forget { grace: secs(3) },
            Wish::Forget { grace: secs(3) },
        );
        check(
            Wish::Forget { grace: secs(3) },
            Wish::End { grace: secs(1) },
            Wish::Forget { grace: secs(1) },
        );
        check(
            Wish::Forget { grace: secs(3) },
            Wish::Renew { grace: None },
            Wish::Renew { grace: secs(3) },
        );
        check(
            Wish::Renew { grace: secs(3) },
            Wish::End { grace: secs(1) },
            Wish::Renew { grace: secs(1) },
        );
        check(
            Wish::Renew { grace: None },
            Wish::Forget { grace: None },
            Wish::Forget { grace: None },
        );
    }
}
