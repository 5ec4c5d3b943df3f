//! Lifecycle handlers: postStart and preStop. Runs one handler to its end and says how it went;
//! when, how long and what follows are the worker's.
//!
//! As upstream (`pkg/kubelet/lifecycle/handlers.go`): any answer to a request is good, whatever its
//! status; HTTPS that meets plain HTTP is tried again without TLS and without credentials; a TCP
//! socket is no handler that can be run.

use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::{
    Events, Fut, HookCall, HookError, Hooks, Outbound, Runtime,
    metrics::{self, process},
};
use k8s_openapi::api::core::v1::{HTTPGetAction, LifecycleHandler};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::dial::Dialer;
use crate::exec::written;
use crate::http::{Client, Request};
use crate::tell;

/// Shows from the start what upstream shows from the start.
pub(crate) fn begin() {
    process().add(metrics::KUBELET_LIFECYCLE_HANDLER_HTTP_FALLBACKS_TOTAL, [], 0.0);
    process().add(metrics::KUBELET_SLEEP_ACTION_TERMINATED_EARLY_TOTAL, [], 0.0);
}

/// A sleep that was not allowed to end by itself counts when it is dropped.
struct Asleep {
    is_over: bool,
}

impl Drop for Asleep {
    fn drop(&mut self) {
        if !self.is_over {
            process().add(metrics::KUBELET_SLEEP_ACTION_TERMINATED_EARLY_TOTAL, [], 1.0);
        }
    }
}

/// Runs hooks.
pub struct HookRunner {
    runtime: Arc<dyn Runtime>,
    events: Arc<dyn Events>,
    http: Client,
}

impl HookRunner {
    /// A runner that executes commands through `runtime`.
    pub fn new(
        runtime: Arc<dyn Runtime>,
        events: Arc<dyn Events>,
        outbound: Arc<dyn Outbound>,
    ) -> Self {
        Self { runtime, events, http: Client::new(Dialer::new(outbound)) }
    }

    async fn run_command(&self, call: &HookCall, command: &[String]) -> Result<(), HookError> {
        // No timeout: the worker's patience ends it.
        let (cause, output) = match self.runtime.exec(&call.id, command, Duration::ZERO).await {
            Ok(output) if output.code == 0 => return Ok(()),
            Ok(output) => {
                let (command, code) = (command.join(" "), output.code);
                let said = String::from_utf8_lossy(&output.stderr);
                let cause = format!("command '{command}' exited with {code}: {said}");
                (cause, written(output))
            }
            Err(error) => (error.to_string(), String::new()),
        };
        Err(HookError::Exec {
            command: command.to_vec(),
            container: call.container.name.clone(),
            pod: tell::pod_in_words(&call.pod),
            cause,
            output,
        })
    }

    async fn run_request(&self, call: &HookCall, action: &HTTPGetAction) -> Result<(), HookError> {
        let asked = self.request(call, action).await;
        asked.map_err(|cause| HookError::Http {
            path: action.path.clone().unwrap_or_default(),
            container: call.container.name.clone(),
            pod: tell::pod_in_words(&call.pod),
            cause,
        })
    }

    async fn request(&self, call: &HookCall, action: &HTTPGetAction) -> Result<(), String> {
        let given = action.host.as_deref().filter(|it| !it.is_empty());
        let host = given.or(call.pod_ip.as_deref());
        let host = host.ok_or("failed to find networking container: the pod has no address")?;
        let request = Request::new(action, &call.container, host, "lifecycle")?;
        match self.http.ask(request.clone(), None).await {
            Ok(_) => Ok(()),
            Err(fault) if fault.is_plain_http() => {
                let request = request.without_tls();
                let authority = request.url.authority().to_owned();
                if self.http.ask(request, None).await.is_err() {
                    return Err(fault.text());
                }
                let message = format!(
                    "request to HTTPS lifecycle hook {authority} got HTTP response, retry with HTTP succeeded"
                );
                process().add(metrics::KUBELET_LIFECYCLE_HANDLER_HTTP_FALLBACKS_TOTAL, [], 1.0);
                let event = tell::warning(&call.pod, None, "LifecycleHTTPFallback", message);
                self.events.record(event);
                Ok(())
            }
            Err(fault) if fault.is_half() => Ok(()),
            Err(fault) => Err(fault.text()),
        }
    }
}

impl Hooks for HookRunner {
    fn run<'a>(&'a self, call: &'a HookCall) -> Fut<'a, Result<(), HookError>> {
        Box::pin(async move {
            let handler = &call.handler;
            if let Some(action) = &handler.exec {
                let command = action.command.as_deref().unwrap_or_default();
                self.run_command(call, command).await
            } else if let Some(action) = &handler.http_get {
                self.run_request(call, action).await
            } else if let Some(action) = &handler.sleep {
                let seconds = u64::try_from(action.seconds).unwrap_or(0);
                let mut asleep = Asleep { is_over: false };
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                asleep.is_over = true;
                Ok(())
            } else {
                let handler = in_go_words(handler);
                Err(HookError::Invalid { handler })
            }
        })
    }
}

/// A handler without anything to do, as Go prints it.
fn in_go_words(handler: &LifecycleHandler) -> String {
    let socket = handler.tcp_socket.as_ref().map(|action| {
        let port = match &action.port {
            IntOrString::Int(number) => format!("{{0 {number} }}"),
            IntOrString::String(name) => format!("{{1 0 {name}}}"),
        };
        let host = action.host.as_deref().unwrap_or_default();
        format!("&TCPSocketAction{{Port:{port},Host:{host},}}")
    });
    let socket = socket.as_deref().unwrap_or("nil");
    format!("&LifecycleHandler{{Exec:nil,HTTPGet:nil,TCPSocket:{socket},Sleep:nil,}}")
}

#[cfg(test)]
mod tests;
