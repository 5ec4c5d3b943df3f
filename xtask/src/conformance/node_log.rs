//! The part of a node's log that belongs to one test. Pure.
//!
//! Both kubelets write klog's text: `I0116 12:34:56.789012 …`, in local time without a year.
//! Reports have RFC 3339 in local time too, so the fields can be compared as they stand.

/// The lines of `log` between two RFC 3339 times, both included; lines without a time belong to the
/// one before.
pub(super) fn between(log: &str, began: &str, ended: &str) -> String {
    let (Some(began), Some(ended)) = (stamp(began), stamp(ended)) else {
        return String::new();
    };
    let mut kept = String::new();
    let mut is_inside = false;
    for line in log.lines() {
        if let Some(time) = line_stamp(line) {
            is_inside = (began.as_str()..=ended.as_str()).contains(&time);
        }
        if is_inside {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// `2026-01-16T12:34:56.789Z` as `0116 12:34:56`.
fn stamp(time: &str) -> Option<String> {
    let (date, clock) = time.split_once('T')?;
    let (_, month_and_day) = date.split_once('-')?;
    Some(format!("{} {}", month_and_day.replace('-', ""), clock.get(..8)?))
}

/// The same of a klog line.
fn line_stamp(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(['I', 'W', 'E', 'F'])?;
    let stamp = rest.get(..13)?;
    let is_stamp = stamp.bytes().enumerate().all(|(index, byte)| match index {
        4 => byte == b' ',
        7 | 10 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    is_stamp.then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_time_and_those_that_hang_on_them_are_kept() {
        let log = "I0116 12:00:00.000001       1 a.rs:1] before\n\
                   E0116 12:00:05.999999       1 a.rs:1] first\n\
                   \tmore of the first\n\
                   W0116 12:00:07.5       1 a.rs:1] last\n\
                   I0116 12:00:08.0       1 a.rs:1] after\n\
                   Inside nothing\n";
        let kept = between(log, "2026-01-16T12:00:05.2Z", "2026-01-16T12:00:07.1Z");
        let lines: Vec<&str> = kept.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(lines, ["first", "first", "last"]);
    }

    #[test]
    fn a_test_that_never_began_has_no_log() {
        assert_eq!(between("I0116 12:00:00.1 x\n", "", ""), "");
    }
}
