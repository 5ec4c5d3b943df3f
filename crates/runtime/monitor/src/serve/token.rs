//! What became ready, as the number that epoll hands back.

use crate::log::Stream;

/// Something that the monitor waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// Somebody connects.
    Listener,
    /// A child has ended.
    Children,
    /// A connection has requests, or room for answers.
    Connection(u32),
    /// A container's first process tells how it gets on.
    Launch(u32),
    /// A command does.
    Command(u32),
    /// A container has written.
    Output(u32, Stream),
    /// A client of a container has room, or has left.
    Client(u32),
}

impl Token {
    pub(super) fn encode(self) -> u64 {
        let (kind, key) = match self {
            Self::Listener => (0, 0),
            Self::Children => (1, 0),
            Self::Connection(key) => (2, key),
            Self::Launch(key) => (3, key),
            Self::Command(key) => (4, key),
            Self::Output(key, Stream::Stdout) => (5, key),
            Self::Output(key, Stream::Stderr) => (6, key),
            Self::Client(key) => (7, key),
        };
        kind << 32 | u64::from(key)
    }

    pub(super) fn decode(number: u64) -> Option<Self> {
        let key = u32::try_from(number & u64::from(u32::MAX)).ok()?;
        Some(match number >> 32 {
            0 => Self::Listener,
            1 => Self::Children,
            2 => Self::Connection(key),
            3 => Self::Launch(key),
            4 => Self::Command(key),
            5 => Self::Output(key, Stream::Stdout),
            6 => Self::Output(key, Stream::Stderr),
            7 => Self::Client(key),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let tokens = [
            Token::Listener,
            Token::Children,
            Token::Connection(1),
            Token::Launch(u32::MAX),
            Token::Command(3),
            Token::Output(4, Stream::Stdout),
            Token::Output(4, Stream::Stderr),
            Token::Client(0),
        ];
        for token in tokens {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(u64::MAX), None);
    }
}
