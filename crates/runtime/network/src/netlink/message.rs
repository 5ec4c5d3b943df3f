//! Netlink messages as bytes: written attribute by attribute, read without trusting a length.
//!
//! In: kinds, fixed parts and values. Out: one message each, aligned as the kernel wants it. What the kernel sends is
//! walked by [`messages`] and [`attributes`], which end at the first length that does not fit.

/// A message's own header.
pub(crate) const HEADER: usize = 16;
/// The bits of an attribute's kind that are its kind.
const KIND: u16 = 0x3fff;
/// Marks an attribute that holds attributes.
const NESTED: u16 = 0x8000;

pub(crate) const F_REQUEST: u16 = 1;
pub(crate) const F_ACK: u16 = 4;
pub(crate) const F_DUMP: u16 = 0x300;
pub(crate) const F_EXCLUSIVE: u16 = 0x200;
pub(crate) const F_REPLACE: u16 = 0x100;
pub(crate) const F_CREATE: u16 = 0x400;
pub(crate) const F_APPEND: u16 = 0x800;

/// A request, and in words what it does, for the error that it may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) what: String,
    bytes: Vec<u8>,
}

impl Message {
    /// A message of that kind with its fixed part.
    pub(crate) fn new(what: impl Into<String>, kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        let mut message = Self { what: what.into(), bytes };
        message.align();
        message
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        // No value of ours is near the limit; one that were would be refused by the kernel as cut.
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.align();
    }

    /// A number in the machine's order, as rtnetlink has them.
    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// A number in the network's order, as nf_tables has them.
    pub(crate) fn big(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes);
    }

    /// An attribute that holds what `fill` writes.
    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        fill(self);
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    /// Bytes without a head of their own, for structures inside attributes.
    pub(crate) fn raw(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(crate) fn add_flags(&mut self, flags: u16) {
        let all = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | flags;
        self.bytes[6..8].copy_from_slice(&all.to_ne_bytes());
    }

    /// Its length as sent.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// As sent, with that number and with those flags added.
    pub(crate) fn finished(&self, sequence: u32, flags: u16) -> Vec<u8> {
        let mut message = self.clone();
        message.add_flags(flags);
        let mut bytes = message.bytes;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        bytes
    }
}

/// A message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The messages of a packet.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Heard<'_>> {
    std::iter::from_fn(move || {
        let length = number(bytes, 0)? as usize;
        let whole = bytes.get(..length).filter(|it| it.len() >= HEADER)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Heard {
            kind: short(whole, 4)?,
            flags: short(whole, 6)?,
            sequence: number(whole, 8)?,
            body: &whole[HEADER..],
        })
    })
}

/// The attributes in these bytes, by kind.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(short(bytes, 0)?);
        let kind = short(bytes, 2)? & KIND;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The first attribute of that kind.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(it, _)| *it == kind).map(|(_, value)| value)
}

/// A text that may end with a zero.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|it| *it == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// The number at that place, in the machine's order.
pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_is_aligned_and_knows_its_length() {
        let mut message = Message::new("try", 7, F_ACK, &[1, 2, 3]);
        message.nest(2, |inside| inside.text(1, "abc"));
        message.attribute(3, &[9]);
        let bytes = message.finished(5, F_DUMP);
        let heard: Vec<Heard<'_>> = messages(&bytes).collect();
        let [heard] = heard.as_slice() else { panic!("{heard:?}") };
        assert_eq!((heard.kind, heard.flags, heard.sequence), (7, F_REQUEST | F_ACK | F_DUMP, 5));
        let inside: Vec<(u16, &[u8])> = attributes(&heard.body[4..]).collect();
        assert_eq!(inside[0].0, 2);
        assert_eq!(find(inside[0].1, 1).map(text).as_deref(), Some("abc"));
        assert_eq!(inside[1], (3, &[9][..]));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            for heard in messages(&bytes) {
                for (_, value) in attributes(heard.body) {
                    let _inside: Vec<String> = attributes(value).map(|(_, value)| text(value)).collect();
                }
            }
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4);
        }

        #[test]
        fn what_is_written_is_read_again(values in prop::collection::vec((0u16..0x3fff, prop::collection::vec(any::<u8>(), 0..40)), 0..20)) {
            let mut message = Message::new("", 1, 0, &[]);
            for (kind, value) in &values {
                message.attribute(*kind, value);
            }
            let bytes = message.finished(1, 0);
            let heard = messages(&bytes).next().unwrap();
            let read: Vec<(u16, Vec<u8>)> = attributes(heard.body).map(|(kind, it)| (kind, it.to_vec())).collect();
            prop_assert_eq!(read, values);
        }
    }
}
