//! The end of this process as the end of the machine: [`Power`] where there is no logind and somebody
//! asked for it (`--shutdown-on-sigterm`).
//!
//! ```text
//!  Free ── hold_up ──► Held ── begin ──► Ending ── release, drop ──► Over
//!    └───────────────── begin: nobody holds it up ───────────────────► Over
//! ```
//!
//! Whoever hears the signal calls [`Termination::begin`] and leaves after [`Termination::over`]. It is
//! never called off: who was told to end ends.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{Fut, Power, PowerError, PowerNews, PowerSession};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Free,
    Held,
    Ending,
    Over,
}

/// The end of the process. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Termination {
    stage: Arc<watch::Sender<Stage>>,
}

impl Termination {
    /// A process that goes on.
    #[expect(clippy::new_without_default, reason = "a default would be another process's end")]
    pub fn new() -> Self {
        Self { stage: Arc::new(watch::Sender::new(Stage::Free)) }
    }

    /// The process was told to end. Again is as once.
    pub fn begin(&self) {
        self.step(|stage| match stage {
            Stage::Free => Stage::Over,
            Stage::Held => Stage::Ending,
            Stage::Ending | Stage::Over => stage,
        });
    }

    /// Waits until nobody holds the end up any longer.
    pub async fn over(&self) {
        let mut stage = self.stage.subscribe();
        // The sender lives as long as we do.
        let _ = stage.wait_for(|stage| *stage == Stage::Over).await;
    }

    fn step(&self, next: impl FnOnce(Stage) -> Stage) {
        self.stage.send_if_modified(|stage| {
            let before = std::mem::replace(stage, next(*stage));
            before != *stage
        });
    }
}

impl Power for Termination {
    fn listen(&self) -> Fut<'_, Result<Box<dyn PowerSession>, PowerError>> {
        let session =
            Session { power: self.clone(), heard: self.stage.subscribe(), has_told: false };
        Box::pin(std::future::ready(Ok(Box::new(session) as Box<dyn PowerSession>)))
    }
}

struct Session {
    power: Termination,
    heard: watch::Receiver<Stage>,
    has_told: bool,
}

impl PowerSession for Session {
    /// The process waits as long as it takes.
    fn longest_delay(&mut self) -> Fut<'_, Result<Duration, PowerError>> {
        Box::pin(std::future::ready(Ok(Duration::MAX)))
    }

    fn ask_for_delay(&mut self, _delay: Duration) -> Fut<'_, Result<(), PowerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn hold_up(&mut self) -> Fut<'_, Result<(), PowerError>> {
        self.power.step(|stage| if stage == Stage::Free { Stage::Held } else { stage });
        Box::pin(std::future::ready(Ok(())))
    }

    fn release(&mut self) {
        self.power.step(|stage| match stage {
            Stage::Free | Stage::Held => Stage::Free,
            Stage::Ending | Stage::Over => Stage::Over,
        });
    }

    fn next(&mut self) -> Fut<'_, Result<PowerNews, PowerError>> {
        Box::pin(async {
            if self.has_told {
                return std::future::pending().await;
            }
            // The sender is in `self.power`.
            let _ = self.heard.wait_for(|stage| *stage == Stage::Ending).await;
            self.has_told = true;
            Ok(PowerNews::GoesDown)
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(10);

    async fn is_over(termination: &Termination) -> bool {
        timeout(MOMENT, termination.over()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_held_up_ends_when_he_is_released() {
        let termination = Termination::new();
        let mut session = termination.listen().await.unwrap();
        session.hold_up().await.unwrap();
        assert!(timeout(MOMENT, session.next()).await.is_err(), "nobody said anything");
        assert!(session.longest_delay().await.unwrap() > Duration::from_secs(1 << 30));
        termination.begin();
        termination.begin();
        assert_eq!(session.next().await, Ok(PowerNews::GoesDown));
        assert!(timeout(MOMENT, session.next()).await.is_err(), "it is said once");
        assert!(!is_over(&termination).await);
        session.release();
        assert!(is_over(&termination).await);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_one_who_does_not_listen_or_is_gone() {
        let early = Termination::new();
        early.begin();
        assert!(is_over(&early).await);
        let termination = Termination::new();
        let mut session = termination.listen().await.unwrap();
        session.hold_up().await.unwrap();
        termination.begin();
        drop(session);
        assert!(is_over(&termination).await);
        let mut late = termination.listen().await.unwrap();
        late.hold_up().await.unwrap();
        assert!(is_over(&termination).await, "an end is not taken back");
    }
}
