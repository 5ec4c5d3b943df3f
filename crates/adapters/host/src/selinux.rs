//! What SELinux calls containers' files on this machine: one line of the loaded policy's
//! `lxc_contexts`.
//!
//! In: `/etc/selinux`. Out: a label, or nothing where SELinux is off or has no policy for
//! containers. Refuses: asking the kernel about single files.

use std::path::Path;

use crate::machine::selinux_is_enabled;

/// More than any policy's list of contexts.
const LIMIT: usize = 64 * 1024;

/// The label of containers' files; `None` where files have none.
pub fn container_file_label() -> Option<String> {
    if !selinux_is_enabled() {
        return None;
    }
    let root = Path::new("/etc/selinux");
    let config = read(&root.join("config"))?;
    let policy = setting(&config, "SELINUXTYPE")?;
    if !ferrolet_linux::rooted::is_plain_name(&policy) {
        return None;
    }
    let contexts = read(&root.join(policy).join("contexts/lxc_contexts"))?;
    setting(&contexts, "file")
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    let limit = u64::try_from(LIMIT).unwrap_or(u64::MAX);
    file.take(limit).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The value of `key = "value"`; comments begin with a semicolon or a hash.
fn setting(text: &str, key: &str) -> Option<String> {
    let lines = text.lines().map(str::trim);
    let mut pairs =
        lines.filter(|line| !line.starts_with([';', '#'])).filter_map(|line| line.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim() == key)?;
    let value = value.trim().trim_matches('"').trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_policies_write_them() {
        let check = |text: &str, key: &str, expected: Option<&str>| {
            assert_eq!(setting(text, key).as_deref(), expected, "{text:?}");
        };
        let contexts = "; none\nprocess = \"system_u:system_r:container_t:s0\"\ncontent = \"x\"\nfile = \"system_u:object_r:container_file_t:s0\"\n# file = no\n";
        check(contexts, "file", Some("system_u:object_r:container_file_t:s0"));
        check("#SELINUXTYPE=mls\nSELINUXTYPE=targeted\n", "SELINUXTYPE", Some("targeted"));
        check("file =\n", "file", None);
        check("ro_file = \"x\"\n", "file", None);
        check("", "file", None);
    }
}
