//! Drivers on real sockets: they register, prepare, say how devices feel, leave, and misbehave.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_claims::{ClaimRef, Feeling};
use ferrolet_ports::{ClaimDrivers as _, DriverNews};
use futures::{Stream, StreamExt as _, stream};
use tokio::{
    net::UnixListener,
    sync::{mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use super::{DriverRegistry, Services};
use crate::{
    Registry, Sockets, Takers,
    proto::{
        dra::{
            Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
            NodePrepareResourcesResponse, NodeUnprepareResourceResponse,
            NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
            dra_plugin_server::{DraPlugin, DraPluginServer},
        },
        dra_beta::dra_plugin_server::{
            DraPlugin as BetaPlugin, DraPluginServer as BetaPluginServer,
        },
        dra_health::{
            DeviceHealth, DeviceIdentifier, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
            dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer},
        },
        registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse},
    },
    tests::registration_wire::registration_server::{Registration, RegistrationServer},
};

const DRIVER: &str = "gpu.example";
const SOON: Duration = Duration::from_secs(20);

/// A driver that fails claims called `bad` and gives each other one a device.
#[derive(Clone)]
struct FakeDriver {
    name: &'static str,
    calls: Arc<Mutex<Vec<String>>>,
    reports: watch::Receiver<Vec<DeviceHealth>>,
}

type Answer<T> = Result<Response<T>, Status>;
type Reports = std::pin::Pin<
    Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send + 'static>,
>;

impl FakeDriver {
    fn new(name: &'static str) -> (Self, watch::Sender<Vec<DeviceHealth>>) {
        let (report_sender, reports) = watch::channel(Vec::new());
        (Self { name, calls: Arc::default(), reports }, report_sender)
    }

    fn take(&self, request: NodePrepareResourcesRequest) -> NodePrepareResourcesResponse {
        let one = |claim: crate::proto::dra::Claim| {
            self.calls.lock().unwrap().push(format!("prepare {}/{}", claim.namespace, claim.name));
            let device = Device {
                request_names: vec!["r".to_owned()],
                pool_name: "pool".to_owned(),
                device_name: self.name.to_owned(),
                cdi_device_ids: vec![format!("gpu.example/card={}", claim.name)],
                share_id: Some("s".to_owned()),
            };
            let answer = match claim.name.as_str() {
                "bad" => {
                    NodePrepareResourceResponse { error: "broken".to_owned(), ..Default::default() }
                }
                _ => NodePrepareResourceResponse { devices: vec![device], ..Default::default() },
            };
            (claim.uid, answer)
        };
        NodePrepareResourcesResponse { claims: request.claims.into_iter().map(one).collect() }
    }

    fn give_back(&self, request: NodeUnprepareResourcesRequest) -> NodeUnprepareResourcesResponse {
        let one = |claim: crate::proto::dra::Claim| {
            self.calls.lock().unwrap().push(format!("unprepare {}", claim.name));
            (claim.uid, NodeUnprepareResourceResponse::default())
        };
        NodeUnprepareResourcesResponse { claims: request.claims.into_iter().map(one).collect() }
    }

    /// Serves on that socket, with both versions of the interface.
    fn serve(&self, path: &Path) -> Serving {
        let listener = UnixListener::bind(path).unwrap();
        let router = Server::builder()
            .add_service(DraPluginServer::new(self.clone()))
            .add_service(BetaPluginServer::new(Old(self.clone())))
            .add_service(DraResourceHealthServer::new(self.clone()));
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move { drop(stopped.await) };
        let incoming = UnixListenerStream::new(listener);
        let serving = router.serve_with_incoming_shutdown(incoming, stopped);
        Serving { stop, task: tokio::spawn(async move { serving.await.unwrap() }) }
    }
}

/// A driver at work.
struct Serving {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Ends it with its connections.
    async fn end(self) {
        drop(self.stop);
        timeout(SOON, self.task).await.unwrap().unwrap();
    }
}

#[tonic::async_trait]
impl DraPlugin for FakeDriver {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Answer<NodePrepareResourcesResponse> {
        Ok(self.take(request.into_inner()).into())
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Answer<NodeUnprepareResourcesResponse> {
        Ok(self.give_back(request.into_inner()).into())
    }
}

/// The same by its older name, which knows no shares.
struct Old(FakeDriver);

#[tonic::async_trait]
impl BetaPlugin for Old {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Answer<NodePrepareResourcesResponse> {
        let mut answer = self.0.take(request.into_inner());
        let devices = answer.claims.values_mut().flat_map(|it| &mut it.devices);
        devices.for_each(|it| it.share_id = None);
        Ok(answer.into())
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Answer<NodeUnprepareResourcesResponse> {
        Ok(self.0.give_back(request.into_inner()).into())
    }
}

#[tonic::async_trait]
impl DraResourceHealth for FakeDriver {
    type NodeWatchResourcesStream = Reports;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Answer<Self::NodeWatchResourcesStream> {
        let reports =
            stream::unfold((self.reports.clone(), true), |(mut reports, is_first)| async move {
                if !is_first {
                    reports.changed().await.ok()?;
                }
                let devices = reports.borrow_and_update().clone();
                Some((Ok(NodeWatchResourcesResponse { devices }), (reports, false)))
            });
        Ok(Response::new(reports.boxed()))
    }
}

struct Rig {
    directory: tempfile::TempDir,
    registry: Arc<DriverRegistry>,
    news: mpsc::Receiver<DriverNews>,
    _tasks: JoinSet<()>,
}

impl Rig {
    fn new() -> Self {
        let (registry, watching, news) = DriverRegistry::new(true);
        let mut tasks = JoinSet::new();
        tasks.spawn(watching.run());
        Self { directory: tempfile::tempdir().unwrap(), registry, news, _tasks: tasks }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn add(&self, socket: &str, services: &[&str]) -> Result<(), String> {
        let path = self.path(socket);
        let offered: Vec<String> = services.iter().map(|it| (*it).to_owned()).collect();
        let services = Services::of(DRIVER, &path, &offered)?;
        self.registry.add(DRIVER, &path, services).await
    }

    async fn next(&mut self) -> DriverNews {
        timeout(SOON, self.news.recv()).await.unwrap().unwrap()
    }

    /// The device that the driver prepares for a claim.
    async fn prepared_by(&self) -> String {
        let answer = self.registry.prepare(DRIVER, &[claim("a")]).await.unwrap();
        answer["uid-a"].as_ref().unwrap()[0].device.clone()
    }
}

fn claim(name: &str) -> ClaimRef {
    let (namespace, uid) = ("shop".to_owned(), format!("uid-{name}"));
    ClaimRef { namespace, name: name.to_owned(), uid }
}

fn usable() -> DriverNews {
    DriverNews::Usable { driver: DRIVER.to_owned() }
}

fn unusable() -> DriverNews {
    DriverNews::Unusable { driver: DRIVER.to_owned() }
}

#[tokio::test]
async fn both_versions_of_the_interface_are_spoken() {
    let mut rig = Rig::new();
    let (driver, _reports) = FakeDriver::new("one");
    let _serving = driver.serve(&rig.path("new.sock"));
    let check = async |rig: &mut Rig, service: &str, share: Option<&str>| {
        rig.add("new.sock", &[service]).await.unwrap();
        assert_eq!(rig.next().await, usable());
        let claims = [claim("a"), claim("bad")];
        let answer = rig.registry.prepare(DRIVER, &claims).await.unwrap();
        assert_eq!(answer["uid-bad"], Err("broken".to_owned()));
        let device = &answer["uid-a"].as_ref().unwrap()[0];
        assert_eq!((device.pool.as_str(), device.share_id.as_deref()), ("pool", share));
        assert_eq!(device.cdi_ids, ["gpu.example/card=a"]);
        let answer = rig.registry.unprepare(DRIVER, &claims[..1]).await.unwrap();
        assert_eq!(answer, [("uid-a".to_owned(), Ok(()))].into());
        rig.registry.remove(DRIVER, &rig.path("new.sock"));
        assert_eq!(rig.next().await, unusable());
        assert!(!rig.registry.is_registered(DRIVER));
        let gone = rig.registry.prepare(DRIVER, &claims).await.unwrap_err();
        assert_eq!(gone.0, "DRA driver gpu.example is not registered");
    };
    check(&mut rig, "v1.DRAPlugin", Some("s")).await;
    check(&mut rig, "v1beta1.DRAPlugin", None).await;
}

#[tokio::test]
async fn the_newest_plugin_that_is_connected_is_asked() {
    let mut rig = Rig::new();
    let (old, _old_reports) = FakeDriver::new("old");
    let (new, _new_reports) = FakeDriver::new("new");
    let _old_serving = old.serve(&rig.path("old.sock"));
    rig.add("old.sock", &["v1.DRAPlugin"]).await.unwrap();
    assert_eq!(rig.next().await, usable());
    assert_eq!(rig.prepared_by().await, "old");
    // Registered, and not there yet.
    rig.add("new.sock", &["v1.DRAPlugin"]).await.unwrap();
    assert_eq!(rig.prepared_by().await, "old");
    let again = rig.add("new.sock", &["v1.DRAPlugin"]).await.unwrap_err();
    let path = rig.path("new.sock");
    let words = format!("endpoint {} already registered for DRA driver plugin", path.display());
    assert_eq!(again, format!("{words} gpu.example"));
    let new_serving = new.serve(&path);
    let asked = async {
        while rig.prepared_by().await != "new" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, asked).await.unwrap();
    // It dies, and the other one stands in.
    new_serving.end().await;
    let asked = async {
        while rig.registry.prepare(DRIVER, &[claim("a")]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, asked).await.unwrap();
    assert_eq!(rig.prepared_by().await, "old");
    // All of that was one driver that could always be reached.
    assert!(rig.news.try_recv().is_err());
}

#[tokio::test]
async fn a_driver_that_dies_and_comes_back_is_noticed_without_a_call() {
    let mut rig = Rig::new();
    let (driver, _reports) = FakeDriver::new("one");
    let serving = driver.serve(&rig.path("a.sock"));
    rig.add("a.sock", &["v1.DRAPlugin"]).await.unwrap();
    assert_eq!(rig.next().await, usable());
    serving.end().await;
    std::fs::remove_file(rig.path("a.sock")).unwrap();
    assert_eq!(rig.next().await, unusable());
    let away = rig.registry.prepare(DRIVER, &[claim("a")]).await.unwrap_err();
    assert!(away.0.starts_with("rpc error: code = Unavailable desc = "), "{away}");
    let _serving = driver.serve(&rig.path("a.sock"));
    assert_eq!(rig.next().await, usable());
    assert_eq!(rig.prepared_by().await, "one");
}

#[tokio::test]
async fn how_devices_feel_is_heard_until_the_driver_goes() {
    let mut rig = Rig::new();
    let (driver, reports) = FakeDriver::new("one");
    let _serving = driver.serve(&rig.path("a.sock"));
    rig.add("a.sock", &["v1.DRAPlugin", "v1.DRAResourceHealth"]).await.unwrap();
    let feels = |health: i32| DeviceHealth {
        device: Some(DeviceIdentifier { pool_name: "p".to_owned(), device_name: "d".to_owned() }),
        health,
        last_updated_time: 1,
        health_check_timeout_seconds: -5,
        message: "hot".to_owned(),
    };
    let mut heard = BTreeMap::new();
    reports.send_replace(vec![feels(2)]);
    while heard.len() < 2 {
        match rig.next().await {
            DriverNews::Usable { .. } => {
                heard.insert("usable", Vec::new());
            }
            DriverNews::Feels { devices, .. } if !devices.is_empty() => {
                heard.insert("feels", devices);
            }
            DriverNews::Feels { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let device = &heard["feels"][0];
    assert_eq!((device.pool.as_str(), device.device.as_str()), ("p", "d"));
    assert_eq!((device.feeling, device.holds), (Feeling::Unhealthy, Duration::ZERO));
    // A kind that we do not know.
    reports.send_replace(vec![feels(77)]);
    let DriverNews::Feels { devices, .. } = rig.next().await else { panic!("nothing said") };
    assert_eq!(devices[0].feeling, Feeling::Unknown);
    rig.registry.remove(DRIVER, &rig.path("a.sock"));
    assert_eq!(rig.next().await, DriverNews::Silent { driver: DRIVER.to_owned() });
    assert_eq!(rig.next().await, unusable());
}

#[test]
fn what_a_plugin_offers_is_read_in_its_own_order() {
    let path = Path::new("/p.sock");
    let check = |offered: &[&str], expected: Result<&str, &str>| {
        let offered: Vec<String> = offered.iter().map(|it| (*it).to_owned()).collect();
        let found = Services::of(DRIVER, path, &offered);
        let found = found.map(|it| format!("{:?} {:?}", it.calls, it.health));
        let words = "invalid supported gRPC versions of DRA driver plugin gpu.example at endpoint /p.sock: ";
        let expected = expected.map(str::to_owned).map_err(|it| format!("{words}{it}"));
        assert_eq!(found, expected);
    };
    check(&["v1.DRAPlugin"], Ok("V1 None"));
    check(&["v1beta1.DRAPlugin", "v1.DRAPlugin"], Ok("V1Beta1 None"));
    let health = ["v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth", "v1.DRAPlugin"];
    check(&health, Ok("V1 Some(V1)"));
    check(
        &health[..1],
        Err(
            "none of services supported by the plugin ([\"v1alpha1.DRAResourceHealth\"]) are supported by the kubelet ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])",
        ),
    );
    check(&[], Err("empty list of supported gRPC services (aka supported versions)"));
}

/// A plugin in the plugin directory that says who it is.
#[derive(Clone)]
struct Introduction(PluginInfo, watch::Sender<Option<RegistrationStatus>>);

#[tonic::async_trait]
impl Registration for Introduction {
    async fn get_info(&self, _: Request<InfoRequest>) -> Answer<PluginInfo> {
        Ok(self.0.clone().into())
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Answer<RegistrationStatusResponse> {
        self.1.send_replace(Some(request.into_inner()));
        Ok(RegistrationStatusResponse {}.into())
    }
}

#[tokio::test]
async fn a_driver_of_the_plugin_directory_is_taken_and_leaves_with_its_registration() {
    let mut rig = Rig::new();
    let (driver, _reports) = FakeDriver::new("one");
    let _serving = driver.serve(&rig.path("dra.sock"));
    let mut told = Vec::new();
    for (socket, name, services) in [
        ("good.sock", DRIVER, vec!["v1.DRAPlugin".to_owned()]),
        ("old.sock", DRIVER, vec!["v1alpha3.DRAPlugin".to_owned()]),
        ("nameless.sock", "", vec!["v1.DRAPlugin".to_owned()]),
    ] {
        let info = PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: name.to_owned(),
            endpoint: rig.path("dra.sock").display().to_string(),
            supported_versions: services,
        };
        let (status_sender, status) = watch::channel(None);
        let listener = UnixListener::bind(rig.path(socket)).unwrap();
        let server = Server::builder()
            .add_service(RegistrationServer::new(Introduction(info, status_sender)));
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        told.push((socket, status));
    }
    let takers = Takers { claims: Some(rig.registry.clone()), ..Takers::default() };
    let registry = Arc::new(Registry::with_takers(takers));
    let (socket_sender, sockets) = watch::channel(Sockets::new());
    let running = tokio::spawn(async move { registry.run(sockets).await });
    let found = told.iter().map(|(socket, _)| (rig.path(socket), (1, 1)));
    socket_sender.send_replace(found.collect());
    let mut answers = BTreeMap::new();
    for (socket, status) in &mut told {
        let answer =
            timeout(SOON, status.wait_for(Option::is_some)).await.unwrap().unwrap().clone();
        answers.insert(*socket, answer.unwrap());
    }
    assert!(answers["good.sock"].plugin_registered);
    assert!(answers["old.sock"].error.contains("none of services supported by the plugin"));
    assert_eq!(answers["nameless.sock"].error, "DRA driver name is empty");
    assert_eq!(rig.next().await, usable());
    assert_eq!(rig.prepared_by().await, "one");
    socket_sender.send_replace(Sockets::new());
    assert_eq!(rig.next().await, unusable());
    assert!(!rig.registry.is_registered(DRIVER));
    running.abort();
}
