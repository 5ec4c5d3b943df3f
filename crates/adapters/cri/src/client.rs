//! The client: two channels, which may be one, and how long each call may take.

use std::{fmt, io, sync::Arc, time::Duration};

use ferrolet_ports::Clock;
use ferrolet_types::GracePeriod;
use tokio::net::UnixStream;
use tonic::transport::Channel;

use crate::call::Call;
use crate::endpoint::{EndpointError, channel, channel_by, socket_path};
use crate::proto::{
    image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient,
};

/// The largest answer we take; the same bound as upstream's.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// How long calls may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// `runtimeRequestTimeout`: any call but pulls, which end only with their caller.
    pub request: Duration,
}

impl Timeouts {
    /// A sandbox waits for the network's plugins: twice as long.
    pub(crate) fn sandbox(self) -> Duration {
        self.request.saturating_mul(2)
    }

    /// The container may use up its grace first.
    pub(crate) fn stop(self, grace: GracePeriod) -> Duration {
        self.request.saturating_add(grace.0)
    }

    /// The runtime ends the command after `timeout`; zero means that nobody does.
    pub(crate) fn exec(self, timeout: Duration) -> Option<Duration> {
        (!timeout.is_zero()).then(|| self.request.saturating_add(timeout))
    }
}

/// A CRI v1 client for the runtime and image services. Cheap to clone; implements `Runtime` and
/// `Images`.
#[derive(Clone)]
pub struct CriClient {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    timeouts: Timeouts,
    clock: Arc<dyn Clock>,
}

impl CriClient {
    /// A client that connects when it is first used. An empty `image_endpoint` means the same
    /// socket as `endpoint`. Must be called inside a tokio runtime.
    pub fn connect_lazy(
        endpoint: &str,
        image_endpoint: &str,
        timeouts: Timeouts,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, EndpointError> {
        let runtime_path = socket_path(endpoint)?;
        let image_path = match image_endpoint {
            "" => runtime_path.clone(),
            other => socket_path(other)?,
        };
        let is_shared = runtime_path == image_path;
        let runtime_channel = channel(runtime_path);
        let image_channel = if is_shared { runtime_channel.clone() } else { channel(image_path) };
        Ok(Self::on(runtime_channel, image_channel, timeouts, clock))
    }

    /// A client of both services in this process: `dial` makes a connection whenever one is needed. Must be called
    /// inside a tokio runtime.
    pub fn connect_inside(
        dial: impl Fn() -> io::Result<UnixStream> + Clone + Send + Sync + 'static,
        timeouts: Timeouts,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let channel = channel_by(dial);
        Self::on(channel.clone(), channel, timeouts, clock)
    }

    fn on(runtime: Channel, images: Channel, timeouts: Timeouts, clock: Arc<dyn Clock>) -> Self {
        Self {
            runtime: RuntimeServiceClient::new(runtime).max_decoding_message_size(MAX_MESSAGE),
            images: ImageServiceClient::new(images).max_decoding_message_size(MAX_MESSAGE),
            timeouts,
            clock,
        }
    }

    pub(crate) fn runtime(&self) -> RuntimeServiceClient<Channel> {
        self.runtime.clone()
    }

    pub(crate) fn images(&self) -> ImageServiceClient<Channel> {
        self.images.clone()
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// A call with the usual deadline.
    pub(crate) fn call(&self, method: &'static str) -> Call {
        Call { method, deadline: Some(self.timeouts.request) }
    }
}

impl fmt::Debug for CriClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriClient").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}
