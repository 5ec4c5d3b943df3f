//! CBOR as Kubernetes writes it: marked as such, texts and names as byte strings, members in the
//! order of their encoded names. Pure.
//!
//! Only what a JSON value can hold is written; whole numbers only, since nothing here has others.

use serde_json::Value;

/// Says that what follows is CBOR (RFC 8949, 3.4.6).
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// A value with the mark in front.
pub(crate) fn document(value: &Value) -> Vec<u8> {
    let mut out = SELF_DESCRIBED.to_vec();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(false) => out.push(0xf4),
        Value::Bool(true) => out.push(0xf5),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(n), _) => head(0, n, out),
            (None, Some(n)) => head(1, n.unsigned_abs() - 1, out),
            (None, None) => text(&number.to_string(), out),
        },
        Value::String(words) => text(words, out),
        Value::Array(items) => {
            head(4, items.len() as u64, out);
            items.iter().for_each(|item| write(item, out));
        }
        Value::Object(members) => {
            head(5, members.len() as u64, out);
            let mut members: Vec<(Vec<u8>, &Value)> = members
                .iter()
                .map(|(name, value)| {
                    let mut encoded = Vec::new();
                    text(name, &mut encoded);
                    (encoded, value)
                })
                .collect();
            members.sort_by(|one, other| one.0.cmp(&other.0));
            for (name, value) in members {
                out.extend(name);
                write(value, out);
            }
        }
    }
}

fn text(words: &str, out: &mut Vec<u8>) {
    head(2, words.len() as u64, out);
    out.extend(words.as_bytes());
}

/// What comes, and how much of it, in as few bytes as possible.
fn head(kind: u8, n: u64, out: &mut Vec<u8>) {
    let kind = kind << 5;
    let bytes = n.to_be_bytes();
    match n {
        0..=23 => out.push(kind | bytes[7]),
        24..=0xff => out.extend([kind | 24, bytes[7]]),
        0x100..=0xffff => {
            out.push(kind | 25);
            out.extend(&bytes[6..]);
        }
        0x1_0000..=0xffff_ffff => {
            out.push(kind | 26);
            out.extend(&bytes[4..]);
        }
        _ => {
            out.push(kind | 27);
            out.extend(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_as_kubernetes_reads_them() {
        let check = |value: Value, expected: &[u8]| {
            let written = document(&value);
            assert_eq!(written[..3], SELF_DESCRIBED, "{value}");
            assert_eq!(&written[3..], expected, "{value}");
        };
        check(json!(null), &[0xf6]);
        check(json!(true), &[0xf5]);
        check(json!(23), &[0x17]);
        check(json!(24), &[0x18, 24]);
        check(json!(500), &[0x19, 0x01, 0xf4]);
        check(json!(1_000_000), &[0x1a, 0x00, 0x0f, 0x42, 0x40]);
        check(json!(-10), &[0x29]);
        check(json!("ab"), b"\x42ab");
        check(json!(["a", 1]), b"\x82\x41a\x01");
        // Shorter names come first.
        check(json!({"aa": 1, "b": {}}), b"\xa2\x41b\xa0\x42aa\x01");
    }
}
