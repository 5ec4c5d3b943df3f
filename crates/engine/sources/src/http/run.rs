//! The loop of the HTTP source: ask, judge, send, every period.

use std::{sync::Arc, time::Duration};

use ferrolet_types::SourceUpdate;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{Fetch, UrlSet};
use crate::Notice;

/// Time one request gets, from the name's lookup to the body's end.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What the HTTP source needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSource {
    /// The URL, as configured; part of its pods' identity.
    pub url: String,
    /// The node's name.
    pub node: String,
    /// Time between requests.
    pub period: Duration,
}

/// Keeps sending the URL's pods until nobody listens any more.
pub async fn run(source: HttpSource, fetch: Arc<dyn Fetch>, updates: mpsc::Sender<SourceUpdate>) {
    let mut pods = UrlSet::new(&source.url, &source.node);
    loop {
        let answer = match timeout(REQUEST_TIMEOUT, fetch.get()).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())),
        };
        let answered = pods.answer(answer);
        answered.notices.iter().for_each(Notice::log);
        if let Some(update) = answered.update
            && updates.send(update).await.is_err()
        {
            return;
        }
        tokio::select! {
            // A timer loses nothing.
            () = sleep(source.period) => {}
            // A closed channel stays closed.
            () = updates.closed() => return,
        }
    }
}

#[cfg(test)]
mod tests;
