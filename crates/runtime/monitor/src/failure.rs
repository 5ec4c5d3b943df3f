//! What went wrong on the way into a container: the step, the path, the kernel's number.

use std::borrow::Cow;

use ferrolet_runtime_protocol::message::Failed;
use rustix::io::Errno;

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    step: Cow<'static, str>,
    path: String,
    errno: Option<Errno>,
}

impl Failure {
    /// Refused by us, not by the kernel.
    pub(crate) fn refused(step: &'static str, path: impl Into<String>) -> Self {
        Self { step: step.into(), path: path.into(), errno: None }
    }

    /// As a child told it.
    pub(crate) fn told(failed: Failed) -> Self {
        let errno = (failed.errno != 0).then(|| Errno::from_raw_os_error(failed.errno));
        Self { step: failed.step.into(), path: failed.path, errno }
    }

    pub(crate) fn message(&self) -> Failed {
        Failed {
            step: self.step.clone().into_owned(),
            path: self.path.clone(),
            errno: self.errno.map_or(0, Errno::raw_os_error),
            not_found: false,
        }
    }
}

/// Results of kernel calls that get the step at which they were made.
pub(crate) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, Failure>;
    fn step_on(self, step: &'static str, path: &str) -> Result<T, Failure>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, step: &'static str) -> Result<T, Failure> {
        self.step_on(step, "")
    }

    fn step_on(self, step: &'static str, path: &str) -> Result<T, Failure> {
        self.map_err(|errno| Failure {
            step: step.into(),
            path: path.to_owned(),
            errno: Some(errno),
        })
    }
}
