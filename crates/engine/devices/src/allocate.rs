//! Gives devices to the containers of a pod: choose, reserve, ask the plugin, note.

use std::collections::BTreeSet;

use ferrolet_devices::{DeviceAsk, Need, PluginId, Refusal, asks, combined, reusable};
use ferrolet_ports::{
    DeviceError, PluginCallError,
    metrics::{self, process},
};
use ferrolet_spec::PluginResources;
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use tokio::time::Instant;

use crate::{Devices, keep::CHECKPOINT};

/// Upstream's reason for whatever goes wrong with devices at admission.
const REFUSED: &str = "UnexpectedAdmissionError";
/// The reason of a pod that waits for a plugin, which upstream's kubelet would have failed.
const NOT_YET: &str = "FailedAllocateDevices";
/// How often a choice is made anew because somebody else was faster.
const TRIES: usize = 16;

/// What went wrong for one container and one resource.
enum Fault {
    Refused(Refusal),
    Plugin(String),
}

/// Serves every container of the pod, in order.
pub(crate) async fn allocate(
    devices: &Devices,
    pod: &Pod,
    running: &BTreeSet<String>,
) -> Result<(), DeviceError> {
    let mut has_new = false;
    for ask in devices.look(|book| asks(pod, book)) {
        let is_running = running.contains(&ask.container);
        let fault = match allocate_one(devices, pod, &ask, is_running).await {
            Ok(is_new) => {
                has_new |= is_new;
                continue;
            }
            Err(fault) => fault,
        };
        let is_awaited = devices.look(|book| book.is_awaited(&ask.resource));
        return Err(match fault {
            Fault::Refused(refusal) if refusal.may_pass() && is_awaited => DeviceError::NotYet {
                reason: NOT_YET,
                message: format!("waiting for the device plugin of {}: {refusal}", ask.resource),
            },
            Fault::Refused(refusal) => refused(&refusal.to_string()),
            Fault::Plugin(why) => refused(&why),
        });
    }
    if !has_new {
        return Ok(());
    }
    let kept = devices.copy.settle().await;
    kept.map_err(|why| refused(&format!("failed to write checkpoint file {CHECKPOINT:?}: {why}")))
}

fn refused(why: &str) -> DeviceError {
    let message = format!("Allocate failed due to {why}, which is unexpected");
    DeviceError::Refused { reason: REFUSED, message }
}

/// Serves one container; true when it got what it had not.
async fn allocate_one(
    devices: &Devices,
    pod: &Pod,
    ask: &DeviceAsk,
    is_running: bool,
) -> Result<bool, Fault> {
    let uid = pod.uid();
    let place = (&uid, ask.container.as_str(), ask.resource.as_str());
    // What a container has is looked at when it starts.
    let had = devices.look(|book| book.allocation(place.0, place.1, place.2).is_some());
    for n_try in 0..TRIES {
        let own = devices.look(|book| reusable(pod, &ask.container, book));
        let own = own.get(&ask.resource).cloned().unwrap_or_default();
        let need = Need {
            uid: &uid,
            container: &ask.container,
            resource: &ask.resource,
            n: ask.n,
            reusable: &own,
            affinity: None,
            is_running: is_running || had,
        };
        let choice = devices.look(|book| book.need(&need)).map_err(Fault::Refused)?;
        let Some(choice) = choice else { return Ok(false) };
        let plugin = devices.look(|book| book.plugin_of(&ask.resource));
        let Some((plugin, options)) = plugin else {
            return Err(Fault::Plugin(format!("unknown Device Plugin {}", ask.resource)));
        };
        let mut preferred = BTreeSet::new();
        // Whoever was overtaken time and again takes what he can get.
        let is_asked = options.preferred && n_try + 1 < TRIES;
        if let Some(question) = choice.ask().filter(|_| is_asked) {
            let answer = devices.plugins.preferred(plugin, question).await;
            preferred = answer.map_err(|error| {
                let words = "device plugin GetPreferredAllocation rpc failed with err";
                Fault::Plugin(format!("{words}: {error}"))
            })?;
        }
        let ids = choice.settle(&preferred).map_err(Fault::Refused)?;
        let Some(reserved) = Reserved::take(devices, &ask.resource, ids, &own) else {
            continue;
        };
        let called = call(devices, plugin, &reserved).await;
        let answer = called.map_err(|error| Fault::Plugin(error.to_string()))?;
        devices.edit(|book| {
            book.allocate(place, &reserved.ids, answer.resources, answer.bytes);
        });
        return Ok(true);
    }
    Err(Fault::Plugin(format!("devices of {} are taken as soon as they are free", ask.resource)))
}

async fn call(
    devices: &Devices,
    plugin: PluginId,
    reserved: &Reserved<'_>,
) -> Result<ferrolet_ports::DeviceAnswer, PluginCallError> {
    let began = Instant::now();
    let answer = devices.plugins.allocate(plugin, &reserved.ids).await;
    let took = began.elapsed().as_secs_f64();
    let histogram = metrics::KUBELET_DEVICE_PLUGIN_ALLOC_DURATION_SECONDS;
    process().observe(histogram, [reserved.resource], took);
    answer
}

/// Devices that nobody else gets while their plugin is asked; given back when the worker is
/// interrupted, too.
struct Reserved<'a> {
    devices: &'a Devices,
    resource: &'a str,
    ids: BTreeSet<String>,
}

impl<'a> Reserved<'a> {
    fn take(
        devices: &'a Devices,
        resource: &'a str,
        ids: BTreeSet<String>,
        own: &BTreeSet<String>,
    ) -> Option<Self> {
        let is_taken = devices.edit(|book| book.reserve(resource, &ids, own));
        is_taken.then_some(Self { devices, resource, ids })
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.devices.edit(|book| book.unreserve(self.resource, &self.ids));
    }
}

/// What a container gets that is about to start, after its plugins had their say.
pub(crate) async fn for_container(
    devices: &Devices,
    uid: &PodUid,
    container: &str,
) -> Result<PluginResources, String> {
    let given = devices.look(|book| book.allocations(uid, container).cloned());
    let Some(given) = given else { return Ok(PluginResources::default()) };
    for (resource, allocation) in &given {
        let checked = devices.look(|book| book.check_start(uid, container, resource));
        checked
            .map_err(|refusal| format!("waiting for the device plugin of {resource}: {refusal}"))?;
        let plugin = devices.look(|book| book.plugin_of(resource));
        if let Some((plugin, _)) = plugin.filter(|(_, options)| options.pre_start) {
            let told = devices.plugins.pre_start(plugin, &allocation.devices()).await;
            told.map_err(|error| {
                format!("device plugin PreStartContainer rpc failed with err: {error}")
            })?;
        }
    }
    let (resources, conflicts) = combined(given.values().map(|it| &it.resources));
    if !conflicts.is_empty() {
        tracing::error!(pod_uid = %uid, container, ?conflicts, "Plugins differ about what a container is given");
    }
    Ok(resources)
}
