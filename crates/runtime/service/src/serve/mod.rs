//! The socket: whoever may open it is the node's administrator.

mod runtime;
mod streaming;

use ferrolet_cri_proto::server::{
    image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::{images::ImageServer, runtime::Runtime};

/// The largest message that is taken: a kubelet's own limit.
const MOST_BYTES: usize = 16 << 20;

/// The server ended by itself.
#[derive(Debug, thiserror::Error)]
#[error("serve CRI")]
pub struct ServeError(#[source] tonic::transport::Error);

/// Serves CRI on a socket until `stop` is there; calls that are under way are finished.
pub async fn serve(
    listener: UnixListener,
    images: ImageServer,
    runtime: Option<Runtime>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let images = ImageServiceServer::new(images)
        .max_decoding_message_size(MOST_BYTES)
        .max_encoding_message_size(MOST_BYTES);
    let runtime = runtime.map(|it| {
        RuntimeServiceServer::new(runtime::RuntimeServer(it))
            .max_decoding_message_size(MOST_BYTES)
            // A command's output may be 16 MB of each stream.
            .max_encoding_message_size(3 * MOST_BYTES)
    });
    Server::builder()
        .add_service(images)
        .add_optional_service(runtime)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await
        .map_err(ServeError)
}
