//! Kernel calls off the async threads, with a deadline, and how their refusals become port errors.
//!
//! In: a blocking closure and a sentence about the attempt. Out: its answer, or a [`HostError`] that says when to try again.
//! A call that outlives its deadline keeps its thread until the kernel lets go; its caller does not wait for it.

use std::{fmt, io, time::Duration};

use ferrolet_ports::{HostError, Retry};
use rustix::io::Errno;

/// How long one touch of a file system may take before its caller is told to come back later.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Runs blocking work on tokio's blocking threads, for at most thirty seconds.
pub async fn off_thread<T, F>(attempt: impl fmt::Display, work: F) -> Result<T, HostError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, HostError> + Send + 'static,
{
    within(DEADLINE, attempt, work).await
}

/// The same, with a deadline of the caller's.
pub(crate) async fn within<T, F>(
    deadline: Duration,
    attempt: impl fmt::Display,
    work: F,
) -> Result<T, HostError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, HostError> + Send + 'static,
{
    let later =
        |cause: String| HostError { attempt: attempt.to_string(), cause, retry: Retry::Later };
    match tokio::time::timeout(deadline, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(join)) => Err(later(join.to_string())),
        Err(_elapsed) => Err(later(format!("no answer within {} s", deadline.as_secs()))),
    }
}

/// The kernel's refusal as the port's error.
pub(crate) fn refused(attempt: impl fmt::Display, cause: &io::Error) -> HostError {
    HostError { attempt: attempt.to_string(), cause: cause.to_string(), retry: retry_of(cause) }
}

/// Our own refusal of an input that will never be acceptable.
pub(crate) fn never(attempt: impl fmt::Display, cause: impl fmt::Display) -> HostError {
    HostError { attempt: attempt.to_string(), cause: cause.to_string(), retry: Retry::Never }
}

fn retry_of(cause: &io::Error) -> Retry {
    match cause.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::INTR | Errno::AGAIN) => Retry::Now,
        Some(Errno::INVAL | Errno::NAMETOOLONG | Errno::NOSYS) => Retry::Never,
        _ if cause.kind() == io::ErrorKind::InvalidInput => Retry::Never,
        _ => Retry::Later,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_call_that_hangs_is_given_up_and_reported_as_worth_a_later_try() {
        let (release, held) = mpsc::channel::<()>();
        let stuck = move || {
            held.recv().ok();
            Ok(())
        };
        let error = within(Duration::from_millis(5), "stat /mnt/dead", stuck).await.unwrap_err();
        release.send(()).ok();
        assert_eq!(error.retry, Retry::Later);
        assert_eq!(error.attempt, "stat /mnt/dead");
    }

    #[test]
    fn refusals_know_whether_trying_again_can_help() {
        let check = |errno: Errno, retry: Retry| {
            assert_eq!(refused("try", &io::Error::from(errno)).retry, retry, "{errno}");
        };
        check(Errno::BUSY, Retry::Later);
        check(Errno::NOSPC, Retry::Later);
        check(Errno::INTR, Retry::Now);
        check(Errno::INVAL, Retry::Never);
        check(Errno::NAMETOOLONG, Retry::Never);
    }
}
