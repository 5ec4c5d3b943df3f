//! What a person reads: every difference with its case, its path, ours and theirs. Pure text.

use serde_json::Value;

use crate::compare::Difference;

/// One difference as indented lines.
pub(crate) fn lines(difference: &Difference) -> String {
    let mut text = format!("    {}\n", difference.path);
    let changes = difference.changes();
    if !changes.is_empty() {
        for line in changes {
            text.push_str(&format!("        {line}\n"));
        }
        return text;
    }
    text.push_str(&format!("        ours    {}\n", shown(&difference.ours)));
    for theirs in &difference.theirs {
        text.push_str(&format!("        theirs  {}\n", shown(theirs)));
    }
    text
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "(nothing)".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_shown_as_changes_and_the_rest_side_by_side() {
        let cases = [
            (
                json!(["a", "c"]),
                vec![json!(["a", "b", "d"]), json!(["a", "b", "c"])],
                "    path\n        - b\n",
            ),
            (
                json!(null),
                vec![json!("x"), json!(1)],
                "    path\n        ours    (nothing)\n        theirs  \"x\"\n        theirs  1\n",
            ),
        ];
        for (ours, theirs, expected) in cases {
            let path = "path".to_owned();
            assert_eq!(lines(&Difference { path, ours, theirs }), expected);
        }
    }
}
