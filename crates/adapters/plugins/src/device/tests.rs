//! Plugins on real sockets: they register, list, are called, leave, and misbehave.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_devices::{PluginId, PreferredAsk};
use ferrolet_ports::{DevicePlugins as _, HealthCheck as _, PluginNews};
use tokio::{
    net::UnixListener,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use super::DeviceRegistry;
use crate::{
    LocalSocket, Registry, Sockets, Takers,
    endpoint::channel,
    proto::{
        device::{
            AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse,
            ContainerPreferredAllocationResponse, Device, DevicePluginOptions, DeviceSpec, Empty,
            ListAndWatchResponse, Mount, NumaNode, PreStartContainerRequest,
            PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
            RegisterRequest, TopologyInfo,
            device_plugin_server::{DevicePlugin, DevicePluginServer},
            registration_client::RegistrationClient,
        },
        registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse},
    },
    tests::registration_wire::registration_server::{
        Registration as PluginRegistration, RegistrationServer as PluginRegistrationServer,
    },
};

const GPU: &str = "example.com/gpu";

/// A plugin that lists what it is told to.
#[derive(Clone)]
struct FakePlugin {
    lists: watch::Receiver<Vec<Device>>,
    started: Arc<Mutex<Vec<Vec<String>>>>,
}

#[tonic::async_trait]
impl DevicePlugin for FakePlugin {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        let options = DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        };
        Ok(options.into())
    }

    type ListAndWatchStream =
        tokio_stream::wrappers::ReceiverStream<Result<ListAndWatchResponse, Status>>;

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        let mut lists = self.lists.clone();
        tokio::spawn(async move {
            loop {
                let devices = lists.borrow_and_update().clone();
                if sender.send(Ok(ListAndWatchResponse { devices })).await.is_err()
                    || lists.changed().await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(tokio_stream::wrappers::ReceiverStream::new(receiver)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let asked = request.into_inner().container_requests.remove(0);
        let n = usize::try_from(asked.allocation_size).unwrap();
        let last = asked.available_device_i_ds.into_iter().rev().take(n).collect();
        let response = ContainerPreferredAllocationResponse { device_i_ds: last };
        Ok(PreferredAllocationResponse { container_responses: vec![response] }.into())
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let ids = request.into_inner().container_requests.remove(0).devices_ids;
        if ids.iter().any(|it| it == "bad") {
            return Err(Status::unavailable("broken"));
        }
        if ids.is_empty() {
            return Ok(AllocateResponse::default().into());
        }
        let response = ContainerAllocateResponse {
            envs: [("GPUS".to_owned(), ids.join(","))].into(),
            mounts: vec![Mount {
                container_path: "/lib/gpu".to_owned(),
                host_path: "/opt/gpu".to_owned(),
                read_only: true,
            }],
            devices: vec![DeviceSpec {
                container_path: "/dev/gpu0".to_owned(),
                host_path: "/dev/gpu-a".to_owned(),
                permissions: "rw".to_owned(),
            }],
            annotations: [("a".to_owned(), "b".to_owned())].into(),
            cdi_devices: vec![CdiDevice { name: "example.com/gpu=a".to_owned() }],
        };
        Ok(AllocateResponse { container_responses: vec![response] }.into())
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        self.started.lock().unwrap().push(request.into_inner().devices_ids);
        Ok(PreStartContainerResponse {}.into())
    }
}

/// The same socket says who it is, for plugins in the plugin directory.
#[derive(Clone)]
struct Introduction(PluginInfo, watch::Sender<Option<RegistrationStatus>>);

#[tonic::async_trait]
impl PluginRegistration for Introduction {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(self.0.clone().into())
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.1.send_replace(Some(request.into_inner()));
        Ok(RegistrationStatusResponse {}.into())
    }
}

fn device(id: &str, health: &str, nodes: &[i64]) -> Device {
    let nodes: Vec<NumaNode> = nodes.iter().map(|id| NumaNode { id: *id }).collect();
    let topology = (!nodes.is_empty()).then_some(TopologyInfo { nodes });
    Device { id: id.to_owned(), health: health.to_owned(), topology }
}

struct Rig {
    directory: tempfile::TempDir,
    registry: Arc<DeviceRegistry>,
    news: mpsc::Receiver<PluginNews>,
    tasks: Vec<JoinHandle<()>>,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (registry, watching, news) = DeviceRegistry::new(directory.path().to_owned());
        let listener =
            std::os::unix::net::UnixListener::bind(directory.path().join("kubelet.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let socket = LocalSocket::new(listener).unwrap();
        let tasks = vec![
            tokio::spawn(watching.run(registry.clone())),
            tokio::spawn(registry.clone().serve(socket)),
        ];
        Self { directory, registry, news, tasks }
    }

    /// A plugin on that socket.
    fn plugin(
        &self,
        name: &str,
        lists: &watch::Sender<Vec<Device>>,
    ) -> (FakePlugin, JoinHandle<()>) {
        let plugin = FakePlugin { lists: lists.subscribe(), started: Arc::default() };
        let listener = UnixListener::bind(self.directory.path().join(name)).unwrap();
        let server = Server::builder().add_service(DevicePluginServer::new(plugin.clone()));
        let serving = server.serve_with_incoming(UnixListenerStream::new(listener));
        let task = tokio::spawn(async move {
            serving.await.unwrap();
        });
        (plugin, task)
    }

    async fn register(&self, version: &str, endpoint: &str, resource: &str) -> Result<(), String> {
        let socket = self.directory.path().join("kubelet.sock");
        let request = RegisterRequest {
            version: version.to_owned(),
            endpoint: endpoint.to_owned(),
            resource_name: resource.to_owned(),
            options: None,
        };
        let told = RegistrationClient::new(channel(&socket)).register(request).await;
        told.map(drop).map_err(|status| status.message().to_owned())
    }

    async fn next(&mut self) -> PluginNews {
        timeout(Duration::from_secs(20), self.news.recv()).await.unwrap().unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn ids(names: &str) -> BTreeSet<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_plugin_registers_lists_is_called_and_goes() {
    let mut rig = Rig::new();
    let lists =
        watch::Sender::new(vec![device("a", "Healthy", &[1]), device("b", "Unhealthy", &[])]);
    let (plugin, serving) = rig.plugin("gpu.sock", &lists);
    rig.register("v1beta1", "gpu.sock", GPU).await.unwrap();
    let PluginNews::Connected { resource, plugin: id, options } = rig.next().await else {
        panic!("not connected");
    };
    assert_eq!((resource.as_str(), options.pre_start, options.preferred), (GPU, true, true));
    let PluginNews::Listed { devices, .. } = rig.next().await else { panic!("not listed") };
    let listed: BTreeMap<&str, (bool, &[i64])> = devices
        .iter()
        .map(|(id, it)| (id.as_str(), (it.is_healthy, it.numa_nodes.as_slice())))
        .collect();
    assert_eq!(listed, [("a", (true, &[1][..])), ("b", (false, &[][..]))].into());

    let ask = PreferredAsk { available: ids("a b c"), must_include: ids("a"), size: 1 };
    assert_eq!(rig.registry.preferred(id, &ask).await.unwrap(), ids("c"));
    let answer = rig.registry.allocate(id, &ids("a b")).await.unwrap();
    assert_eq!(answer.resources.env, [("GPUS".to_owned(), "a,b".to_owned())]);
    assert_eq!(answer.resources.mounts[0].container_path, "/lib/gpu");
    assert!(answer.resources.mounts[0].read_only);
    assert_eq!(answer.resources.devices[0].permissions, "rw");
    assert_eq!(answer.resources.cdi_devices, ["example.com/gpu=a"]);
    assert_eq!(answer.resources.annotations["a"], "b");
    assert_eq!(rig.registry.read_answer(&answer.bytes).unwrap(), answer.resources);
    let broken = rig.registry.allocate(id, &ids("bad")).await.unwrap_err();
    assert_eq!(broken.0, "rpc error: code = Unavailable desc = broken");
    let empty = rig.registry.allocate(id, &ids("")).await.unwrap_err();
    assert_eq!(empty.0, "no containers return in allocation response");
    rig.registry.pre_start(id, &ids("a")).await.unwrap();
    assert_eq!(*plugin.started.lock().unwrap(), [["a"]]);

    lists.send_replace(vec![device("a", "Healthy", &[])]);
    let PluginNews::Listed { devices, .. } = rig.next().await else { panic!("not listed") };
    assert_eq!(devices.len(), 1);
    assert!(rig.registry.check().is_ok());

    drop(lists);
    serving.abort();
    assert_eq!(rig.next().await, PluginNews::Gone { resource: GPU.to_owned(), plugin: id });
    let gone = rig.registry.allocate(id, &ids("a")).await.unwrap_err();
    assert_eq!(gone.0, format!("endpoint {} has been stopped", id.0));
}

#[tokio::test]
async fn what_does_not_fit_is_refused_in_upstreams_words() {
    let rig = Rig::new();
    let check = async |version: &str, endpoint: &str, resource: &str, expected: &str| {
        assert_eq!(rig.register(version, endpoint, resource).await.unwrap_err(), expected);
    };
    let version = r#"requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]"#;
    check("v1", "gpu.sock", GPU, version).await;
    check("v1beta1", "gpu.sock", "gpu", r#"the ResourceName "gpu" is invalid"#).await;
    check("v1beta1", "", GPU, r#"the endpoint "" is not the name of a socket"#).await;
    check("v1beta1", "../x", GPU, r#"the endpoint "../x" is not the name of a socket"#).await;
    let absent = rig.register("v1beta1", "absent.sock", GPU).await.unwrap_err();
    assert!(absent.starts_with("failed to dial device plugin: "), "{absent}");
}

#[tokio::test]
async fn a_plugin_that_is_there_cannot_register_again_until_it_went() {
    let mut rig = Rig::new();
    let lists = watch::Sender::new(vec![device("a", "Healthy", &[])]);
    let (_plugin, serving) = rig.plugin("gpu.sock", &lists);
    rig.register("v1beta1", "gpu.sock", GPU).await.unwrap();
    let again = rig.register("v1beta1", "gpu.sock", GPU).await.unwrap_err();
    let path = rig.directory.path().join("gpu.sock");
    assert_eq!(again, format!("device plugin already connected: {}", path.display()));
    // It dies and comes back on the same socket.
    serving.abort();
    let _ = serving.await;
    drop(lists);
    std::fs::remove_file(&path).unwrap();
    let lists = watch::Sender::new(vec![device("b", "Healthy", &[])]);
    let (_plugin, _serving) = rig.plugin("gpu.sock", &lists);
    rig.register("v1beta1", "gpu.sock", GPU).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        seen.push(rig.next().await);
    }
    let gone = |it: &PluginNews| matches!(it, PluginNews::Gone { plugin: PluginId(1), .. });
    assert!(seen.iter().any(gone), "{seen:?}");
    let listed = |it: &PluginNews| matches!(it, PluginNews::Listed { devices, .. } if devices.contains_key("b"));
    assert!(seen.iter().any(listed), "{seen:?}");
}

#[tokio::test]
async fn a_list_that_is_too_long_ends_the_plugin_and_nothing_else() {
    let mut rig = Rig::new();
    let flood = (0..400_000).map(|n| device(&format!("device-{n:08}"), "Healthy", &[])).collect();
    let lists = watch::Sender::new(flood);
    let (_plugin, _serving) = rig.plugin("flood.sock", &lists);
    rig.register("v1beta1", "flood.sock", GPU).await.unwrap();
    assert!(matches!(rig.next().await, PluginNews::Connected { .. }));
    assert!(matches!(rig.next().await, PluginNews::Gone { .. }));
    let lists = watch::Sender::new(vec![device("a", "Healthy", &[])]);
    let (_plugin, _serving) = rig.plugin("other.sock", &lists);
    rig.register("v1beta1", "other.sock", "example.com/other").await.unwrap();
    assert!(matches!(rig.next().await, PluginNews::Connected { .. }));
    assert!(matches!(rig.next().await, PluginNews::Listed { .. }));
}

/// A plugin in the plugin directory: says who it is on the socket of its service.
fn introduce(
    path: &Path,
    plugin: FakePlugin,
    info: PluginInfo,
) -> watch::Receiver<Option<RegistrationStatus>> {
    let (status, told) = watch::channel(None);
    let listener = UnixListener::bind(path).unwrap();
    let server = Server::builder()
        .add_service(DevicePluginServer::new(plugin))
        .add_service(PluginRegistrationServer::new(Introduction(info, status)));
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    told
}

#[tokio::test]
async fn a_plugin_of_the_plugin_directory_is_taken_and_leaves_with_its_socket() {
    let mut rig = Rig::new();
    let lists = watch::Sender::new(vec![device("a", "Healthy", &[])]);
    let plugin = FakePlugin { lists: lists.subscribe(), started: Arc::default() };
    let info = |name: &str, version: &str| PluginInfo {
        r#type: "DevicePlugin".to_owned(),
        name: name.to_owned(),
        endpoint: String::new(),
        supported_versions: vec![version.to_owned()],
    };
    let path = |name: &str| rig.directory.path().join(name);
    let good = path("good.sock");
    let mut told = introduce(&good, plugin.clone(), info(GPU, "v1beta1"));
    let mut bad_name = introduce(&path("name.sock"), plugin.clone(), info("gpu", "v1beta1"));
    let mut bad_version = introduce(&path("old.sock"), plugin, info(GPU, "v1alpha1"));
    let (socket_sender, sockets) = watch::channel(Sockets::new());
    let registry = Arc::new(Registry::with_takers(Takers {
        devices: Some(rig.registry.clone()),
        ..Takers::default()
    }));
    let registering = registry.clone();
    let running = tokio::spawn(async move { registering.run(sockets).await });
    let all = ["good.sock", "name.sock", "old.sock"];
    socket_sender.send_replace(all.iter().map(|name| (path(name), (1, 1))).collect());
    let heard = |it: &Option<RegistrationStatus>| it.is_some();
    assert!(told.wait_for(heard).await.unwrap().as_ref().unwrap().plugin_registered);
    let error = bad_name.wait_for(heard).await.unwrap().clone().unwrap().error;
    assert_eq!(error, r#"invalid name of device plugin socket: the ResourceName "gpu" is invalid"#);
    let error = bad_version.wait_for(heard).await.unwrap().clone().unwrap().error;
    assert_eq!(
        error,
        "manager version, v1beta1, is not among plugin supported versions [v1alpha1]"
    );
    assert!(matches!(rig.next().await, PluginNews::Connected { .. }));
    assert!(matches!(rig.next().await, PluginNews::Listed { .. }));

    socket_sender.send_replace(Sockets::new());
    assert!(matches!(rig.next().await, PluginNews::Gone { .. }));
    running.abort();
}
