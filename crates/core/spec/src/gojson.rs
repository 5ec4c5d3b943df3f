//! Go's ways of writing text, where they end up in annotations and environment that another kubelet
//! reads.

/// A JSON string as Go's encoder writes it: `<`, `>`, `&` and two line separators are escaped too.
pub(crate) fn json_string(text: &str) -> String {
    let plain = serde_json::Value::from(text).to_string();
    let mut escaped = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A JSON object from members already encoded, in the order given; absent members are left out.
pub(crate) fn json_object<const N: usize>(members: [(&str, Option<String>); N]) -> String {
    let members: Vec<String> = members
        .into_iter()
        .filter_map(|(name, value)| Some(format!("\"{name}\":{}", value?)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// A JSON array from elements already encoded.
pub(crate) fn json_array(elements: impl IntoIterator<Item = String>) -> String {
    let elements: Vec<String> = elements.into_iter().collect();
    format!("[{}]", elements.join(","))
}

/// A quoted string as Go's `strconv.Quote` writes it.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() || is_blank(c) => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// White space that Go does not print: all but the plain blank.
fn is_blank(c: char) -> bool {
    c != ' ' && c.is_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_text_is_escaped_as_go_does() {
        assert_eq!(json_string("a && b > \"c\"\n"), r#""a \u0026\u0026 b \u003e \"c\"\n""#);
        assert_eq!(json_object([("a", Some("1".to_owned())), ("b", None)]), r#"{"a":1}"#);
    }

    #[test]
    fn quoted_text_is_escaped_as_go_does() {
        assert_eq!(quote("a\"b\\c\n\u{1}é\u{a0}"), "\"a\\\"b\\\\c\\n\\x01é\\u00a0\"");
    }
}
