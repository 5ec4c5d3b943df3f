//! What happens to containers, as those who listen are told.

use ferrolet_cri_proto as cri;
use futures::{Stream, StreamExt as _};
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};
use tonic::Status;

use super::{Runtime, answer};

/// What happened.
pub(crate) use cri::ContainerEventType as EventKind;

impl Runtime {
    /// Tells of a container, or of a sandbox by its own id, with how its pod is now.
    pub(super) fn tell(&self, id: &str, sandbox: &str, kind: EventKind) {
        if self.0.events.receiver_count() == 0 {
            return;
        }
        let event = {
            let table = self.table();
            let containers = table.containers_of(sandbox);
            cri::ContainerEventResponse {
                container_id: id.to_owned(),
                container_event_type: kind.into(),
                created_at: self.now(),
                pod_sandbox_status: table.sandbox(sandbox).ok().map(answer::sandbox_status),
                containers_statuses: containers.iter().map(answer::container_status).collect(),
            }
        };
        let _nobody_listens = self.0.events.send(event);
    }

    /// Everything that happens from now on. A reader that falls behind is told so, and has to look for itself.
    pub(crate) fn events(
        &self,
    ) -> impl Stream<Item = Result<cri::ContainerEventResponse, Status>> + Send + use<> {
        BroadcastStream::new(self.0.events.subscribe()).map(|event| {
            event.map_err(|BroadcastStreamRecvError::Lagged(n)| {
                Status::data_loss(format!("{n} events were not read in time"))
            })
        })
    }
}
