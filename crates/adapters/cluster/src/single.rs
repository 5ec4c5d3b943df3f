//! One object, followed: a watch on a single name whose latest state anybody may read.
//!
//! In: a client and a name. Out: [`Found`] in a `watch` channel. Ends when nobody looks any more,
//! or when the object can no longer change (an immutable secret), so that such objects cost no
//! stream.

use std::sync::Arc;

use ferrolet_ports::{ApiError, ApiErrorKind};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use tokio::sync::{mpsc, watch};

use crate::{
    client::{Client, Selector},
    watch::{self as watching, Scope, WatchEvent, Watched},
};

/// What is known about one object.
#[derive(Debug, Default, PartialEq)]
pub enum Found<K> {
    /// The server has not answered yet.
    #[default]
    Unknown,
    /// The server does not let us look at it, or not yet.
    Refused(ApiError),
    /// There is no such object.
    Missing,
    /// There it is.
    Here(Arc<K>),
}

impl<K> Clone for Found<K> {
    /// By hand, because the object itself is shared and need not be cloned.
    fn clone(&self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Refused(error) => Self::Refused(error.clone()),
            Self::Missing => Self::Missing,
            Self::Here(object) => Self::Here(Arc::clone(object)),
        }
    }
}

impl<K> Found<K> {
    /// The object, if it is there.
    pub fn here(&self) -> Option<&Arc<K>> {
        match self {
            Self::Here(object) => Some(object),
            Self::Unknown | Self::Refused(_) | Self::Missing => None,
        }
    }
}

/// An object that can be followed alone.
pub trait Followed: Watched + Sync {
    /// True when it will never change again.
    fn is_final(&self) -> bool {
        false
    }
}

impl Followed for Node {}
impl Followed for Secret {
    fn is_final(&self) -> bool {
        self.immutable == Some(true)
    }
}
impl Followed for ConfigMap {
    fn is_final(&self) -> bool {
        self.immutable == Some(true)
    }
}

/// Follows the object until nobody listens to `latest`. `changed` is called after each change.
pub async fn run<K: Followed>(
    client: Client,
    namespace: Option<String>,
    name: String,
    latest: watch::Sender<Found<K>>,
    changed: impl Fn() + Send,
) {
    let scope = Scope { namespace, selector: Selector::named(&name) };
    let (sink, mut events) = mpsc::channel(1);
    // What was seen once is not forgotten because of trouble later.
    let tell = |error: &ApiError| {
        latest.send_if_modified(|current| match current {
            Found::Unknown | Found::Refused(_) => {
                *current = match error.kind {
                    ApiErrorKind::Forbidden => Found::Refused(error.clone()),
                    _ => Found::Unknown,
                };
                true
            }
            Found::Missing | Found::Here(_) => false,
        });
    };
    let mut watch = std::pin::pin!(watching::run_telling::<K>(client, scope, sink, tell));
    loop {
        let event = tokio::select! {
            // Both futures stay where they are between rounds, so nothing is lost.
            () = latest.closed() => return,
            () = &mut watch => return,
            event = events.recv() => event,
        };
        let found = match event {
            None => return,
            Some(WatchEvent::Restarted { objects, unreadable }) => match objects.into_iter().next()
            {
                Some(object) => Found::Here(Arc::new(object)),
                // It is there; what was known of it, be it nothing, stays known.
                None if !unreadable.is_empty() => continue,
                None => Found::Missing,
            },
            Some(WatchEvent::Applied(object)) => Found::Here(Arc::new(object)),
            Some(WatchEvent::Deleted(_)) => Found::Missing,
        };
        let is_final = found.here().is_some_and(|object| object.is_final());
        let is_news = latest.send_if_modified(|current| {
            let is_news = version(current) != version(&found);
            *current = found;
            is_news
        });
        if is_news {
            changed();
        }
        if is_final {
            return;
        }
    }
}

/// What tells two states apart.
fn version<K: Watched>(found: &Found<K>) -> Option<(Option<&str>, Option<&str>)> {
    match found {
        Found::Unknown | Found::Refused(_) => None,
        Found::Missing => Some((None, None)),
        Found::Here(object) => {
            let meta = object.metadata();
            Some((meta.uid.as_deref(), meta.resource_version.as_deref()))
        }
    }
}
