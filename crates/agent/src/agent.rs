//! An agent that is put together: looked at, then run.

use std::{collections::HashMap, sync::Arc};

use ferrolet_node::NodeState;
use ferrolet_node_engine::NodeHandle;
use ferrolet_pods::{Board, LoopHealth, once::OnceError};
use ferrolet_ports::{
    Fut, GivenView, GrantsView, HealthCheck, Measured, NodeView, Part, PodsView, Usage,
};
use ferrolet_types::Eviction;
use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinSet},
};

/// An agent. Nothing happens before it runs, and dropping it leaves its pods running.
pub struct Agent {
    pub(crate) parts: Vec<Part>,
    pub(crate) finished: Option<Fut<'static, Result<(), OnceError>>>,
    /// What others may see of it.
    pub views: Views,
}

/// An agent from outside, for servers and tests.
#[derive(Clone)]
pub struct Views {
    /// The pods, by our identities and by those of their mirrors.
    pub pods: Arc<dyn PodsView>,
    /// The pods, and whether they are all.
    pub board: Arc<Board>,
    /// What pods were granted.
    pub grants: Arc<dyn GrantsView>,
    /// What pods were given for themselves.
    pub given: Arc<dyn GivenView>,
    /// What pods use, with the names of volumes.
    pub usage: Arc<dyn Usage>,
    /// The node as it describes itself.
    pub node: Arc<dyn NodeView>,
    /// Where the node is told to present itself otherwise.
    pub presented: NodeHandle,
    /// The node as it is.
    pub node_state: watch::Receiver<Arc<NodeState>>,
    /// The sync loop turns.
    pub pulse: Arc<LoopHealth>,
    /// Names pods that the node cannot afford any longer.
    pub evictions: mpsc::Sender<Eviction>,
}

/// Why an agent ended that should not have.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A loop ended.
    #[error("a part of the agent ended: {0}")]
    Ended(&'static str),
    /// A loop failed.
    #[error("a part of the agent failed: {0}")]
    Failed(&'static str, #[source] tokio::task::JoinError),
    /// It should have started its pods once, and has not.
    #[error(transparent)]
    Once(#[from] OnceError),
}

impl Agent {
    /// How its parts feel.
    pub fn checks(&self) -> Vec<Arc<dyn HealthCheck>> {
        self.parts.iter().flat_map(|part| part.checks.clone()).collect()
    }

    /// What its parts count.
    pub fn metrics(&self) -> Vec<Arc<dyn Measured>> {
        self.parts.iter().flat_map(|part| part.metrics.clone()).collect()
    }

    /// Adds what runs beside the parts: servers, and what serves the process itself.
    pub fn add(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Runs every loop until one ends, which none should, or until an agent that starts pods once
    /// has done so.
    pub async fn run(self) -> Result<(), AgentError> {
        let mut tasks = JoinSet::new();
        let mut names: HashMap<Id, &'static str> = HashMap::new();
        for part in self.parts {
            for run in part.loops {
                names.insert(tasks.spawn(run).id(), part.name);
            }
        }
        // Only an agent that starts pods once has anything to wait for besides its end.
        let finished = async {
            match self.finished {
                Some(finished) => finished.await,
                None => std::future::pending().await,
            }
        };
        let named = |id: &Id| names.get(id).copied().unwrap_or("unknown");
        tokio::select! {
            ended = finished => Ok(ended?),
            Some(ended) = tasks.join_next_with_id() => Err(match ended {
                Ok((id, ())) => AgentError::Ended(named(&id)),
                Err(error) => AgentError::Failed(named(&error.id()), error),
            }),
            else => Err(AgentError::Ended("all")),
        }
    }
}
