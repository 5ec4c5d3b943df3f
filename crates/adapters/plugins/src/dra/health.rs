//! How devices feel, as one plugin says while it is connected.

use std::time::Duration;

use ferrolet_claims::{DeviceHealth as Felt, Feeling};
use ferrolet_ports::DriverNews;
use tokio::{sync::mpsc, time::sleep};
use tonic::{Code, Response, Status, Streaming, transport::Channel};

use super::registry::HealthService;
use crate::proto::{
    dra_health::{
        DeviceHealth, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
        dra_resource_health_client::DraResourceHealthClient as Client,
    },
    dra_health_alpha::dra_resource_health_client::DraResourceHealthClient as AlphaClient,
};

/// Upstream's time between two tries.
const AGAIN: Duration = Duration::from_secs(5);
/// A plugin that reports without end is heard this often.
const BETWEEN_REPORTS: Duration = Duration::from_millis(50);

/// Listens until nobody wants to hear it any more, or the plugin says that it will never tell.
pub(super) async fn watch_health(
    driver: &str,
    channel: Channel,
    service: HealthService,
    news: &mpsc::Sender<DriverNews>,
) {
    loop {
        let ended = listen(driver, channel.clone(), service, news).await;
        let silent = DriverNews::Silent { driver: driver.to_owned() };
        if news.send(silent).await.is_err() {
            return;
        }
        match ended {
            Err(status) if status.code() == Code::Unimplemented => return,
            Err(status) => {
                tracing::debug!(driver, %status, "DRA driver does not say how its devices feel");
            }
            Ok(()) => {}
        }
        sleep(AGAIN).await;
    }
}

async fn listen(
    driver: &str,
    channel: Channel,
    service: HealthService,
    news: &mpsc::Sender<DriverNews>,
) -> Result<(), Status> {
    let mut reports = open(channel, service).await?.into_inner();
    while let Some(report) = reports.message().await? {
        let devices = report.devices.into_iter().map(understood).collect();
        let driver = driver.to_owned();
        if news.send(DriverNews::Feels { driver, devices }).await.is_err() {
            return Ok(());
        }
        sleep(BETWEEN_REPORTS).await;
    }
    Ok(())
}

async fn open(
    channel: Channel,
    service: HealthService,
) -> Result<Response<Streaming<NodeWatchResourcesResponse>>, Status> {
    let request = NodeWatchResourcesRequest {};
    match service {
        HealthService::V1 => Client::new(channel).node_watch_resources(request).await,
        HealthService::V1Alpha1 => AlphaClient::new(channel).node_watch_resources(request).await,
    }
}

fn understood(told: DeviceHealth) -> Felt {
    let feeling = match told.health() {
        HealthStatus::Healthy => Feeling::Healthy,
        HealthStatus::Unhealthy => Feeling::Unhealthy,
        HealthStatus::Unknown => Feeling::Unknown,
    };
    let device = told.device.unwrap_or_default();
    let seconds = u64::try_from(told.health_check_timeout_seconds).unwrap_or(0);
    Felt {
        pool: device.pool_name,
        device: device.device_name,
        feeling,
        holds: Duration::from_secs(seconds),
        message: told.message,
    }
}
