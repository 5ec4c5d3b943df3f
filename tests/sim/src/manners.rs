//! What a container of a shape has besides its process: probes and hooks by command, and rules of
//! its own about its restarts.

use ferrolet_types::pod::RestartPolicy;
use k8s_openapi::api::core::v1::{
    Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, ExecAction, Lifecycle,
    LifecycleHandler, Probe,
};

use crate::dice::Dice;

/// The exit code that asks for every container of the pod to start anew, where a rule says so.
pub(crate) const RESET: i32 = 42;
/// Containers whose commands may go wrong, by name.
pub(crate) const TALKERS: [&str; 4] = ["main0", "main1", "last", "side0"];

/// What a container has besides its process.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Manners {
    pub(crate) startup: Option<Asking>,
    pub(crate) live: Option<Asking>,
    pub(crate) ready: Option<Asking>,
    /// It has a hook that runs when it has started.
    pub(crate) greets: bool,
    /// It has a hook that runs before it is stopped.
    pub(crate) takes_leave: bool,
    pub(crate) own_policy: Option<RestartPolicy>,
    /// Its exit with [`RESET`] restarts the whole pod.
    pub(crate) resets: bool,
}

/// How often a probe asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asking {
    delay: i32,
    period: i32,
    n_failures: i32,
}

impl Manners {
    pub(crate) fn roll_sidecar(dice: &mut Dice) -> Self {
        // Most containers are simple, so that what is not about manners is tried as often as
        // before.
        if dice.percent(60) {
            return Self::default();
        }
        let asking = |dice: &mut Dice, percent: u64| {
            dice.percent(percent).then(|| Asking {
                delay: *dice.pick(&[0, 0, 3]),
                period: *dice.pick(&[5, 10]),
                n_failures: *dice.pick(&[1, 3]),
            })
        };
        Self {
            startup: asking(dice, 40),
            live: asking(dice, 40),
            ready: asking(dice, 50),
            greets: dice.percent(20),
            takes_leave: dice.percent(30),
            ..Self::default()
        }
    }

    pub(crate) fn roll_regular(dice: &mut Dice) -> Self {
        use RestartPolicy::{Always, Never, OnFailure};
        let plain = Self::roll_sidecar(dice);
        Self {
            own_policy: dice.percent(15).then(|| *dice.pick(&[Always, Never, OnFailure])),
            resets: dice.percent(15),
            ..plain
        }
    }

    /// True when nothing of this is a reason to stop a container, as long as its commands succeed.
    pub(crate) fn is_calm(&self) -> bool {
        !self.greets && !self.resets && self.own_policy.is_none()
    }

    /// True when commands run in it.
    pub(crate) fn talks(&self) -> bool {
        let probes = [self.startup, self.live, self.ready];
        self.greets || self.takes_leave || probes.iter().any(Option::is_some)
    }

    pub(crate) fn put_into(&self, container: &mut Container, of_pod: RestartPolicy) {
        let command = || ExecAction { command: Some(vec!["how-are-you".to_owned()]) };
        let probe = |asking: Option<Asking>| {
            asking.map(|asking| Probe {
                exec: Some(command()),
                initial_delay_seconds: Some(asking.delay),
                period_seconds: Some(asking.period),
                failure_threshold: Some(asking.n_failures),
                timeout_seconds: Some(1),
                ..Default::default()
            })
        };
        let hook = |is_there: bool| {
            is_there.then(|| LifecycleHandler { exec: Some(command()), ..Default::default() })
        };
        container.startup_probe = probe(self.startup);
        container.liveness_probe = probe(self.live);
        container.readiness_probe = probe(self.ready);
        container.lifecycle = (self.greets || self.takes_leave).then(|| Lifecycle {
            post_start: hook(self.greets),
            pre_stop: hook(self.takes_leave),
            ..Default::default()
        });
        // The API wants a policy of its own beside rules of its own.
        if let Some(policy) = self.own_policy.or(self.resets.then_some(of_pod)) {
            container.restart_policy = Some(in_words(policy).to_owned());
        }
        if self.resets {
            container.restart_policy_rules = Some(vec![ContainerRestartRule {
                action: "RestartAllContainers".to_owned(),
                exit_codes: Some(ContainerRestartRuleOnExitCodes {
                    operator: "In".to_owned(),
                    values: Some(vec![RESET]),
                }),
            }]);
        }
    }
}

fn in_words(policy: RestartPolicy) -> &'static str {
    match policy {
        RestartPolicy::Always => "Always",
        RestartPolicy::OnFailure => "OnFailure",
        RestartPolicy::Never => "Never",
    }
}
