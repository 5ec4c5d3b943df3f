//! Work that outlives its request: the two ends of a stream after a connection was upgraded.
//!
//! A handler hands such work over here; the listener's loop runs it, counts it as the connection it
//! came from, and ends it at shutdown. So nothing in this crate runs that nobody waits for.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;

/// Work to be run by the listener.
pub(crate) type Session = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a connection's handlers hand over their work.
#[derive(Clone)]
pub(crate) struct Sessions {
    to_listener: mpsc::UnboundedSender<Session>,
    /// The connection's slot or seat: taken until the connection and all that came of it are gone.
    slot: Option<Arc<dyn Any + Send + Sync>>,
}

impl Sessions {
    pub(crate) fn new(to_listener: mpsc::UnboundedSender<Session>) -> Self {
        Self { to_listener, slot: None }
    }

    pub(crate) fn holding(self, slot: Arc<dyn Any + Send + Sync>) -> Self {
        Self { slot: Some(slot), ..self }
    }

    /// Has the work run. A listener that is gone drops it.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let slot = self.slot.clone();
        let session = async move {
            let _slot = slot;
            work.await;
        };
        let _ = self.to_listener.send(Box::pin(session));
    }
}
