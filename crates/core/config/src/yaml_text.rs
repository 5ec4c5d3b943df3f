//! A value as YAML in blocks, for people and for whoever searches a log. Pure.
//!
//! Keys in the value's order, lists at the depth of their key as Go's library writes them. Texts
//! that another reader could take for something else are quoted as JSON quotes them, which YAML
//! understands. Refuses: reading YAML.

use std::fmt::Write as _;

use serde_json::Value;

/// The value, with a line break at the end.
pub(crate) fn yaml_text(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, 0, &mut text);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn write_value(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (at, (name, value)) in fields.iter().enumerate() {
                // The first one of an item stands behind its dash.
                if at > 0 || !text.ends_with("- ") {
                    indent(depth, text);
                }
                let _ = write!(text, "{}:", scalar(&Value::from(name.as_str())));
                write_below(value, depth, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(depth, text);
                text.push_str("- ");
                write_value(item, depth + 1, text);
                end_line(text);
            }
        }
        other => text.push_str(&scalar(other)),
    }
}

/// What stands behind a name: on its line, or in lines of its own.
fn write_below(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            write_value(value, depth + 1, text);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            write_value(value, depth, text);
        }
        other => {
            text.push(' ');
            text.push_str(&scalar(other));
        }
    }
    end_line(text);
}

fn end_line(text: &mut String) {
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

fn indent(depth: usize, text: &mut String) {
    (0..depth).for_each(|_| text.push_str("  "));
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A text that is nothing but a text without quotes.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 8] = ["true", "false", "null", "yes", "no", "on", "off", "nan"];
    let begins = text.chars().next().is_some_and(|it| it.is_ascii_alphabetic() || it == '/');
    let goes_on = text.chars().all(|it| it.is_ascii_alphanumeric() || "-_./<>".contains(it));
    begins && goes_on && !WORDS.contains(&text.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_reads_as_gos_library_writes_it() {
        let value = json!({
            "apiVersion": "v1",
            "empty": {},
            "list": ["a", {"x": 1, "y": [true]}, []],
            "nested": {"deep": {"er": "30s"}, "path": "/var/lib"},
            "none": null,
            "odd": "true",
            "words": "two words: here",
        });
        let expected = "\
apiVersion: v1
empty: {}
list:
- a
- x: 1
  y:
  - true
- []
nested:
  deep:
    er: \"30s\"
  path: /var/lib
none: null
odd: \"true\"
words: \"two words: here\"
";
        assert_eq!(yaml_text(&value), expected);
        assert_eq!(yaml_text(&json!({})), "{}\n");
    }
}
