//! The API server as judge: who a caller is, and what they may do.
//!
//! Owned by the adapter `cluster`, faked by `testkit`, used by the server alone. Every call is one
//! request; keeping answers and trying again is the server's business. Refuses: policy, and any
//! memory of tokens.

use std::collections::BTreeMap;

use crate::{ApiError, Fut};

/// What the server asks of the API server before it answers a caller.
pub trait Reviews: Send + Sync {
    /// Whose bearer token is this? One `TokenReview` without audiences.
    fn token_review<'a>(&'a self, token: &'a str) -> Fut<'a, Result<TokenVerdict, ApiError>>;
    /// May they? One `SubjectAccessReview`.
    fn subject_access_review<'a>(
        &'a self,
        ask: &'a AccessAsk,
    ) -> Fut<'a, Result<AccessVerdict, ApiError>>;
}

/// Somebody who asks: the API's user information.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Subject {
    /// The name access is granted to.
    pub name: String,
    /// An identity that outlives the name; may be empty.
    pub uid: String,
    /// Groups, in the order they were told.
    pub groups: Vec<String>,
    /// Whatever else the authenticator told.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What became of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenVerdict {
    /// It is somebody's.
    Authenticated(Subject),
    /// It is nobody's; the reason may be empty.
    Refused {
        /// `status.error`.
        error: String,
    },
}

/// May this subject do this to this node? Group and namespace are always empty, the version is
/// always `v1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccessAsk {
    /// Who.
    pub subject: Subject,
    /// `get`, `create`, …; empty for a method that has no verb.
    pub verb: String,
    /// `nodes`.
    pub resource: String,
    /// `proxy`, `stats`, ….
    pub subresource: String,
    /// The node.
    pub name: String,
}

/// The API server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessVerdict {
    /// Yes.
    Allowed,
    /// No, or nobody has an opinion.
    Refused,
}
