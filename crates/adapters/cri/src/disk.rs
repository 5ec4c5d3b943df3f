//! The `RuntimeDisk` port.

use ferrolet_ports::{
    Fut, InUse, LayerUsage, RuntimeDisk, RuntimeError, RuntimeStores, StoreUsage,
};
use ferrolet_types::{ContainerId, Timestamp};

use crate::client::CriClient;
use crate::proto;

impl RuntimeDisk for CriClient {
    fn written_layers(&self) -> Fut<'_, Result<Vec<LayerUsage>, RuntimeError>> {
        Box::pin(async move {
            let mut client = self.runtime();
            let answer = self
                .call("ListContainerStats")
                .run(proto::ListContainerStatsRequest { filter: None }, |request| async move {
                    client.list_container_stats(request).await
                })
                .await?;
            let layers = answer.stats.into_iter().filter_map(|stats| {
                let id = stats.attributes?.id;
                let layer = stats.writable_layer?;
                Some(LayerUsage {
                    id: ContainerId::from(id),
                    at: Timestamp::from_nanos(layer.timestamp),
                    used: in_use(&layer),
                })
            });
            Ok(layers.collect())
        })
    }

    fn stores(&self) -> Fut<'_, Result<RuntimeStores, RuntimeError>> {
        Box::pin(async move {
            let mut client = self.images();
            let answer = self
                .call("ImageFsInfo")
                .run(proto::ImageFsInfoRequest {}, |request| async move {
                    client.image_fs_info(request).await
                })
                .await?;
            Ok(RuntimeStores {
                images: answer.image_filesystems.first().map(store),
                containers: answer.container_filesystems.first().map(store),
            })
        })
    }
}

fn store(usage: &proto::FilesystemUsage) -> StoreUsage {
    let place = usage.fs_id.as_ref().map(|id| id.mountpoint.clone());
    StoreUsage {
        place: place.unwrap_or_default(),
        at: Timestamp::from_nanos(usage.timestamp),
        used: in_use(usage),
    }
}

fn in_use(usage: &proto::FilesystemUsage) -> InUse {
    let value = |value: &Option<proto::UInt64Value>| value.as_ref().map_or(0, |it| it.value);
    InUse { bytes: value(&usage.used_bytes), inodes: value(&usage.inodes_used) }
}
