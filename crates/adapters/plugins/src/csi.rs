//! The port `CsiDrivers`: encode, call with a deadline, count, tell final errors from others.

use std::{future::Future, path::PathBuf, time::Duration};

use ferrolet_ports::{
    CsiAbilities, CsiAilment, CsiCapability, CsiDrivers, CsiError, CsiExpand, CsiFate, CsiForm,
    CsiHealthAsk, CsiPublish, CsiStage, FileRoom, Fut,
    metrics::{self, process},
};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, transport::Channel};

use crate::{
    Registry,
    codes::go_name,
    endpoint::channel,
    health::{storage_ailments, volume_ailments},
    proto::csi::{
        CapacityRange, NodeExpandVolumeRequest, NodeGetCapabilitiesRequest,
        NodeGetStorageHealthRequest, NodeGetVolumeHealthRequest, NodeGetVolumeStatsRequest,
        NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
        NodeUnstageVolumeRequest, VolumeCapability, VolumeUsage,
        node_client::NodeClient,
        node_service_capability::{Type, rpc},
        volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
        volume_usage::Unit,
    },
};

/// Upstream's time for each call.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

impl Registry {
    fn client(&self, driver: &str) -> Result<NodeClient<Channel>, CsiError> {
        Ok(NodeClient::new(channel(&self.known_socket(driver)?)))
    }

    fn known_socket(&self, driver: &str) -> Result<PathBuf, CsiError> {
        self.socket_of(driver).ok_or_else(|| CsiError {
            message: format!(
                "driver name {driver} not found in the list of registered CSI drivers"
            ),
            fate: CsiFate::Open,
        })
    }

    async fn abilities_of(&self, driver: &str) -> Result<CsiAbilities, CsiError> {
        let mut client = self.client(driver)?;
        let call = timed(NodeGetCapabilitiesRequest {}, |it| client.node_get_capabilities(it));
        let asked = counted(driver, "NodeGetCapabilities", call);
        let mut abilities = CsiAbilities::default();
        for capability in asked.await?.capabilities {
            let Some(Type::Rpc(found)) = capability.r#type else {
                continue;
            };
            match found.r#type() {
                rpc::Type::StageUnstageVolume => abilities.stages = true,
                rpc::Type::ExpandVolume => abilities.expands = true,
                rpc::Type::VolumeMountGroup => abilities.takes_group = true,
                rpc::Type::SingleNodeMultiWriter => abilities.tells_writers = true,
                rpc::Type::GetVolumeStats => abilities.tells_usage = true,
                rpc::Type::GetVolumeHealth => abilities.tells_volume_health = true,
                rpc::Type::GetStorageHealth => abilities.tells_storage_health = true,
                rpc::Type::Unknown => {}
            }
        }
        Ok(abilities)
    }

    async fn capability(
        &self,
        driver: &str,
        wanted: &CsiCapability,
    ) -> Result<VolumeCapability, CsiError> {
        let tells_writers = self.abilities_of(driver).await?.tells_writers;
        Ok(encode(wanted, tells_writers))
    }
}

impl CsiDrivers for Registry {
    fn abilities<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<CsiAbilities, CsiError>> {
        Box::pin(self.abilities_of(driver))
    }

    fn stage<'a>(&'a self, driver: &'a str, ask: &'a CsiStage) -> Fut<'a, Result<(), CsiError>> {
        Box::pin(async move {
            let mut client = self.client(driver)?;
            let request = NodeStageVolumeRequest {
                volume_id: ask.volume.clone(),
                publish_context: ask.publish_context.clone(),
                staging_target_path: ask.path.clone(),
                volume_capability: Some(self.capability(driver, &ask.capability).await?),
                secrets: ask.secrets.clone(),
                volume_context: ask.attributes.clone(),
            };
            let call = timed(request, |it| client.node_stage_volume(it));
            counted(driver, "NodeStageVolume", call).await.map(drop)
        })
    }

    fn unstage<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
        path: &'a str,
    ) -> Fut<'a, Result<(), CsiError>> {
        Box::pin(async move {
            let mut client = self.client(driver)?;
            let request = NodeUnstageVolumeRequest {
                volume_id: volume.to_owned(),
                staging_target_path: path.to_owned(),
            };
            let call = timed(request, |it| client.node_unstage_volume(it));
            counted(driver, "NodeUnstageVolume", call).await.map(drop)
        })
    }

    fn publish<'a>(
        &'a self,
        driver: &'a str,
        ask: &'a CsiPublish,
    ) -> Fut<'a, Result<(), CsiError>> {
        Box::pin(async move {
            let mut client = self.client(driver)?;
            let stage = &ask.stage;
            let request = NodePublishVolumeRequest {
                volume_id: stage.volume.clone(),
                publish_context: stage.publish_context.clone(),
                staging_target_path: ask.staging_path.clone(),
                target_path: stage.path.clone(),
                volume_capability: Some(self.capability(driver, &stage.capability).await?),
                readonly: ask.is_read_only,
                secrets: stage.secrets.clone(),
                volume_context: stage.attributes.clone(),
            };
            let call = timed(request, |it| client.node_publish_volume(it));
            counted(driver, "NodePublishVolume", call).await.map(drop)
        })
    }

    fn unpublish<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
        path: &'a str,
    ) -> Fut<'a, Result<(), CsiError>> {
        Box::pin(async move {
            let mut client = self.client(driver)?;
            let request = NodeUnpublishVolumeRequest {
                volume_id: volume.to_owned(),
                target_path: path.to_owned(),
            };
            let call = timed(request, |it| client.node_unpublish_volume(it));
            counted(driver, "NodeUnpublishVolume", call).await.map(drop)
        })
    }

    fn expand<'a>(&'a self, driver: &'a str, ask: &'a CsiExpand) -> Fut<'a, Result<(), CsiError>> {
        Box::pin(async move {
            let mut client = self.client(driver)?;
            let request = NodeExpandVolumeRequest {
                volume_id: ask.volume.clone(),
                volume_path: ask.path.clone(),
                capacity_range: Some(CapacityRange { required_bytes: ask.bytes, limit_bytes: 0 }),
                staging_target_path: ask.staging_path.clone(),
                volume_capability: Some(self.capability(driver, &ask.capability).await?),
                secrets: ask.secrets.clone(),
            };
            let call = timed(request, |it| client.node_expand_volume(it));
            counted(driver, "NodeExpandVolume", call).await.map(drop)
        })
    }

    fn usage<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
        path: &'a str,
    ) -> Fut<'a, Result<FileRoom, CsiError>> {
        Box::pin(async move {
            let mut client = self.client(driver)?;
            let request = NodeGetVolumeStatsRequest {
                volume_id: volume.to_owned(),
                volume_path: path.to_owned(),
                staging_target_path: String::new(),
            };
            let call = timed(request, |it| client.node_get_volume_stats(it));
            let told = counted(driver, "NodeGetVolumeStats", call).await?;
            room_of(&told.usage).ok_or_else(|| CsiError {
                message: "failed to get usage from response. usage is nil".to_owned(),
                fate: CsiFate::Final,
            })
        })
    }

    fn volume_health<'a>(
        &'a self,
        driver: &'a str,
        ask: &'a CsiHealthAsk,
    ) -> Fut<'a, Result<Vec<CsiAilment>, CsiError>> {
        Box::pin(async move {
            let mut client = self.client(driver)?;
            let request = NodeGetVolumeHealthRequest {
                volume_id: ask.volume.clone(),
                volume_publish_path: ask.path.clone(),
                staging_target_path: ask.staging_path.clone(),
            };
            let call = timed(request, |it| client.node_get_volume_health(it));
            let told = counted(driver, "NodeGetVolumeHealth", call).await?;
            Ok(volume_ailments(told.volume_health.unwrap_or_default()))
        })
    }

    fn storage_health<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<Vec<CsiAilment>, CsiError>> {
        Box::pin(async move {
            let mut client = self.client(driver)?;
            let call =
                timed(NodeGetStorageHealthRequest {}, |it| client.node_get_storage_health(it));
            let told = counted(driver, "NodeGetStorageHealth", call).await?;
            storage_ailments(told.backend_health)
                .map_err(|message| CsiError { message, fate: CsiFate::Final })
        })
    }

    fn look_again<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<(), CsiError>> {
        Box::pin(async move {
            let socket = self.known_socket(driver)?;
            self.ask_again(driver, &socket).await
        })
    }
}

/// What a driver says of a volume; `None` when it says nothing. Nothing there is negative.
fn room_of(told: &[VolumeUsage]) -> Option<FileRoom> {
    if told.is_empty() {
        return None;
    }
    let number = |it: i64| u64::try_from(it).unwrap_or(0);
    let mut room = FileRoom::default();
    for usage in told {
        match usage.unit() {
            Unit::Bytes => {
                room.available = number(usage.available);
                room.capacity = number(usage.total);
                room.used = number(usage.used);
            }
            Unit::Inodes => {
                room.inodes_free = number(usage.available);
                room.inodes = number(usage.total);
                room.inodes_used = number(usage.used);
            }
            Unit::Unknown => {}
        }
    }
    Some(room)
}

fn encode(wanted: &CsiCapability, tells_writers: bool) -> VolumeCapability {
    let mode = match (wanted.access_mode.as_str(), tells_writers) {
        ("ReadWriteOnce", true) => Mode::SingleNodeMultiWriter,
        ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
        ("ReadWriteOnce" | "ReadWriteOncePod", false) => Mode::SingleNodeWriter,
        ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
        ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
        _ => Mode::Unknown,
    };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: i32::from(mode) }),
        access_type: Some(match &wanted.form {
            CsiForm::Device => AccessType::Block(BlockVolume {}),
            CsiForm::Files { file_system, options, group } => AccessType::Mount(MountVolume {
                fs_type: file_system.clone(),
                mount_flags: options.clone(),
                volume_mount_group: group.map(|it| it.to_string()).unwrap_or_default(),
            }),
        }),
    }
}

/// One call with its deadline, which the driver is told too.
pub(crate) async fn timed<Q, A, F>(
    message: Q,
    send: impl FnOnce(Request<Q>) -> F,
) -> Result<A, Status>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    match tokio::time::timeout(DEADLINE, send(request)).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_elapsed) => Err(Status::deadline_exceeded("context deadline exceeded")),
    }
}

/// One call of a driver's node service, counted under its name and how it ended.
pub(crate) async fn counted<A>(
    driver: &str,
    method: &str,
    call: impl Future<Output = Result<A, Status>>,
) -> Result<A, CsiError> {
    let began = Instant::now();
    let answer = call.await;
    let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
    let method = format!("/csi.v1.Node/{method}");
    // Nothing is migrated here: volumes of clouds are not served in-tree.
    let labels = [driver, go_name(code), &method, "false"];
    let took = began.elapsed().as_secs_f64();
    process().observe(metrics::CSI_OPERATIONS_SECONDS, labels, took);
    answer.map_err(|status| refused(&status))
}

pub(crate) fn refused(status: &Status) -> CsiError {
    // After these the driver may still be at it; after all others nothing will come of the call.
    let may_go_on = [
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::Unavailable,
        Code::ResourceExhausted,
        Code::Aborted,
    ];
    CsiError {
        message: format!(
            "rpc error: code = {} desc = {}",
            go_name(status.code()),
            status.message()
        ),
        fate: match status.code() {
            code if may_go_on.contains(&code) => CsiFate::Open,
            Code::InvalidArgument | Code::OutOfRange | Code::NotFound => CsiFate::Infeasible,
            Code::FailedPrecondition => CsiFate::Unfit,
            _ => CsiFate::Final,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_a_driver_says_of_bytes_and_inodes() {
        let told = |unit: Unit, available, total, used| VolumeUsage {
            available,
            total,
            used,
            unit: i32::from(unit),
        };
        assert_eq!(room_of(&[]), None);
        let all = [
            told(Unit::Bytes, 6, 10, 4),
            told(Unit::Inodes, -1, 100, 1),
            told(Unit::Unknown, 9, 9, 9),
        ];
        let expected = FileRoom {
            capacity: 10,
            available: 6,
            used: 4,
            inodes: 100,
            inodes_free: 0,
            inodes_used: 1,
        };
        assert_eq!(room_of(&all), Some(expected));
    }
}
