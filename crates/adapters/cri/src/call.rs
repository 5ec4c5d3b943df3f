//! One call: its deadline, its line in the log, its error.
//!
//! The line (target `cri`, debug level) has the method, how long it took and how it ended. It never has contents: requests
//! hold environments and credentials. A call whose caller went away leaves its line too.

use std::{future::Future, time::Duration};

use ferrolet_ports::{RuntimeError, RuntimeErrorKind};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::error::{deadline_exceeded, runtime_error};

/// A call by its CRI name, with the longest it may take; `None` waits as long as the caller does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) deadline: Option<Duration>,
}

impl Call {
    /// Sends `message` with `send` and waits for the answer.
    pub(crate) async fn run<Q, A, F>(
        self,
        message: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<A, RuntimeError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut line = LogLine::begin(self.method);
        let mut request = Request::new(message);
        let answer = match self.deadline {
            None => send(request).await,
            Some(deadline) => {
                // The runtime is told too, so that it gives up with us.
                request.set_timeout(deadline);
                match tokio::time::timeout(deadline, send(request)).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        let error = deadline_exceeded(self.method);
                        line.end(outcome_of(&error));
                        return Err(error);
                    }
                }
            }
        };
        match answer {
            Ok(answer) => {
                line.end("OK");
                Ok(answer.into_inner())
            }
            Err(status) => {
                let error = runtime_error(self.method, &status);
                line.end(outcome_of(&error));
                Err(error)
            }
        }
    }
}

fn outcome_of(error: &RuntimeError) -> &'static str {
    match error.kind {
        // The gRPC name for it would read as if somebody had cancelled something.
        RuntimeErrorKind::Canceled => "Canceled by the runtime",
        kind => kind.code_name(),
    }
}

/// Writes its line when it is dropped, so that an abandoned call is told as well.
pub(crate) struct LogLine {
    method: &'static str,
    began: Instant,
    outcome: &'static str,
}

impl LogLine {
    pub(crate) fn begin(method: &'static str) -> Self {
        Self {
            method,
            began: Instant::now(),
            outcome: "abandoned",
        }
    }

    pub(crate) fn end(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        tracing::debug!(
            target: "cri",
            method = self.method,
            duration = ?self.began.elapsed(),
            outcome = self.outcome,
            "CRI call"
        );
    }
}
