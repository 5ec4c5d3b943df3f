//! Everything that listens, looking at the agent from outside.

use std::sync::Arc;

use ferrolet_agent::Agent;
use ferrolet_config::{CommandLine, Loaded};
use ferrolet_linux::offload::PoolHealth;
use ferrolet_ports::{HealthCheck, Part};
use ferrolet_server::{Figures, Hidden, Limits, PageDoors, Requests, Views, page_router};
use tokio::{sync::watch, task::JoinSet};

use super::{Machine, listeners::Listeners, local, main_server, platform::Adapters, serving};
use crate::{logging::LogControl, say::LogMoves};

/// Puts the servers beside the agent's parts.
pub(super) fn add(
    agent: &mut Agent,
    mut listeners: Listeners,
    (loaded, command_line, log, configuration): (
        &Loaded,
        &CommandLine,
        LogControl,
        watch::Receiver<String>,
    ),
    machine: &Machine,
    adapters: &Adapters,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    let views = views(agent);
    let figures = figures(agent, loaded, machine, adapters);
    let shown = (agent.views.board.clone(), agent.views.given.clone());
    let served = (adapters.pod_news.clone(), adapters.devices.clone());
    local::start(loaded, shown, served, &mut tasks)?;
    if listeners.main.is_some() || listeners.page.is_some() {
        let inside = main_server::Inside {
            views: views.clone(),
            figures: figures.clone(),
            page: PageDoors::new(agent.views.node.clone(), adapters.recent_events.clone()),
            allocated: main_server::allocated(loaded, agent.views.grants.clone()),
            runtime: adapters.cri.clone(),
            clock: adapters.clock.clone(),
            started: adapters.started,
            configuration,
        };
        let doors = main_server::doors(loaded, command_line, log, inside, &mut tasks);
        if let Some(server) = listeners.page.take() {
            tracing::info!(address = %server.address(), "The node's page is served");
            let page = page_router(doors.clone());
            tasks.spawn(server.serve(page, Limits::LOCAL, std::future::pending()));
        }
        if let Some(server) = listeners.main.take() {
            let node = agent.views.node_state.clone();
            let signer = adapters.cluster.as_ref().map(|cluster| cluster.signer(node));
            let name = &machine.node_name;
            let certificate =
                serving::start(loaded, name, signer, adapters.clock.clone(), &mut tasks)?;
            let reviews = adapters.cluster.as_ref().map(|cluster| cluster.reviews());
            main_server::start(loaded, name, (server, certificate), reviews, doors, &mut tasks)?;
        }
    }
    listeners.serve_plain(&views, &figures, &mut tasks);
    agent.add(Part::new("servers").with_loop(async move {
        // Every server lives as long as the agent: one that ends is a fault, which the caller
        // tells.
        if let Some(Err(error)) = tasks.join_next().await {
            tracing::error!(%error, "A server failed");
        }
    }));
    Ok(())
}

fn views(agent: &Agent) -> Views {
    let log = Arc::new(LogMoves) as Arc<dyn HealthCheck>;
    let threads = Arc::new(PoolHealth) as Arc<dyn HealthCheck>;
    let checks: Vec<_> = [log, threads].into_iter().chain(agent.checks()).collect();
    Views { pods: agent.views.pods.clone(), checks: checks.into() }
}

fn figures(agent: &Agent, loaded: &Loaded, machine: &Machine, adapters: &Adapters) -> Figures {
    Figures {
        node_name: machine.node_name.clone(),
        began: adapters.clock.now(),
        usage: agent.views.usage.clone(),
        disk: adapters.cri.clone(),
        machine: Arc::new(main_server::about_machine(&machine.facts)),
        clock: adapters.clock.clone(),
        sources: main_server::metrics_sources(loaded, &machine.layout, agent.metrics()),
        requests: Requests::default(),
        hidden: match loaded.config.server.show_hidden_metrics_for {
            Some(_) => Hidden::Shown,
            None => Hidden::Away,
        },
    }
}
