//! The stream of container events.
//!
//! Runtimes written in Go answer a stream's request only with its first event, so a quiet node
//! would keep `open` waiting for ever. It waits a moment, long enough for a refusal to arrive, and
//! otherwise hands out a stream that is still opening. Refuses: reopening. The end of the stream is
//! news for its reader.

use std::{future::Future, pin::Pin, time::Duration};

use ferrolet_ports::{Fut, RuntimeError, RuntimeEvent, RuntimeEvents};
use futures::future::{Either, select};
use tonic::{Request, Response, Status, Streaming, transport::Channel};

use crate::call::LogLine;
use crate::decode;
use crate::error::runtime_error;
use crate::proto::{self, runtime_service_client::RuntimeServiceClient};

const METHOD: &str = "GetContainerEvents";

/// How long a refusal may take to arrive.
const REFUSAL_TIME: Duration = Duration::from_millis(200);

type Events = Streaming<proto::ContainerEventResponse>;
type Opening = Pin<Box<dyn Future<Output = Result<Response<Events>, Status>> + Send>>;

/// Asks for the events. An error is a refusal that came at once; a later one is the stream's first
/// item.
pub(crate) async fn open(
    mut client: RuntimeServiceClient<Channel>,
) -> Result<EventStream, RuntimeError> {
    let mut line = LogLine::begin(METHOD);
    let opening: Opening = Box::pin(async move {
        client.get_container_events(Request::new(proto::GetEventsRequest {})).await
    });
    let refusal_time = std::pin::pin!(tokio::time::sleep(REFUSAL_TIME));
    let state = match select(opening, refusal_time).await {
        Either::Left((Ok(answer), _)) => State::Open(Box::new(answer.into_inner())),
        Either::Left((Err(status), _)) => {
            let error = runtime_error(METHOD, &status);
            line.end(error.kind.code_name());
            return Err(error);
        }
        Either::Right(((), opening)) => State::Opening(opening),
    };
    line.end("OK");
    Ok(EventStream { state })
}

enum State {
    Opening(Opening),
    Open(Box<Events>),
    Ended,
}

/// Events of one connection. Dropping it tells the runtime to stop sending.
pub(crate) struct EventStream {
    state: State,
}

impl RuntimeEvents for EventStream {
    // Cancel-safe: the only awaits are on futures kept in `self`, and an event is returned as soon
    // as it is taken.
    fn next(&mut self) -> Fut<'_, Option<Result<RuntimeEvent, RuntimeError>>> {
        Box::pin(async move {
            loop {
                let outcome = match &mut self.state {
                    State::Opening(opening) => match opening.await {
                        Ok(answer) => {
                            self.state = State::Open(Box::new(answer.into_inner()));
                            continue;
                        }
                        Err(status) => Err(status),
                    },
                    State::Open(events) => events.message().await,
                    State::Ended => return None,
                };
                match outcome {
                    Ok(Some(event)) => {
                        if let Some(event) = decode::event(event) {
                            return Some(Ok(event));
                        }
                    }
                    Ok(None) => self.state = State::Ended,
                    Err(status) => {
                        self.state = State::Ended;
                        return Some(Err(runtime_error(METHOD, &status)));
                    }
                }
            }
        })
    }
}
