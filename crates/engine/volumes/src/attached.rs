//! Volumes that a controller of the cluster attaches: said to be in use, and heard to be attached, before they are used.

use ferrolet_ports::StorageObjects;
use k8s_openapi::api::core::v1::Node;

use crate::{
    csi::{self, check_node},
    fault::{Fault, Step},
};

/// Makes sure that the cluster knows a volume to be used and attached here; answers with its device, in the controller's words.
/// Waits for nothing, because whoever asks comes back.
pub(crate) async fn verify(
    storage: &dyn StorageObjects,
    in_use: &csi::Kept,
    unique: &str,
) -> Result<String, Fault> {
    // Said, and heard, before it is used: from then on nobody detaches it under the pod.
    in_use.note_use(unique);
    let node = storage.get_own_node().await.map_err(|error| {
        let why = &error.message;
        Fault::later(format!("failed fetching node from API server: {why}")).at(Step::Verify)
    })?;
    check_node(&node, unique).map_err(|why| Fault::later(why).at(Step::Verify))?;
    Ok(device_of(&node, unique))
}

fn device_of(node: &Node, unique: &str) -> String {
    let status = node.status.as_ref();
    let attached = status.and_then(|it| it.volumes_attached.as_deref());
    let mut attached = attached.unwrap_or_default().iter();
    let found = attached.find(|it| it.name == unique);
    found.map(|it| it.device_path.clone()).unwrap_or_default()
}
