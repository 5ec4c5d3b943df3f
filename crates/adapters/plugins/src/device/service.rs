//! `device-plugins/kubelet.sock`: where plugins register.

use std::{
    path::{Component, Path},
    sync::Arc,
};

use ferrolet_devices::is_extended_resource;
use ferrolet_ports::metrics::{self, process};
use http::{Request, Response};
use hyper::body::Incoming;
use tonic::{Status, body::Body, codegen::Service as _};

use super::{DeviceRegistry, registry::VERSION};
use crate::{
    LocalSocket,
    local::Answers,
    proto::device::{
        Empty, RegisterRequest,
        registration_server::{Registration, RegistrationServer},
    },
};

impl DeviceRegistry {
    /// Takes registrations on this socket until it is dropped.
    pub async fn serve(self: Arc<Self>, socket: LocalSocket) {
        let service = RegistrationSocket(self.clone());
        socket.serve(service).await;
        self.fail("the socket is served no longer");
    }

    async fn register(&self, asked: RegisterRequest) -> Result<(), String> {
        let RegisterRequest { version, endpoint, resource_name: resource, .. } = asked;
        if version != VERSION {
            return Err(format!(
                "requested API version {version:?} is not supported by kubelet. Supported version is [{VERSION:?}]"
            ));
        }
        if !is_extended_resource(&resource) {
            return Err(format!("the ResourceName {resource:?} is invalid"));
        }
        process().add(metrics::KUBELET_DEVICE_PLUGIN_REGISTRATION_TOTAL, [&resource], 1.0);
        let is_below =
            Path::new(&endpoint).components().all(|it| matches!(it, Component::Normal(_)));
        if endpoint.is_empty() || !is_below {
            return Err(format!("the endpoint {endpoint:?} is not the name of a socket"));
        }
        tracing::info!(resource, endpoint, "Device plugin registers");
        self.connect(&resource, &self.directory.join(endpoint)).await
    }
}

/// The service behind the socket.
#[derive(Clone)]
struct RegistrationSocket(Arc<DeviceRegistry>);

#[tonic::async_trait]
impl Registration for RegistrationSocket {
    async fn register(
        &self,
        request: tonic::Request<RegisterRequest>,
    ) -> Result<tonic::Response<Empty>, Status> {
        let asked = request.into_inner();
        let resource = asked.resource_name.clone();
        match self.0.register(asked).await {
            Ok(()) => Ok(Empty {}.into()),
            Err(why) => {
                tracing::warn!(resource, why, "Device plugin is refused");
                Err(Status::unknown(why))
            }
        }
    }
}

impl Answers for RegistrationSocket {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let answered = RegistrationServer::new(self.clone()).call(request).await;
        answered.unwrap_or_else(|never| match never {})
    }
}
