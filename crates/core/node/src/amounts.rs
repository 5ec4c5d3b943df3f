//! How much there is, and how much of it pods may have. Pure.
//!
//! Capacity keeps what others advertise on the node; allocatable is what is left after
//! reservations, and huge pages come out of memory. Matches upstream's `MachineInfo` setter.

use ferrolet_types::{Amounts, Quantity, is_native_resource};

use crate::{DeviceResources, HardEviction, Machine, NodeSettings, Threshold};

const MEMORY: &str = "memory";
const STORAGE: &str = "ephemeral-storage";
const HUGE_PAGES: &str = "hugepages-";

/// What the node has; `previous` is what the API shows, where others may advertise resources of
/// their own.
pub fn capacity(
    settings: &NodeSettings,
    machine: Option<&Machine>,
    devices: &DeviceResources,
    previous: &Amounts,
) -> Amounts {
    let mut amounts = previous.clone();
    let mut put = |name: &str, amount: Quantity| amounts.insert(name.to_owned(), amount);
    let Some(machine) = machine else {
        put("cpu", Quantity::ZERO);
        put(MEMORY, Quantity::ZERO);
        put("pods", Quantity::from_value(i64::from(settings.max_pods)));
        return amounts;
    };
    put("cpu", Quantity::from_milli(i64::from(machine.n_cpus) * 1000));
    put(MEMORY, Quantity::from_bytes(signed(machine.memory_bytes)));
    for pages in &machine.huge_pages {
        let size = Quantity::from_bytes(signed(pages.page_bytes));
        let total = signed(pages.page_bytes.saturating_mul(pages.n_pages));
        put(&format!("{HUGE_PAGES}{size}"), Quantity::from_bytes(total));
    }
    let by_cores =
        settings.pods_per_core.map_or(u32::MAX, |pods| pods.saturating_mul(machine.n_cpus));
    let n_pods = settings.max_pods.min(by_cores);
    put("pods", Quantity::from_value(i64::from(n_pods)));
    if let Some(bytes) = machine.ephemeral_storage_bytes {
        put(STORAGE, Quantity::from_value(signed(bytes)));
    }
    for (name, amount) in &devices.capacity {
        put(name, *amount);
    }
    for name in &devices.removed {
        put(name, Quantity::ZERO);
    }
    // A size that the kernel no longer has is not advertised any more.
    let sizes = machine.huge_pages.iter();
    let sizes: Vec<String> = sizes
        .map(|pages| {
            let size = Quantity::from_bytes(signed(pages.page_bytes));
            format!("{HUGE_PAGES}{size}")
        })
        .collect();
    amounts.retain(|name, _| !name.starts_with(HUGE_PAGES) || sizes.contains(name));
    amounts
}

/// What is kept from pods, by resource.
pub fn reservation(settings: &NodeSettings, capacity: &Amounts) -> Amounts {
    let HardEviction { memory, storage } = settings.hard_eviction;
    let evicted = [(MEMORY, memory), (STORAGE, storage)];
    let kept = capacity.iter().map(|(name, amount)| {
        let of = |amounts: &Amounts| amounts.get(name).copied().unwrap_or(Quantity::ZERO);
        let threshold = evicted.iter().find(|(of, _)| of == name);
        let threshold = match threshold.and_then(|(_, threshold)| *threshold) {
            None => Quantity::ZERO,
            Some(Threshold::Amount(kept)) => kept,
            Some(Threshold::Share(share)) => share_of(*amount, share),
        };
        let sum = of(&settings.system_reserved).plus(of(&settings.kube_reserved));
        (name.clone(), sum.plus(threshold))
    });
    kept.filter(|(_, amount)| !amount.is_zero()).collect()
}

/// What is wrong with the reservations: one sentence for each resource of which more is kept from
/// pods than there is.
pub fn reservation_faults(settings: &NodeSettings, machine: &Machine) -> Vec<String> {
    let all = capacity(settings, Some(machine), &DeviceResources::default(), &Amounts::new());
    let kept = reservation(settings, &all);
    let too_much = kept.iter().filter_map(|(name, kept)| {
        let there = all.get(name)?;
        (*kept > *there).then(|| {
            format!(
                "Resource {name:?} has a reservation of {kept} but capacity of {there}. Expected capacity >= reservation."
            )
        })
    });
    too_much.collect()
}

/// What pods may have.
pub fn allocatable(capacity: &Amounts, reserved: &Amounts, devices: &DeviceResources) -> Amounts {
    let left = capacity.iter().map(|(name, amount)| {
        let kept = reserved.get(name).copied().unwrap_or(Quantity::ZERO);
        (name.clone(), at_least_nothing(amount.minus(kept)))
    });
    let mut amounts: Amounts = left.collect();
    for (name, amount) in &devices.allocatable {
        amounts.insert(name.clone(), *amount);
    }
    let huge = capacity.iter().filter(|(name, _)| name.starts_with(HUGE_PAGES));
    let huge = huge.fold(Quantity::ZERO, |sum, (_, amount)| sum.plus(*amount));
    if let Some(memory) = amounts.get_mut(MEMORY) {
        *memory = at_least_nothing(memory.minus(huge));
    }
    amounts
}

/// Takes what an existing node claims of extended resources down to nothing, until a plugin says
/// otherwise.
pub(crate) fn reset_extended(amounts: &mut Amounts) {
    for (name, amount) in amounts {
        if is_extended(name) {
            *amount = Quantity::ZERO;
        }
    }
}

/// Names with a domain that is not ours, as the API tells extended resources from its own.
fn is_extended(name: &str) -> bool {
    !is_native_resource(name) && !name.starts_with("requests.")
}

fn share_of(amount: Quantity, share: f32) -> Quantity {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "upstream multiplies in floating point and cuts; the sum must be the same to the byte"
    )]
    let part = (amount.value() as f64 * f64::from(share)) as i64;
    Quantity::from_bytes(part)
}

fn at_least_nothing(amount: Quantity) -> Quantity {
    amount.max(Quantity::ZERO)
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
