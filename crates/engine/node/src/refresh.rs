//! What nobody announces, looked at now and then: images, addresses, and whether the runtime can be
//! listed.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ferrolet_node::{NodeImage, NodeSettings, looks_up_name};
use ferrolet_ports::{HealthCheck, ImageInfo, Images, NodeHost};
use tokio::time::{MissedTickBehavior, interval};

use crate::NodeHandle;

/// Images are listed this often, as upstream does.
const PERIOD: Duration = Duration::from_secs(30);

/// Who is asked.
pub struct RefreshDoors {
    /// Images.
    pub images: Arc<dyn Images>,
    /// The machine's addresses and the name service.
    pub host: Arc<dyn NodeHost>,
    /// Whether the runtime's containers are listed in time.
    pub listing: Arc<dyn HealthCheck>,
}

/// Looks for ever.
pub async fn refresh(node: NodeHandle, doors: RefreshDoors) {
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_late = false;
    loop {
        tick.tick().await;
        // The first listing may take a moment; only a runtime that stays unlisted is a fault.
        let fault = is_late.then(|| doors.listing.check().err()).flatten();
        let fault = fault.map(|why| format!("PLEG is not healthy: {why}"));
        node.update(|facts| facts.loop_faults = fault.into_iter().collect());
        is_late = true;
        if let Ok(list) = doors.images.list_images().await {
            let list = list.into_iter().map(listed).collect();
            node.update(|facts| facts.images = Some(list));
        }
        let settings = node.state().settings.clone();
        let by_name = look_up(&settings, doors.host.as_ref()).await;
        let found = doors.host.addresses();
        node.update(|facts| {
            let known = std::mem::replace(&mut facts.addresses, found);
            // A name service that fails is no reason to move the node.
            facts.addresses.by_name = by_name.unwrap_or(known.by_name);
        });
    }
}

/// The addresses that the name service has for the node's name; `None` when they do not matter, or
/// it does not say.
pub async fn look_up(settings: &NodeSettings, host: &dyn NodeHost) -> Option<Vec<IpAddr>> {
    match looks_up_name(settings) {
        true => host.look_up(&settings.name).await,
        false => None,
    }
}

fn listed(image: ImageInfo) -> NodeImage {
    let names = image.digests.into_iter().chain(image.tags);
    NodeImage { id: image.id, names: names.collect(), size: image.size }
}
