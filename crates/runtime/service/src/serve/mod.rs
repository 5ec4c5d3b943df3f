//! The socket: whoever may open it is the node's administrator, or the agent that this runs in.

mod deadline;
mod inside;
mod runtime;
mod streaming;

use std::sync::Arc;

use ferrolet_cri_proto::server::{
    image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer,
};
use tonic::transport::Server;

pub use inside::{Dialler, Incoming};

use crate::{images::ImageServer, runtime::Runtime, streaming::StreamingServer};

/// The largest message that is taken: a kubelet's own limit.
const MOST_BYTES: usize = 16 << 20;

/// The server ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket of CRI.
    #[error("serve CRI")]
    Cri(#[source] tonic::transport::Error),
    /// The port for streams of exec, attach and port-forward.
    #[error("listen for clients' streams on 127.0.0.1")]
    Streams(#[source] std::io::Error),
}

/// Serves CRI to whoever comes in, and clients' streams on a port of 127.0.0.1, until `stop` is there; calls that are under way
/// are finished, streams are not.
pub async fn serve(
    incoming: Incoming,
    images: ImageServer,
    runtime: Option<Runtime>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let images = match &runtime {
        Some(runtime) => images.with_containers(runtime.clone()),
        None => images,
    };
    let images = ImageServiceServer::new(images)
        .max_decoding_message_size(MOST_BYTES)
        .max_encoding_message_size(MOST_BYTES);
    let mut server = Server::builder().layer(deadline::Deadlines).add_service(images);
    let mut streams = None;
    if let Some(runtime) = runtime {
        let bound = StreamingServer::bind(Arc::new(runtime.clone())).await;
        let bound = bound.map_err(ServeError::Streams)?;
        let runtime = RuntimeServiceServer::new(runtime::RuntimeServer(runtime, bound.handle()))
            .max_decoding_message_size(MOST_BYTES)
            // A command's output may be 16 MB of each stream.
            .max_encoding_message_size(3 * MOST_BYTES);
        server = server.add_service(runtime);
        streams = Some(bound);
    }
    let streaming = async {
        match streams {
            Some(streams) => streams.run().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        served = server.serve_with_incoming_shutdown(incoming, stop) => {
            served.map_err(ServeError::Cri)
        }
        // It never ends by itself, and is dropped with every session when CRI is over.
        () = streaming => Ok(()),
    }
}
