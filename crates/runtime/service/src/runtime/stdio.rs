//! Where clients' streams lead: commands, containers and ports, by the pods' monitors and network namespaces.

use std::{net::SocketAddr, os::fd::AsFd as _, os::fd::OwnedFd, time::Duration};

use ferrolet_runtime_client::Stdio;
use ferrolet_runtime_network::connect;
use ferrolet_runtime_protocol::{
    launch::Process as LaunchedProcess,
    message::{Attach, Exec, TerminalSize},
};

use super::{Runtime, exec::CommandGuard};
use crate::{
    chain::chain,
    streaming::{Answer, AttachRequest, ExecRequest, Process, ProcessIo, StreamBackend},
};

/// How long a pod may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a terminal is until its client says how large its own is.
const USUAL_TERMINAL: TerminalSize = TerminalSize { width: 80, height: 24 };

impl StreamBackend for Runtime {
    fn exec(&self, request: ExecRequest) -> Answer<'_, Result<Process, String>> {
        Box::pin(async move {
            let (monitor, container, process) =
                self.running(&request.container).map_err(|error| chain(&error))?;
            let number = self.next_command();
            let streams = request.streams;
            let exec = Exec {
                container: container.clone(),
                command: number,
                process: Some(LaunchedProcess { args: request.command, ..process }),
                tty: streams.tty.then_some(USUAL_TERMINAL),
                stdin: streams.stdin && !streams.tty,
                stdout: streams.stdout && !streams.tty,
                stderr: streams.stderr && !streams.tty,
            };
            let mut guard = CommandGuard::new(monitor.clone(), container, number);
            let command = monitor.exec(exec).await.map_err(|error| chain(&error))?;
            let io = match command.stdio {
                Stdio::Terminal(master) => ProcessIo::Terminal(master),
                Stdio::Pipes { stdin, stdout, stderr } => {
                    ProcessIo::Pipes { stdin, stdout, stderr, resize: None }
                }
            };
            let ended = async move {
                let exit = command.exit.wait().await.map_err(|error| chain(&error))?;
                guard.let_go();
                Ok(exit.code)
            };
            Ok(Process { io, exit: Some(Box::pin(ended)) })
        })
    }

    fn attach(&self, request: AttachRequest) -> Answer<'_, Result<Process, String>> {
        Box::pin(async move {
            let (monitor, container, _) =
                self.running(&request.container).map_err(|error| chain(&error))?;
            let streams = request.streams;
            let attach = Attach {
                container,
                stdin: streams.stdin,
                stdout: streams.stdout,
                stderr: streams.stderr,
            };
            let attached = monitor.attach(attach).await.map_err(|error| chain(&error))?;
            let resize = match &attached.stdin {
                Some(master) if attached.tty => master.try_clone().ok(),
                _ => None,
            };
            let io = ProcessIo::Pipes {
                stdin: attached.stdin,
                stdout: attached.stdout,
                stderr: attached.stderr,
                resize,
            };
            Ok(Process { io, exit: None })
        })
    }

    fn connect(&self, sandbox: &str, port: u16) -> Answer<'_, Result<OwnedFd, String>> {
        let namespace = self.network_namespace(sandbox).map_err(|error| chain(&error));
        Box::pin(async move {
            let dial = tokio::task::spawn_blocking(move || {
                match namespace? {
                    Some(namespace) => connect(namespace.as_fd(), port, PATIENCE),
                    None => connect_here(port),
                }
                .map_err(|error| error.to_string())
            });
            dial.await.map_err(|lost| lost.to_string())?
        })
    }
}

/// Connects to a port of a pod on the node's network.
fn connect_here(port: u16) -> std::io::Result<OwnedFd> {
    let to = |host: std::net::IpAddr| {
        std::net::TcpStream::connect_timeout(&SocketAddr::new(host, port), PATIENCE)
    };
    let stream = to(std::net::Ipv4Addr::LOCALHOST.into())
        .or_else(|refused| to(std::net::Ipv6Addr::LOCALHOST.into()).map_err(|_| refused))?;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}
