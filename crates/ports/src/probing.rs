//! Looking into containers: probes that judge them, and hooks that greet them and see them off.

use ferrolet_types::{ContainerId, Pod, PodUid, probe::PodProbes};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use crate::{Fut, Retry};

/// Takes orders to probe; never blocks and never fails. Results come back as reports over a
/// channel.
pub trait Probing: Send + Sync {
    /// Says how a pod is now. The first call sets the rhythm of its probes, so it comes before its
    /// containers start; every further one says what changed, and costs next to nothing when
    /// nothing did.
    fn watch_pod(&self, pod: PodProbes);
    /// Asks for a readiness probe at once of every container of the pod that is not ready: somebody
    /// is about to tell the world so.
    fn hurry(&self, uid: &PodUid);
    /// Ends all probes of a pod, those under way included. Nothing is reported any more.
    fn forget(&self, uid: &PodUid);
}

/// Runs the handlers of container lifecycles.
pub trait Hooks: Send + Sync {
    /// Runs one handler to its end. Has no deadline of its own: whoever has waited long enough
    /// drops the future.
    fn run<'a>(&'a self, call: &'a HookCall) -> Fut<'a, Result<(), HookError>>;
}

/// A handler to run, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct HookCall {
    /// The pod.
    pub pod: Pod,
    /// Its primary address, when it has one.
    pub pod_ip: Option<String>,
    /// The container, as specified.
    pub container: Container,
    /// The container, as it runs.
    pub id: ContainerId,
    /// What to do.
    pub handler: LifecycleHandler,
}

/// When in a container's life a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookMoment {
    /// Right after the start.
    PostStart,
    /// Before the polite signal.
    PreStop,
}

impl HookMoment {
    /// The reason of the event that tells of a failure.
    pub fn failure_reason(self) -> &'static str {
        match self {
            Self::PostStart => "FailedPostStartHook",
            Self::PreStop => "FailedPreStopHook",
        }
    }

    /// The message of that event. It says nothing of the cause, which may hold secrets of the
    /// server.
    pub fn failure_message(self) -> &'static str {
        match self {
            Self::PostStart => "PostStartHook failed",
            Self::PreStop => "PreStopHook failed",
        }
    }
}

/// A hook that failed. `Display` is the message that users know from upstream's waiting state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// A command failed or could not be run.
    #[error(
        "Exec lifecycle hook ([{}]) for Container {container:?} in Pod {pod:?} failed - error: {cause}, message: {output:?}",
        command.join(" ")
    )]
    Exec {
        /// The command and its arguments.
        command: Vec<String>,
        /// The container's name.
        container: String,
        /// The pod, as `name_namespace(uid)`.
        pod: String,
        /// What went wrong.
        cause: String,
        /// What the command wrote.
        output: String,
    },
    /// A request got no answer.
    #[error(
        "HTTP lifecycle hook ({path}) for Container {container:?} in Pod {pod:?} failed - error: {cause}"
    )]
    Http {
        /// The path that was asked for.
        path: String,
        /// The container's name.
        container: String,
        /// The pod, as `name_namespace(uid)`.
        pod: String,
        /// What went wrong.
        cause: String,
    },
    /// The handler asks for nothing that can be done.
    #[error("Cannot run handler: invalid handler: {handler}")]
    Invalid {
        /// The handler, as upstream prints it.
        handler: String,
    },
}

impl HookError {
    /// When to try again: a hook runs once per container, and the next container brings the next
    /// try.
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}
