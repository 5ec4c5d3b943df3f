//! The pages of our own program and its libraries, as the kernel lists them, and the giving back of
//! those that can be read again.
//!
//! Most of what an agent that waits holds is code: the kernel maps sixteen pages around each page
//! that was ever touched, and what ran once at the start stays. Unmapping it costs a soft fault for
//! what is used again, and the kernel may take the rest first when memory is short. Called by
//! [`crate::process::trim_memory`]. Refuses: pages that were written to, and anything that is not a
//! file's.

use std::fs;

/// A mapping of a file that nobody wrote to: every page of it can be read from the file again.
///
/// Made only from the kernel's own list of this process's mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CleanMapping {
    start: usize,
    end: usize,
}

impl CleanMapping {
    pub(crate) fn start(self) -> usize {
        self.start
    }

    pub(crate) fn len(self) -> usize {
        self.end - self.start
    }
}

/// Unmaps what can be read again; `true` when something was.
pub(crate) fn give_back() -> bool {
    // A kernel without this list (it can be left out) just keeps its pages mapped.
    let Ok(list) = fs::read("/proc/self/smaps") else {
        return false;
    };
    let mut is_done = false;
    for mapping in clean_mappings(&String::from_utf8_lossy(&list)) {
        is_done |= crate::sys::unmap_pages(mapping);
    }
    is_done
}

/// The private, read-only mappings of files in `/proc/self/smaps` that have pages in memory, none
/// of them a copy of our own (relocated data and a debugger's breakpoints are such copies, and
/// would be lost).
fn clean_mappings(smaps: &str) -> Vec<CleanMapping> {
    let mut found = Vec::new();
    let mut mapping = None;
    let mut is_resident = false;
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        match (fields.next(), fields.next()) {
            (Some("Rss:"), size) => is_resident = size != Some("0"),
            (Some("Anonymous:"), size) => {
                let clean = mapping.take().filter(|_| is_resident && size == Some("0"));
                found.extend(clean);
            }
            (Some(key), _) if key.ends_with(':') => {}
            (Some(range), Some(rights)) => {
                let path = fields.nth(3).unwrap_or_default();
                let is_ours =
                    rights.starts_with("r-") && rights.ends_with('p') && path.starts_with('/');
                mapping = parse_range(range).filter(|_| is_ours);
                is_resident = false;
            }
            _ => {}
        }
    }
    found
}

fn parse_range(text: &str) -> Option<CleanMapping> {
    let (start, end) = text.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    (start < end).then_some(CleanMapping { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One mapping as the kernel lists it.
    fn listed(head: &str, rss: u64, anonymous: u64) -> String {
        format!(
            "{head}\nSize: 64 kB\nRss: {rss} kB\nPss: 1 kB\nAnonymous: {anonymous} kB\nVmFlags: rd ex mr\n"
        )
    }

    #[test]
    fn only_unwritten_pages_of_files_are_chosen() {
        let code = "1000-3000 r-xp 00001000 fd:00 12 /usr/bin/ferrolet";
        let chosen = [CleanMapping { start: 0x1000, end: 0x3000 }];
        let cases: [(&str, String, &[CleanMapping]); 9] = [
            ("code", listed(code, 8, 0), &chosen),
            ("constants", listed("1000-3000 r--p 0 fd:00 12 /usr/bin/ferrolet", 8, 0), &chosen),
            (
                "a path with a blank",
                listed("1000-3000 r-xp 0 fd:00 12 /opt/my agent", 8, 0),
                &chosen,
            ),
            ("nothing in memory", listed(code, 0, 0), &[]),
            ("relocated or patched", listed(code, 8, 4), &[]),
            ("writable", listed("1000-3000 rw-p 0 fd:00 12 /usr/bin/ferrolet", 8, 0), &[]),
            ("shared", listed("1000-3000 r--s 0 fd:00 12 /usr/bin/ferrolet", 8, 0), &[]),
            ("no file", listed("1000-3000 r-xp 0 00:00 0 [vdso]", 8, 0), &[]),
            ("junk", "x-y r-xp\nRss:\nAnonymous: 0 kB\n".to_owned(), &[]),
        ];
        for (name, smaps, expected) in cases {
            assert_eq!(clean_mappings(&smaps), expected, "{name}");
        }
    }

    #[test]
    fn the_test_itself_goes_on_without_its_pages() {
        let list = fs::read_to_string("/proc/self/smaps").unwrap();
        assert!(!clean_mappings(&list).is_empty());
        assert!(give_back());
    }
}
