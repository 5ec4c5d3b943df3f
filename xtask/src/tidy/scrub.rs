//! Source text with everything blanked that is not code, line by line.
//!
//! A rule must not fire on a comment that explains it or on a string that names it. Not a parser:
//! it knows comments, strings, raw strings and character literals, and keeps every line break where
//! it was.

/// The same lines, with comments and the insides of literals replaced by blanks.
pub(super) fn scrub(source: &str) -> Vec<String> {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skip(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|it| if *it == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out.lines().map(str::to_owned).collect()
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none does.
fn skip(chars: &[char], at: usize) -> usize {
    let next = |n: usize| chars.get(at + n).copied().unwrap_or(' ');
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match chars[at] {
        '/' if next(1) == '/' => find(chars, at, |rest| rest.starts_with(&['\n'])),
        '/' if next(1) == '*' => skip_block(chars, at),
        '"' => skip_string(chars, at + 1),
        'r' if !after_word && (next(1) == '"' || next(1) == '#') => {
            skip_raw(chars, at + 1).unwrap_or(at)
        }
        'b' if !after_word && next(1) == 'r' => skip_raw(chars, at + 2).unwrap_or(at),
        '\'' => skip_char(chars, at),
        _ => at,
    }
}

fn find(chars: &[char], from: usize, is_end: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len()).find(|at| is_end(&chars[*at..])).unwrap_or(chars.len())
}

fn skip_block(chars: &[char], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0_usize);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn skip_string(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// From after the `r`: hashes, quote, text, quote, as many hashes. A raw identifier such as
/// `r#type` is no string.
fn skip_raw(chars: &[char], from: usize) -> Option<usize> {
    let n_hashes = chars[from..].iter().take_while(|it| **it == '#').count();
    if chars.get(from + n_hashes) != Some(&'"') {
        return None;
    }
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', n_hashes));
    let end = find(chars, from + n_hashes + 1, |rest| rest.starts_with(&close));
    Some((end + close.len()).min(chars.len()))
}

/// `'x'` and `'\n'` are literals; `'a` is a lifetime.
fn skip_char(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        return find(chars, at + 3, |rest| rest.starts_with(&['\'']))
            .saturating_add(1)
            .min(chars.len());
    }
    if chars.get(at + 2) == Some(&'\'') { at + 3 } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let cases = [
            ("let a = 1; // unsafe", "let a = 1;"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"call("todo!()", 'x')"#, "call(         ,    )"),
            (r##"call(r#"a " b"#)"##, "call(          )"),
            (r#"f::<'a>("\"x")"#, "f::<'a>(     )"),
            ("r#type + '\\'' + b", "r#type +      + b"),
        ];
        for (source, expected) in cases {
            assert_eq!(scrub(source)[0].trim_end(), expected, "{source}");
        }
    }

    #[test]
    fn lines_keep_their_numbers() {
        assert_eq!(scrub("a\n/* b\nc */\n\"d\ne\" f").len(), 5);
    }
}
