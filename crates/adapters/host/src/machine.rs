//! Facts about the machine: names, identities, sizes. Pure parsers of the kernel's texts, and thin
//! readers around them.
//!
//! In: files under `/proc`, `/sys` and `/etc`. Out: [`MachineFacts`], what the node reports about
//! itself. Read once at start; nothing here is kept. Refuses: guessing a size; a machine that does
//! not tell its memory is an error.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use ferrolet_linux::{
    cgroups::{CgroupLayout, CgroupMode},
    mountinfo,
};
use ferrolet_types::Timestamp;

/// A resolver file is a few lines; upstream stops at the same size.
const RESOLVER_LIMIT: u64 = 10 << 20;
/// More than any file of `/proc` or `/etc` that is read here.
const FACT_LIMIT: u64 = 1 << 20;

/// A bundle of authorities has a few hundred kilobytes.
const TRUST_LIMIT: u64 = 10 << 20;
/// Where distributions keep them, in the order in which Go looks.
const TRUST_BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// What the node says about its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// The kernel's name for the machine, as it is.
    pub hostname: String,
    /// Differs after each boot.
    pub boot_id: String,
    /// Stays over boots; empty when the machine has none.
    pub machine_id: String,
    /// The firmware's identity; the machine's id where the firmware has none, as upstream does.
    pub system_uuid: String,
    /// The kernel's release.
    pub kernel_version: String,
    /// The distribution's name for itself.
    pub os_image: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Processors that are online.
    pub n_cpus: u32,
    /// Whether any swap is in use.
    pub swap_is_on: bool,
    /// Bytes of swap.
    pub swap_bytes: u64,
    /// Tasks that the kernel has room for; `None` when it does not say.
    pub max_pids: Option<u64>,
    /// Whether we are root only in a user namespace.
    pub is_in_user_namespace: bool,
    /// Which cgroup hierarchy is mounted; `None` when there is none.
    pub cgroup_mode: Option<CgroupMode>,
}

/// A fact the machine would not tell.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The file could not be read.
    #[error("read {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file was read but does not say it.
    #[error("find {fact} in {path}")]
    Missing {
        /// What was looked for.
        fact: &'static str,
        /// Where.
        path: PathBuf,
    },
}

/// Reads the facts of this machine.
pub fn read_machine() -> Result<MachineFacts, MachineError> {
    let names = rustix::system::uname();
    let memory_bytes = fact("/proc/meminfo", "the memory's size", total_memory)?;
    let n_cpus = fact("/sys/devices/system/cpu/online", "processors", count_cpu_list)?;
    let boot_id = required("/proc/sys/kernel/random/boot_id")?;
    let machine_id = first_of(&["/etc/machine-id", "/var/lib/dbus/machine-id"]);
    let firmware = first_of(&[
        "/sys/class/dmi/id/product_uuid",
        "/proc/device-tree/system-id",
        "/proc/device-tree/vm,uuid",
        "/etc/machine-id",
    ]);
    let os_release = first_of(&["/etc/os-release", "/usr/lib/os-release"]);
    let mounts = mountinfo::read()
        .map_err(|source| MachineError::Read { path: "/proc/self/mountinfo".into(), source })?;
    Ok(MachineFacts {
        hostname: names.nodename().to_string_lossy().into_owned(),
        kernel_version: names.release().to_string_lossy().into_owned(),
        boot_id: boot_id.trim().to_owned(),
        machine_id: machine_id.trim().to_owned(),
        system_uuid: firmware.trim_end_matches('\0').trim().to_owned(),
        os_image: pretty_name(&os_release).unwrap_or_else(|| "Linux".to_owned()),
        memory_bytes,
        n_cpus,
        // A kernel without swap support has no such file.
        swap_is_on: swap_is_on(&first_of(&["/proc/swaps"])),
        swap_bytes: total_swap(&first_of(&["/proc/meminfo"])).unwrap_or(0),
        max_pids: fewest(&[
            &first_of(&["/proc/sys/kernel/pid_max"]),
            &first_of(&["/proc/sys/kernel/threads-max"]),
        ]),
        is_in_user_namespace: is_mapped(&first_of(&["/proc/self/uid_map"])),
        cgroup_mode: CgroupLayout::detect(&mounts).ok().map(|it| it.mode()),
    })
}

/// The smallest of some numbers; what is no number does not count.
fn fewest(texts: &[&str]) -> Option<u64> {
    texts.iter().filter_map(|text| text.trim().parse().ok()).min()
}

/// When this machine booted; `None` when the kernel does not tell.
pub fn read_boot_time() -> Option<Timestamp> {
    boot_time(&first_of(&["/proc/stat"]))
}

fn boot_time(stat: &str) -> Option<Timestamp> {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    let second = line?.trim().parse().ok()?;
    Some(Timestamp::from_second(second))
}

/// Cores and sockets, from the text of `/proc/cpuinfo`; processors that do not say count as a core
/// each in one socket.
pub fn cores_and_sockets(cpuinfo: &str) -> (u64, u64) {
    let (mut cores, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    let mut n = 0_u64;
    for processor in cpuinfo.split("\n\n") {
        let field = |name: &str| {
            processor.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        let Some(number) = field("processor") else {
            continue;
        };
        n += 1;
        let socket = field("physical id").unwrap_or("0");
        sockets.insert(socket);
        cores.insert((socket, field("core id").unwrap_or(number)));
    }
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    match n {
        0 => (0, 0),
        _ => (count(cores.len()), count(sockets.len())),
    }
}

/// Cores and sockets of this machine.
pub fn read_cores_and_sockets() -> (u64, u64) {
    cores_and_sockets(&first_of(&["/proc/cpuinfo"]))
}

/// Bytes of swap this machine has.
pub fn read_swap_bytes() -> u64 {
    let meminfo = first_of(&["/proc/meminfo"]);
    let line = meminfo.lines().find_map(|line| line.strip_prefix("SwapTotal:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kilobytes: u64 = kilobytes.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
    kilobytes.saturating_mul(1024)
}

/// Whether the kernel confines processes with AppArmor.
pub fn has_apparmor() -> bool {
    let has_interface = Path::new("/sys/kernel/security/apparmor").exists();
    has_interface && first_of(&["/sys/module/apparmor/parameters/enabled"]).starts_with('Y')
}

/// Reads a resolver file, at most ten mebibytes of it.
pub fn read_resolver_file(path: &Path) -> Result<String, MachineError> {
    read_bounded(path, RESOLVER_LIMIT)
        .map_err(|source| MachineError::Read { path: path.to_owned(), source })
}

/// The machine's own hosts file; empty when there is none.
pub fn read_hosts_file() -> String {
    first_of(&["/etc/hosts"])
}

/// Directories under `/sys` that tell how warm each processor is, which containers shall not see.
pub fn thermal_throttle_paths() -> Vec<String> {
    thermal_throttle_below(Path::new("/sys/devices/system/cpu"))
}

fn thermal_throttle_below(processors: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(processors).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("cpu")?.parse().ok()
        })
        .collect();
    numbers.sort_unstable();
    let paths = numbers.into_iter().map(|n| processors.join(format!("cpu{n}/thermal_throttle")));
    let found = paths.filter(|path| path.exists());
    found.map(|path| path.display().to_string()).collect()
}

/// Whether the kernel labels files: SELinux is mounted and has a policy.
pub fn selinux_is_enabled() -> bool {
    let is_mounted = Path::new("/sys/fs/selinux/enforce").exists();
    let label = first_of(&["/proc/self/attr/current"]);
    // Before a policy is loaded everything is labelled as the kernel's.
    is_mounted && label.trim_end_matches(['\0', '\n']) != "kernel"
}

/// The authorities that the distribution trusts, PEM; empty when it has none.
pub fn read_trust_bundle() -> Vec<u8> {
    let bundles = TRUST_BUNDLES.iter();
    let mut found = bundles.filter_map(|path| read_bounded(Path::new(path), TRUST_LIMIT).ok());
    found.next().unwrap_or_default().into_bytes()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
pub fn total_memory(meminfo: &str) -> Option<u64> {
    in_bytes(meminfo, "MemTotal:")
}

/// `SwapTotal` of `/proc/meminfo`, in bytes.
pub fn total_swap(meminfo: &str) -> Option<u64> {
    in_bytes(meminfo, "SwapTotal:")
}

fn in_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Whether `/proc/self/uid_map` maps anything but everybody onto themselves.
pub fn is_mapped(uid_map: &str) -> bool {
    let numbers: Vec<&str> = uid_map.split_whitespace().collect();
    !numbers.is_empty() && numbers != ["0", "0", "4294967295"]
}

/// How many processors a kernel list such as `0-3,8` names.
pub fn count_cpu_list(list: &str) -> Option<u32> {
    list.trim().split(',').try_fold(0_u32, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// `PRETTY_NAME` of `os-release`, without its quotes.
pub fn pretty_name(os_release: &str) -> Option<String> {
    let value =
        os_release.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?.trim();
    let quoted = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)));
    let name = quoted.unwrap_or(value);
    (!name.is_empty()).then(|| name.to_owned())
}

/// Whether `/proc/swaps` names anything below its heading.
pub fn swap_is_on(swaps: &str) -> bool {
    swaps.trim().lines().count() > 1
}

fn fact<T>(
    path: &'static str,
    fact: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, MachineError> {
    parse(&required(path)?).ok_or_else(|| MachineError::Missing { fact, path: path.into() })
}

fn required(path: &'static str) -> Result<String, MachineError> {
    read_bounded(Path::new(path), FACT_LIMIT)
        .map_err(|source| MachineError::Read { path: path.into(), source })
}

fn first_of(paths: &[&str]) -> String {
    paths
        .iter()
        .filter_map(|path| read_bounded(Path::new(path), FACT_LIMIT).ok())
        .find(|text| !text.trim().is_empty())
        .unwrap_or_default()
}

fn read_bounded(path: &Path, limit: u64) -> io::Result<String> {
    let mut content = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
    if u64::try_from(content.len()).is_ok_and(|length| length > limit) {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {limit} bytes"),
        ));
    }
    Ok(String::from_utf8_lossy(&content).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_core_are_counted_once() {
        let check = |text: &str, expected: (u64, u64)| {
            assert_eq!(cores_and_sockets(text), expected, "{text}");
        };
        let one = |n: u32, socket: u32, core: u32| {
            format!("processor\t: {n}\nphysical id\t: {socket}\ncore id\t\t: {core}\n\n")
        };
        let all: String = (0..8).map(|n| one(n, n / 4, n % 2)).collect();
        check(&all, (4, 2));
        check("processor\t: 0\n\nprocessor\t: 1\n\n", (2, 1));
        check("", (0, 0));
    }

    #[test]
    fn memory_is_counted_in_bytes() {
        let check =
            |text: &str, bytes: Option<u64>| assert_eq!(total_memory(text), bytes, "{text}");
        check("MemTotal:       24681244 kB\nMemFree: 1 kB\n", Some(25_273_593_856));
        check("MemFree: 1 kB\n", None);
        check("MemTotal: many kB\n", None);
    }

    #[test]
    fn swap_is_counted_in_bytes() {
        assert_eq!(total_swap("SwapTotal: 4 kB\nSwapFree: 4 kB\n"), Some(4096));
        assert_eq!(total_swap("MemTotal: 4 kB\n"), None);
    }

    #[test]
    fn root_of_a_user_namespace_is_not_root() {
        for (map, expected) in [
            ("         0          0 4294967295\n", false),
            ("", false),
            ("         0       1000          1\n", true),
            ("0 0 1000\n", true),
        ] {
            assert_eq!(is_mapped(map), expected, "{map:?}");
        }
    }

    #[test]
    fn processors_are_counted_from_ranges() {
        let check = |text: &str, n: Option<u32>| assert_eq!(count_cpu_list(text), n, "{text}");
        check("0\n", Some(1));
        check("0-1\n", Some(2));
        check("0-3,8,10-11", Some(7));
        check("", None);
        check("3-1", None);
    }

    #[test]
    fn the_distribution_is_named_without_quotes() {
        let check = |text: &str, name: Option<&str>| {
            assert_eq!(pretty_name(text).as_deref(), name, "{text}");
        };
        check(
            "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
            Some("Debian GNU/Linux 12 (bookworm)"),
        );
        check("PRETTY_NAME='Alpine'\n", Some("Alpine"));
        check("PRETTY_NAME=Plain\n", Some("Plain"));
        check("PRETTY_NAME=\"\"\n", None);
        check("NAME=x\n", None);
    }

    #[test]
    fn swap_is_on_when_something_stands_below_the_heading() {
        let heading = "Filename\tType\tSize\tUsed\tPriority\n";
        assert!(!swap_is_on(""));
        assert!(!swap_is_on(heading));
        assert!(swap_is_on(&format!("{heading}/swapfile file 1 0 -2\n")));
    }

    #[test]
    fn this_machine_tells_everything() {
        let facts = read_machine().unwrap();
        assert!(facts.memory_bytes > 1 << 20);
        assert!(facts.n_cpus >= 1);
        assert!(!facts.hostname.is_empty() && !facts.kernel_version.is_empty());
        assert_eq!(facts.boot_id.len(), 36, "{}", facts.boot_id);
        assert!(read_boot_time().is_some());
    }

    #[test]
    fn a_resolver_file_beyond_the_bound_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        std::fs::write(&path, "nameserver 10.0.0.1\n").unwrap();
        assert_eq!(read_resolver_file(&path).unwrap(), "nameserver 10.0.0.1\n");
        File::create(&path).unwrap().set_len(RESOLVER_LIMIT + 1).unwrap();
        assert!(read_resolver_file(&path).is_err());
        assert!(read_resolver_file(Path::new("/dev/zero")).is_err());
    }

    #[test]
    fn processors_that_tell_their_warmth_are_found_in_order() {
        let held = tempfile::tempdir().unwrap();
        for path in
            ["cpu10/thermal_throttle", "cpu2/thermal_throttle", "cpu1", "cpufreq/thermal_throttle"]
        {
            std::fs::create_dir_all(held.path().join(path)).unwrap();
        }
        let at = |name: &str| held.path().join(name).display().to_string();
        assert_eq!(
            thermal_throttle_below(held.path()),
            [at("cpu2/thermal_throttle"), at("cpu10/thermal_throttle")]
        );
    }
}
