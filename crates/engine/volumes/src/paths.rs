//! Relative paths in volumes: cleaned as Go cleans them, and refused where they could lead out.

const LONGEST_PATH: usize = 4096;
const LONGEST_NAME: usize = 255;

/// The shortest path with the same meaning: no empty, `.` or (where it can be resolved) `..`
/// elements.
pub(crate) fn clean(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut kept: Vec<&str> = Vec::new();
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => match kept.last() {
                Some(&last) if last != ".." => {
                    kept.pop();
                }
                _ if is_absolute => {}
                _ => kept.push(".."),
            },
            name => kept.push(name),
        }
    }
    let joined = kept.join("/");
    match (is_absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// Why a path may not name a file in a volume; `None` when it may.
pub(crate) fn file_path_fault(path: &str) -> Option<String> {
    if path.is_empty() {
        return Some("invalid path: must not be empty: \"\"".to_owned());
    }
    if path.starts_with('/') {
        return Some(format!("invalid path: must be relative path: {path}"));
    }
    if path.len() > LONGEST_PATH {
        return Some(format!(
            "invalid path: must be less than or equal to {LONGEST_PATH} characters"
        ));
    }
    let mut elements = path.split('/');
    if elements.clone().any(|element| element == "..") {
        return Some(format!("invalid path: must not contain '..': {path}"));
    }
    if elements.clone().any(|element| element.len() > LONGEST_NAME) {
        return Some(format!(
            "invalid path: filenames must be less than or equal to {LONGEST_NAME} characters"
        ));
    }
    if elements.next().is_some_and(|first| first.starts_with("..")) {
        return Some(format!("invalid path: must not start with '..': {path}"));
    }
    if clean(path) == "." || path.contains('\0') {
        return Some(format!("invalid path: must name a file: {path:?}"));
    }
    None
}

/// True when a path steps back somewhere.
pub(crate) fn has_backstep(path: &str) -> bool {
    path.split('/').any(|element| element == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_go_does() {
        let check = |path: &str, cleaned: &str| assert_eq!(clean(path), cleaned, "{path}");
        check("a", "a");
        check("a//b/./c/", "a/b/c");
        check("/a/b/../c", "/a/c");
        check("/../a", "/a");
        check("../a", "../a");
        check("a/..", ".");
        check("", ".");
        check("/", "/");
    }

    #[test]
    fn paths_that_could_lead_out_are_refused_in_upstreams_words() {
        let check = |path: &str, fault: &str| {
            assert_eq!(file_path_fault(path).as_deref(), Some(fault), "{path}");
        };
        check("", "invalid path: must not be empty: \"\"");
        check("/a", "invalid path: must be relative path: /a");
        check("a/../b", "invalid path: must not contain '..': a/../b");
        check("..", "invalid path: must not contain '..': ..");
        check("..data", "invalid path: must not start with '..': ..data");
        check("./", "invalid path: must name a file: \"./\"");
        for fine in ["a", "a/b", "a/..b", ".a", "a.."] {
            assert_eq!(file_path_fault(fine), None, "{fine}");
        }
        assert!(file_path_fault(&"n".repeat(256)).is_some());
        assert!(file_path_fault(&"n/".repeat(2049)).is_some());
    }
}
