//! Addresses of streams into containers (port `Streams`), reopened logs (port `LogReopen`) and
//! checkpoints (port `Checkpoints`).
//!
//! A stream's address is a URL on the runtime's own streaming server; who connects to it is not
//! decided here.

use std::path::Path;
use std::time::Duration;

use ferrolet_ports::{Checkpoints, Fut, LogReopen, RuntimeError, Streams, WantedStreams};
use ferrolet_types::{ContainerId, SandboxId};

use crate::call::Call;
use crate::client::CriClient;
use crate::error::incomplete;
use crate::proto;

/// Which of a process's streams are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// With a terminal.
    pub tty: bool,
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

impl CriClient {
    /// Prepares a command in a container; answers with the address to stream it from.
    pub async fn exec_url(
        &self,
        id: &ContainerId,
        command: &[String],
        streams: StreamOptions,
    ) -> Result<String, RuntimeError> {
        let request = proto::ExecRequest {
            container_id: id.to_string(),
            cmd: command.to_vec(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let mut client = self.runtime();
        let answer = self
            .call("Exec")
            .run(request, |request| async move { client.exec(request).await })
            .await?;
        url("Exec", answer.url)
    }

    /// Prepares an attachment to a container's main process; answers with the address to stream it
    /// from.
    pub async fn attach_url(
        &self,
        id: &ContainerId,
        streams: StreamOptions,
    ) -> Result<String, RuntimeError> {
        let request = proto::AttachRequest {
            container_id: id.to_string(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let mut client = self.runtime();
        let answer = self
            .call("Attach")
            .run(request, |request| async move { client.attach(request).await })
            .await?;
        url("Attach", answer.url)
    }

    /// Prepares connections to ports of a sandbox; answers with the address to stream them from.
    pub async fn port_forward_url(
        &self,
        id: &SandboxId,
        ports: &[i32],
    ) -> Result<String, RuntimeError> {
        let request =
            proto::PortForwardRequest { pod_sandbox_id: id.to_string(), port: ports.to_vec() };
        let mut client = self.runtime();
        let answer = self
            .call("PortForward")
            .run(request, |request| async move { client.port_forward(request).await })
            .await?;
        url("PortForward", answer.url)
    }
}

impl LogReopen for CriClient {
    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::ReopenContainerLogRequest { container_id: id.to_string() };
            let mut client = self.runtime();
            self.call("ReopenContainerLog")
                .run(request, |request| async move { client.reopen_container_log(request).await })
                .await
                .map(drop)
        })
    }
}

impl Checkpoints for CriClient {
    fn checkpoint<'a>(
        &'a self,
        id: &'a ContainerId,
        location: &'a Path,
        timeout: u32,
    ) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            // The runtime is told whole seconds, and never fewer than any call has.
            let usual = self.timeouts().request;
            let deadline = usual.max(Duration::from_secs(timeout.into()));
            let request = proto::CheckpointContainerRequest {
                container_id: id.to_string(),
                location: location.display().to_string(),
                timeout: i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX),
            };
            let mut client = self.runtime();
            let call = Call { method: "CheckpointContainer", deadline: Some(deadline) };
            call.run(request, |request| async move { client.checkpoint_container(request).await })
                .await
                .map(drop)
        })
    }
}

fn url(call: &'static str, url: String) -> Result<String, RuntimeError> {
    if url.is_empty() { Err(incomplete(call, "URL is not set".to_owned())) } else { Ok(url) }
}

impl From<WantedStreams> for StreamOptions {
    fn from(wanted: WantedStreams) -> Self {
        Self { tty: wanted.tty, stdin: wanted.stdin, stdout: wanted.stdout, stderr: wanted.stderr }
    }
}

impl Streams for CriClient {
    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        wanted: WantedStreams,
    ) -> Fut<'a, Result<String, RuntimeError>> {
        Box::pin(self.exec_url(id, command, wanted.into()))
    }

    fn attach<'a>(
        &'a self,
        id: &'a ContainerId,
        wanted: WantedStreams,
    ) -> Fut<'a, Result<String, RuntimeError>> {
        Box::pin(self.attach_url(id, wanted.into()))
    }

    fn port_forward<'a>(
        &'a self,
        id: &'a SandboxId,
        ports: &'a [i32],
    ) -> Fut<'a, Result<String, RuntimeError>> {
        Box::pin(self.port_forward_url(id, ports))
    }
}
