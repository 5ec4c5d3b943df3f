//! Where a list-and-watch stands, and what it does next. Pure: answers in, next step out.
//!
//! ```text
//!            list ok                         event, bookmark: newer version
//!   List ──────────────► Watch{version} ◄──────────────┐
//!    ▲  ▲                  │   │  └────────────────────┘
//!    │  └── too old (410) ─┘   └── ended, server away: Watch again from the same version
//!    │      too new (504)
//!    └────── anything else: List again, no older than what was seen
//! ```
//!
//! Whoever reads a list takes what it lacks for gone, and for a pod that means its end. So no list
//! is ever older than what was known: the first one, and each one after the server forgot or never
//! reached our version, is a consistent read (no version); every other one is no older than what was
//! seen. A list of "whatever is at hand" (`0`) is never asked for: see ADR 0047.

use std::time::Duration;

use ferrolet_ports::{ApiError, ApiErrorKind};

use crate::early;

const FIRST_DELAY: Duration = Duration::from_millis(800);
const LAST_DELAY: Duration = Duration::from_secs(30);
/// A watch that ends sooner than this without a word counts as a failure, or it would be opened in
/// a tight circle.
const SHORT: Duration = Duration::from_secs(1);

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Read the whole collection, no older than this; empty means the newest there is.
    List { version: String },
    /// Follow changes from this version on.
    Watch { version: String },
}

/// The state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    step: Step,
    failures: u32,
    /// The server said no, perhaps because it does not know yet what we know.
    is_refused: bool,
    stay_away: Duration,
    /// Nobody answered, so an answer to anybody is good news.
    is_alone: bool,
    /// How often in a row the server had forgotten the version, or not reached it, without a single
    /// event between.
    n_forgotten: u32,
}

impl Cursor {
    /// Nothing seen yet: the first list is a consistent read.
    pub(crate) fn new() -> Self {
        Self {
            step: Step::List { version: String::new() },
            failures: 0,
            is_refused: false,
            stay_away: Duration::ZERO,
            is_alone: false,
            n_forgotten: 0,
        }
    }

    pub(crate) fn step(&self) -> &Step {
        &self.step
    }

    /// The collection was read at this version.
    pub(crate) fn listed(&mut self, version: String) {
        self.step = Step::Watch { version };
        self.calm();
    }

    /// An event or a bookmark brought this version.
    pub(crate) fn advanced(&mut self, version: String) {
        self.step = Step::Watch { version };
        self.n_forgotten = 0;
        self.calm();
    }

    /// The watch ended in order after this long.
    pub(crate) fn ended(&mut self, after: Duration, saw_events: bool) {
        if after < SHORT && !saw_events {
            self.failures += 1;
        }
    }

    /// A list or a watch failed.
    pub(crate) fn failed(&mut self, error: &ApiError) {
        use ApiErrorKind as Kind;
        self.failures += 1;
        self.stay_away = Duration::ZERO;
        self.is_alone = matches!(error.kind, Kind::Timeout | Kind::Unavailable);
        self.is_refused = error.kind == Kind::Forbidden;
        match (&error.kind, &self.step) {
            // The server has not reached that version, and may never do (it was restored from an
            // older copy, or we were sent to one that lags). A consistent read tells which.
            _ if is_ahead(error) => {
                self.step = Step::List { version: String::new() };
                self.n_forgotten += 1;
                self.failures = self.n_forgotten;
            }
            // The server has forgotten that version: take the newest.
            (Kind::Gone, _) => {
                self.step = Step::List { version: String::new() };
                self.n_forgotten += 1;
                // It answers, however long it did not; the first time there is no reason to wait.
                self.failures = self.n_forgotten - 1;
            }
            (Kind::TooManyRequests { retry_after }, _) => {
                self.stay_away = retry_after.unwrap_or_default();
            }
            (Kind::Timeout | Kind::Unavailable, _) => {}
            (_, Step::Watch { version }) => {
                self.step = Step::List { version: version.clone() };
            }
            (_, Step::List { .. }) => {}
        }
    }

    /// True when nobody answered the last time.
    pub(crate) fn waits_for_server(&self) -> bool {
        self.is_alone
    }

    /// How many times in a row it went wrong.
    pub(crate) fn n_failures(&self) -> u32 {
        self.failures
    }

    /// How long to wait before the next step; `jitter` is between 0 and 1.
    pub(crate) fn delay(&self, jitter: f64) -> Duration {
        if self.failures == 0 {
            return self.stay_away;
        }
        let (early, n_failures) = if self.is_refused {
            let n_later = self.failures.saturating_sub(early::N_PAUSES);
            (early::pause(self.failures), n_later)
        } else {
            (None, self.failures)
        };
        let doubled = FIRST_DELAY.saturating_mul(1 << n_failures.saturating_sub(1).min(11));
        let base = early.unwrap_or_else(|| doubled.min(LAST_DELAY));
        base.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0).max(self.stay_away)
    }

    fn calm(&mut self) {
        self.failures = 0;
        self.stay_away = Duration::ZERO;
    }
}

/// True when the server does not know a version as new as ours. It says so as a timeout with a
/// cause; servers before 1.17 and proxies leave only the sentence.
fn is_ahead(error: &ApiError) -> bool {
    let is_cause = |cause: &String| cause.contains("ResourceVersionTooLarge");
    error.causes.iter().any(is_cause) || error.message.starts_with("Too large resource version")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ApiErrorKind) -> ApiError {
        ApiError {
            attempt: String::new(),
            kind,
            message: String::new(),
            code: None,
            causes: Vec::new(),
        }
    }

    fn list(version: &str) -> Step {
        let version = version.to_owned();
        Step::List { version }
    }

    fn watch(version: &str) -> Step {
        let version = version.to_owned();
        Step::Watch { version }
    }

    #[test]
    fn what_follows_what() {
        use ApiErrorKind as Kind;
        let check = |from: Step, kind: Kind, to: Step, is_delayed: bool| {
            let mut cursor = Cursor::new();
            cursor.step = from.clone();
            cursor.failed(&error(kind));
            assert_eq!(cursor.step, to, "{from:?} {kind:?}");
            assert_eq!(!cursor.delay(0.0).is_zero(), is_delayed, "{from:?} {kind:?}");
        };
        check(watch("7"), Kind::Gone, list(""), false);
        check(list("7"), Kind::Gone, list(""), false);
        check(watch("7"), Kind::Unavailable, watch("7"), true);
        check(watch("7"), Kind::Timeout, watch("7"), true);
        check(watch("7"), Kind::Malformed, list("7"), true);
        check(watch("7"), Kind::Forbidden, list("7"), true);
        check(list(""), Kind::Forbidden, list(""), true);
        assert_eq!(Cursor::new().step, list(""));
    }

    #[test]
    fn a_version_that_the_server_never_reached_is_not_asked_for_again() {
        let cause = "ResourceVersionTooLarge: Too large resource version";
        let told = [
            ApiError { causes: vec![cause.to_owned()], ..error(ApiErrorKind::Timeout) },
            ApiError {
                message: "Too large resource version: 9, current: 5".to_owned(),
                ..error(ApiErrorKind::Timeout)
            },
        ];
        for told in told {
            for from in [watch("9"), list("9")] {
                let mut cursor = Cursor::new();
                cursor.step = from;
                cursor.failed(&told);
                assert_eq!(cursor.step, list(""));
                let first = cursor.delay(1.0);
                // The list succeeds, and the watch from it is refused again.
                cursor.listed("9".to_owned());
                cursor.failed(&told);
                assert_eq!(cursor.delay(1.0), first * 2);
            }
        }
    }

    #[test]
    fn waits_double_up_to_half_a_minute_and_good_news_ends_them() {
        let mut cursor = Cursor::new();
        let mut waits = Vec::new();
        for _ in 0..8 {
            cursor.failed(&error(ApiErrorKind::Unavailable));
            waits.push(cursor.delay(1.0).as_millis());
        }
        assert_eq!(waits, [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        assert_eq!(cursor.delay(0.0), Duration::from_secs(15));
        cursor.listed("9".to_owned());
        assert_eq!((cursor.delay(1.0), cursor.step()), (Duration::ZERO, &watch("9")));
    }

    #[test]
    fn a_refusal_is_tried_again_soon_because_it_may_be_early() {
        let mut cursor = Cursor::new();
        let mut waits = Vec::new();
        for _ in 0..24 {
            cursor.failed(&error(ApiErrorKind::Forbidden));
            waits.push(cursor.delay(1.0).as_millis());
        }
        assert_eq!(waits[..5], [25, 50, 100, 200, 200]);
        assert_eq!(waits[16..20], [200, 800, 1600, 3200]);
        assert_eq!(waits[23], 30_000);
        // A refusal after trouble of another kind is as likely to be early.
        cursor.failed(&error(ApiErrorKind::Unavailable));
        assert_eq!(cursor.delay(1.0).as_millis(), 30_000);
    }

    #[test]
    fn a_server_that_asks_for_patience_gets_it() {
        let mut cursor = Cursor::new();
        let retry_after = Some(Duration::from_secs(45));
        cursor.failed(&error(ApiErrorKind::TooManyRequests { retry_after }));
        assert_eq!(cursor.delay(0.3), Duration::from_secs(45));
    }

    #[test]
    fn watches_that_end_at_once_are_not_opened_in_a_circle() {
        let mut cursor = Cursor::new();
        cursor.listed("9".to_owned());
        cursor.ended(Duration::from_millis(10), true);
        assert_eq!(cursor.delay(0.0), Duration::ZERO);
        cursor.ended(Duration::from_secs(400), false);
        assert_eq!(cursor.delay(0.0), Duration::ZERO);
        cursor.ended(Duration::from_millis(10), false);
        assert_eq!(cursor.delay(0.0), Duration::from_millis(400));
    }

    #[test]
    fn repeated_answers_of_gone_are_not_asked_in_a_circle() {
        let mut cursor = Cursor::new();
        for _ in 0..9 {
            cursor.failed(&error(ApiErrorKind::Unavailable));
        }
        let mut waits = Vec::new();
        for _ in 0..4 {
            cursor.failed(&error(ApiErrorKind::Gone));
            waits.push(cursor.delay(1.0).as_millis());
            // The list succeeds, and the watch from it is refused again.
            cursor.listed("9".to_owned());
        }
        assert_eq!(waits, [0, 800, 1600, 3200]);
        cursor.advanced("10".to_owned());
        cursor.failed(&error(ApiErrorKind::Gone));
        assert!(cursor.delay(1.0).is_zero());
    }
}
