//! Exec, attach and port-forward: calls that answer with the address of a stream.
//!
//! What is asked for is looked at first, so that whoever asks hears at once of a container that does not run.

use ferrolet_cri_proto as cri;
use tonic::Status;

use crate::{
    runtime::Runtime,
    streaming::{AttachRequest, ExecRequest, StreamingHandle, Streams, TooManyRequests},
};

pub(super) fn exec(
    runtime: &Runtime,
    streams: &StreamingHandle,
    request: cri::ExecRequest,
) -> Result<cri::ExecResponse, Status> {
    let cri::ExecRequest { container_id, cmd: command, tty, stdin, stdout, stderr } = request;
    if command.first().is_none_or(String::is_empty) {
        return Err(Status::invalid_argument("the command is missing"));
    }
    let wanted = checked(Streams { tty, stdin, stdout, stderr })?;
    let (_, container, _) = runtime.running(&container_id)?;
    let url = streams.exec(ExecRequest { container, command, streams: wanted });
    Ok(cri::ExecResponse { url: url.map_err(busy)? })
}

pub(super) fn attach(
    runtime: &Runtime,
    streams: &StreamingHandle,
    request: cri::AttachRequest,
) -> Result<cri::AttachResponse, Status> {
    let cri::AttachRequest { container_id, tty, stdin, stdout, stderr } = request;
    let wanted = checked(Streams { tty, stdin, stdout, stderr })?;
    let (_, container, _) = runtime.running(&container_id)?;
    let url = streams.attach(AttachRequest { container, streams: wanted });
    Ok(cri::AttachResponse { url: url.map_err(busy)? })
}

pub(super) fn port_forward(
    runtime: &Runtime,
    streams: &StreamingHandle,
    request: cri::PortForwardRequest,
) -> Result<cri::PortForwardResponse, Status> {
    runtime.network_namespace(&request.pod_sandbox_id)?;
    let url = streams.port_forward(request.pod_sandbox_id);
    Ok(cri::PortForwardResponse { url: url.map_err(busy)? })
}

/// A terminal has one output, and a stream of nothing is none.
fn checked(streams: Streams) -> Result<Streams, Status> {
    if streams.tty && streams.stderr {
        return Err(Status::invalid_argument("tty and stderr cannot both be true"));
    }
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return Err(Status::invalid_argument("one of stdin, stdout, or stderr must be set"));
    }
    Ok(streams)
}

fn busy(error: TooManyRequests) -> Status {
    Status::resource_exhausted(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_no_stderr_and_a_stream_has_something_in_it() {
        let streams = |tty, stdin, stdout, stderr| Streams { tty, stdin, stdout, stderr };
        let refused = |it| checked(it).err().map(|it| it.message().to_owned());
        let both = "tty and stderr cannot both be true".to_owned();
        let none = "one of stdin, stdout, or stderr must be set".to_owned();
        assert_eq!(refused(streams(true, false, true, true)), Some(both));
        assert_eq!(refused(streams(false, false, false, false)), Some(none));
        assert_eq!(refused(streams(true, true, true, false)), None);
    }
}
