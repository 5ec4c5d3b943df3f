//! What the container runtime says of itself, and how it has answered so far.

use ferrolet_types::Timestamp;

/// The runtime's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// `containerd`, `cri-o`, …; prefixes container ids in the API.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// Version of its API.
    pub api_version: String,
}

/// How the runtime feels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Can it run containers?
    pub runtime: RuntimeCondition,
    /// Can it connect them?
    pub network: RuntimeCondition,
    /// Names of its handlers, sorted, with what each can do.
    pub handlers: Vec<RuntimeHandler>,
    /// True when it honours the supplementary-groups policy.
    pub has_supplemental_groups_policy: bool,
    /// The cgroup driver it uses, when it tells.
    pub cgroup_driver: Option<CgroupDriver>,
}

/// One way of running containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeHandler {
    /// Empty for the default.
    pub name: String,
    /// Recursive read-only mounts.
    pub recursive_read_only_mounts: bool,
    /// User namespaces.
    pub user_namespaces: bool,
}

/// How cgroups are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// By writing files.
    Cgroupfs,
    /// By asking systemd.
    Systemd,
}

/// A condition the runtime reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeCondition {
    /// True when all is well.
    pub is_ok: bool,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// How the runtime has answered so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeHealth {
    /// It has never answered us.
    Never {
        /// When we began to ask. For a while after that a node that was ready stays so: our restart
        /// is not its trouble.
        since: Timestamp,
        /// Why it did not, once somebody tried.
        error: Option<String>,
    },
    /// It answered.
    Answered(RuntimeStatus),
    /// It answered before, and not since.
    Silent {
        /// When it first did not.
        since: Timestamp,
        /// What it said last.
        last: RuntimeStatus,
        /// Why it does not.
        error: String,
    },
}

impl RuntimeHealth {
    /// What it said last.
    pub fn last(&self) -> Option<&RuntimeStatus> {
        match self {
            Self::Never { .. } => None,
            Self::Answered(status) | Self::Silent { last: status, .. } => Some(status),
        }
    }

    /// How it has answered after one more question.
    pub fn after(&self, answer: Result<RuntimeStatus, String>, now: Timestamp) -> Self {
        match (answer, self) {
            (Ok(status), _) => Self::Answered(status),
            (Err(error), Self::Never { since, .. }) => {
                Self::Never { since: *since, error: Some(error) }
            }
            (Err(error), Self::Answered(last)) => {
                Self::Silent { since: now, last: last.clone(), error }
            }
            (Err(error), Self::Silent { since, last, .. }) => {
                Self::Silent { since: *since, last: last.clone(), error }
            }
        }
    }

    /// True when it answers that containers can run and be connected.
    pub fn is_well(&self) -> bool {
        matches!(self, Self::Answered(status) if status.runtime.is_ok && status.network.is_ok)
    }

    /// Why pods cannot be connected, in upstream's words; `None` when they can.
    pub fn network_trouble(&self) -> Option<String> {
        match self {
            Self::Never { error: None, .. } => Some("network state unknown".to_owned()),
            Self::Never { error: Some(error), .. } | Self::Silent { error, .. } => {
                Some(format!("container runtime network not ready: {error}"))
            }
            Self::Answered(status) => status.network_trouble(),
        }
    }
}

impl RuntimeStatus {
    /// Why it cannot run containers.
    pub(crate) fn runtime_trouble(&self) -> Option<String> {
        let trouble = self.runtime.trouble("RuntimeReady")?;
        Some(format!("container runtime not ready: {trouble}"))
    }

    /// Why it cannot connect them.
    pub(crate) fn network_trouble(&self) -> Option<String> {
        let trouble = self.network.trouble("NetworkReady")?;
        Some(format!("container runtime network not ready: {trouble}"))
    }
}

impl RuntimeCondition {
    fn trouble(&self, kind: &str) -> Option<String> {
        let Self { is_ok, reason, message } = self;
        (!is_ok).then(|| format!("{kind}={is_ok} reason:{reason} message:{message}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_once_and_keeps_what_was_said_last() {
        let at = Timestamp::from_second;
        let (said, gone) = (RuntimeStatus::example, |why: &str| Err(why.to_owned()));
        let never = RuntimeHealth::Never { since: at(1), error: None };
        let refused = never.after(gone("refused"), at(2));
        assert_eq!(
            refused,
            RuntimeHealth::Never { since: at(1), error: Some("refused".to_owned()) }
        );
        let answered = refused.after(Ok(said()), at(3));
        assert_eq!(answered, RuntimeHealth::Answered(said()));
        let silent = answered.after(gone("reset"), at(4)).after(gone("refused"), at(9));
        let expected =
            RuntimeHealth::Silent { since: at(4), last: said(), error: "refused".to_owned() };
        assert_eq!(silent, expected);
        assert_eq!(silent.last(), Some(&said()));
        assert_eq!(never.last(), None);
    }

    #[test]
    fn pods_can_be_connected_only_when_the_runtime_says_so() {
        let since = Timestamp::from_second(0);
        let check = |health: RuntimeHealth, expected: Option<&str>| {
            assert_eq!(health.network_trouble().as_deref(), expected, "{health:?}");
            assert_eq!(health.is_well(), expected.is_none(), "{health:?}");
        };
        let error = "connection refused".to_owned();
        let refused = "container runtime network not ready: connection refused";
        check(RuntimeHealth::Never { since, error: None }, Some("network state unknown"));
        check(RuntimeHealth::Never { since, error: Some(error.clone()) }, Some(refused));
        let last = RuntimeStatus::example();
        check(RuntimeHealth::Silent { since, last, error }, Some(refused));
        check(RuntimeHealth::Answered(RuntimeStatus::example()), None);
        let network = RuntimeCondition {
            is_ok: false,
            reason: "NetworkPluginNotReady".to_owned(),
            message: "cni plugin not initialized".to_owned(),
        };
        check(
            RuntimeHealth::Answered(RuntimeStatus { network, ..RuntimeStatus::example() }),
            Some(
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized",
            ),
        );
    }
}
