//! The spawner, and another one when it has ended.

use ferrolet_runtime_client::{CallError, Program, Spawned, Spawner, StartError};
use ferrolet_runtime_protocol::sandbox::SandboxSpec;
use tokio::sync::Mutex;

use super::error::RuntimeError;

/// The process that monitors are forked from.
#[derive(Debug)]
pub(crate) struct Spawners {
    program: Program,
    current: Mutex<Spawner>,
}

impl Spawners {
    pub(crate) fn start(program: Program) -> Result<Self, StartError> {
        Ok(Self { current: Mutex::new(Spawner::start(&program)?), program })
    }

    /// Has a monitor forked, one at a time: the spawner has one thread.
    pub(crate) async fn spawn(&self, spec: SandboxSpec) -> Result<Spawned, RuntimeError> {
        let mut current = self.current.lock().await;
        let spawned = match current.spawn(spec.clone()).await {
            Err(CallError::Gone) => {
                tracing::warn!("the spawner has ended; another is started");
                *current = Spawner::start(&self.program)?;
                current.spawn(spec).await
            }
            spawned => spawned,
        };
        spawned.map_err(|error| RuntimeError::Monitor("start monitor", error))
    }
}
