//! Patterns that stand for registries and parts of them: `*.example.org`,
//! `registry.test:5000/team`.
//!
//! A pattern and a place fit when their ports are equal, their hosts have the same number of
//! labels, each label fits its glob, and the pattern's path is a prefix of the place's. Paths and
//! ports know no globs. The rules are upstream's, down to a path prefix that may end in the middle
//! of a word.

/// Why a text cannot be a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(&'static str);

/// A host, port and path without a scheme.
pub(crate) struct Place<'a> {
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
}

impl<'a> Place<'a> {
    /// Splits `host[:port][/path]`, refusing what no URL could hold.
    pub(crate) fn parse(text: &'a str) -> Result<Self, PatternError> {
        let text = text.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = match text.find('/') {
            Some(slash) => text.split_at(slash),
            None => (text, ""),
        };
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        if host.chars().any(|c| c.is_whitespace() || c.is_control() || "<>\"^`{|}".contains(c)) {
            return Err(PatternError("it has a character that no host name has"));
        }
        if path.chars().any(char::is_control) {
            return Err(PatternError("it has a control character"));
        }
        if let Some(port) = host.rsplit_once(':').map(|(_, port)| port)
            && !host.ends_with(']')
            && !port.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(PatternError("its port is not a number"));
        }
        Ok(Self { host, path })
    }

    fn labels_and_port(&self) -> (Vec<&'a str>, &'a str) {
        let (host, port) = match self.host.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host, port),
            Some((host, port)) if host.starts_with('[') && host.ends_with(']') => {
                (&host[1..host.len() - 1], port)
            }
            _ => (self.host, ""),
        };
        (host.split('.').collect(), port)
    }

    pub(crate) fn fits(&self, target: &Place<'_>) -> bool {
        let (globs, port) = self.labels_and_port();
        let (labels, target_port) = target.labels_and_port();
        port == target_port
            && globs.len() == labels.len()
            && target.path.starts_with(self.path)
            && globs.iter().zip(&labels).all(|(glob, label)| {
                let (glob, label): (Vec<char>, Vec<char>) =
                    (glob.chars().collect(), label.chars().collect());
                fits_glob(&glob, &label)
            })
    }
}

/// True when a pattern stands for a place, both written without a scheme. What is no pattern stands
/// for nothing.
pub fn matches_place(pattern: &str, place: &str) -> bool {
    match (Place::parse(pattern), Place::parse(place)) {
        (Ok(pattern), Ok(place)) => pattern.fits(&place),
        _ => false,
    }
}

/// `*` for any run of characters, `[a-z]` for one of some, `\` before a character that is meant as
/// it is.
fn fits_glob(glob: &[char], text: &[char]) -> bool {
    match glob {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|n| fits_glob(rest, &text[n..])),
        ['[', rest @ ..] => {
            let Some((first, others)) = text.split_first() else {
                return false;
            };
            match class(rest) {
                Some((class, rest)) => class.holds(*first) && fits_glob(rest, others),
                None => false,
            }
        }
        ['\\', wanted, rest @ ..] | [wanted, rest @ ..] => {
            text.first() == Some(wanted) && fits_glob(rest, &text[1..])
        }
    }
}

struct Class {
    is_negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    fn holds(&self, c: char) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != self.is_negated
    }
}

/// What is between the brackets, and what follows them.
fn class(mut rest: &[char]) -> Option<(Class, &[char])> {
    let is_negated = rest.first() == Some(&'^');
    rest = &rest[usize::from(is_negated)..];
    let mut ranges = Vec::new();
    loop {
        match rest {
            [']', after @ ..] if !ranges.is_empty() => {
                return Some((Class { is_negated, ranges }, after));
            }
            [low, '-', high, after @ ..] if *high != ']' => {
                ranges.push((*low, *high));
                rest = after;
            }
            [one, after @ ..] => {
                ranges.push((*one, *one));
                rest = after;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `URLsMatch` and a few more.
    #[test]
    fn a_pattern_stands_for_hosts_ports_and_paths() {
        for (pattern, place, fits) in [
            ("*.kubernetes.io", "prefix.kubernetes.io", true),
            ("prefix.*.io", "prefix.kubernetes.io", true),
            ("prefix.kubernetes.*", "prefix.kubernetes.io", true),
            ("*-good.kubernetes.io", "prefix-good.kubernetes.io", true),
            ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah/x", true),
            ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", true),
            ("*.*.kubernetes.io", "a.b.kubernetes.io", true),
            ("p[0-9].io", "p1.io", true),
            ("p[^0-9].io", "p1.io", false),
            ("p[0-9.io", "p1.io", false),
            ("*.kubernetes.io", "kubernetes.io", false),
            ("*.*.kubernetes.io", "prefix.kubernetes.io", false),
            ("*.kubernetes.io", "a.b.kubernetes.io", false),
            ("*kubernetes.io", "a.b.kubernetes.io", false),
            ("*.kubernetes.io/blah", "prefix.kubernetes.io/other", false),
            ("registry.test:5000", "registry.test:5000/x", true),
            ("registry.test:5000", "registry.test/x", false),
            ("registry.test", "registry.test:5000/x", false),
            ("[::1]:5000", "[::1]:5000/x", true),
            ("registry.test/te", "registry.test/team/app", true),
            ("not a host", "not a host", false),
        ] {
            assert_eq!(matches_place(pattern, place), fits, "{pattern} and {place}");
        }
    }

    #[test]
    fn what_no_url_could_hold_is_no_pattern() {
        for text in ["a b", "host:port", "a\u{7f}b", "<host>"] {
            assert!(Place::parse(text).is_err(), "{text}");
        }
        for text in ["*.dkr.ecr.*.amazonaws.com", "a:5000/b", "docker.io"] {
            assert!(Place::parse(text).is_ok(), "{text}");
        }
    }
}
