//! The loop over events and listings.
//!
//! ```text
//!          stream open                          stream ends, or none offered
//!  Events ─────────────► list every minute ◄───────────────────────────────► list often, the quieter the rarer
//! ```

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_ports::{
    Fut, HealthCheck, Runtime, RuntimeError, RuntimeErrorKind, RuntimeEvent, RuntimeEvents,
    RuntimeListing,
};
use ferrolet_types::hint::Hint;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::{known::Known, metrics};

/// With an event stream, listings only repair what was lost.
const REPAIR_PERIOD: Duration = Duration::from_secs(60);
/// Without one, a change is followed by a quick second look, and quiet by ever slower ones.
const FASTEST_PERIOD: Duration = Duration::from_millis(100);
const SLOWEST_PERIOD: Duration = Duration::from_secs(1);
/// First and longest pause before the stream is opened again.
const REOPEN_FIRST: Duration = Duration::from_millis(100);
const REOPEN_LONGEST: Duration = Duration::from_secs(3);
/// Without a successful listing for this long the runtime counts as lost (upstream's PLEG
/// threshold).
const LISTING_OVERDUE: Duration = Duration::from_secs(180);

/// When the runtime was last listed: the health check that upstream calls PLEG.
#[derive(Debug, Default)]
pub struct ListingHealth {
    last: Mutex<Option<Instant>>,
}

impl ListingHealth {
    fn note(&self) {
        *self.last.lock().expect("no panic while the lock is held") = Some(Instant::now());
    }

    /// How long ago the runtime was last listed.
    pub(crate) fn age(&self) -> Option<Duration> {
        let last = *self.last.lock().expect("no panic while the lock is held");
        last.map(|last| last.elapsed())
    }
}

impl HealthCheck for ListingHealth {
    fn name(&self) -> &'static str {
        "pleg"
    }

    fn check(&self) -> Result<(), String> {
        match *self.last.lock().expect("no panic while the lock is held") {
            None => Err("pleg has yet to be successful".to_owned()),
            Some(last) if last.elapsed() > LISTING_OVERDUE => Err(format!(
                "pleg was last seen active {}s ago; threshold is 3m0s",
                last.elapsed().as_secs()
            )),
            Some(_) => Ok(()),
        }
    }
}

/// Watches containers until `hints` is closed.
pub async fn watch_containers(
    runtime: Arc<dyn Runtime>,
    hints: mpsc::Sender<Hint>,
    health: Arc<ListingHealth>,
) {
    let mut watch = Watch {
        runtime,
        health,
        known: Known::default(),
        stream: Stream::Closed { reopen_at: Instant::now(), pause: REOPEN_FIRST },
        list_at: Instant::now(),
        listing: None,
        listed_at: None,
        quiet_period: FASTEST_PERIOD,
        is_failing: false,
    };
    while !hints.is_closed() {
        for hint in watch.next_hints().await {
            if hints.send(hint).await.is_err() {
                return;
            }
        }
    }
}

struct Watch {
    runtime: Arc<dyn Runtime>,
    health: Arc<ListingHealth>,
    known: Known,
    stream: Stream,
    list_at: Instant,
    /// The listing that is under way: events go on being heard while the runtime takes its time.
    listing: Option<Listing>,
    /// When the last listing that ended began.
    listed_at: Option<Instant>,
    quiet_period: Duration,
    is_failing: bool,
}

enum Stream {
    Open(Box<dyn RuntimeEvents>),
    Closed {
        reopen_at: Instant,
        pause: Duration,
    },
    /// The runtime has no events.
    Unsupported,
}

/// A listing under way.
struct Listing {
    answer: Fut<'static, Result<RuntimeListing, RuntimeError>>,
    began: Instant,
    /// What happened since it was asked for, which its answer may not know of. Bounded by the
    /// deadline of the call.
    meanwhile: Vec<RuntimeEvent>,
}

enum Woken {
    Event(Option<Result<RuntimeEvent, RuntimeError>>),
    Reopen(Duration),
    List,
    Listed(Result<RuntimeListing, RuntimeError>),
}

impl Watch {
    async fn next_hints(&mut self) -> Vec<Hint> {
        let list_at = self.list_at;
        let listing = &mut self.listing;
        // Both halves are cancel-safe: a timer loses nothing, and a listing under way is kept and
        // polled on.
        let next_listing = async {
            match listing {
                Some(listing) => Woken::Listed((&mut listing.answer).await),
                None => {
                    sleep_until(list_at).await;
                    Woken::List
                }
            }
        };
        let woken = match &mut self.stream {
            Stream::Open(stream) => tokio::select! {
                // The listing first: however many events there are, it repairs what they miss.
                biased;
                woken = next_listing => woken,
                // `next` is cancel-safe by contract: an event is only taken when it is returned.
                event = stream.next() => Woken::Event(event),
            },
            Stream::Closed { reopen_at, pause } => {
                let (reopen_at, pause) = (*reopen_at, *pause);
                tokio::select! {
                    biased;
                    // A timer loses nothing when dropped.
                    () = sleep_until(reopen_at) => Woken::Reopen(pause),
                    woken = next_listing => woken,
                }
            }
            Stream::Unsupported => next_listing.await,
        };
        match woken {
            Woken::Event(Some(Ok(event))) => {
                tracing::debug!(v = 6, pod_uid = %event.uid, id = event.id, kind = ?event.kind, "Container event");
                if let Some(listing) = &mut self.listing {
                    listing.meanwhile.push(event.clone());
                }
                self.known.take_event(event).into_iter().collect()
            }
            Woken::Event(ended) => {
                let error = ended.and_then(Result::err).map(|error| error.to_string());
                tracing::info!(error, "Container event stream ended, listing until it is back");
                self.stream = Stream::Closed {
                    reopen_at: Instant::now() + REOPEN_FIRST,
                    pause: REOPEN_FIRST,
                };
                self.list_soon();
                Vec::new()
            }
            Woken::Reopen(pause) => {
                self.reopen(pause).await;
                Vec::new()
            }
            Woken::List => {
                let runtime = self.runtime.clone();
                self.listing = Some(Listing {
                    answer: Box::pin(async move { runtime.list().await }),
                    began: Instant::now(),
                    meanwhile: Vec::new(),
                });
                Vec::new()
            }
            Woken::Listed(answer) => self.take_listing(answer),
        }
    }

    async fn reopen(&mut self, pause: Duration) {
        let asked = Instant::now();
        let opened = self.runtime.events().await;
        metrics::stream(asked.elapsed(), opened.is_ok());
        match opened {
            Ok(stream) => {
                tracing::debug!("Container event stream is open");
                self.stream = Stream::Open(stream);
                // What happened before the stream was open is only found by looking, and not by a
                // look that began before.
                self.listing = None;
                self.list_at = Instant::now();
            }
            Err(error) if error.kind == RuntimeErrorKind::Unimplemented => {
                tracing::info!("The runtime has no container events, listing instead");
                self.stream = Stream::Unsupported;
            }
            Err(error) => {
                tracing::debug!(%error, "Container event stream cannot be opened");
                let pause = (pause * 2).min(REOPEN_LONGEST);
                self.stream = Stream::Closed { reopen_at: Instant::now() + pause, pause };
            }
        }
    }

    fn take_listing(&mut self, answer: Result<RuntimeListing, RuntimeError>) -> Vec<Hint> {
        let listing = self.listing.take();
        if let Some(listing) = &listing {
            let last = self.listed_at.replace(listing.began);
            let since_last = last.map(|last| listing.began.duration_since(last));
            metrics::listed(listing.began.elapsed(), since_last);
        }
        let meanwhile = listing.map(|listing| listing.meanwhile);
        let hints = match answer {
            Ok(listing) => {
                self.health.note();
                self.is_failing = false;
                let mut hints = self.known.take_listing(&listing);
                let later = meanwhile.into_iter().flatten();
                hints.extend(later.filter_map(|event| self.known.take_event(event)));
                hints
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "The runtime cannot be listed");
                }
                Vec::new()
            }
        };
        let has_news = hints.iter().any(|hint| matches!(hint, Hint::Changed { .. }));
        self.quiet_period =
            if has_news { FASTEST_PERIOD } else { (self.quiet_period * 2).min(SLOWEST_PERIOD) };
        let period = match self.stream {
            Stream::Open(_) => REPAIR_PERIOD,
            Stream::Closed { .. } | Stream::Unsupported => self.quiet_period,
        };
        self.list_at = Instant::now() + period;
        hints
    }

    fn list_soon(&mut self) {
        self.quiet_period = FASTEST_PERIOD;
        self.list_at = Instant::now();
    }
}
