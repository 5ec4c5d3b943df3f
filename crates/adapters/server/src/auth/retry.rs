//! Asking the API server again while it cannot answer: five times, half a second and then half as
//! much more each time.

use std::time::Duration;

use ferrolet_ports::{ApiError, Retry};

/// How long one decision may take, waiting for its turn included: an API server that hangs must not
/// pile up callers.
pub(super) const DECIDE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const TRIES: u32 = 5;

pub(super) async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match ask().await {
            Err(error) if error.retry() != Retry::Never => {
                tokio::time::sleep(pause.mul_f64(1.0 + 0.2 * fastrand::f64())).await;
                pause = pause.mul_f64(1.5);
            }
            answer => return answer,
        }
    }
    ask().await
}
