//! "Did you mean …?": the known name nearest to a mistyped one.
//!
//! Pure text arithmetic, no knowledge of what the names stand for. Says nothing rather than
//! something far-fetched.

/// The message, followed by the nearest known name when one is near enough.
pub(crate) fn or_suggest<'a>(
    message: &str,
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    match nearest(given, known) {
        Some(name) => format!("{message}; did you mean {name:?}?"),
        None => message.to_owned(),
    }
}

/// The nearest of the known names, if it is at most about a third of the letters away.
pub(crate) fn nearest<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wanted = given.to_lowercase();
    let length = given.chars().count();
    let limit = length.div_ceil(3).min(length.saturating_sub(1));
    known
        .into_iter()
        .map(|name| (distance(&wanted, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edits (insert, delete, replace, swap of neighbours) between two texts.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut best = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let known = ["maxPods", "staticPodPath", "syncFrequency"];
        for (given, expected) in [
            ("maxPod", Some("maxPods")),
            ("MaxPods", Some("maxPods")),
            ("staticPodsPath", Some("staticPodPath")),
            ("sycnFrequency", Some("syncFrequency")),
            ("zebra", None),
        ] {
            assert_eq!(nearest(given, known), expected, "{given}");
        }
    }
}
