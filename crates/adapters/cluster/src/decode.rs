//! From the bytes of an answer to a typed object, without `managedFields`.
//!
//! The server's record of who wrote which field is often half of an object and nothing here reads
//! it. It is blanked in the bytes before they are decoded, so it never becomes a tree in memory.
//! Pure. Refuses: looking at anything else.

use serde::de::DeserializeOwned;

/// The key whose list is dropped.
const KEY: &[u8] = b"managedFields";

/// Decodes one object or list.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &mut [u8]) -> Result<T, serde_json::Error> {
    blank_managed_fields(bytes);
    serde_json::from_slice(bytes)
}

/// Turns every list under the key `managedFields` into `null` and blanks, in place. Text that is
/// not JSON is left to the decoder to refuse. Only lists are touched: user data holds strings under
/// any key it likes.
pub(crate) fn blank_managed_fields(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(start) = find(bytes, at, b'"') {
        let Some(end) = end_of_string(bytes, start) else {
            return;
        };
        at = end + 1;
        if &bytes[start + 1..end] != KEY {
            continue;
        }
        let Some(colon) = skip_blanks(bytes, at).filter(|at| bytes[*at] == b':') else {
            continue;
        };
        let Some(open) = skip_blanks(bytes, colon + 1).filter(|at| bytes[*at] == b'[') else {
            continue;
        };
        let Some(close) = end_of_list(bytes, open) else {
            return;
        };
        if close - open < 4 {
            at = close + 1;
            continue;
        }
        bytes[open..=close].fill(b' ');
        bytes[open..open + 4].copy_from_slice(b"null");
        at = close + 1;
    }
}

fn find(bytes: &[u8], from: usize, wanted: u8) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.iter().position(|byte| *byte == wanted).map(|at| from + at)
}

fn skip_blanks(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.iter().position(|byte| !byte.is_ascii_whitespace()).map(|at| from + at)
}

/// The closing quote of the string that opens at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
    None
}

/// The bracket that closes the list that opens at `start`.
fn end_of_list(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at)?,
            b'[' => depth += 1,
            b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_of_managed_fields_vanish() {
        let check = |before: &str, after: &str| {
            let mut bytes = before.as_bytes().to_vec();
            blank_managed_fields(&mut bytes);
            let text = String::from_utf8(bytes).unwrap();
            assert_eq!(text.len(), before.len(), "{before}");
            let squeezed: String = text.split_whitespace().collect();
            assert_eq!(squeezed, after);
        };
        check(
            r#"{"metadata":{"name":"a","managedFields":[{"f":["]","\""]}],"uid":"u"}}"#,
            r#"{"metadata":{"name":"a","managedFields":null,"uid":"u"}}"#,
        );
        check(
            r#"{"data":{"managedFields":"[not a list]"}}"#,
            r#"{"data":{"managedFields":"[notalist]"}}"#,
        );
        check(
            r#"{"data":{"k":"\"managedFields\":[1,2]"}}"#,
            r#"{"data":{"k":"\"managedFields\":[1,2]"}}"#,
        );
        check(
            r#"[{"managedFields" : [1, 2]},{"managedFields":[3,4]}]"#,
            r#"[{"managedFields":null},{"managedFields":null}]"#,
        );
        check(r#"{"managedFields":[]}"#, r#"{"managedFields":[]}"#);
        check(r#"{"managedFields":[{"cut"#, r#"{"managedFields":[{"cut"#);
        check("", "");
    }
}
