//! `memory_manager_state`.

use std::collections::BTreeMap;

use ferrolet_types::PodUid;
use serde_json::{Map, Value};

use super::{
    CheckpointError, braced, checksum, checksum_of_data, content, entries, quoted, shape, text,
};
use crate::{
    memory::{MemoryAssignments, MemoryBlock, MemoryTable, NodeMemory},
    topology::NumaMask,
};

/// Writes who has which memory under the static policy.
pub fn encode_memory(assignments: &MemoryAssignments) -> Vec<u8> {
    encode("Static", assignments)
}

/// Writes that nobody has any, under the policy `None`.
pub fn encode_no_memory() -> Vec<u8> {
    encode("None", &MemoryAssignments::default())
}

type Blocks<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a [MemoryBlock]>>;

fn encode(policy: &str, assignments: &MemoryAssignments) -> Vec<u8> {
    let mut pods: Blocks<'_> = BTreeMap::new();
    for (uid, container, blocks) in assignments.iter() {
        pods.entry(uid.as_str()).or_default().insert(container, blocks);
    }
    // Go sorts keys of JSON as text, whatever they were.
    let nodes: BTreeMap<String, String> =
        assignments.nodes.iter().map(|(id, node)| (id.to_string(), node_json(node))).collect();
    let entries = match pods.is_empty() {
        true => String::new(),
        false => {
            let containers = |all: &BTreeMap<&str, &[MemoryBlock]>| {
                braced(all.iter().map(|(name, blocks)| ((*name).to_owned(), blocks_json(blocks))))
            };
            let pods = pods.iter().map(|(uid, all)| ((*uid).to_owned(), containers(all)));
            format!(r#","entries":{}"#, braced(pods))
        }
    };
    let fields = format!(
        r#""policyName":{},"machineState":{}{entries}"#,
        quoted(policy),
        braced(nodes.into_iter())
    );
    let old = checksum(&print(policy, &assignments.nodes, &pods, ""));
    let data = format!("{{{fields}}}");
    format!(
        r#"{{{fields},"checksum":{old},"data":{},"dataChecksum":{}}}"#,
        quoted(&data),
        checksum_of_data(&data)
    )
    .into_bytes()
}

fn node_json(node: &NodeMemory) -> String {
    let table = |it: &MemoryTable| {
        format!(
            r#"{{"total":{},"systemReserved":{},"allocatable":{},"reserved":{},"free":{}}}"#,
            it.total, it.system_reserved, it.allocatable, it.reserved, it.free
        )
    };
    let tables = braced(node.tables.iter().map(|(kind, it)| (kind.clone(), table(it))));
    format!(
        r#"{{"numberOfAssignments":{},"memoryMap":{tables},"cells":[{}]}}"#,
        node.n_assignments,
        joined(node.cells.iter(), ",")
    )
}

fn blocks_json(blocks: &[MemoryBlock]) -> String {
    let block = |it: &MemoryBlock| {
        let nodes = joined(it.nodes.iter(), ",");
        format!(r#"{{"numaAffinity":[{nodes}],"type":{},"size":{}}}"#, quoted(&it.kind), it.size)
    };
    format!("[{}]", joined(blocks.iter().map(block), ","))
}

fn joined(items: impl Iterator<Item = impl ToString>, separator: &str) -> String {
    items.map(|it| it.to_string()).collect::<Vec<_>>().join(separator)
}

/// What Go prints for the value.
fn print(policy: &str, nodes: &BTreeMap<u32, NodeMemory>, pods: &Blocks<'_>, more: &str) -> String {
    let table = |(kind, it): (&String, &MemoryTable)| {
        format!(
            "{kind}:<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} \
             Reserved:(uint64){} Free:(uint64){}}}",
            it.total, it.system_reserved, it.allocatable, it.reserved, it.free
        )
    };
    let node = |(id, it): (&u32, &NodeMemory)| {
        format!(
            "{id}:<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable)\
             map[{}] Cells:([]int)[{}]}}",
            it.n_assignments,
            joined(it.tables.iter().map(table), " "),
            joined(it.cells.iter(), " ")
        )
    };
    let block = |it: &MemoryBlock| {
        let nodes = joined(it.nodes.iter(), " ");
        let (kind, size) = (&it.kind, it.size);
        format!(
            "{{NUMAAffinity:([]int)[{nodes}] Type:(v1.ResourceName){kind} Size:(uint64){size}}}"
        )
    };
    let container = |(name, blocks): (&&str, &&[MemoryBlock])| {
        format!("{name}:[{}]", joined(blocks.iter().map(block), " "))
    };
    let pod = |(uid, all): (&&str, &BTreeMap<&str, &[MemoryBlock]>)| {
        format!("{uid}:map[{}]", joined(all.iter().map(container), " "))
    };
    format!(
        "(*state.MemoryManagerCheckpoint){{PolicyName:(string){policy} MachineState:(state.NUMANodeMap)\
         map[{}] Entries:(state.ContainerMemoryAssignments)map[{}]{more} Checksum:(checksum.Checksum)0}}",
        joined(nodes.iter().map(node), " "),
        joined(pods.iter().map(pod), " ")
    )
}

fn print_versions(file: &Map<String, Value>) -> Vec<String> {
    let Ok((policy, assignments)) = read(file) else {
        return Vec::new();
    };
    let mut pods: Blocks<'_> = BTreeMap::new();
    for (uid, container, blocks) in assignments.iter() {
        pods.entry(uid.as_str()).or_default().insert(container, blocks);
    }
    let with_pods = " PodEntries:(state.PodMemoryAssignments)map[]";
    ["", with_pods].map(|more| print(&policy, &assignments.nodes, &pods, more)).to_vec()
}

/// Reads a file of any version since 1.20: the policy that wrote it, and who had what.
pub fn decode_memory(file: &[u8]) -> Result<(String, MemoryAssignments), CheckpointError> {
    read(&content(file, print_versions)?)
}

fn read(data: &Map<String, Value>) -> Result<(String, MemoryAssignments), CheckpointError> {
    let mut assignments = MemoryAssignments::default();
    for (id, node) in entries(data, "machineState")? {
        let id = id.parse().ok().filter(|id| *id < 64).ok_or_else(|| shape("no NUMA node"))?;
        assignments.nodes.insert(id, read_node(&node)?);
    }
    for (uid, containers) in entries(data, "entries")? {
        let containers = containers.as_object().ok_or_else(|| shape("a pod is no object"))?;
        for (name, blocks) in containers {
            let blocks = blocks.as_array().ok_or_else(|| shape("blocks are no list"))?;
            let blocks = blocks.iter().map(read_block).collect::<Result<_, _>>()?;
            assignments.insert(&PodUid::new(uid.as_str()), name, blocks);
        }
    }
    Ok((text(data, "policyName")?.to_owned(), assignments))
}

fn read_node(node: &Value) -> Result<NodeMemory, CheckpointError> {
    let node = node.as_object().ok_or_else(|| shape("a node is no object"))?;
    let mut tables = BTreeMap::new();
    for (kind, table) in entries(node, "memoryMap")? {
        let amount = |name: &str| number(&table, name);
        let table = MemoryTable {
            total: amount("total")?,
            system_reserved: amount("systemReserved")?,
            allocatable: amount("allocatable")?,
            reserved: amount("reserved")?,
            free: amount("free")?,
        };
        tables.insert(kind, table);
    }
    let n_assignments = node.get("numberOfAssignments").and_then(Value::as_u64);
    Ok(NodeMemory {
        n_assignments: n_assignments.ok_or_else(|| shape("no numberOfAssignments"))?,
        tables,
        cells: nodes(node.get("cells"))?,
    })
}

fn read_block(block: &Value) -> Result<MemoryBlock, CheckpointError> {
    let of = block.as_object().ok_or_else(|| shape("a block is no object"))?;
    let nodes: NumaMask = nodes(of.get("numaAffinity"))?.into_iter().collect();
    Ok(MemoryBlock { nodes, kind: text(of, "type")?.to_owned(), size: number(block, "size")? })
}

fn number(of: &Value, name: &str) -> Result<u64, CheckpointError> {
    of.get(name).and_then(Value::as_u64).ok_or_else(|| shape(format_args!("no {name}")))
}

fn nodes(list: Option<&Value>) -> Result<Vec<u32>, CheckpointError> {
    let list = list.and_then(Value::as_array).ok_or_else(|| shape("no list of NUMA nodes"))?;
    let node = |it: &Value| it.as_u64().and_then(|it| u32::try_from(it).ok()).filter(|it| *it < 64);
    list.iter().map(|it| node(it).ok_or_else(|| shape("no NUMA node"))).collect()
}
