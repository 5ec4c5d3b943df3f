//! Whoever says that the machine goes down, and can be asked to wait for its pods: logind.

use std::time::Duration;

use crate::Fut;

/// The machine's manager of power.
pub trait Power: Send + Sync {
    /// Begins to listen to it.
    fn listen(&self) -> Fut<'_, Result<Box<dyn PowerSession>, PowerError>>;
}

/// The manager of power for as long as it is there. Dropping it lets the machine go down.
pub trait PowerSession: Send {
    /// How long it waits at most for those who asked it to.
    fn longest_delay(&mut self) -> Fut<'_, Result<Duration, PowerError>>;
    /// Asks it to wait this long at most from now on; [`Self::longest_delay`] tells when it does.
    fn ask_for_delay(&mut self, delay: Duration) -> Fut<'_, Result<(), PowerError>>;
    /// Asks it to wait for us from now on.
    fn hold_up(&mut self) -> Fut<'_, Result<(), PowerError>>;
    /// Lets the machine go down.
    fn release(&mut self);
    /// What it says next. Cancel-safe: nothing that it said is lost.
    fn next(&mut self) -> Fut<'_, Result<PowerNews, PowerError>>;
}

/// What becomes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerNews {
    /// It goes down once everybody lets it.
    GoesDown,
    /// It does not go down after all.
    StaysUp,
}

/// The manager of power did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attempt}: {cause}")]
pub struct PowerError {
    /// What was tried.
    pub attempt: &'static str,
    /// Why it did not work.
    pub cause: String,
}
