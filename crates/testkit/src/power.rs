//! A machine that stays up: somebody listens, and nothing is said.

use std::time::Duration;

use ferrolet_ports::{Fut, Power, PowerError, PowerNews, PowerSession};

/// Whoever could say that the machine goes down, and never does.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaysUp;

impl Power for StaysUp {
    fn listen(&self) -> Fut<'_, Result<Box<dyn PowerSession>, PowerError>> {
        Box::pin(std::future::ready(Ok(Box::new(Self) as Box<dyn PowerSession>)))
    }
}

impl PowerSession for StaysUp {
    fn longest_delay(&mut self) -> Fut<'_, Result<Duration, PowerError>> {
        Box::pin(std::future::ready(Ok(Duration::from_secs(3600))))
    }

    fn ask_for_delay(&mut self, _delay: Duration) -> Fut<'_, Result<(), PowerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn hold_up(&mut self) -> Fut<'_, Result<(), PowerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn release(&mut self) {}

    fn next(&mut self) -> Fut<'_, Result<PowerNews, PowerError>> {
        Box::pin(std::future::pending())
    }
}
