//! The frame of a packet: eight bytes, then a message.
//!
//! ```text
//!  0        1       2          4                8
//!  version  flags   kind (LE)  request id (LE)  message …
//! ```
//!
//! A message larger than [`MAX_INLINE`] is not in the packet: it is in a sealed memfd, the first of
//! the packet's descriptors, and the flag [`IN_MEMFD`] says so.

use thiserror::Error;

/// Bytes before the message.
pub const HEADER: usize = 8;
/// The largest message that a packet holds itself.
pub const MAX_INLINE: usize = 64 * 1024 - HEADER;
/// The largest message at all: an environment of Linux's greatest size, and as much again.
pub const MAX_MESSAGE: usize = 8 * 1024 * 1024;
/// As many descriptors as the kernel lets travel with one packet.
pub const MAX_DESCRIPTORS: usize = 253;
/// The flag of a message that is in a memfd.
pub const IN_MEMFD: u8 = 1;

/// The version of the frame itself, which has never changed.
const FRAME: u8 = 1;

/// What precedes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whether the message is in the first descriptor.
    pub is_in_memfd: bool,
    /// Which message it is.
    pub kind: u16,
    /// The request's number, which its answer repeats; 0 in events.
    pub id: u32,
}

/// A packet that is no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PacketError {
    /// Fewer bytes than a header.
    #[error("packet of {0} bytes")]
    Short(usize),
    /// A frame of another kind.
    #[error("packet of frame version {0}")]
    Frame(u8),
}

impl Header {
    /// The header's bytes.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER] {
        let kind = self.kind.to_le_bytes();
        let id = self.id.to_le_bytes();
        let flags = if self.is_in_memfd { IN_MEMFD } else { 0 };
        [FRAME, flags, kind[0], kind[1], id[0], id[1], id[2], id[3]]
    }

    /// A packet taken apart: its header, and the bytes after it.
    ///
    /// # Errors
    ///
    /// When it is too short or of another frame.
    pub fn decode(packet: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        let Some((header, rest)) = packet.split_first_chunk::<HEADER>() else {
            return Err(PacketError::Short(packet.len()));
        };
        let [frame, flags, kind0, kind1, id @ ..] = *header;
        if frame != FRAME {
            return Err(PacketError::Frame(frame));
        }
        let header = Self {
            is_in_memfd: flags & IN_MEMFD != 0,
            kind: u16::from_le_bytes([kind0, kind1]),
            id: u32::from_le_bytes(id),
        };
        Ok((header, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_is_eight_bytes() {
        let header = Header { is_in_memfd: true, kind: 0x0203, id: 0x0405_0607 };
        assert_eq!(header.encode(), [1, 1, 3, 2, 7, 6, 5, 4]);
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        assert_eq!(Header::decode(&[1, 0, 0]), Err(PacketError::Short(3)));
        assert_eq!(Header::decode(&[2, 0, 0, 0, 0, 0, 0, 0]), Err(PacketError::Frame(2)));
    }

    proptest! {
        #[test]
        fn headers_come_back(is_in_memfd: bool, kind: u16, id: u32, body: Vec<u8>) {
            let header = Header { is_in_memfd, kind, id };
            let mut packet = header.encode().to_vec();
            packet.extend(&body);
            prop_assert_eq!(Header::decode(&packet), Ok((header, body.as_slice())));
        }
    }
}
