//! The policies that place containers on processors and NUMA nodes, from the configuration and the
//! machine. A policy that cannot work here is an error that names its field.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use ferrolet_config::{
    Loaded,
    config::{self as configured, CpuManagerPolicy, MemoryManagerPolicy},
};
use ferrolet_node::{DeviceResources, MachineTopology, NodeState, capacity, reservation};
use ferrolet_placement::{
    Placement,
    cpu::{CpuOptions, CpuSet, OptionGates, StaticCpus},
    memory::{NodeReservation, StaticMemory},
    topology::{TopologyPolicy, TopologyRules, TopologyScope},
};
use ferrolet_placement_engine::Settings;
use ferrolet_types::{Amounts, amount};

/// The slice of the configuration.
pub(super) fn settings(loaded: &Loaded, node: &NodeState) -> anyhow::Result<Settings> {
    let config = &loaded.config;
    let machine = node.facts.machine.as_ref();
    let none = DeviceResources::default();
    let kept =
        reservation(&node.settings, &capacity(&node.settings, machine, &none, &Amounts::new()));
    let topology = machine.map(|it| it.topology.clone()).unwrap_or_default();
    let resources = &config.resources;
    let policy = match resources.topology_policy {
        configured::TopologyPolicy::None => TopologyPolicy::None,
        configured::TopologyPolicy::BestEffort => TopologyPolicy::BestEffort,
        configured::TopologyPolicy::Restricted => TopologyPolicy::Restricted,
        configured::TopologyPolicy::SingleNumaNode => TopologyPolicy::SingleNumaNode,
    };
    let scope = match resources.topology_scope {
        configured::TopologyScope::Container => TopologyScope::Container,
        configured::TopologyScope::Pod => TopologyScope::Pod,
    };
    let rules = TopologyRules::new(policy, scope, &resources.topology_policy_options, &topology)
        .with_context(|| format!("topologyManagerPolicy {}", policy.as_str()))?;
    let cpus = cpus(loaded, &topology, &kept, policy)?;
    let memory = memory(loaded, &topology, &kept)?;
    Ok(Settings {
        placement: Placement::new(rules, cpus, memory),
        reconcile_period: resources.cpu_reconcile_period,
        has_free_quota: config.gates.enabled("DisableCPUQuotaWithExclusiveCPUs"),
    })
}

fn cpus(
    loaded: &Loaded,
    topology: &MachineTopology,
    kept: &Amounts,
    policy: TopologyPolicy,
) -> anyhow::Result<Option<StaticCpus>> {
    let config = &loaded.config;
    let (cpu_policy, options) =
        (&config.resources.cpu_policy, &config.resources.cpu_policy_options);
    match cpu_policy {
        CpuManagerPolicy::None if options.is_empty() => return Ok(None),
        CpuManagerPolicy::None => bail!(
            "cpuManagerPolicy none: new none policy error: None policy: received unsupported options={}",
            as_go_prints(options)
        ),
        CpuManagerPolicy::Static => {}
    }
    let gates = OptionGates {
        alpha: config.gates.enabled("CPUManagerPolicyAlphaOptions"),
        beta: config.gates.enabled("CPUManagerPolicyBetaOptions"),
    };
    let options = CpuOptions::parse(options, gates).context("cpuManagerPolicyOptions")?;
    let reserved: CpuSet = config.reservations.cpus.iter().copied().collect();
    // A part of a processor that is reserved makes it unfit to be given away.
    let n_reserved = usize::try_from(amount(kept, "cpu").value()).unwrap_or(0);
    let cpus = StaticCpus::new(topology, n_reserved, &reserved, options, policy);
    cpus.context("cpuManagerPolicy static: new static policy error").map(Some)
}

fn memory(
    loaded: &Loaded,
    topology: &MachineTopology,
    kept: &Amounts,
) -> anyhow::Result<Option<StaticMemory>> {
    let config = &loaded.config;
    if config.resources.memory_policy == MemoryManagerPolicy::None {
        return Ok(None);
    }
    let given: Vec<NodeReservation> = config
        .reservations
        .memory
        .iter()
        .map(|it| {
            let node = u32::try_from(it.numa_node).context("reservedMemory: numaNode")?;
            Ok(NodeReservation { node, limits: it.limits.clone() })
        })
        .collect::<anyhow::Result<_>>()?;
    let memory = StaticMemory::new(topology, kept, &given);
    memory.context("memoryManagerPolicy Static with reservedMemory").map(Some)
}

fn as_go_prints(options: &BTreeMap<String, String>) -> String {
    let options: Vec<String> = options.iter().map(|(name, it)| format!("{name}:{it}")).collect();
    format!("map[{}]", options.join(" "))
}
