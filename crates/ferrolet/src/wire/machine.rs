//! The machine as it is now, in the words of the node: the port [`MachineHost`].

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use ferrolet_config::Loaded;
use ferrolet_host::machine::read_machine;
use ferrolet_linux::offload::{Job, Pool, refused};
use ferrolet_node::Machine;
use ferrolet_ports::{Fut, HostError, MachineHost};

use super::node_facts;

const READ: &str = "read the size of the machine";

/// What of the configuration its description depends on.
#[derive(Clone, Debug)]
pub(super) struct Description {
    /// The directory of the file system that pods write to.
    pub(super) root_dir: PathBuf,
    /// Whether it is told that we are root only in a user namespace.
    pub(super) tells_user_namespace: bool,
}

impl Description {
    pub(super) fn of(loaded: &Loaded) -> Self {
        Self {
            root_dir: loaded.flags.root_dir.clone(),
            tells_user_namespace: loaded.config.gates.enabled("KubeletInUserNamespace"),
        }
    }
}

/// Looks at the machine when it is asked.
pub(super) struct LiveMachine {
    description: Description,
    /// The last look: how processors and memory hang together is many small files, and changes with
    /// their number.
    last: Arc<Mutex<Option<Machine>>>,
}

impl LiveMachine {
    pub(super) fn new(description: Description) -> Self {
        Self { description, last: Arc::default() }
    }
}

impl MachineHost for LiveMachine {
    fn machine(&self) -> Fut<'_, Result<Machine, HostError>> {
        let (description, last) = (self.description.clone(), Arc::clone(&self.last));
        Box::pin(async move {
            // The file system may be on a disk that does not answer.
            let job = Job::on(Pool::Mounts, READ).alone(READ);
            job.run(move || {
                let facts = read_machine().map_err(|error| {
                    refused(READ.to_owned(), &std::io::Error::other(error.to_string()))
                })?;
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                let machine = node_facts::describe(&description, &facts, last.take());
                *last = Some(machine.clone());
                Ok(machine)
            })
            .await
        })
    }
}
