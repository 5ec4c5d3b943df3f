//! Waiting on conditions, never for a fixed time.
//!
//! Each wait that ended well is noted under the name of the test that its thread runs
//! ([`in_test`]), so that a runner can say which took much longer than usual ([`usual`]).

pub mod usual;

use std::cell::Cell;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

const POLL: Duration = Duration::from_millis(20);
/// On a machine that is slow by nature a look costs seconds of its processor.
const SLOW_POLL: Duration = Duration::from_millis(500);

/// How many times longer every wait may take, for machines that are slow by nature.
pub(crate) const PATIENCE: &str = "FERROLET_LAB_PATIENCE";

fn patience() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| {
        let given = std::env::var(PATIENCE).ok();
        given.and_then(|text| text.parse().ok()).unwrap_or(1)
    })
}

thread_local! {
    static TEST: Cell<Option<&'static str>> = const { Cell::new(None) };
}

static NOTED: Mutex<Vec<(String, Duration)>> = Mutex::new(Vec::new());

/// From now on the waits of this thread belong to this test.
pub fn in_test(name: &'static str) {
    TEST.set(Some(name));
}

/// The waits that were noted since the last call, each as `test: what`.
pub fn take_noted() -> Vec<(String, Duration)> {
    std::mem::take(&mut *NOTED.lock().unwrap_or_else(PoisonError::into_inner))
}

fn note(what: &str, took: Duration) {
    if let Some(test) = TEST.get() {
        let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
        noted.push((format!("{test}: {what}"), took));
    }
}

/// Calls `attempt` until it gives a value or `timeout` has passed.
///
/// `Ok(None)` and `Err` both mean "not yet"; the last error becomes part of the failure, so
/// conditions should say what they saw.
pub fn wait_until<T>(
    what: &str,
    timeout: Duration,
    mut attempt: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let timeout = timeout * patience();
    let began = Instant::now();
    let mut last = None;
    loop {
        match attempt() {
            Ok(Some(value)) => {
                note(what, began.elapsed());
                return Ok(value);
            }
            Ok(None) => {}
            Err(error) => last = Some(error),
        }
        if began.elapsed() >= timeout {
            let text = format!("waited {timeout:?} for {what}");
            return Err(match last {
                Some(error) => error.context(text),
                None => anyhow!(text),
            });
        }
        thread::sleep(if patience() > 1 { SLOW_POLL } else { POLL });
    }
}

/// Checks that `holds` stays true for the whole `span`; fails at the first false answer.
pub fn stays_true(
    what: &str,
    span: Duration,
    mut holds: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < span {
        if !holds()? {
            return Err(anyhow!("{what} stopped being true after {:?}", began.elapsed()));
        }
        thread::sleep(POLL * 5);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_comes_true_gives_its_value() {
        let mut calls = 0;
        let value = wait_until("three calls", Duration::from_secs(5), || {
            calls += 1;
            Ok((calls == 3).then_some(calls))
        });
        assert_eq!(value.unwrap(), 3);
    }

    #[test]
    fn a_timeout_names_the_condition_and_the_last_error() {
        let error = wait_until("rain", Duration::ZERO, || -> Result<Option<()>> {
            Err(anyhow!("the sky is blue"))
        })
        .unwrap_err();
        assert_eq!(format!("{error:#}"), "waited 0ns for rain: the sky is blue");
    }
}
