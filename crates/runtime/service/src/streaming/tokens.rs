//! Addresses that are good once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use thiserror::Error;

use super::{AttachRequest, ExecRequest};

/// How long an address is good.
pub(super) const LIFE: Duration = Duration::from_secs(60);
/// So many are good at a time.
pub(super) const MOST: usize = 1000;

/// What an address stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Exec(ExecRequest),
    Attach(AttachRequest),
    PortForward { sandbox: String },
}

impl Request {
    /// The first part of its path.
    pub(super) fn path(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Attach(_) => "attach",
            Self::PortForward { .. } => "portforward",
        }
    }
}

/// All addresses are given away and none was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("maximum number of in-flight requests exceeded")]
pub struct TooManyRequests;

/// The addresses that are good. Time is handed in, since any beginning.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    requests: BTreeMap<String, Request>,
    /// When each ends, oldest first.
    ends: VecDeque<(Duration, String)>,
}

impl Tokens {
    /// Notes a request under a token that nobody can guess.
    pub(super) fn insert(
        &mut self,
        token: String,
        request: Request,
        now: Duration,
    ) -> Result<(), TooManyRequests> {
        self.forget(now);
        if self.requests.len() >= MOST {
            return Err(TooManyRequests);
        }
        self.ends.push_back((now + LIFE, token.clone()));
        self.requests.insert(token, request);
        Ok(())
    }

    /// What a token stands for; the next time it stands for nothing.
    pub(super) fn take(&mut self, token: &str, now: Duration) -> Option<Request> {
        self.forget(now);
        self.requests.remove(token)
    }

    fn forget(&mut self, now: Duration) {
        while let Some((_, token)) = self.ends.pop_front_if(|it| it.0 <= now) {
            self.requests.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(n: usize) -> Request {
        Request::PortForward { sandbox: n.to_string() }
    }

    #[test]
    fn a_token_is_good_once_and_for_a_minute() {
        let mut tokens = Tokens::default();
        let second = Duration::from_secs(1);
        tokens.insert("a".to_owned(), request(1), Duration::ZERO).unwrap();
        tokens.insert("b".to_owned(), request(2), second).unwrap();
        assert_eq!(tokens.take("a", LIFE - second), Some(request(1)));
        assert_eq!(tokens.take("a", LIFE - second), None);
        assert_eq!(tokens.take("b", LIFE + second), None);
        assert!(tokens.ends.is_empty());
    }

    #[test]
    fn there_is_an_end_of_tokens_until_some_are_old_or_used() {
        let mut tokens = Tokens::default();
        for n in 0..MOST {
            tokens.insert(n.to_string(), request(n), Duration::ZERO).unwrap();
        }
        let more = |tokens: &mut Tokens, now| tokens.insert("more".to_owned(), request(0), now);
        assert_eq!(more(&mut tokens, Duration::ZERO), Err(TooManyRequests));
        tokens.take("7", Duration::ZERO).unwrap();
        more(&mut tokens, Duration::ZERO).unwrap();
        assert_eq!(more(&mut tokens, Duration::ZERO), Err(TooManyRequests));
        more(&mut tokens, LIFE).unwrap();
    }
}
