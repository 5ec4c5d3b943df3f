//! A CRI runtime in memory, behind a real socket: it keeps state, and it can go away, hang, and
//! refuse.
//!
//! It lives on threads of its own, so that stopping it breaks every connection, as a killed runtime
//! does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use tokio::{net::UnixListener, runtime, sync::watch};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use crate::proto::server::{
    image_service_server::{ImageService, ImageServiceServer},
    runtime_service_server::{RuntimeService, RuntimeServiceServer},
};
use crate::proto::*;

/// What the runtime holds and how it behaves.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) sandboxes: BTreeMap<String, PodSandboxConfig>,
    pub(crate) containers: BTreeMap<String, (String, ContainerConfig, ContainerState)>,
    pub(crate) images: BTreeMap<String, Image>,
    /// Listed, but gone when their status is asked for.
    pub(crate) vanishing: BTreeSet<String>,
    /// Calls that get no answer, for as long as they are named here.
    pub(crate) hanging: BTreeSet<&'static str>,
    /// Calls that are refused, and how.
    pub(crate) refusing: BTreeMap<&'static str, Status>,
    /// The time each call said it would wait.
    pub(crate) deadlines: BTreeMap<&'static str, Option<Duration>>,
    pub(crate) events: Vec<ContainerEventResponse>,
    pub(crate) pod_cidr: String,
    pub(crate) pulled_as: Option<AuthConfig>,
    pub(crate) pulled_for: Option<PodSandboxConfig>,
    n_made: u32,
}

type EventStream = BoxStream<'static, Result<ContainerEventResponse, Status>>;

#[derive(Clone)]
pub(crate) struct FakeRuntime {
    world: Arc<watch::Sender<Mutex<World>>>,
}

/// A server on a socket; dropping it kills the runtime.
pub(crate) struct Running {
    threads: Option<runtime::Runtime>,
    socket: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl FakeRuntime {
    pub(crate) fn new() -> Self {
        Self { world: Arc::new(watch::Sender::new(Mutex::new(World::default()))) }
    }

    pub(crate) fn serve(&self, socket: &Path) -> Running {
        let threads =
            runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            let _inside = threads.enter();
            UnixListener::bind(socket).unwrap()
        };
        threads.spawn(
            Server::builder()
                .add_service(RuntimeServiceServer::new(self.clone()))
                .add_service(ImageServiceServer::new(self.clone()))
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        Running { threads: Some(threads), socket: socket.to_owned() }
    }

    /// Changes the world and wakes whoever waits for a change.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let mut result = None;
        self.world.send_modify(|world| {
            result = Some(change(world.get_mut().unwrap()));
        });
        result.unwrap()
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.world.borrow().lock().unwrap())
    }

    /// Returns once the world looks so.
    pub(crate) async fn until(&self, is_so: impl Fn(&World) -> bool) {
        self.world.subscribe().wait_for(|world| is_so(&world.lock().unwrap())).await.unwrap();
    }

    /// What happens at the start of every call.
    async fn enter<T>(&self, method: &'static str, request: Request<T>) -> Result<T, Status> {
        let deadline = request.metadata().get("grpc-timeout").map(|value| {
            let (number, unit) = value.to_str().unwrap().split_at(value.len() - 1);
            let nanos: u64 = match unit {
                "n" => 1,
                "u" => 1_000,
                "m" => 1_000_000,
                _ => 1_000_000_000,
            };
            Duration::from_nanos(number.parse::<u64>().unwrap() * nanos)
        });
        let (hangs, refusal) = self.change(|world| {
            world.deadlines.insert(method, deadline);
            let refusal = world.refusing.get(method);
            let refusal = refusal.map(|status| Status::new(status.code(), status.message()));
            (world.hanging.contains(method), refusal)
        });
        if hangs {
            self.until(|world| !world.hanging.contains(method)).await;
        }
        refusal.map_or(Ok(request.into_inner()), Err)
    }

    fn known(&self, id: &str) -> Result<(), Status> {
        self.look(|world| {
            let is_known = world.sandboxes.contains_key(id) || world.containers.contains_key(id);
            if is_known && !world.vanishing.contains(id) {
                Ok(())
            } else {
                Err(Status::not_found(format!("{id:?}: not found")))
            }
        })
    }
}

fn selected(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[tonic::async_trait]
impl RuntimeService for FakeRuntime {
    async fn version(
        &self,
        request: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        self.enter("Version", request).await?;
        Ok(Response::new(VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "fake".to_owned(),
            runtime_version: "1".to_owned(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        self.enter("Status", request).await?;
        let condition = |kind: &str| RuntimeCondition {
            r#type: kind.to_owned(),
            status: true,
            ..Default::default()
        };
        Ok(Response::new(StatusResponse {
            status: Some(RuntimeStatus {
                conditions: vec![condition("RuntimeReady"), condition("NetworkReady")],
            }),
            ..Default::default()
        }))
    }

    async fn runtime_config(
        &self,
        request: Request<RuntimeConfigRequest>,
    ) -> Result<Response<RuntimeConfigResponse>, Status> {
        self.enter("RuntimeConfig", request).await?;
        Ok(Response::new(RuntimeConfigResponse {
            linux: Some(LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs.into() }),
        }))
    }

    async fn update_runtime_config(
        &self,
        request: Request<UpdateRuntimeConfigRequest>,
    ) -> Result<Response<UpdateRuntimeConfigResponse>, Status> {
        let request = self.enter("UpdateRuntimeConfig", request).await?;
        let network = request.runtime_config.unwrap().network_config.unwrap();
        self.change(|world| world.pod_cidr = network.pod_cidr);
        Ok(Response::new(UpdateRuntimeConfigResponse {}))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Result<Response<RunPodSandboxResponse>, Status> {
        let request = self.enter("RunPodSandbox", request).await?;
        let id = self.change(|world| {
            world.n_made += 1;
            let id = format!("sandbox-{}", world.n_made);
            world.sandboxes.insert(id.clone(), request.config.unwrap());
            id
        });
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id: id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Result<Response<StopPodSandboxResponse>, Status> {
        let request = self.enter("StopPodSandbox", request).await?;
        self.known(&request.pod_sandbox_id)?;
        Ok(Response::new(StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Result<Response<RemovePodSandboxResponse>, Status> {
        let id = self.enter("RemovePodSandbox", request).await?.pod_sandbox_id;
        self.known(&id)?;
        self.change(|world| world.sandboxes.remove(&id));
        Ok(Response::new(RemovePodSandboxResponse {}))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Result<Response<ListPodSandboxResponse>, Status> {
        let request = self.enter("ListPodSandbox", request).await?;
        let selector = request.filter.unwrap_or_default().label_selector;
        let items = self.look(|world| {
            let matching =
                world.sandboxes.iter().filter(|(_, config)| selected(&config.labels, &selector));
            matching
                .map(|(id, config)| PodSandbox {
                    id: id.clone(),
                    metadata: config.metadata.clone(),
                    created_at: 1,
                    labels: config.labels.clone(),
                    ..Default::default()
                })
                .collect()
        });
        Ok(Response::new(ListPodSandboxResponse { items }))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Result<Response<PodSandboxStatusResponse>, Status> {
        let id = self.enter("PodSandboxStatus", request).await?.pod_sandbox_id;
        self.known(&id)?;
        let status = self.look(|world| PodSandboxStatus {
            metadata: world.sandboxes[&id].metadata.clone(),
            labels: world.sandboxes[&id].labels.clone(),
            created_at: 1,
            id: id.clone(),
            ..Default::default()
        });
        Ok(Response::new(PodSandboxStatusResponse { status: Some(status), ..Default::default() }))
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Result<Response<CreateContainerResponse>, Status> {
        let request = self.enter("CreateContainer", request).await?;
        self.known(&request.pod_sandbox_id)?;
        let id = self.change(|world| {
            world.n_made += 1;
            let id = format!("container-{}", world.n_made);
            let state = ContainerState::ContainerCreated;
            let entry = (request.pod_sandbox_id, request.config.unwrap(), state);
            world.containers.insert(id.clone(), entry);
            id
        });
        Ok(Response::new(CreateContainerResponse { container_id: id }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Result<Response<StartContainerResponse>, Status> {
        let id = self.enter("StartContainer", request).await?.container_id;
        self.known(&id)?;
        self.set_state(&id, ContainerState::ContainerRunning);
        Ok(Response::new(StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Result<Response<StopContainerResponse>, Status> {
        let id = self.enter("StopContainer", request).await?.container_id;
        self.known(&id)?;
        self.set_state(&id, ContainerState::ContainerExited);
        Ok(Response::new(StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Result<Response<RemoveContainerResponse>, Status> {
        let id = self.enter("RemoveContainer", request).await?.container_id;
        self.known(&id)?;
        self.change(|world| world.containers.remove(&id));
        Ok(Response::new(RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Result<Response<ListContainersResponse>, Status> {
        let request = self.enter("ListContainers", request).await?;
        let selector = request.filter.unwrap_or_default().label_selector;
        let containers = self.look(|world| {
            let matching = world
                .containers
                .iter()
                .filter(|(_, (_, config, _))| selected(&config.labels, &selector));
            matching
                .map(|(id, (sandbox, config, state))| Container {
                    id: id.clone(),
                    pod_sandbox_id: sandbox.clone(),
                    labels: config.labels.clone(),
                    state: (*state).into(),
                    ..Default::default()
                })
                .collect()
        });
        Ok(Response::new(ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Result<Response<ContainerStatusResponse>, Status> {
        let id = self.enter("ContainerStatus", request).await?.container_id;
        self.known(&id)?;
        let status = self.look(|world| {
            let (_, config, state) = &world.containers[&id];
            ContainerStatus {
                id: id.clone(),
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
                state: (*state).into(),
                created_at: 2,
                started_at: 3,
                ..Default::default()
            }
        });
        Ok(Response::new(ContainerStatusResponse { status: Some(status), ..Default::default() }))
    }

    async fn exec_sync(
        &self,
        request: Request<ExecSyncRequest>,
    ) -> Result<Response<ExecSyncResponse>, Status> {
        let request = self.enter("ExecSync", request).await?;
        Ok(Response::new(ExecSyncResponse {
            stdout: vec![b'x'; 1024 * 1024],
            stderr: request.cmd.join(" ").into_bytes(),
            exit_code: 7,
        }))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        let request = self.enter("Exec", request).await?;
        let url = format!("http://[::1]/exec/{}", request.cmd.join("+"));
        Ok(Response::new(ExecResponse { url }))
    }

    async fn attach(
        &self,
        request: Request<AttachRequest>,
    ) -> Result<Response<AttachResponse>, Status> {
        self.enter("Attach", request).await?;
        Ok(Response::new(AttachResponse::default()))
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Result<Response<PortForwardResponse>, Status> {
        let request = self.enter("PortForward", request).await?;
        let url = format!("http://[::1]/forward/{:?}", request.port);
        Ok(Response::new(PortForwardResponse { url }))
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Result<Response<UpdateContainerResourcesResponse>, Status> {
        let request = self.enter("UpdateContainerResources", request).await?;
        self.known(&request.container_id)?;
        self.change(|world| {
            let (_, config, _) = world.containers.get_mut(&request.container_id).unwrap();
            config.linux.as_mut().unwrap().resources = request.linux;
        });
        Ok(Response::new(UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Result<Response<ReopenContainerLogResponse>, Status> {
        let request = self.enter("ReopenContainerLog", request).await?;
        self.known(&request.container_id)?;
        Ok(Response::new(ReopenContainerLogResponse {}))
    }

    /// Answers, as Go's servers do, only once there is a first event.
    async fn get_container_events(
        &self,
        request: Request<GetEventsRequest>,
    ) -> Result<Response<EventStream>, Status> {
        self.enter("GetContainerEvents", request).await?;
        self.until(|world| !world.events.is_empty()).await;
        let events = futures::stream::unfold((self.clone(), 0), |(fake, index)| async move {
            fake.until(|world| world.events.len() > index).await;
            let event = fake.look(|world| world.events[index].clone());
            Some((Ok(event), (fake, index + 1)))
        });
        Ok(Response::new(events.boxed()))
    }
}

impl FakeRuntime {
    fn set_state(&self, id: &str, state: ContainerState) {
        self.change(|world| {
            if let Some((_, _, now)) = world.containers.get_mut(id) {
                *now = state;
            }
        });
    }
}

#[tonic::async_trait]
impl ImageService for FakeRuntime {
    async fn list_images(
        &self,
        request: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        self.enter("ListImages", request).await?;
        let images = self.look(|world| world.images.values().cloned().collect());
        Ok(Response::new(ListImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        let name = self.enter("ImageStatus", request).await?.image.unwrap().image;
        Ok(Response::new(ImageStatusResponse {
            image: self.look(|world| world.images.get(&name).cloned()),
            ..Default::default()
        }))
    }

    async fn pull_image(
        &self,
        request: Request<PullImageRequest>,
    ) -> Result<Response<PullImageResponse>, Status> {
        let request = self.enter("PullImage", request).await?;
        let name = request.image.unwrap().image;
        let image = Image {
            id: format!("sha256:{name}"),
            repo_tags: vec![name.clone()],
            size: 1,
            ..Default::default()
        };
        let image_ref = image.id.clone();
        self.change(|world| {
            world.images.insert(name, image);
            world.pulled_as = request.auth;
            world.pulled_for = request.sandbox_config;
        });
        Ok(Response::new(PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        let name = self.enter("RemoveImage", request).await?.image.unwrap().image;
        match self.change(|world| world.images.remove(&name)) {
            Some(_) => Ok(Response::new(RemoveImageResponse {})),
            None => Err(Status::not_found(name)),
        }
    }
}
