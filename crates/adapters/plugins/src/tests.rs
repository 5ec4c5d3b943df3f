//! Registration and calls against a driver in this process, over real sockets.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use ferrolet_ports::{
    CsiCapability, CsiDrivers as _, CsiForm, CsiHealthAsk, CsiPublish, CsiStage, Measured as _,
    metrics::{self, process},
};
use tokio::{
    net::UnixListener,
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use crate::{
    Registry, Sockets,
    proto::{
        csi::{
            NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest,
            NodeGetInfoResponse, NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse,
            NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability,
            NodeStageVolumeRequest, NodeStageVolumeResponse, VolumeHealth, VolumeHealthErrorType,
            node_service_capability::{Rpc, Type, rpc},
            volume_health::VolumeHealthEntry,
        },
        registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse},
    },
};

mod csi_wire {
    #![expect(unreachable_pub, clippy::allow_attributes, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/server/csi.v1.rs"));
}
pub(crate) mod registration_wire {
    #![expect(unreachable_pub, clippy::allow_attributes, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/server/pluginregistration.rs"));
}

struct FakeDriver {
    kind: &'static str,
    told: mpsc::UnboundedSender<RegistrationStatus>,
    published: mpsc::UnboundedSender<NodePublishVolumeRequest>,
    /// How many volumes a node takes; one more each time it is asked.
    limit: AtomicI64,
}

#[tonic::async_trait]
impl registration_wire::registration_server::Registration for Arc<FakeDriver> {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: self.kind.to_owned(),
            name: "d".to_owned(),
            endpoint: String::new(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.told.send(request.into_inner()).ok();
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl csi_wire::node_server::Node for Arc<FakeDriver> {
    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: "me".to_owned(),
            max_volumes_per_node: self.limit.fetch_add(1, Ordering::Relaxed),
            accessible_topology: None,
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let kinds = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::SingleNodeMultiWriter,
            rpc::Type::GetVolumeHealth,
        ];
        let capabilities = kinds.map(|kind| NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: i32::from(kind) })),
        });
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: capabilities.into() }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        let asked = request.into_inner();
        let entry = VolumeHealthEntry {
            status: i32::from(VolumeHealthErrorType::Degraded),
            reason: "Slow".to_owned(),
            message: format!("{} {}", asked.volume_publish_path, asked.staging_target_path),
        };
        Ok(Response::new(NodeGetVolumeHealthResponse {
            volume_health: Some(VolumeHealth {
                volume_id: asked.volume_id,
                health_statuses: vec![entry],
            }),
        }))
    }

    async fn node_stage_volume(
        &self,
        _: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        Err(Status::aborted("at it"))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        self.published.send(request.into_inner()).ok();
        Err(Status::internal("no"))
    }
}

type Heard = (
    mpsc::UnboundedReceiver<RegistrationStatus>,
    mpsc::UnboundedReceiver<NodePublishVolumeRequest>,
);

fn serve(socket: &Path, kind: &'static str) -> Heard {
    let (told, heard) = mpsc::unbounded_channel();
    let (published, requests) = mpsc::unbounded_channel();
    let driver = Arc::new(FakeDriver { kind, told, published, limit: AtomicI64::new(3) });
    let listener = UnixListener::bind(socket).unwrap();
    let server = Server::builder()
        .add_service(registration_wire::registration_server::RegistrationServer::new(
            driver.clone(),
        ))
        .add_service(csi_wire::node_server::NodeServer::new(driver))
        .serve_with_incoming(UnixListenerStream::new(listener));
    tokio::spawn(server);
    (heard, requests)
}

fn stage() -> CsiStage {
    CsiStage {
        volume: "v".to_owned(),
        path: "/p".to_owned(),
        capability: CsiCapability {
            access_mode: "ReadWriteOncePod".to_owned(),
            form: CsiForm::Files {
                file_system: "ext4".to_owned(),
                options: vec!["noatime".to_owned()],
                group: Some(7),
            },
        },
        publish_context: BTreeMap::new(),
        attributes: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        secrets: BTreeMap::from([("key".to_owned(), "hush".to_owned())]),
    }
}

#[tokio::test]
async fn a_driver_registers_is_called_and_goes_with_its_socket() {
    let held = tempfile::tempdir().unwrap();
    let socket = held.path().join("d.sock");
    let (mut told, mut requests) = serve(&socket, "CSIPlugin");
    let registry = Arc::new(Registry::default());
    let (sender, sockets) = watch::channel(Sockets::new());
    let own = registry.clone();
    tokio::spawn(async move { own.run(sockets).await });
    let mut registered = registry.registered();

    let error = registry.abilities("d").await.unwrap_err();
    let expected = "driver name d not found in the list of registered CSI drivers";
    assert_eq!((error.message.as_str(), error.is_final()), (expected, false));

    sender.send_replace(Sockets::from([(socket.clone(), (1, 1))]));
    registered.wait_for(|all| all.len() == 1).await.unwrap();
    assert_eq!(registered.borrow()["d"].node_id, "me");
    assert_eq!(registered.borrow()["d"].max_volumes, 3);
    assert!(told.recv().await.unwrap().plugin_registered);

    registry.look_again("d").await.unwrap();
    assert_eq!(registered.borrow()["d"].max_volumes, 4);
    let error = registry.look_again("other").await.unwrap_err();
    assert!(error.message.contains("driver name other not found"));

    let abilities = registry.abilities("d").await.unwrap();
    assert!(abilities.stages && !abilities.takes_group);
    assert!(abilities.tells_volume_health && !abilities.tells_storage_health);
    let ask = CsiHealthAsk {
        volume: "v".to_owned(),
        path: "/p".to_owned(),
        staging_path: "/s".to_owned(),
    };
    let ailing = registry.volume_health("d", &ask).await.unwrap();
    assert_eq!((ailing[0].kind, ailing[0].message.as_str()), ("Degraded", "/p /s"));
    let refused = registry.storage_health("d").await.unwrap_err();
    assert!(refused.message.contains("code = Unimplemented"), "{refused}");
    let refused = registry.stage("d", &stage()).await.unwrap_err();
    assert_eq!(refused.message, "rpc error: code = Aborted desc = at it");
    assert!(!refused.is_final());
    let ask = CsiPublish { stage: stage(), staging_path: "/s".to_owned(), is_read_only: true };
    let refused = registry.publish("d", &ask).await.unwrap_err();
    assert!(refused.is_final());
    let seen = requests.recv().await.unwrap();
    assert_eq!((seen.target_path.as_str(), seen.staging_target_path.as_str()), ("/p", "/s"));
    let capability = seen.volume_capability.unwrap();
    // SINGLE_NODE_SINGLE_WRITER: the driver tells one writer from many.
    assert_eq!(capability.access_mode.unwrap().mode, 6);
    assert!(!format!("{ask:?}").contains("hush"));

    let counted = process().samples_of(metrics::CSI_OPERATIONS_SECONDS).into_iter();
    let counted: Vec<String> =
        counted.filter(|it| it.labels[0] == "d").map(|it| it.labels[1..].join(" ")).collect();
    for labels in [
        "OK /csi.v1.Node/NodeGetCapabilities false",
        "OK /csi.v1.Node/NodeGetInfo false",
        "Aborted /csi.v1.Node/NodeStageVolume false",
        "Internal /csi.v1.Node/NodePublishVolume false",
    ] {
        assert!(counted.iter().any(|it| it == labels), "{counted:?}");
    }
    let states = |registry: &Registry| -> Vec<String> {
        let samples = registry.samples().into_iter();
        samples.map(|it| it.labels[1].clone()).collect()
    };
    let both = ["actual_state_of_world", "desired_state_of_world"];
    assert_eq!(states(&registry), both);

    sender.send_replace(Sockets::new());
    registered.wait_for(BTreeMap::is_empty).await.unwrap();
    assert!(states(&registry).is_empty());
}

#[tokio::test]
async fn a_plugin_of_another_kind_is_told_that_nobody_is_there_for_it() {
    let held = tempfile::tempdir().unwrap();
    let socket = held.path().join("x.sock");
    let (mut told, _requests) = serve(&socket, "Toaster");
    let registry = Arc::new(Registry::default());
    let (sender, sockets) = watch::channel(Sockets::from([(socket, (1, 1))]));
    let own = registry.clone();
    tokio::spawn(async move { own.run(sockets).await });
    let status = told.recv().await.unwrap();
    assert!(!status.plugin_registered);
    assert!(status.error.contains("plugin type: Toaster"), "{}", status.error);
    drop(sender);
}
