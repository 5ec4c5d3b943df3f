//! One probe, by the kind of its handler. A probe that does not work at all is tried three times
//! before that is the outcome.

use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::metrics::{PROBER_PROBE_DURATION_SECONDS, PROBER_PROBE_TOTAL};
use ferrolet_ports::{Fut, Outbound, Runtime, Tally};
use ferrolet_types::PodUid;
use ferrolet_types::pod::{PodView as _, ProbeKind};
use k8s_openapi::api::core::v1::{Container, Probe as Spec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::time::Instant;

use crate::dial::Dialer;
use crate::http::{Client, Request};
use crate::plan::{Count, Target};
use crate::run::Probe;
use crate::{exec, grpc, grpc::Carrier, rule, tcp};

/// How often a probe is tried that does not work.
const N_TRIES: usize = 3;

/// How a probe ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// Well, but somebody should know this.
    Warning(String),
    /// Not well.
    Failure(String),
    /// The probe itself did not work.
    Error {
        /// What upstream calls the state: `unknown`, or `failure` when there was half an answer.
        state: &'static str,
        cause: String,
    },
}

impl Outcome {
    pub(crate) fn unknown(cause: impl Into<String>) -> Self {
        Self::Error { state: "unknown", cause: cause.into() }
    }

    pub(crate) fn count(&self) -> Count {
        match self {
            Self::Success | Self::Warning(_) => Count::Success,
            Self::Failure(_) => Count::Failure,
            Self::Error { .. } => Count::Nothing,
        }
    }
}

/// Runs probes for real.
pub(crate) struct Prober {
    runtime: Arc<dyn Runtime>,
    tally: Arc<Tally>,
    dialer: Dialer,
    http: Client,
    grpc: grpc::Client,
}

impl Prober {
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        tally: Arc<Tally>,
        outbound: Arc<dyn Outbound>,
    ) -> Self {
        let dialer = Dialer::new(outbound);
        let (http, grpc) = (Client::new(dialer.clone()), grpc::Client::new(dialer.clone()));
        Self { runtime, tally, http, grpc, dialer }
    }

    async fn try_once(&self, target: &Target, container: &Container, probe: &Spec) -> Outcome {
        let timeout = rule::timeout(probe);
        let host = |given: Option<&String>| {
            let given = given.map(String::as_str).filter(|it| !it.is_empty());
            given.or(target.pod_ip.as_deref()).map(str::to_owned)
        };
        if let Some(action) = &probe.exec {
            let command = exec::expanded(action.command.as_deref().unwrap_or_default(), container);
            return exec::probe(&*self.runtime, &target.id, &command, timeout).await;
        }
        let given = probe.http_get.as_ref().and_then(|it| it.host.as_ref());
        let given = given.or(probe.tcp_socket.as_ref().and_then(|it| it.host.as_ref()));
        let Some(host) = host(given) else {
            return Outcome::unknown("the pod has no address yet");
        };
        if let Some(action) = &probe.http_get {
            match Request::new(action, container, &host, "probe") {
                Ok(request) => {
                    let request = request.speaking(action.protocol.as_deref());
                    self.http.probe(request, timeout).await
                }
                Err(cause) => Outcome::unknown(cause),
            }
        } else if let Some(action) = &probe.tcp_socket {
            match resolve_port(&action.port, container) {
                Ok(port) => tcp::probe(&self.dialer, &host, port, timeout).await,
                Err(cause) => Outcome::unknown(cause),
            }
        } else if let Some(action) = &probe.grpc {
            match u16::try_from(action.port) {
                Ok(port) => {
                    let service = action.service.as_deref().unwrap_or_default();
                    let carrier = match action.mode.as_deref() {
                        Some("TLS") => Carrier::Tls,
                        _ => Carrier::Clear,
                    };
                    let server = grpc::Server { host: &host, port, carrier };
                    self.grpc.probe(server, service, timeout).await
                }
                Err(_) => Outcome::unknown(format!("invalid port number: {}", action.port)),
            }
        } else {
            let cause =
                format!("missing probe handler for {}:{}", target.pod_in_words(), target.container);
            Outcome::unknown(cause)
        }
    }
}

impl Probe for Prober {
    fn probe<'a>(&'a self, target: &'a Target) -> Fut<'a, Outcome> {
        Box::pin(async move {
            let Some((container, probe)) = target.spec() else {
                return Outcome::Success;
            };
            let began = Instant::now();
            let mut outcome = self.try_once(target, container, probe).await;
            for _ in 1..N_TRIES {
                if !matches!(outcome, Outcome::Error { .. }) {
                    break;
                }
                outcome = self.try_once(target, container, probe).await;
            }
            self.count(target, &outcome, began.elapsed());
            outcome
        })
    }

    fn forget(&self, uid: &PodUid) {
        // Durations have no uid; they go with the last of the pod's counters, by namespace and name.
        self.tally.forget(PROBER_PROBE_TOTAL, |labels| labels[3] == uid.as_str());
        let counted = self.tally.samples_of(PROBER_PROBE_TOTAL);
        self.tally.forget(PROBER_PROBE_DURATION_SECONDS, |labels| {
            !counted.iter().any(|it| it.labels[..3] == labels[..3])
        });
    }
}

impl Prober {
    fn count(&self, target: &Target, outcome: &Outcome, took: Duration) {
        let kind = match target.kind {
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
            ProbeKind::Startup => "Startup",
        };
        // As upstream: what the probe itself did not manage is not counted at all, and failures
        // have no duration.
        let result = match outcome.count() {
            Count::Success => "successful",
            Count::Failure => "failed",
            Count::Nothing => return,
        };
        let meta = &target.pod.metadata;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&meta.namespace), text(&meta.name));
        let (container, uid) = (target.container.as_str(), text(&meta.uid));
        let labels = [container, &namespace, &name, &uid, kind, result];
        self.tally.add(PROBER_PROBE_TOTAL, labels, 1.0);
        if outcome.count() == Count::Success {
            let labels = [container, &namespace, &name, kind];
            self.tally.observe(PROBER_PROBE_DURATION_SECONDS, labels, took.as_secs_f64());
        }
    }
}

impl Target {
    /// The probe as specified, and its container.
    pub(crate) fn spec(&self) -> Option<(&Container, &Spec)> {
        let (_, container) = self.pod.find_container(self.container.as_str())?;
        Some((container, self.kind.of(container)?))
    }

    pub(crate) fn is_command(&self) -> bool {
        self.spec().is_some_and(|(_, probe)| probe.exec.is_some())
    }

    /// `name_namespace(uid)`.
    pub(crate) fn pod_in_words(&self) -> String {
        crate::tell::pod_in_words(&self.pod)
    }

    pub(crate) fn kind_in_words(&self) -> &'static str {
        match self.kind {
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
            ProbeKind::Startup => "Startup",
        }
    }
}

/// A port by number, or by its name in the container.
pub(crate) fn resolve_port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let found = ports.find(|it| it.name.as_ref() == Some(name));
            found.ok_or_else(|| format!("port {name:?} not found"))?.container_port
        }
    };
    let valid = u16::try_from(number).ok().filter(|it| *it > 0);
    valid.ok_or_else(|| format!("invalid port number: {number}"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerPort;

    use super::*;

    #[test]
    fn ports_are_found_by_number_or_name() {
        let container = Container {
            ports: Some(vec![ContainerPort {
                name: Some("web".to_owned()),
                container_port: 8080,
                ..Default::default()
            }]),
            ..Default::default()
        };
        let check = |port: IntOrString, expected: Result<u16, &str>| {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(resolve_port(&port, &container), expected, "{port:?}");
        };
        check(IntOrString::Int(80), Ok(80));
        check(IntOrString::Int(0), Err("invalid port number: 0"));
        check(IntOrString::Int(-1), Err("invalid port number: -1"));
        check(IntOrString::Int(65536), Err("invalid port number: 65536"));
        check(IntOrString::String("web".to_owned()), Ok(8080));
        let missing = IntOrString::String("foo".to_owned());
        check(missing, Err("port \"foo\" not found"));
    }
}
