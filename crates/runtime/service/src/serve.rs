//! The socket: whoever may open it is the node's administrator.

use ferrolet_cri_proto::server::image_service_server::ImageServiceServer;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::images::ImageServer;

/// The server ended by itself.
#[derive(Debug, thiserror::Error)]
#[error("serve CRI")]
pub struct ServeError(#[source] tonic::transport::Error);

/// Serves CRI on a socket until `stop` is there; calls that are under way are finished.
pub async fn serve(
    listener: UnixListener,
    images: ImageServer,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    Server::builder()
        .add_service(ImageServiceServer::new(images))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await
        .map_err(ServeError)
}
