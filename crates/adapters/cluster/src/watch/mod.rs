//! A collection as a channel of changes: list it, follow it, and start over when the server has
//! forgotten.
//!
//! In: a [`Client`], a [`Scope`]. Out: [`WatchEvent`]s over a bounded channel. The loop keeps no
//! copy of what it sends: who consumes keeps the state. It ends when the receiver is gone. What to
//! do next is decided in [`cursor`]; this only does it.

mod cursor;
mod frame;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ferrolet_ports::ApiError;
use k8s_openapi::{ListableResource, Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::de::DeserializeOwned;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout_at},
};

pub use crate::client::Unreadable;
use crate::client::{Client, Place, Selector};
use cursor::{Cursor, Step};
use frame::Frame;

/// The server ends a watch after this long, times a random factor between one and two, so that
/// watches do not end together.
const WATCH_AT_LEAST: Duration = Duration::from_secs(300);
/// How much longer than asked a watch may last before it is ended from this side.
const OVERTIME: Duration = Duration::from_secs(30);

/// What can be watched.
pub trait Watched:
    ListableResource + Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + 'static
{
}
impl<K> Watched for K where
    K: ListableResource + Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + 'static
{
}

/// Which objects to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// In one namespace, or everywhere.
    pub namespace: Option<String>,
    /// Which of those.
    pub selector: Selector,
}

/// What happened to the collection.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<K> {
    /// This is the whole collection now; what is not in it is gone.
    Restarted {
        /// What could be read.
        objects: Vec<K>,
        /// What is there and makes no sense to us. It is not gone.
        unreadable: Vec<Unreadable>,
    },
    /// The object is there, like this.
    Applied(K),
    /// The object is gone; this is how it was last.
    Deleted(K),
}

/// Runs until the receiver is gone.
pub async fn run<K: Watched>(client: Client, scope: Scope, sink: mpsc::Sender<WatchEvent<K>>) {
    run_telling(client, scope, sink, |_error| {}).await;
}

/// Runs until the receiver is gone, and tells of each failure on the way.
pub(crate) async fn run_telling<K: Watched>(
    client: Client,
    scope: Scope,
    sink: mpsc::Sender<WatchEvent<K>>,
    tell: impl Fn(&ApiError) + Send,
) {
    let place = Place::all::<K>(scope.namespace.as_deref());
    let mut cursor = Cursor::new();
    let mut returns = client.returns();
    loop {
        let round = async {
            match cursor.step().clone() {
                Step::List { version } => {
                    list(&client, &place, &scope.selector, &version, &sink, &mut cursor).await
                }
                Step::Watch { version } => {
                    follow(&client, &place, &scope.selector, &version, &sink, &mut cursor).await
                }
            }
        };
        let outcome = tokio::select! {
            // Whatever is under way is only a read.
            () = sink.closed() => return,
            outcome = round => outcome,
        };
        match outcome {
            Ok(Flow::Continue) => {}
            Ok(Flow::Stop) => return,
            Err(error) => {
                cursor.failed(&error);
                tell(&error);
                // Told loudly once it is no longer a passing matter, and then now and then.
                if cursor.n_failures() % 10 == 4 {
                    tracing::warn!(kind = K::KIND, %error, "still not watching");
                } else {
                    tracing::debug!(kind = K::KIND, %error, "watch interrupted");
                }
            }
        }
        let delay = cursor.delay(fastrand::f64());
        if !delay.is_zero() {
            // What came back before this round failed is no news.
            returns.mark_unchanged();
            tokio::select! {
                // Nothing is under way.
                () = sink.closed() => return,
                () = sleep(delay) => {}
                // Somebody else got an answer; the client, which we hold, keeps the sender.
                Ok(()) = returns.changed(), if cursor.waits_for_server() => {}
            }
        }
    }
}

/// Whether anybody still listens.
enum Flow {
    Continue,
    Stop,
}

async fn list<K: Watched>(
    client: &Client,
    place: &Place,
    selector: &Selector,
    version: &str,
    sink: &mpsc::Sender<WatchEvent<K>>,
    cursor: &mut Cursor,
) -> Result<Flow, ApiError> {
    let list = client.list::<K>(place, selector, version).await?;
    for bad in &list.unreadable {
        let Unreadable { namespace, name, reason, .. } = bad;
        tracing::error!(kind = K::KIND, namespace, name, reason, "An object cannot be read");
    }
    cursor.listed(list.version);
    let event = WatchEvent::Restarted { objects: list.objects, unreadable: list.unreadable };
    Ok(pass(sink, event).await)
}

async fn follow<K: Watched>(
    client: &Client,
    place: &Place,
    selector: &Selector,
    version: &str,
    sink: &mpsc::Sender<WatchEvent<K>>,
    cursor: &mut Cursor,
) -> Result<Flow, ApiError> {
    let began = Instant::now();
    let limit = WATCH_AT_LEAST.mul_f64(1.0 + fastrand::f64());
    let mut frames = client.watch(place, selector, version, limit).await?;
    let mut saw_events = false;
    // A server, or something between it and us, that keeps a watch open and says nothing more would
    // keep this node from ever hearing of a change.
    let end = began + limit + OVERTIME;
    while let Ok(Some(line)) = timeout_at(end, frames.next()).await {
        let frame = frame::read::<K>(frames.attempt(), &line?)?;
        saw_events = true;
        let event = match frame {
            Frame::Bookmark(version) => {
                cursor.advanced(version);
                continue;
            }
            Frame::Applied(object) => WatchEvent::Applied(object),
            Frame::Deleted(object) => WatchEvent::Deleted(object),
        };
        let (WatchEvent::Applied(object) | WatchEvent::Deleted(object)) = &event else {
            continue;
        };
        let version = object.metadata().resource_version.clone();
        // Passed on first: a version is only taken for seen once the consumer has what it brought.
        if let Flow::Stop = pass(sink, event).await {
            return Ok(Flow::Stop);
        }
        if let Some(version) = version {
            cursor.advanced(version);
        }
    }
    cursor.ended(began.elapsed(), saw_events);
    Ok(Flow::Continue)
}

async fn pass<K>(sink: &mpsc::Sender<WatchEvent<K>>, event: WatchEvent<K>) -> Flow {
    match sink.send(event).await {
        Ok(()) => Flow::Continue,
        Err(_) => Flow::Stop,
    }
}

/// What tests outside need of the parts.
#[cfg(test)]
pub(crate) mod testing {
    use serde::de::DeserializeOwned;

    /// Decodes a line; only whether it can be.
    pub(crate) fn read_frame<K: DeserializeOwned>(line: &[u8]) -> bool {
        super::frame::read::<K>("GET /x", line).is_ok()
    }
}
