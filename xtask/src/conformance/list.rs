//! The names of the tests that count, and how they meet the suite's own names. Pure.
//!
//! The suite decorates names with tags such as `[Conformance]`; the list has them without, so that
//! a tag that comes or goes with a release changes nothing.

use std::collections::BTreeMap;

use super::judge::Judge;

/// Tags that say how a test may run, not what it tests.
const TAGS: [&str; 8] = [
    "Conformance",
    "NodeConformance",
    "LinuxOnly",
    "Serial",
    "Slow",
    "Disruptive",
    "Alpha",
    "Beta",
];

/// Beginnings of such tags.
const KINDS_OF_TAGS: [&str; 3] = ["MinimumKubeletVersion:", "KubeletMinVersion:", "FeatureGate:"];

/// Tests of one of upstream's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) file: String,
    pub(super) names: Vec<String>,
}

/// A judge's whole list, in its order.
pub(super) fn groups(judge: Judge) -> Vec<Group> {
    parse(judge.list())
}

/// All names of that list.
pub(super) fn names(judge: Judge) -> Vec<String> {
    let groups = groups(judge).into_iter();
    groups.flat_map(|group| group.names).collect()
}

fn parse(text: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match (line.strip_prefix("# "), groups.last_mut()) {
            (Some(file), _) if file.ends_with(".go") => {
                groups.push(Group { file: file.to_owned(), names: Vec::new() })
            }
            (None, Some(group)) => group.names.push(line.to_owned()),
            // A remark, or a name before any file: the test of the list would see it.
            _ => {}
        }
    }
    groups
}

/// A name of the suite without the tags that do not count.
pub(super) fn bare(name: &str) -> String {
    let mut kept = String::new();
    for (index, piece) in name.split(" [").enumerate() {
        let tag = piece.split(']').next().unwrap_or_default();
        let is_tag = TAGS.contains(&tag) || KINDS_OF_TAGS.iter().any(|it| tag.starts_with(it));
        if index > 0 && is_tag {
            kept.push_str(&piece[tag.len() + 1..]);
        } else {
            if index > 0 {
                kept.push_str(" [");
            }
            kept.push_str(piece);
        }
    }
    kept
}

/// The suite's names by their bare form.
pub(super) fn by_bare_name(suite: impl IntoIterator<Item = String>) -> BTreeMap<String, String> {
    suite.into_iter().map(|name| (bare(&name), name)).collect()
}

/// An expression that matches this name of the suite and no longer one.
pub(super) fn focus(name: &str) -> String {
    let mut expression = String::new();
    for letter in name.chars() {
        if r"\.+*?()|[]{}^$".contains(letter) {
            expression.push('\\');
        }
        expression.push(letter);
    }
    expression.push('$');
    expression
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_list_has_every_name_once() {
        for (judge, n_names) in [(Judge::Cluster, 271), (Judge::Node, 202), (Judge::Serial, 21)] {
            let names = names(judge);
            assert_eq!(names.len(), n_names, "{}", judge.name());
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), n_names);
            assert!(names.iter().all(|name| name.starts_with("[sig-") && bare(name) == *name));
        }
    }

    #[test]
    fn tags_are_taken_away_and_other_brackets_stay() {
        let cases = [
            ("[sig-a] b [Conformance]", "[sig-a] b"),
            ("[sig-a] b [LinuxOnly] [Conformance] [NodeConformance]", "[sig-a] b"),
            ("[sig-a] [Slow] b c [MinimumKubeletVersion:1.34]", "[sig-a] b c"),
            (
                "[sig-a] b [FeatureGate:C] d e [Beta] [FeatureGate:F] [NodeConformance]",
                "[sig-a] b d e",
            ),
            ("[sig-a] b [Projection] [Conformance]", "[sig-a] b [Projection]"),
            ("[sig-a] b [Slower]", "[sig-a] b [Slower]"),
        ];
        for (name, expected) in cases {
            assert_eq!(bare(name), expected);
        }
    }

    #[test]
    fn a_focus_quotes_what_expressions_use() {
        assert_eq!(focus("[a] b (c) *d*: e.f"), r"\[a\] b \(c\) \*d\*: e\.f$");
    }

    #[test]
    fn remarks_are_passed_over() {
        let groups = parse("# remark\n\n# a.go\n[sig-a] x\n# b.go\n[sig-a] y\n[sig-a] z\n");
        let counts: Vec<(&str, usize)> =
            groups.iter().map(|group| (group.file.as_str(), group.names.len())).collect();
        assert_eq!(counts, [("a.go", 1), ("b.go", 2)]);
    }
}
