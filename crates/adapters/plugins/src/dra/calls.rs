//! The port `ClaimDrivers`: encode, call with a deadline, count, decode.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_claims::{Answer, ClaimRef, PreparedDevice};
use ferrolet_ports::{
    ClaimDrivers, DriverCallError, Fut,
    metrics::{self, process},
};
use tokio::time::{Instant, timeout};
use tonic::{Code, Request, Response, Status, transport::Channel};

use super::{DriverRegistry, registry::Service};
use crate::{
    codes::{go_name, words},
    proto::{
        dra::{
            Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
            dra_plugin_client::DraPluginClient as Client,
        },
        dra_beta::dra_plugin_client::DraPluginClient as BetaClient,
    },
};

/// Upstream's time for each call.
const DEADLINE: Duration = Duration::from_secs(45);

impl DriverRegistry {
    fn asked(&self, driver: &str) -> Result<(Channel, Service), DriverCallError> {
        let way = self.way_to(driver);
        way.ok_or_else(|| DriverCallError(format!("DRA driver {driver} is not registered")))
    }
}

impl ClaimDrivers for DriverRegistry {
    fn is_registered(&self, driver: &str) -> bool {
        self.is_known(driver)
    }

    fn prepare<'a>(
        &'a self,
        driver: &'a str,
        claims: &'a [ClaimRef],
    ) -> Fut<'a, Result<Answer<Vec<PreparedDevice>>, DriverCallError>> {
        Box::pin(async move {
            let (channel, service) = self.asked(driver)?;
            let request = timed(NodePrepareResourcesRequest { claims: encoded(claims) });
            let calling = async {
                match service {
                    Service::V1 => Client::new(channel).node_prepare_resources(request).await,
                    Service::V1Beta1 => {
                        BetaClient::new(channel).node_prepare_resources(request).await
                    }
                }
            };
            let answer = counted((driver, service, "NodePrepareResources"), calling).await?;
            let claims = answer.claims.into_iter().map(|(uid, it)| {
                let devices = it.devices.into_iter().map(understood).collect();
                (uid, told(it.error, devices))
            });
            Ok(claims.collect())
        })
    }

    fn unprepare<'a>(
        &'a self,
        driver: &'a str,
        claims: &'a [ClaimRef],
    ) -> Fut<'a, Result<Answer<()>, DriverCallError>> {
        Box::pin(async move {
            let (channel, service) = self.asked(driver)?;
            let request = timed(NodeUnprepareResourcesRequest { claims: encoded(claims) });
            let calling = async {
                match service {
                    Service::V1 => Client::new(channel).node_unprepare_resources(request).await,
                    Service::V1Beta1 => {
                        BetaClient::new(channel).node_unprepare_resources(request).await
                    }
                }
            };
            let answer = counted((driver, service, "NodeUnprepareResources"), calling).await?;
            let claims = answer.claims.into_iter().map(|(uid, it)| (uid, told(it.error, ())));
            Ok(claims.collect::<BTreeMap<_, _>>())
        })
    }
}

fn encoded(claims: &[ClaimRef]) -> Vec<Claim> {
    let encode = |it: &ClaimRef| Claim {
        namespace: it.namespace.clone(),
        uid: it.uid.clone(),
        name: it.name.clone(),
    };
    claims.iter().map(encode).collect()
}

fn understood(device: Device) -> PreparedDevice {
    PreparedDevice {
        pool: device.pool_name,
        device: device.device_name,
        share_id: device.share_id,
        requests: device.request_names,
        cdi_ids: device.cdi_device_ids,
    }
}

/// What was said of one claim, unless an error was.
fn told<T>(error: String, found: T) -> Result<T, String> {
    match error.as_str() {
        "" => Ok(found),
        _ => Err(error),
    }
}

/// A request that tells the driver of its deadline.
fn timed<Q>(message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// One call with its deadline, counted under its name and how it ended.
async fn counted<A>(
    (driver, service, method): (&str, Service, &str),
    call: impl Future<Output = Result<Response<A>, Status>>,
) -> Result<A, DriverCallError> {
    let began = Instant::now();
    let late = |_| Err(Status::deadline_exceeded("context deadline exceeded"));
    let answer = timeout(DEADLINE, call).await.unwrap_or_else(late);
    let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
    let version = match service {
        Service::V1 => "v1",
        Service::V1Beta1 => "v1beta1",
    };
    let method = format!("/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/{method}");
    let labels = [driver, go_name(code), &method];
    let took = began.elapsed().as_secs_f64();
    process().observe(metrics::DRA_GRPC_OPERATIONS_DURATION_SECONDS, labels, took);
    answer.map(Response::into_inner).map_err(|status| DriverCallError(words(&status)))
}
