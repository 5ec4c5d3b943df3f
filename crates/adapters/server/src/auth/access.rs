//! May they? Everybody may everything, or the API server is asked and its answers kept.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::{AccessAsk, AccessVerdict, ApiError, Reviews};

use super::memory::Memory;
use super::metrics::{Question, counted};
use super::retry::{DECIDE, patiently};
use super::turns::Turns;

/// An ask that takes more room than this is not kept, so that names cannot fill the memory.
const LARGEST_KEPT: usize = 10_000;

/// Who decides what a caller may do.
pub enum Authorization {
    /// Everybody may do everything.
    AlwaysAllow,
    /// The API server is asked.
    Webhook {
        /// Whom to ask.
        reviews: Arc<dyn Reviews>,
        /// How long a yes holds.
        authorized: Duration,
        /// How long a no holds.
        unauthorized: Duration,
    },
}

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccessError {
    #[error(transparent)]
    Review(#[from] ApiError),
    #[error("the API server does not answer in time")]
    Late,
}

pub(super) struct Access {
    authorization: Authorization,
    memory: Memory<AccessAsk, AccessVerdict>,
    /// More callers wait, so that a flood of them does not become a flood of reviews.
    turns: Turns,
}

impl Access {
    pub(super) fn new(authorization: Authorization) -> Self {
        Self { authorization, memory: Memory::new(), turns: Turns::new() }
    }

    /// Whether the caller may; `from` is where it asks from.
    pub(super) async fn judge(
        &self,
        ask: AccessAsk,
        from: Option<IpAddr>,
    ) -> Result<AccessVerdict, AccessError> {
        let decided = tokio::time::timeout(DECIDE, self.decide(ask, from)).await;
        let decided = decided.map_err(|_elapsed| AccessError::Late)?;
        Ok(decided?)
    }

    async fn decide(
        &self,
        ask: AccessAsk,
        from: Option<IpAddr>,
    ) -> Result<AccessVerdict, ApiError> {
        let Authorization::Webhook { reviews, authorized, unauthorized } = &self.authorization
        else {
            return Ok(AccessVerdict::Allowed);
        };
        if let Some(known) = self.memory.get(&ask) {
            return Ok(known);
        }
        let _turn = self.turns.take(from).await;
        // Whoever came before may have asked the same.
        if let Some(known) = self.memory.get(&ask) {
            return Ok(known);
        }
        let verdict =
            patiently(|| counted(Question::WhatTheyMay, reviews.subject_access_review(&ask)))
                .await?;
        let span = match verdict {
            AccessVerdict::Allowed => *authorized,
            AccessVerdict::Refused => *unauthorized,
        };
        if size(&ask) <= LARGEST_KEPT {
            self.memory.keep(ask, verdict, span);
        }
        Ok(verdict)
    }
}

fn size(ask: &AccessAsk) -> usize {
    let subject = &ask.subject;
    let groups: usize = subject.groups.iter().map(String::len).sum();
    let extra: usize = subject
        .extra
        .iter()
        .map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>())
        .sum();
    subject.name.len() + subject.uid.len() + groups + extra
}
