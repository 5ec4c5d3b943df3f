//! The ports of the agent: taken first, before anything is touched, so that a second agent on one
//! machine fails at once.

use std::net::SocketAddr;

use ferrolet_config::Loaded;
use ferrolet_server::{Figures, Limits, Listener, Server, Views, read_only_router, router};
use tokio::task::JoinSet;

use super::main_server;

/// The ports that are configured.
pub(super) struct Listeners {
    health: Option<Server>,
    read_only: Option<Server>,
    /// The one with TLS.
    pub(super) main: Option<Server>,
    /// The node's page on an address of its own.
    pub(super) page: Option<Server>,
}

impl Listeners {
    pub(super) async fn bind(loaded: &Loaded) -> anyhow::Result<Self> {
        let (server, flags) = (&loaded.config.server, &loaded.flags);
        let at = |port: Option<u16>, address| port.map(|port| SocketAddr::new(address, port));
        let health = listen(at(server.healthz_port, server.healthz_bind_address)).await?;
        // enableServer is about the main server alone.
        let read_only = listen(at(server.read_only_port, server.address)).await?;
        let is_open = main_server::can_open(loaded, flags.kubeconfig.is_some());
        if server.enabled && !is_open {
            tracing::info!(
                "The main server stays closed: without a cluster nobody can be asked who may call it"
            );
        }
        let main = Some(server.port).filter(|_| server.enabled && is_open);
        Ok(Self {
            health,
            read_only,
            main: listen(at(main, server.address)).await?,
            page: listen(flags.page_address).await?,
        })
    }

    /// Starts answering where nobody is asked who he is.
    pub(super) fn serve_plain(self, views: &Views, figures: &Figures, tasks: &mut JoinSet<()>) {
        for (server, listener) in
            [(self.health, Listener::Health), (self.read_only, Listener::ReadOnly)]
        {
            let Some(server) = server else { continue };
            tracing::info!(address = %server.address(), ?listener, "Listening");
            let rows = match listener {
                Listener::ReadOnly => read_only_router(views.clone(), figures.clone()),
                Listener::Health | Listener::Main => router(listener, views.clone()),
            };
            tasks.spawn(server.serve(rows, Limits::LOCAL, std::future::pending()));
        }
    }
}

async fn listen(address: Option<SocketAddr>) -> anyhow::Result<Option<Server>> {
    match address {
        Some(address) => Ok(Some(Server::bind(address).await?)),
        None => Ok(None),
    }
}
