//! Settings of the host's kernel: what we demand of it, what we set, and what pods may set.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    reader::{Reader, words},
    syntax::{is_namespaced_sysctl, is_sysctl_name, normal_sysctl_name},
};

words! {
    /// How a pod reaches itself through its own service.
    HairpinMode {
        /// The bridge listens to everything.
        PromiscuousBridge = "promiscuous-bridge",
        /// Each veth sends back.
        HairpinVeth = "hairpin-veth",
        /// Not at all.
        None = "none",
    }
}

/// Rules we keep in the packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iptables {
    /// Whether we keep any.
    pub util_chains: bool,
    /// The mark bit for masquerading.
    pub masquerade_bit: u8,
    /// The mark bit for dropping.
    pub drop_bit: u8,
}

/// Everything about the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Refuse to start while swap is on.
    pub refuse_swap: bool,
    /// Refuse to start when kernel settings are not ours, instead of changing them.
    pub protect_defaults: bool,
    /// Our own out-of-memory score.
    pub oom_score_adj: i16,
    /// How many files we may open.
    pub max_open_files: u64,
    /// Sysctls that pods may set although they are not known to be safe; may end in `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Sysctls each pod gets.
    pub default_pod_sysctls: BTreeMap<String, String>,
    /// Hairpin traffic.
    pub hairpin: HairpinMode,
    /// Packet filter.
    pub iptables: Iptables,
}

pub(super) fn read(r: &Reader<'_>) -> Kernel {
    Kernel {
        refuse_swap: r.flag("failSwapOn"),
        protect_defaults: r.flag("protectKernelDefaults"),
        oom_score_adj: r.within("oomScoreAdj", -1000..=1000),
        max_open_files: r.within("maxOpenFiles", 0..=i64::MAX),
        allowed_unsafe_sysctls: r.texts("allowedUnsafeSysctls"),
        default_pod_sysctls: read_default_sysctls(r),
        hairpin: r.word("hairpinMode"),
        iptables: Iptables {
            util_chains: r.flag("makeIPTablesUtilChains"),
            masquerade_bit: r.within("iptablesMasqueradeBit", 0..=31),
            drop_bit: r.within("iptablesDropBit", 0..=31),
        },
    }
}

fn read_default_sysctls(r: &Reader<'_>) -> BTreeMap<String, String> {
    let given = r.text_map("defaultPodSysctls");
    if !given.is_empty() && !r.gates.enabled("DefaultPodSysctls") {
        r.needs_gate("defaultPodSysctls", "DefaultPodSysctls");
        return given;
    }
    let mut seen = BTreeSet::new();
    for (name, value) in &given {
        let path = format!("defaultPodSysctls.{name}");
        let normal = normal_sysctl_name(name);
        if !is_sysctl_name(name) {
            r.fault(&path, value, "is not a sysctl name");
        } else if !is_namespaced_sysctl(&normal) {
            r.fault(&path, value, "is not known to be kept per namespace");
        }
        if !seen.insert(normal.clone()) {
            r.fault(&path, value, format!("{normal} is given twice"));
        }
    }
    given
}
