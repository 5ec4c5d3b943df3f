//! `/pods`: the node's pods as a v1 PodList.
//!
//! The list is a snapshot of shared pods; each is written out only when the client has taken the
//! one before, so a thousand pods cost one pod's text at a time, and a client that goes away costs
//! nothing more. Whoever asks many times a second gets the same text until a pod changes, and then
//! only that pod is written out anew ([`LastList`]), so that a thousand readers do not take the
//! processor away from the pods.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ferrolet_types::Pod;
use hyper::body::Frame;
use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;

use crate::routes::Views;

/// Text is handed on in pieces of about this size.
const PIECE: usize = 32 * 1024;
const HEAD: &[u8] = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#;
const END: &[u8] = b"]}\n";
/// Whoever asks again within this time is not alone.
const HURRY: Duration = Duration::from_millis(100);

/// All pods of the node.
pub(crate) async fn list(
    State(views): State<Views>,
    State(last): State<Arc<LastList>>,
) -> Response {
    let pods = views.pods.pods();
    let body = match last.text_of(&pods, Instant::now()) {
        Some(text) => Body::from(text),
        None => Body::new(PodList::new(pods)),
    };
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// The text of the list, kept while it is asked for again and again.
#[derive(Default)]
pub(crate) struct LastList {
    state: Mutex<Recent>,
}

#[derive(Default)]
struct Recent {
    asked: Option<Instant>,
    kept: Option<Written>,
}

/// A list that was written out whole.
struct Written {
    /// Each pod and its part of the text. The pods hold their own place in memory, so that another
    /// pod cannot be taken for one of them.
    items: Vec<(Pod, Bytes)>,
    text: Bytes,
}

impl Written {
    /// Writes out these pods, as far as that was not done before.
    fn new(pods: &[Pod], before: Option<Written>) -> Self {
        let before = before.map_or_else(Vec::new, |it| it.items);
        let known: HashMap<_, &Bytes> =
            before.iter().map(|(pod, item)| (Arc::as_ptr(pod), item)).collect();
        let items = pods.iter().map(|pod| {
            let item = known.get(&Arc::as_ptr(pod)).map(|item| (*item).clone());
            let item = item.unwrap_or_else(|| {
                let mut item = Vec::new();
                write_item(pod, &mut item);
                Bytes::from(item)
            });
            (pod.clone(), item)
        });
        let items: Vec<(Pod, Bytes)> = items.collect();
        let n_bytes: usize = items.iter().map(|(_, item)| item.len() + 1).sum();
        let mut text = Vec::with_capacity(HEAD.len() + n_bytes + END.len());
        text.extend(HEAD);
        for (n, (_, item)) in items.iter().enumerate() {
            if n > 0 {
                text.push(b',');
            }
            text.extend(item);
        }
        text.extend(END);
        Self { items, text: Bytes::from(text) }
    }

    fn is_of(&self, pods: &[Pod]) -> bool {
        let pairs = || self.items.iter().zip(pods);
        self.items.len() == pods.len() && pairs().all(|((one, _), other)| Arc::ptr_eq(one, other))
    }
}

impl LastList {
    /// The whole text, if somebody else asked a moment ago. Made once for all who ask before a pod
    /// changes.
    fn text_of(&self, pods: &[Pod], now: Instant) -> Option<Bytes> {
        let mut recent = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let last = recent.asked.replace(now);
        if last.is_none_or(|last| now.duration_since(last) > HURRY) {
            recent.kept = None;
            return None;
        }
        let kept = match recent.kept.take() {
            Some(kept) if kept.is_of(pods) => kept,
            before => Written::new(pods, before),
        };
        let text = kept.text.clone();
        recent.kept = Some(kept);
        Some(text)
    }
}

/// True for the very same pods.
pub(crate) fn is_same(known: &[Pod], pods: &[Pod]) -> bool {
    let pairs = || known.iter().zip(pods);
    known.len() == pods.len() && pairs().all(|(one, other)| Arc::ptr_eq(one, other))
}

/// An item of the list. Like upstream's it says neither kind nor version, since the list does.
#[derive(serde::Serialize)]
struct Item<'a> {
    metadata: &'a ObjectMeta,
    spec: &'a PodSpec,
    status: &'a PodStatus,
}

/// What of the list is to be written next.
#[derive(Clone, Copy)]
enum Part {
    Head,
    Items,
    End,
}

struct PodList {
    pods: std::vec::IntoIter<Pod>,
    next: Part,
}

impl PodList {
    fn new(pods: Vec<Pod>) -> Self {
        Self { pods: pods.into_iter(), next: Part::Head }
    }

    fn piece(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut is_first = false;
        match self.next {
            Part::Head => {
                text.extend(HEAD);
                (self.next, is_first) = (Part::Items, true);
            }
            Part::Items => {}
            Part::End => return None,
        }
        for pod in self.pods.by_ref() {
            if !is_first {
                text.push(b',');
            }
            is_first = false;
            write_item(&pod, &mut text);
            if text.len() >= PIECE {
                return Some(text);
            }
        }
        text.extend(END);
        self.next = Part::End;
        Some(text)
    }
}

fn write_item(pod: &Pod, text: &mut Vec<u8>) {
    let (no_spec, no_status) = (PodSpec::default(), PodStatus::default());
    let item = Item {
        metadata: &pod.metadata,
        spec: pod.spec.as_ref().unwrap_or(&no_spec),
        status: pod.status.as_ref().unwrap_or(&no_status),
    };
    serde_json::to_writer(text, &item)
        .expect("a pod has text keys only and a Vec takes every byte");
}

impl HttpBody for PodList {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.piece();
        Poll::Ready(piece.map(|text| Ok(Frame::data(Bytes::from(text)))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.next, Part::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Pod {
        let pod = serde_json::json!({"metadata": {"name": name}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_text_is_kept_for_those_in_a_hurry_and_only_while_no_pod_changes() {
        let last = LastList::default();
        let began = Instant::now();
        let at = |millis: u64| began + Duration::from_millis(millis);
        let (one, other) = (vec![pod("a"), pod("b")], vec![pod("a"), pod("b")]);
        assert_eq!(last.text_of(&one, at(0)), None, "the first is alone");
        assert_eq!(last.text_of(&one, at(500)), None, "so is this one");
        let text = last.text_of(&one, at(501)).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(list["items"][1]["metadata"]["name"], "b");
        let again = last.text_of(&one, at(502)).unwrap();
        assert_eq!(again.as_ptr(), text.as_ptr(), "the same text");
        // Pods that look the same and are others are written out anew.
        let new = last.text_of(&other, at(503)).unwrap();
        assert!(new.as_ptr() != text.as_ptr() && new == text);
        let fewer = last.text_of(&other[..1], at(504)).unwrap();
        assert!(fewer.len() < new.len());
        // Of pods that changed only those are written, and the text is what one who is alone gets.
        let changed = vec![other[0].clone(), pod("c"), other[1].clone()];
        let item =
            |at: usize| last.state.lock().unwrap().kept.as_ref().unwrap().items[at].1.clone();
        let before = item(0);
        let text = last.text_of(&changed, at(505)).unwrap();
        assert_eq!(item(0).as_ptr(), before.as_ptr(), "the same item");
        let mut alone = PodList::new(changed.clone());
        let pieces: Vec<u8> = std::iter::from_fn(|| alone.piece()).flatten().collect();
        assert_eq!(text, pieces);
        assert_eq!(last.text_of(&other, at(5000)), None, "the hurry is over");
        assert!(last.state.lock().unwrap().kept.is_none());
    }
}
