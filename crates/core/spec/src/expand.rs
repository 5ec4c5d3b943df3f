//! `$(NAME)` references in values, commands, arguments and sub-paths.
//!
//! `$(NAME)` becomes the variable's value, `$$` a dollar sign, and everything else stays as it is:
//! an unknown name, an unclosed bracket, a lone dollar. So `$$(NAME)` is the way to write a
//! reference that stays.

use std::collections::BTreeSet;

/// Replaces references by what `lookup` knows; unknown ones stay.
pub fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    expand_with(text, |name| match lookup(name) {
        Some(value) => value.to_owned(),
        None => format!("$({name})"),
    })
}

/// Replaces references by what `lookup` knows, or names those that are unknown or empty.
pub fn expand_strictly<'a>(
    text: &str,
    lookup: impl Fn(&str) -> Option<&'a str>,
) -> Result<String, BTreeSet<String>> {
    let mut missing = BTreeSet::new();
    let expanded = expand_with(text, |name| {
        let value = lookup(name).unwrap_or_default();
        if value.is_empty() {
            missing.insert(name.to_owned());
        }
        value.to_owned()
    });
    if missing.is_empty() { Ok(expanded) } else { Err(missing) }
}

fn expand_with(text: &str, mut value_of: impl FnMut(&str) -> String) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let reference = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        rest = if let Some((name, tail)) = reference {
            result.push_str(&value_of(name));
            tail
        } else if let Some(tail) = after.strip_prefix('$') {
            result.push('$');
            tail
        } else {
            result.push('$');
            after
        };
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<&'static str> {
        match name {
            "VAR_A" => Some("A"),
            "VAR_B" => Some("B"),
            "REF" => Some("$(VAR_A)"),
            "EMPTY" => Some(""),
            _ => None,
        }
    }

    #[test]
    fn references_are_replaced_once_and_everything_else_stays() {
        for (text, expanded) in [
            ("$(VAR_A)", "A"),
            ("___$(VAR_B)___", "___B___"),
            ("$(VAR_A)$(VAR_B)-x", "AB-x"),
            ("$(REF)", "$(VAR_A)"),
            ("f000-$(VAR_A)", "f000-A"),
            ("$(EMPTY)", ""),
            ("$(NONE)", "$(NONE)"),
            ("$()", "$()"),
            ("$$(VAR_A)", "$(VAR_A)"),
            ("$$$(VAR_A)", "$A"),
            ("$$$$", "$$"),
            ("\\$(VAR_A)", "\\A"),
            ("$VAR_A", "$VAR_A"),
            ("$(VAR_A", "$(VAR_A"),
            ("$(VAR_A$(VAR_B)", "$(VAR_A$(VAR_B)"),
            ("$((VAR_A))", "$((VAR_A))"),
            ("100%$", "100%$"),
            ("$é$(VAR_A)", "$éA"),
            ("", ""),
        ] {
            assert_eq!(expand(text, lookup), expanded, "{text}");
        }
    }

    #[test]
    fn strict_expansion_names_what_is_missing() {
        assert_eq!(expand_strictly("$(VAR_A)/x", lookup), Ok("A/x".to_owned()));
        let missing = BTreeSet::from(["EMPTY".to_owned(), "NONE".to_owned()]);
        assert_eq!(expand_strictly("$(NONE)$(EMPTY)$(VAR_A)", lookup), Err(missing));
    }
}
