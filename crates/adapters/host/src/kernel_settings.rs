//! The kernel's settings that a node relies on: looked at, and set or refused as the policy of
//! `ferrolet_node` says.
//!
//! In: a directory like `/proc/sys` and a policy. Out: what could not be made true, as sentences for
//! the log, or why the agent must not start. A kernel that may not be written to is lived with:
//! agents run in containers and namespaces too. Refuses: any setting that is not in the table.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use ferrolet_node::{TUNABLES, Tunable, TunablePlan, TunablePolicy, plan_tunable};

/// Settings are short numbers.
const LONGEST: u64 = 64;

/// Why the agent must not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("protectKernelDefaults is set, and the kernel is not as a node needs it: {}", .0.join("; "))]
pub struct ProtectedKernel(Vec<String>);

/// Makes the kernel's settings what a node needs, and answers with what is not so all the same.
pub fn set_up_kernel(
    directory: &Path,
    policy: TunablePolicy,
) -> Result<Vec<String>, ProtectedKernel> {
    let (mut left, mut refused) = (Vec::new(), Vec::new());
    for tunable in TUNABLES {
        let Tunable { name, value } = tunable;
        let path = path_of(directory, name);
        let found = match read_number(&path) {
            Ok(found) => found,
            Err(cause) => {
                let sentence = format!("{name} cannot be read: {cause}");
                match policy {
                    TunablePolicy::Set => left.push(sentence),
                    TunablePolicy::Protect => refused.push(sentence),
                }
                continue;
            }
        };
        match plan_tunable(tunable, found, policy) {
            TunablePlan::Leave => {}
            TunablePlan::Refuse(why) => refused.push(why),
            TunablePlan::Set => {
                if let Err(cause) = fs::write(&path, value.to_string()) {
                    left.push(format!("{name} is {found} and cannot be set to {value}: {cause}"));
                }
            }
        }
    }
    if refused.is_empty() { Ok(left) } else { Err(ProtectedKernel(refused)) }
}

fn path_of(directory: &Path, name: &str) -> PathBuf {
    name.split('.').fold(directory.to_owned(), |path, part| path.join(part))
}

fn read_number(path: &Path) -> io::Result<i64> {
    use std::io::Read as _;
    let mut text = Vec::new();
    fs::File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    text.trim().parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{:?} is not a number", text.trim()))
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn kernel(values: &[(&str, &str)]) -> TempDir {
        let held = TempDir::new().unwrap();
        for (name, value) in values {
            let path = path_of(held.path(), name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        }
        held
    }

    const FRESH: [(&str, &str); 6] = [
        ("vm.overcommit_memory", "0"),
        ("vm.panic_on_oom", "0"),
        ("kernel.panic", "1"),
        ("kernel.panic_on_oops", "0"),
        ("kernel.keys.root_maxkeys", "1000000"),
        ("kernel.keys.root_maxbytes", "25000000"),
    ];

    #[test]
    fn a_fresh_kernel_is_set_up_and_then_left_alone() {
        let kernel = kernel(&FRESH);
        for _ in 0..2 {
            assert_eq!(set_up_kernel(kernel.path(), TunablePolicy::Set), Ok(Vec::new()));
        }
        for tunable in TUNABLES {
            let found = read_number(&path_of(kernel.path(), tunable.name)).unwrap();
            assert_eq!(found, tunable.value, "{}", tunable.name);
        }
        assert_eq!(set_up_kernel(kernel.path(), TunablePolicy::Protect), Ok(Vec::new()));
    }

    #[test]
    fn a_protected_kernel_is_not_changed_and_each_difference_is_named() {
        let kernel = kernel(&FRESH);
        let error = set_up_kernel(kernel.path(), TunablePolicy::Protect).unwrap_err();
        assert_eq!(
            error.to_string(),
            "protectKernelDefaults is set, and the kernel is not as a node needs it: \
             invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0; \
             invalid kernel flag: kernel/panic, expected value: 10, actual value: 1; \
             invalid kernel flag: kernel/panic_on_oops, expected value: 1, actual value: 0"
        );
        let kept = fs::read_to_string(kernel.path().join("vm/overcommit_memory")).unwrap();
        assert_eq!(kept, "0\n");
    }

    #[test]
    fn what_cannot_be_read_or_written_is_told_and_lived_with() {
        let kernel = kernel(&FRESH[..4]);
        fs::write(kernel.path().join("kernel/panic"), "soon").unwrap();
        let told = set_up_kernel(kernel.path(), TunablePolicy::Set).unwrap();
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(told[0], "kernel.panic cannot be read: \"soon\" is not a number");
        assert!(told[1].starts_with("kernel.keys.root_maxkeys cannot be read: "), "{told:?}");
        let error = set_up_kernel(kernel.path(), TunablePolicy::Protect).unwrap_err();
        assert!(error.to_string().contains("kernel.panic cannot be read"), "{error}");
    }
}
