//! How long functions are: what cannot be seen at one look is two functions.
//!
//! Read from scrubbed text, by counting braces: a function begins at its `fn`, has a body if a `{`
//! comes before the `;` of a declaration, and ends with the brace that closes it. Exempt is what
//! reads as a table, and says so in a comment on the line before it: `// tidy: a table, …why`.

/// No function is longer than this, head and last brace included.
pub(super) const MAX_LINES: usize = 80;
/// What such a comment begins with; a reason follows.
const MARK: &str = "// tidy: a table, ";

/// A function that is longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong {
    /// Where it begins, counted from nought.
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) n_lines: usize,
}

/// Functions that are too long, among the first `n_code` lines; `source` as it stands in the file,
/// `lines` scrubbed.
pub(super) fn too_long(source: &str, lines: &[String], n_code: usize) -> Vec<TooLong> {
    let plain: Vec<&str> = source.lines().collect();
    let all = (0..n_code.min(lines.len())).filter_map(|index| {
        let name = name_of_function(&lines[index])?;
        let n_lines = last_line(lines, index)? + 1 - index;
        (n_lines > MAX_LINES && !is_marked(&plain, index)).then(|| TooLong {
            index,
            name: name.to_owned(),
            n_lines,
        })
    });
    all.collect()
}

/// The name after `fn`, unless it is the type of a function.
fn name_of_function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_keyword = !before.ends_with(|it: char| it.is_alphanumeric() || it == '_');
    let name = after.split(|it: char| !(it.is_alphanumeric() || it == '_')).next()?;
    (is_keyword && !name.is_empty()).then_some(name)
}

/// The line with the brace that closes the body of the function which begins at `index`.
fn last_line(lines: &[String], index: usize) -> Option<usize> {
    let (mut depth, mut n_open) = (0_usize, 0_usize);
    let begin = lines[index].find("fn ")?;
    for (at, line) in lines.iter().enumerate().skip(index) {
        let from = if at == index { begin } else { 0 };
        for it in line[from..].chars() {
            match it {
                '(' | '[' => n_open += 1,
                ')' | ']' => n_open = n_open.saturating_sub(1),
                '{' => depth += 1,
                '}' if depth == 1 => return Some(at),
                '}' => depth = depth.saturating_sub(1),
                // A declaration without a body; in `[u8; 4]` it is no end.
                ';' if depth == 0 && n_open == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// True when the comments and attributes above have the mark, with a reason.
fn is_marked(plain: &[&str], index: usize) -> bool {
    let above = plain[..index].iter().rev().map(|line| line.trim());
    let mut own = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    own.any(|line| line.strip_prefix(MARK).is_some_and(|why| !why.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::super::scrub::scrub;
    use super::*;

    fn found(source: &str) -> Vec<(usize, String, usize)> {
        let lines = scrub(source);
        let all = too_long(source, &lines, lines.len()).into_iter();
        all.map(|it| (it.index, it.name, it.n_lines)).collect()
    }

    fn body(n_lines: usize) -> String {
        "    step();\n".repeat(n_lines)
    }

    #[test]
    fn a_function_has_eighty_lines_and_not_one_more() {
        assert_eq!(found(&format!("fn short() {{\n{}}}\n", body(78))), []);
        let long = format!("\npub(crate) async fn long(\n    it: [u8; 4],\n) {{\n{}}}\n", body(77));
        assert_eq!(found(&long), [(1, "long".to_owned(), 81)]);
    }

    #[test]
    fn declarations_and_types_of_functions_have_no_body() {
        let port = format!("trait Port {{\n    fn ask(&self);\n{}}}\n", body(90));
        assert_eq!(found(&port), []);
        let kind = format!("type Ask = fn(u8) -> u8;\nmod it {{\n{}}}\n", body(90));
        assert_eq!(found(&kind), []);
        // Braces in texts and comments are not counted.
        let odd = format!("fn odd() {{\n    say(\"}}\"); // }}\n{}}}\n", body(90));
        assert_eq!(found(&odd), [(0, "odd".to_owned(), 93)]);
    }

    #[test]
    fn a_table_says_why_it_is_one() {
        let table = |mark: &str| format!("{mark}#[rustfmt::skip]\nfn rows() {{\n{}}}\n", body(90));
        assert_eq!(found(&table("// tidy: a table, one row for each setting\n")), []);
        assert_eq!(found(&table("// tidy: a table, \n")).len(), 1);
        assert_eq!(found(&table("// one row for each setting\n")).len(), 1);
    }
}
