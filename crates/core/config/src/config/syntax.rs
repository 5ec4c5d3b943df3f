//! The small grammars of Kubernetes that fields are checked against: names, label values, CPU
//! lists, sysctls.

use std::collections::BTreeSet;

/// `[prefix/]name`: a DNS subdomain as prefix, up to 63 letters, digits, `-`, `_`, `.` as name.
pub(crate) fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name_part(name),
        None => is_name_part(text),
    }
}

/// Like a name without prefix, or empty.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

fn is_name_part(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63 && text.starts_with(edge) && text.ends_with(edge) && text.chars().all(inside)
}

/// Lower-case labels joined by dots, 253 characters at most.
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(edge)
            && label.ends_with(edge)
            && label.chars().all(|c| edge(c) || c == '-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// `0-3,7`: CPU numbers and ranges.
pub(super) fn parse_cpu_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        match part.split_once('-') {
            None => {
                cpus.insert(part.parse().ok()?);
            }
            Some((first, last)) => {
                let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
                // A host has thousands of CPUs at most; a range of millions is a typing error, not
                // a request.
                if first > last || last > 65_535 {
                    return None;
                }
                cpus.extend(first..=last);
            }
        }
    }
    Some(cpus)
}

/// Segments of lower-case letters, digits, `-` and `_`, joined by dots or slashes.
pub(super) fn is_sysctl_name(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_segment = |segment: &str| {
        segment.starts_with(edge)
            && segment.ends_with(edge)
            && segment.chars().all(|c| edge(c) || matches!(c, '-' | '_'))
    };
    text.len() <= 253 && text.split(['.', '/']).all(is_segment)
}

/// A sysctl with dots as separators, whichever way it was written; the first separator decides.
pub(super) fn normal_sysctl_name(text: &str) -> String {
    match text.find(['.', '/']) {
        Some(at) if text[at..].starts_with('/') => text
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => text.to_owned(),
    }
}

/// Whether the kernel keeps this setting per namespace, so that it can be set for one pod.
pub(super) fn is_namespaced_sysctl(name: &str) -> bool {
    let exact = [
        "kernel.domainname",
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ];
    exact.contains(&name)
        || ["net.", "fs.mqueue.", "user."].iter().any(|prefix| name.starts_with(prefix))
}

/// `12%` or `12.5%` as a number; `None` when it is not a percentage.
pub(super) fn parse_percent(text: &str) -> Option<f64> {
    text.strip_suffix('%')?.parse().ok().filter(|percent: &f64| percent.is_finite())
}
