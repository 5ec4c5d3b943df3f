//! Exec, attach and port-forward: calls that answer with the address of a stream.
//!
//! Until there is a streaming server they are answered as not implemented, which `crictl` and kubelets show as such.

use ferrolet_cri_proto as cri;
use tonic::Status;

use crate::runtime::Runtime;

pub(super) async fn exec(_: &Runtime, _: cri::ExecRequest) -> Result<cri::ExecResponse, Status> {
    Err(absent("exec"))
}

pub(super) async fn attach(
    _: &Runtime,
    _: cri::AttachRequest,
) -> Result<cri::AttachResponse, Status> {
    Err(absent("attach"))
}

pub(super) async fn port_forward(
    _: &Runtime,
    _: cri::PortForwardRequest,
) -> Result<cri::PortForwardResponse, Status> {
    Err(absent("port-forward"))
}

fn absent(what: &str) -> Status {
    Status::unimplemented(format!("{what} is not there yet; exec-sync is"))
}
