//! `/pods`: the node's pods as a v1 PodList.
//!
//! The list is a snapshot of shared pods; each is written out only when the client has taken the one before, so a thousand pods
//! cost one pod's text at a time, and a client that goes away costs nothing more.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ferrolet_types::Pod;
use hyper::body::Frame;
use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::routes::Views;

/// Text is handed on in pieces of about this size.
const PIECE: usize = 32 * 1024;

/// All pods of the node.
pub(crate) async fn list(State(views): State<Views>) -> Response {
    let body = Body::new(PodList {
        pods: views.pods.pods().into_iter(),
        next: Part::Head,
    });
    ([(CONTENT_TYPE, "application/json")], body).into_response()
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
    fn piece(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut is_first = false;
        match self.next {
            Part::Head => {
                text.extend(br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#);
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
        text.extend(b"]}\n");
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
