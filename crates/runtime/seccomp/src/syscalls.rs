//! Names and numbers of system calls.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Architectures that system calls are made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    /// 64 bits of Intel's.
    X8664,
    /// 32 bits of Intel's.
    X86,
    /// 32-bit pointers in 64-bit mode. The kernel calls it x86_64, with a bit in the number.
    X32,
    /// 64 bits of ARM's.
    Aarch64,
    /// 32 bits of ARM's.
    Arm,
}

/// The bit of x32's numbers.
pub(crate) const X32_BIT: u32 = 0x4000_0000;

/// A line a call: its name, then its number in each architecture, in the order of [`Arch`].
const TABLE: &str = include_str!("syscalls.txt");

static NUMBERS: LazyLock<BTreeMap<&'static str, [Option<u32>; 5]>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|it| !it.starts_with('#'));
    let line = |line: &'static str| {
        let mut words = line.split(' ');
        let name = words.next()?;
        let mut numbers = [None; 5];
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = word.parse().ok();
        }
        Some((name, numbers))
    };
    lines.filter_map(line).collect()
});

impl Arch {
    /// The architecture that this program was built for, which is its kernel's; none: one that
    /// filters are not made for.
    #[must_use]
    pub fn native() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X8664)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    /// By libseccomp's name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "SCMP_ARCH_X86_64" => Some(Self::X8664),
            "SCMP_ARCH_X86" => Some(Self::X86),
            "SCMP_ARCH_X32" => Some(Self::X32),
            "SCMP_ARCH_AARCH64" => Some(Self::Aarch64),
            "SCMP_ARCH_ARM" => Some(Self::Arm),
            _ => None,
        }
    }

    /// By the name that conditions on the node use, which is Go's.
    pub(crate) fn is_called(self, name: &str) -> bool {
        match self {
            Self::X8664 => name == "amd64" || name == "x86_64",
            Self::X86 => name == "386" || name == "x86",
            Self::X32 => name == "x32",
            Self::Aarch64 => name == "arm64" || name == "aarch64",
            Self::Arm => name == "arm",
        }
    }

    /// The architectures whose programs its kernel runs, itself first.
    pub(crate) fn with_others(self) -> Vec<Self> {
        match self {
            Self::X8664 => vec![Self::X8664, Self::X86, Self::X32],
            Self::Aarch64 => vec![Self::Aarch64, Self::Arm],
            Self::X86 | Self::X32 | Self::Arm => vec![self],
        }
    }

    /// The kernel's number for it (`AUDIT_ARCH_…`).
    pub(crate) fn audit(self) -> u32 {
        match self {
            Self::X8664 | Self::X32 => 0xc000_003e,
            Self::X86 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
            Self::Arm => 0x4000_0028,
        }
    }

    fn column(self) -> usize {
        match self {
            Self::X8664 => 0,
            Self::X86 => 1,
            Self::X32 => 2,
            Self::Aarch64 => 3,
            Self::Arm => 4,
        }
    }

    /// The number that the kernel sees.
    pub(crate) fn number(self, name: &str) -> Option<u32> {
        let number = NUMBERS.get(name)?[self.column()]?;
        Some(if self == Self::X32 { number | X32_BIT } else { number })
    }
}

/// Every call that this code knows, of whatever architecture.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NUMBERS.keys().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        let cases = [
            (Arch::X8664, "read", Some(0)),
            (Arch::X8664, "clone3", Some(435)),
            (Arch::X86, "socketcall", Some(102)),
            (Arch::X8664, "socketcall", None),
            (Arch::X32, "writev", Some(X32_BIT | 516)),
            (Arch::Aarch64, "openat", Some(56)),
            (Arch::Arm, "set_tls", Some(983_045)),
            (Arch::X8664, "no such call", None),
        ];
        for (arch, name, expected) in cases {
            assert_eq!(arch.number(name), expected, "{arch:?} {name}");
        }
        let lines = TABLE.lines().filter(|it| !it.starts_with('#')).count();
        assert_eq!(names().count(), lines);
        assert!(
            names().all(|it| it
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b"_0123456789".contains(&b)))
        );
    }
}
