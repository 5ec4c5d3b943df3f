//! The small objects a summary is made of. Pure.

use ferrolet_ports::{
    CgroupFigures, CgroupUsage, DiskUsage, FileRoom, InUse, InterfaceFigures, Stall, Stalls,
    VolumeUsage,
};
use ferrolet_types::{Pod, Timestamp};
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Volume};
use serde_json::{Map, Value, json};

/// The interface whose figures stand for all, as upstream has it.
const MAIN_INTERFACE: &str = "eth0";

/// Adds processor, memory and swap, as far as they are known.
pub(super) fn add(to: &mut Value, usage: &CgroupUsage) {
    let at = time(usage.at);
    if let Some(nanos) = usage.cpu_nanos {
        let mut cpu = Map::from_iter([("time".to_owned(), json!(at))]);
        if let Some(rate) = usage.cpu_nano_cores {
            cpu.insert("usageNanoCores".to_owned(), json!(rate));
        }
        cpu.insert("usageCoreNanoSeconds".to_owned(), json!(nanos));
        to["cpu"] = Value::Object(cpu);
    }
    if let Some(memory) = usage.memory {
        let mut shown = json!({
            "time": at,
            "usageBytes": memory.usage,
            "workingSetBytes": memory.working_set,
            "rssBytes": memory.rss,
            "pageFaults": memory.page_faults,
            "majorPageFaults": memory.major_page_faults,
        });
        if let Some(limit) = memory.limit {
            shown["availableBytes"] = json!(limit.saturating_sub(memory.working_set));
        }
        to["memory"] = shown;
    }
    if let Some(swap) = usage.swap_bytes {
        let mut shown = json!({"time": at, "swapUsageBytes": swap});
        if let Some(limit) = usage.swap_limit_bytes {
            shown["swapAvailableBytes"] = json!(limit.saturating_sub(swap));
        }
        to["swap"] = shown;
    }
}

/// Adds how long was waited, where the kernel accounts for it; and the object for disks, which has nothing else.
pub(super) fn add_pressure(to: &mut Value, cgroup: &CgroupFigures) {
    to["io"] = json!({"time": time(cgroup.usage.at)});
    let Some(pressure) = cgroup.pressure else {
        return;
    };
    for (name, stalls) in [
        ("cpu", pressure.cpu),
        ("memory", pressure.memory),
        ("io", pressure.io),
    ] {
        if let Some(part) = to.get_mut(name) {
            part["psi"] = psi(&stalls);
        }
    }
}

fn psi(stalls: &Stalls) -> Value {
    let one = |stall: &Stall| {
        json!({
            // Nanoseconds there, microseconds in the kernel.
            "total": stall.total_micros.saturating_mul(1000),
            "avg10": stall.avg10,
            "avg60": stall.avg60,
            "avg300": stall.avg300,
        })
    };
    json!({"full": one(&stalls.full), "some": one(&stalls.some)})
}

/// A network: its main interface, and all of them.
pub(super) fn network(at: Timestamp, interfaces: &[InterfaceFigures]) -> Value {
    let one = |it: &InterfaceFigures| {
        json!({
            "name": it.name,
            "rxBytes": it.received.bytes,
            "rxErrors": it.received.n_errors,
            "txBytes": it.sent.bytes,
            "txErrors": it.sent.n_errors,
        })
    };
    let main = interfaces.iter().find(|it| it.name == MAIN_INTERFACE);
    let mut shown = main.map_or_else(|| json!({}), one);
    shown["time"] = json!(time(at));
    shown["interfaces"] = interfaces.iter().map(one).collect();
    shown
}

pub(super) fn file_system(at: Timestamp, room: &FileRoom) -> Value {
    json!({
        "time": time(at),
        "availableBytes": room.available,
        "capacityBytes": room.capacity,
        "usedBytes": room.used,
        "inodesFree": room.inodes_free,
        "inodes": room.inodes,
        "inodesUsed": room.inodes_used,
    })
}

/// The volumes of a pod, and what those on the node's own disk take together.
pub(super) fn volumes(pod: &Pod, disk: &DiskUsage) -> (Vec<Value>, InUse) {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let named = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    let named = named.unwrap_or_default();
    let mut shown = Vec::new();
    let mut ephemeral = InUse::default();
    for volume in disk.volumes.iter().filter(|it| it.uid.as_str() == uid) {
        let Some(source) = source_of(named, volume) else {
            continue;
        };
        if volume.is_on_node && is_local(source) {
            ephemeral.bytes += volume.room.used;
            ephemeral.inodes += volume.room.inodes_used;
        }
        let mut one = file_system(volume.at, &volume.room);
        one["name"] = json!(source.name);
        if let Some(claim) = claim_name(source, pod) {
            one["pvcRef"] = json!({"name": claim, "namespace": pod.metadata.namespace});
        }
        shown.push(one);
    }
    (shown, ephemeral)
}

/// The claims of a pod that are mounted, with the room they have.
pub(crate) fn claims(pod: &Pod, disk: &DiskUsage) -> Vec<(String, FileRoom)> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let named = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    let named = named.unwrap_or_default();
    let own = disk.volumes.iter().filter(|it| it.uid.as_str() == uid);
    own.filter_map(|it| Some((claim_name(source_of(named, it)?, pod)?, it.room)))
        .collect()
}

/// The volume that a directory belongs to: told, by its name, or the one that is left.
fn source_of<'a>(named: &'a [Volume], volume: &VolumeUsage) -> Option<&'a Volume> {
    let by_name = |name: &str| named.iter().find(|it| it.name == name);
    if let Some(told) = &volume.volume {
        return by_name(told);
    }
    // A directory that has no volume's name has its PersistentVolume's.
    by_name(&volume.name).or_else(|| only_claim(named))
}

/// True for volumes whose content is charged to the pod, as upstream has it.
fn is_local(volume: &Volume) -> bool {
    let is_on_disk = |it: &EmptyDirVolumeSource| it.medium.as_deref().unwrap_or("").is_empty();
    volume.git_repo.is_some()
        || volume.config_map.is_some()
        || volume.empty_dir.as_ref().is_some_and(is_on_disk)
}

/// The one volume with a claim, when there is exactly one; with more, directories cannot be told apart by name.
fn only_claim(named: &[Volume]) -> Option<&Volume> {
    let mut claims = named
        .iter()
        .filter(|it| it.persistent_volume_claim.is_some() || it.ephemeral.is_some());
    let first = claims.next()?;
    claims.next().is_none().then_some(first)
}

fn claim_name(volume: &Volume, pod: &Pod) -> Option<String> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(claim.claim_name.clone());
    }
    let pod = pod.metadata.name.as_deref()?;
    volume
        .ephemeral
        .as_ref()
        .map(|_| format!("{pod}-{}", volume.name))
}

pub(super) fn time(moment: Timestamp) -> String {
    moment.to_second_precision().to_string()
}
