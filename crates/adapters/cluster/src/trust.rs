//! Trust bundles, followed: one watch on all of them that says when something changed.
//!
//! Begins with the first question about a bundle, because most nodes never have one, and then lasts
//! as long as the agent, as upstream's does. Keeps no copy: who hears the news reads again. In: a
//! client. Out: [`ObjectChange`]s of kind `TrustBundle`.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrolet_ports::{ObjectChange, ObjectKind};
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use tokio::sync::{broadcast, mpsc};

use crate::{
    client::Client,
    watch::{self as watching, Scope},
};

/// Who hears of changes, and whether they are looked for yet.
pub(crate) struct TrustNews {
    changes: broadcast::Sender<ObjectChange>,
    is_begun: AtomicBool,
}

impl TrustNews {
    pub(crate) fn new(changes: broadcast::Sender<ObjectChange>) -> Self {
        Self { changes, is_begun: AtomicBool::new(false) }
    }

    /// Begins to follow; once is enough.
    pub(crate) fn begin(&self, client: &Client) {
        if !self.is_begun.swap(true, Ordering::Relaxed) {
            // Ends with the runtime: it holds nothing that others wait for.
            tokio::spawn(run(client.clone(), self.changes.clone()));
        }
    }
}

async fn run(client: Client, changes: broadcast::Sender<ObjectChange>) {
    let (sink, mut events) = mpsc::channel(1);
    let watch = watching::run::<ClusterTrustBundle>(client, Scope::default(), sink);
    let tell = async {
        // The first list too: something may have changed since whoever asked first was answered.
        while events.recv().await.is_some() {
            let change = ObjectChange {
                kind: ObjectKind::TrustBundle,
                namespace: String::new(),
                name: String::new(),
            };
            // Nobody listening is fine.
            let _ = changes.send(change);
        }
    };
    tokio::join!(watch, tell);
}
