//! Environment files (`fileKeyRef`): lines of `NAME='value'`, a strict subset of what a shell
//! reads.
//!
//! A value stands in single quotes, may span lines and is taken literally; a comment may follow it.
//! Blank lines and lines that begin with `#` are skipped. A blank right after `=` makes the value
//! empty, as in a shell.

/// The value of a key, empty when the file does not name it; `None` when the file breaks the rules
/// before that.
pub(crate) fn value_of(content: &str, key: &str) -> Option<String> {
    let mut lines = content.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = line.split_once('=')?;
        if name.is_empty() || name.ends_with([' ', '\t']) {
            return None;
        }
        let value = if rest.starts_with([' ', '\t']) {
            String::new()
        } else {
            quoted(rest.strip_prefix('\'')?, &mut lines)?
        };
        if name == key {
            return Some(value);
        }
    }
    Some(String::new())
}

fn quoted<'a>(first: &'a str, lines: &mut impl Iterator<Item = &'a str>) -> Option<String> {
    let mut value = String::new();
    let mut rest = first;
    loop {
        if let Some((end, after)) = rest.split_once('\'') {
            value.push_str(end);
            let after = after.trim_start_matches([' ', '\t']);
            return (after.is_empty() || after.starts_with('#')).then_some(value);
        }
        value.push_str(rest);
        value.push('\n');
        rest = lines.next()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_literal_and_may_span_lines() {
        let file = "# head\n\n A='one' # why\nB='two\n lines $(A)'\nC= 'x'\nD='last'";
        for (key, value) in
            [("A", "one"), ("B", "two\n lines $(A)"), ("C", ""), ("D", "last"), ("E", "")]
        {
            assert_eq!(value_of(file, key).as_deref(), Some(value), "{key}");
        }
    }

    #[test]
    fn a_broken_file_has_no_values() {
        for file in ["A", "A=1", "='x'", "A ='x'", "A='x' y", "A='x", "A=\"x\"", "A="] {
            assert_eq!(value_of(file, "A"), None, "{file}");
        }
    }
}
