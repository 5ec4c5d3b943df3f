//! Fields of protobuf messages, written by hand where a whole generated schema would be more than
//! the few messages that are sent.

use prost::encoding::{WireType, encode_key, encode_varint};

/// A number that is not negative, a boolean or an enumeration's value.
pub(crate) fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(field, WireType::Varint, out);
    encode_varint(value, out);
}

/// A `double`; zero is written too.
pub(crate) fn double(field: u32, value: f64, out: &mut Vec<u8>) {
    encode_key(field, WireType::SixtyFourBit, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A text, bytes, or a message.
pub(crate) fn message(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    delimited(bytes, out);
}

/// Bytes after their length.
pub(crate) fn delimited(bytes: &[u8], out: &mut Vec<u8>) {
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
