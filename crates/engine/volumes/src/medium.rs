//! What a volume lives on, and how much of it: pure arithmetic over the pod's limits and the node's
//! memory.

use ferrolet_ports::Medium;
use ferrolet_resources::{
    Amounts, CgroupPolicy, amount, container_requests, parse_amounts, pod_cgroup,
};
use ferrolet_types::{Quantity, pod::PodView as _};
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};

const HUGE_PAGES: &str = "HugePages";
const HUGE_PAGES_RESOURCE: &str = "hugepages-";

/// What an `emptyDir` lives on.
pub(crate) fn empty_dir_medium(
    pod: &Pod,
    source: &EmptyDirVolumeSource,
    allocatable: &Amounts,
) -> Result<Medium, String> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(Medium::Disk),
        "Memory" => {
            let limit = source.size_limit.as_ref();
            let limit = limit.and_then(|text| Quantity::parse(&text.0).ok());
            Ok(Medium::Memory { size: memory_bound(pod, limit, allocatable) })
        }
        medium if medium == HUGE_PAGES || medium.starts_with("HugePages-") => {
            huge_pages(pod, medium).map(|page_size| Medium::HugePages { page_size })
        }
        other => Err(format!("unknown storage medium {other:?}")),
    }
}

/// The memory under files that must not touch the disk.
pub(crate) fn wrapped_memory(pod: &Pod, allocatable: &Amounts) -> Medium {
    Medium::Memory { size: memory_bound(pod, None, allocatable) }
}

/// The least of the node's memory for pods, the pod's limit and the volume's own; zero bounds
/// nothing.
fn memory_bound(pod: &Pod, own: Option<Quantity>, allocatable: &Amounts) -> Option<u64> {
    let nodes = allocatable.get("memory").map(|it| it.value());
    let pods = pod_cgroup(pod, &CgroupPolicy::default()).limits.memory;
    [nodes, pods, own.map(Quantity::value)]
        .into_iter()
        .flatten()
        .filter_map(|bytes| u64::try_from(bytes).ok().filter(|bytes| *bytes > 0))
        .min()
}

/// The size of pages, from the medium's name or the one size that the pod asks for.
fn huge_pages(pod: &Pod, medium: &str) -> Result<u64, String> {
    let named = match medium.strip_prefix("HugePages-") {
        Some(text) => Some(page_size(text)?),
        None => None,
    };
    let mut found: Option<u64> = None;
    for size in requested_page_sizes(pod)? {
        match (named, found) {
            (Some(named), _) if named == size => found = Some(size),
            (Some(_), _) => {}
            (None, Some(other)) if other != size => {
                return Err(format!(
                    "medium: {medium} can't be used if container requests multiple huge page sizes"
                ));
            }
            (None, _) => found = Some(size),
        }
    }
    found.ok_or_else(|| {
        format!("medium {medium}: hugePages storage requested, but there is no resource request for huge pages")
    })
}

fn requested_page_sizes(pod: &Pod) -> Result<Vec<u64>, String> {
    let spec = pod.spec_ref();
    let own = spec.resources.as_ref();
    let own = parse_amounts(own.and_then(|it| it.requests.as_ref()));
    let init = spec.init_containers.iter().flatten();
    let containers = spec.containers.iter().chain(init).map(container_requests);
    let mut sizes = Vec::new();
    for requests in std::iter::once(own).chain(containers) {
        let names = requests.keys().filter(|name| !amount(&requests, name).is_zero());
        for text in names.filter_map(|name| name.strip_prefix(HUGE_PAGES_RESOURCE)) {
            sizes.push(page_size(text)?);
        }
    }
    Ok(sizes)
}

fn page_size(text: &str) -> Result<u64, String> {
    let size = Quantity::parse(text).map_err(|fault| fault.to_string())?;
    u64::try_from(size.value()).map_err(|_| format!("huge page size {text:?} is negative"))
}
