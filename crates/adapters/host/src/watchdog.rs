//! A service manager that watches us: told that the agent lives for as long as its sync loop does.
//!
//! Says nothing while the loop is stuck, so that the manager starts the agent anew. Upstream:
//! `pkg/kubelet/watchdog`.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::HealthCheck;
use tokio::time::{MissedTickBehavior, interval};

use crate::notify::{Notifier, watchdog_interval};

/// Shorter intervals are no interval to be alive in, as upstream has it.
const SHORTEST: Duration = Duration::from_secs(1);

/// How often the manager is told, when it wants to hear from this process: twice in its interval.
/// Takes the values of `WATCHDOG_USEC` and `WATCHDOG_PID`.
pub fn watchdog_pace(usec: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    let pace = watchdog_interval(usec, pid, own_pid)? / 2;
    if pace < SHORTEST {
        tracing::warn!(?pace, "WATCHDOG_USEC is too short to be kept");
        return None;
    }
    Some(pace)
}

/// Tells for ever, while the check passes.
pub async fn run(notifier: Notifier, pace: Duration, check: Arc<dyn HealthCheck>) {
    let mut ticks = interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let told = match check.check() {
            Ok(()) => notifier.watchdog(),
            Err(reason) => {
                tracing::error!(
                    reason,
                    check = check.name(),
                    "The service manager is not told that the agent lives"
                );
                continue;
            }
        };
        if let Err(error) = told {
            tracing::warn!(%error, "The service manager cannot be told that the agent lives");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixDatagram,
        sync::atomic::{AtomicBool, Ordering},
    };

    use super::*;

    struct Loop(AtomicBool);

    impl HealthCheck for Loop {
        fn name(&self) -> &'static str {
            "syncloop"
        }

        fn check(&self) -> Result<(), String> {
            let is_well = self.0.load(Ordering::Relaxed);
            is_well.then_some(()).ok_or_else(|| "stuck".to_owned())
        }
    }

    /// Every half interval, while the check passes.
    #[tokio::test(start_paused = true)]
    async fn the_manager_hears_of_us_while_the_loop_lives() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let heard = || {
            let mut n = 0;
            let mut message = [0; 32];
            while manager.recv(&mut message).is_ok() {
                n += 1;
            }
            n
        };
        let check = Arc::new(Loop(AtomicBool::new(true)));
        let notifier = Notifier::new(Some(path.into()));
        let telling = tokio::spawn(run(notifier, Duration::from_secs(5), check.clone()));
        tokio::time::sleep(Duration::from_secs(21)).await;
        assert_eq!(heard(), 5);
        check.0.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(heard(), 0);
        telling.abort();
    }

    #[test]
    fn the_pace_is_half_of_what_is_asked_for_and_not_below_a_second() {
        let secs = |n| Some(Duration::from_secs(n));
        assert_eq!(watchdog_pace(Some("10000000"), None, 7), secs(5));
        assert_eq!(watchdog_pace(Some("2000000"), Some("7"), 7), secs(1));
        assert_eq!(watchdog_pace(Some("1000000"), None, 7), None);
        assert_eq!(watchdog_pace(Some("10000000"), Some("8"), 7), None);
        assert_eq!(watchdog_pace(None, None, 7), None);
    }
}
