//! CRI's runtime service, call by call: each hands over to [`Runtime`] and wraps its answer.

use std::future::Future;

use ferrolet_cri_proto::{self as cri, server::runtime_service_server::RuntimeService};
use futures::StreamExt as _;
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::streaming;
use crate::{
    runtime::{Runtime, RuntimeError, metric_descriptors},
    streaming::StreamingHandle,
};

/// What a kubelet that asks for a checkpoint is told.
const NO_CHECKPOINTS: &str = "checkpoints of containers are not made by this runtime";
/// Things in one message of a stream.
const PAGE: usize = 100;

/// The runtime service. Clones serve the same runtime.
#[derive(Clone)]
pub(super) struct RuntimeServer(pub(super) Runtime, pub(super) StreamingHandle);

/// Does something to its end, also when the caller leaves in the middle: half a sandbox helps nobody.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, RuntimeError>> + Send + 'static,
) -> Result<T, Status> {
    match tokio::spawn(work).await {
        Ok(done) => Ok(done?),
        Err(lost) => Err(Status::internal(lost.to_string())),
    }
}

/// A long answer in pieces.
fn pages<T: Clone, M>(all: &[T], page: impl Fn(Vec<T>) -> M) -> BoxStream<M>
where
    M: Send + 'static,
{
    let pages: Vec<_> = all.chunks(PAGE).map(|it| Ok(page(it.to_vec()))).collect();
    Box::pin(futures::stream::iter(pages))
}

#[tonic::async_trait]
impl RuntimeService for RuntimeServer {
    async fn version(
        &self,
        request: Request<cri::VersionRequest>,
    ) -> Result<Response<cri::VersionResponse>, Status> {
        let _asked = request;
        Ok(Response::new(self.0.version()))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<cri::RunPodSandboxRequest>,
    ) -> Result<Response<cri::RunPodSandboxResponse>, Status> {
        let (runtime, request) = (self.0.clone(), request.into_inner());
        let done = to_the_end(async move { runtime.run_sandbox(request).await }).await?;
        Ok(Response::new(cri::RunPodSandboxResponse { pod_sandbox_id: done }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<cri::StopPodSandboxRequest>,
    ) -> Result<Response<cri::StopPodSandboxResponse>, Status> {
        let (runtime, request) = (self.0.clone(), request.into_inner());
        to_the_end(async move { runtime.stop_sandbox(&request.pod_sandbox_id).await }).await?;
        Ok(Response::new(cri::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<cri::RemovePodSandboxRequest>,
    ) -> Result<Response<cri::RemovePodSandboxResponse>, Status> {
        let (runtime, request) = (self.0.clone(), request.into_inner());
        to_the_end(async move { runtime.remove_sandbox(&request.pod_sandbox_id).await }).await?;
        Ok(Response::new(cri::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<cri::PodSandboxStatusRequest>,
    ) -> Result<Response<cri::PodSandboxStatusResponse>, Status> {
        Ok(Response::new(self.0.sandbox_status(request.get_ref())?))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<cri::ListPodSandboxRequest>,
    ) -> Result<Response<cri::ListPodSandboxResponse>, Status> {
        let items = self.0.list_sandboxes(request.get_ref().filter.as_ref());
        Ok(Response::new(cri::ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<cri::StreamPodSandboxesRequest>,
    ) -> Result<Response<BoxStream<cri::StreamPodSandboxesResponse>>, Status> {
        let all = self.0.list_sandboxes(request.get_ref().filter.as_ref());
        let page = |pod_sandboxes| cri::StreamPodSandboxesResponse { pod_sandboxes };
        Ok(Response::new(pages(&all, page)))
    }

    async fn create_container(
        &self,
        request: Request<cri::CreateContainerRequest>,
    ) -> Result<Response<cri::CreateContainerResponse>, Status> {
        let (runtime, request) = (self.0.clone(), request.into_inner());
        let done = to_the_end(async move { runtime.create_container(request).await }).await?;
        Ok(Response::new(cri::CreateContainerResponse { container_id: done }))
    }

    async fn start_container(
        &self,
        request: Request<cri::StartContainerRequest>,
    ) -> Result<Response<cri::StartContainerResponse>, Status> {
        let (runtime, request) = (self.0.clone(), request.into_inner());
        to_the_end(async move { runtime.start_container(&request.container_id).await }).await?;
        Ok(Response::new(cri::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<cri::StopContainerRequest>,
    ) -> Result<Response<cri::StopContainerResponse>, Status> {
        let (runtime, request) = (self.0.clone(), request.into_inner());
        to_the_end(
            async move { runtime.stop_container(&request.container_id, request.timeout).await },
        )
        .await?;
        Ok(Response::new(cri::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<cri::RemoveContainerRequest>,
    ) -> Result<Response<cri::RemoveContainerResponse>, Status> {
        let (runtime, request) = (self.0.clone(), request.into_inner());
        to_the_end(async move { runtime.remove_container(&request.container_id).await }).await?;
        Ok(Response::new(cri::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<cri::ListContainersRequest>,
    ) -> Result<Response<cri::ListContainersResponse>, Status> {
        let containers = self.0.list_containers(request.get_ref().filter.as_ref());
        Ok(Response::new(cri::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<cri::StreamContainersRequest>,
    ) -> Result<Response<BoxStream<cri::StreamContainersResponse>>, Status> {
        let all = self.0.list_containers(request.get_ref().filter.as_ref());
        let page = |containers| cri::StreamContainersResponse { containers };
        Ok(Response::new(pages(&all, page)))
    }

    async fn container_status(
        &self,
        request: Request<cri::ContainerStatusRequest>,
    ) -> Result<Response<cri::ContainerStatusResponse>, Status> {
        Ok(Response::new(self.0.container_status(request.get_ref())?))
    }

    async fn update_container_resources(
        &self,
        request: Request<cri::UpdateContainerResourcesRequest>,
    ) -> Result<Response<cri::UpdateContainerResourcesResponse>, Status> {
        let (runtime, request) = (self.0.clone(), request.into_inner());
        to_the_end(async move { runtime.update_container(request).await }).await?;
        Ok(Response::new(cri::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<cri::ReopenContainerLogRequest>,
    ) -> Result<Response<cri::ReopenContainerLogResponse>, Status> {
        let (runtime, request) = (self.0.clone(), request.into_inner());
        to_the_end(async move { runtime.reopen_log(&request.container_id).await }).await?;
        Ok(Response::new(cri::ReopenContainerLogResponse {}))
    }

    async fn exec_sync(
        &self,
        request: Request<cri::ExecSyncRequest>,
    ) -> Result<Response<cri::ExecSyncResponse>, Status> {
        // A caller that leaves ends its command: the call is dropped with it.
        Ok(Response::new(self.0.exec_sync(request.into_inner()).await?))
    }

    async fn exec(
        &self,
        request: Request<cri::ExecRequest>,
    ) -> Result<Response<cri::ExecResponse>, Status> {
        Ok(Response::new(streaming::exec(&self.0, &self.1, request.into_inner())?))
    }

    async fn attach(
        &self,
        request: Request<cri::AttachRequest>,
    ) -> Result<Response<cri::AttachResponse>, Status> {
        Ok(Response::new(streaming::attach(&self.0, &self.1, request.into_inner())?))
    }

    async fn port_forward(
        &self,
        request: Request<cri::PortForwardRequest>,
    ) -> Result<Response<cri::PortForwardResponse>, Status> {
        Ok(Response::new(streaming::port_forward(&self.0, &self.1, request.into_inner())?))
    }

    async fn container_stats(
        &self,
        request: Request<cri::ContainerStatsRequest>,
    ) -> Result<Response<cri::ContainerStatsResponse>, Status> {
        let stats = self.0.container_stats(&request.get_ref().container_id).await?;
        Ok(Response::new(cri::ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<cri::ListContainerStatsRequest>,
    ) -> Result<Response<cri::ListContainerStatsResponse>, Status> {
        let stats = self.0.list_container_stats(request.into_inner().filter).await?;
        Ok(Response::new(cri::ListContainerStatsResponse { stats }))
    }

    async fn stream_container_stats(
        &self,
        request: Request<cri::StreamContainerStatsRequest>,
    ) -> Result<Response<BoxStream<cri::StreamContainerStatsResponse>>, Status> {
        let all = self.0.list_container_stats(request.into_inner().filter).await?;
        let page = |container_stats| cri::StreamContainerStatsResponse { container_stats };
        Ok(Response::new(pages(&all, page)))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<cri::PodSandboxStatsRequest>,
    ) -> Result<Response<cri::PodSandboxStatsResponse>, Status> {
        let stats = self.0.sandbox_stats(&request.get_ref().pod_sandbox_id).await?;
        Ok(Response::new(cri::PodSandboxStatsResponse { stats: Some(stats) }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<cri::ListPodSandboxStatsRequest>,
    ) -> Result<Response<cri::ListPodSandboxStatsResponse>, Status> {
        let stats = self.0.list_sandbox_stats(request.into_inner().filter).await?;
        Ok(Response::new(cri::ListPodSandboxStatsResponse { stats }))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<cri::StreamPodSandboxStatsRequest>,
    ) -> Result<Response<BoxStream<cri::StreamPodSandboxStatsResponse>>, Status> {
        let all = self.0.list_sandbox_stats(request.into_inner().filter).await?;
        let page = |pod_sandbox_stats| cri::StreamPodSandboxStatsResponse { pod_sandbox_stats };
        Ok(Response::new(pages(&all, page)))
    }

    async fn list_metric_descriptors(
        &self,
        request: Request<cri::ListMetricDescriptorsRequest>,
    ) -> Result<Response<cri::ListMetricDescriptorsResponse>, Status> {
        let _asked = request;
        let descriptors = metric_descriptors();
        Ok(Response::new(cri::ListMetricDescriptorsResponse { descriptors }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        request: Request<cri::ListPodSandboxMetricsRequest>,
    ) -> Result<Response<cri::ListPodSandboxMetricsResponse>, Status> {
        let _asked = request;
        let pod_metrics = self.0.list_sandbox_metrics().await?;
        Ok(Response::new(cri::ListPodSandboxMetricsResponse { pod_metrics }))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        request: Request<cri::StreamPodSandboxMetricsRequest>,
    ) -> Result<Response<BoxStream<cri::StreamPodSandboxMetricsResponse>>, Status> {
        let _asked = request;
        let all = self.0.list_sandbox_metrics().await?;
        let page =
            |pod_sandbox_metrics| cri::StreamPodSandboxMetricsResponse { pod_sandbox_metrics };
        Ok(Response::new(pages(&all, page)))
    }

    async fn checkpoint_container(
        &self,
        request: Request<cri::CheckpointContainerRequest>,
    ) -> Result<Response<cri::CheckpointContainerResponse>, Status> {
        let _asked = request;
        Err(Status::unimplemented(NO_CHECKPOINTS))
    }

    async fn update_runtime_config(
        &self,
        request: Request<cri::UpdateRuntimeConfigRequest>,
    ) -> Result<Response<cri::UpdateRuntimeConfigResponse>, Status> {
        self.0.update_config(request.into_inner()).await?;
        Ok(Response::new(cri::UpdateRuntimeConfigResponse {}))
    }

    async fn status(
        &self,
        request: Request<cri::StatusRequest>,
    ) -> Result<Response<cri::StatusResponse>, Status> {
        Ok(Response::new(self.0.status(request.get_ref().verbose).await))
    }

    async fn get_container_events(
        &self,
        _: Request<cri::GetEventsRequest>,
    ) -> Result<Response<BoxStream<cri::ContainerEventResponse>>, Status> {
        Ok(Response::new(self.0.events().boxed()))
    }

    async fn runtime_config(
        &self,
        request: Request<cri::RuntimeConfigRequest>,
    ) -> Result<Response<cri::RuntimeConfigResponse>, Status> {
        let _asked = request;
        Ok(Response::new(self.0.config()))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<cri::UpdatePodSandboxResourcesRequest>,
    ) -> Result<Response<cri::UpdatePodSandboxResourcesResponse>, Status> {
        self.0.update_sandbox(&request.get_ref().pod_sandbox_id)?;
        Ok(Response::new(cri::UpdatePodSandboxResourcesResponse {}))
    }
}
