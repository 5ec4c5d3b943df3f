//! Asking again when the server may not know yet what we know already.
//!
//! The node authorizer lets a node read what its pods name, and learns of those pods from a watch
//! of its own. When we hear of a pod first, it refuses (403) for a moment. Upstream shows that
//! moment to users as a failed mount and a second lost; here a refusal is first taken for an early
//! one: asked again within tens of milliseconds, without a word. One that lasts longer than
//! [`PATIENCE`] is a real refusal and goes to whoever asked, in the server's words. Pure but for
//! the waiting. Refuses: retrying anything but a refusal.

use std::time::Duration;

use ferrolet_ports::{ApiError, ApiErrorKind};
use tokio::time::sleep;

/// How long a refusal may be an early one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// How many pauses fit into it.
pub(crate) const N_PAUSES: u32 = 17;

const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How long to wait after that many refusals in a row; `None` when it is time to believe them.
pub(crate) fn pause(n_refusals: u32) -> Option<Duration> {
    let doubled = FIRST_PAUSE.saturating_mul(1 << n_refusals.saturating_sub(1).min(11));
    (1..=N_PAUSES).contains(&n_refusals).then(|| doubled.min(LONGEST_PAUSE))
}

/// Asks until the answer is not a refusal, or the refusals have lasted too long to be early.
pub(crate) async fn patiently<T, F>(ask: impl Fn() -> F + Send) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>> + Send,
{
    let mut n_refusals = 0;
    loop {
        let refusal = match ask().await {
            Err(error) if error.kind == ApiErrorKind::Forbidden => error,
            outcome => return outcome,
        };
        n_refusals += 1;
        match pause(n_refusals) {
            Some(pause) => sleep(pause).await,
            None => return Err(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_a_little_and_fill_the_time_of_patience() {
        let pauses: Vec<Duration> = (1..100).map_while(pause).collect();
        let millis: Vec<u128> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(millis[..5], [25, 50, 100, 200, 200]);
        assert_eq!(millis.len(), usize::try_from(N_PAUSES).unwrap());
        let sum: Duration = pauses.iter().sum();
        assert!(sum <= PATIENCE && sum + LONGEST_PAUSE > PATIENCE, "{sum:?}");
        assert_eq!(pause(0), None);
    }
}
