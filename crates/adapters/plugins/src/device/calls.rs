//! The port `DevicePlugins`: encode, call with a deadline, decode.

use std::{collections::BTreeSet, future::Future, time::Duration};

use ferrolet_devices::{PluginId, PreferredAsk};
use ferrolet_ports::{DeviceAnswer, DevicePlugins, Fut, PluginCallError};
use ferrolet_spec::{Device as DeviceNode, Mount, PluginResources};
use prost::Message as _;
use tokio::time::timeout;
use tonic::{Response, Status};

use super::DeviceRegistry;
use crate::codes::words;
use crate::proto::device::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, PreStartContainerRequest, PreferredAllocationRequest,
};

/// Upstream waits for ever; a plugin that programs its device while it allocates it takes a while.
const ALLOCATE: Duration = Duration::from_secs(120);
const PREFERRED: Duration = Duration::from_secs(30);
/// Upstream's time.
const PRE_START: Duration = Duration::from_secs(30);

impl DevicePlugins for DeviceRegistry {
    fn preferred<'a>(
        &'a self,
        plugin: PluginId,
        ask: &'a PreferredAsk,
    ) -> Fut<'a, Result<BTreeSet<String>, PluginCallError>> {
        Box::pin(async move {
            let mut client = self.client(plugin).map_err(PluginCallError)?;
            let request = ContainerPreferredAllocationRequest {
                available_device_i_ds: ask.available.iter().cloned().collect(),
                must_include_device_i_ds: ask.must_include.iter().cloned().collect(),
                allocation_size: i32::try_from(ask.size).unwrap_or(i32::MAX),
            };
            let request = PreferredAllocationRequest { container_requests: vec![request] };
            let answer = within(PREFERRED, client.get_preferred_allocation(request)).await?;
            let first = answer.container_responses.into_iter().next();
            Ok(first.map(|it| it.device_i_ds).unwrap_or_default().into_iter().collect())
        })
    }

    fn allocate<'a>(
        &'a self,
        plugin: PluginId,
        ids: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<DeviceAnswer, PluginCallError>> {
        Box::pin(async move {
            let mut client = self.client(plugin).map_err(PluginCallError)?;
            let request = ContainerAllocateRequest { devices_ids: ids.iter().cloned().collect() };
            let request = AllocateRequest { container_requests: vec![request] };
            let answer = within(ALLOCATE, client.allocate(request)).await?;
            let first = answer.container_responses.into_iter().next();
            let first = first.ok_or_else(|| {
                PluginCallError("no containers return in allocation response".to_owned())
            })?;
            let bytes = first.encode_to_vec();
            Ok(DeviceAnswer { resources: understood(first), bytes })
        })
    }

    fn pre_start<'a>(
        &'a self,
        plugin: PluginId,
        ids: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<(), PluginCallError>> {
        Box::pin(async move {
            let mut client = self.client(plugin).map_err(PluginCallError)?;
            let request = PreStartContainerRequest { devices_ids: ids.iter().cloned().collect() };
            within(PRE_START, client.pre_start_container(request)).await.map(drop)
        })
    }

    fn read_answer(&self, bytes: &[u8]) -> Result<PluginResources, PluginCallError> {
        let answer = ContainerAllocateResponse::decode(bytes);
        answer.map(understood).map_err(|error| PluginCallError(error.to_string()))
    }
}

async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, PluginCallError> {
    match timeout(deadline, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(PluginCallError(words(&status))),
        Err(_elapsed) => {
            let late = Status::deadline_exceeded("context deadline exceeded");
            Err(PluginCallError(words(&late)))
        }
    }
}

fn understood(answer: ContainerAllocateResponse) -> PluginResources {
    let mounts = answer.mounts.into_iter().map(|mount| Mount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        read_only: mount.read_only,
        ..Mount::default()
    });
    let devices = answer.devices.into_iter().map(|device| DeviceNode {
        container_path: device.container_path,
        host_path: device.host_path,
        permissions: device.permissions,
    });
    PluginResources {
        env: answer.envs.into_iter().collect(),
        mounts: mounts.collect(),
        devices: devices.collect(),
        cdi_devices: answer.cdi_devices.into_iter().map(|it| it.name).collect(),
        annotations: answer.annotations,
    }
}
