//! The services for programs on this node, wired: which sockets there are, and what answers on
//! them.

use std::sync::Arc;

use anyhow::Context as _;
use ferrolet_config::Loaded;
use ferrolet_host::sockets;
use ferrolet_plugins::{DeviceRegistry, LocalSocket, PodNews, PodResources, PodsApi};
use ferrolet_pods::Board;
use ferrolet_ports::GivenView;
use tokio::task::JoinSet;

/// Where device plugins register and listen, below the root directory.
pub(super) const DEVICE_PLUGINS: &str = "device-plugins";

/// Listens where upstream does, below the root directory.
pub(super) fn start(
    loaded: &Loaded,
    (board, given): (Arc<Board>, Arc<dyn GivenView>),
    (news, devices): (Arc<PodNews>, Arc<DeviceRegistry>),
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let gates = &loaded.config.gates;
    let socket = |name: &str| {
        let path = loaded.flags.root_dir.join(name);
        let listener = sockets::listen(&path).and_then(LocalSocket::new);
        listener.with_context(|| format!("listen on {}", path.display()))
    };
    let mut resources = PodResources::new(board.clone(), given);
    if !gates.enabled("KubeletPodResourcesListUseActivePods") {
        resources = resources.with_ended_pods();
    }
    tasks.spawn(resources.serve(socket("pod-resources/kubelet.sock")?));
    let directory = loaded.flags.root_dir.join(DEVICE_PLUGINS);
    sockets::clear(&directory).with_context(|| format!("clear {}", directory.display()))?;
    tasks.spawn(devices.serve(socket(&format!("{DEVICE_PLUGINS}/kubelet.sock"))?));
    if gates.enabled("PodsAPI") {
        let is_ready = {
            let board = board.clone();
            Arc::new(move || board.is_complete())
        };
        let pods = PodsApi::new(board, news, is_ready);
        tasks.spawn(pods.serve(socket("pods-api/pods-api.sock")?));
    }
    Ok(())
}
