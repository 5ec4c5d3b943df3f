//! What the node says of itself to the cluster: settings from the configuration, facts from the machine and the runtime.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use ferrolet_config::{
    KUBERNETES_VERSION, Loaded,
    config::{Signal, ThresholdValue},
};
use ferrolet_host::{addresses::read_addresses, machine::MachineFacts, paging};
use ferrolet_observe::{ListingHealth, RuntimeHealth};
use ferrolet_ports::{Clock, CsiDrivers, HealthCheck, Images, RegisteredDriver, Runtime};
use ferrolet_report::node::{
    DeviceResources, HardEviction, HostAddresses, HugePages, Machine, NodeFacts, NodeSettings,
    Pressure, RuntimeAnswer, Startup, Threshold, looks_up_name,
};
use ferrolet_resources::declared_features;
use ferrolet_volumes::InUse;
use k8s_openapi::api::core::v1::Taint;
use tokio::{
    net::lookup_host,
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

/// Images are listed this often, as upstream does.
const IMAGES_PERIOD: Duration = Duration::from_secs(30);

/// How long the name service may take; the start of the agent waits for its first answer.
const NAME_SERVICE: Duration = Duration::from_secs(2);

/// Everything the cluster is told about this node.
pub(super) struct NodeDescription {
    pub(super) settings: Arc<NodeSettings>,
    pub(super) facts: watch::Receiver<NodeFacts>,
    pub(super) drivers: watch::Receiver<BTreeMap<String, RegisteredDriver>>,
    pub(super) plugins: Arc<dyn CsiDrivers>,
    pub(super) lease_duration: Duration,
    pub(super) pod_cidr: Option<String>,
    pub(super) startup: Startup,
}

/// The settings of the node's object.
pub(super) fn settings(loaded: &Loaded, name: &str, machine: &MachineFacts) -> NodeSettings {
    let (config, flags) = (&loaded.config, &loaded.flags);
    let hard = |signal: Signal| {
        let mut hard = config
            .eviction
            .thresholds
            .iter()
            .filter(|it| it.grace_period.is_none() && it.signal == signal);
        hard.next().map(|it| match it.value {
            ThresholdValue::Quantity(amount) => Threshold::Amount(amount),
            #[expect(clippy::cast_possible_truncation, reason = "a percentage fits a small float")]
            ThresholdValue::Percent(percent) => Threshold::Share((percent / 100.0) as f32),
        })
    };
    NodeSettings {
        name: name.to_owned(),
        hostname: flags.hostname_override.clone().unwrap_or_else(|| machine.hostname.clone()),
        node_ips: flags.node_ips.clone(),
        has_external_cloud: flags.cloud_provider.as_deref() == Some("external"),
        provider_id: config.node.provider_id.clone(),
        labels: flags.node_labels.clone(),
        taints: config.node.taints.iter().map(api_taint).collect(),
        has_controller_attach: config.volumes.controller_attach_detach,
        must_register: config.node.register,
        max_pods: config.node.max_pods,
        pods_per_core: config.node.pods_per_core,
        max_images: config.node.status_max_images,
        kubelet_port: config.server.port,
        kubelet_version: KUBERNETES_VERSION.to_owned(),
        operating_system: "linux".to_owned(),
        architecture: architecture().to_owned(),
        declared_features: declared_features(|gate| config.gates.enabled(gate)),
        system_reserved: config.reservations.system.clone(),
        kube_reserved: config.reservations.kube.clone(),
        hard_eviction: HardEviction {
            memory: hard(Signal::MemoryAvailable),
            storage: hard(Signal::NodeFsAvailable),
        },
        has_storage_isolation: config.volumes.local_storage_isolation,
        update_frequency: config.node.status_update_frequency,
        report_frequency: config.node.status_report_frequency,
    }
}

fn api_taint(taint: &ferrolet_config::config::Taint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: taint.effect.map(|effect| effect.as_str().to_owned()).unwrap_or_default(),
        time_added: None,
    }
}

/// Go's name for the processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What is known before anybody was asked.
pub(super) fn first_facts(
    loaded: &Loaded,
    machine: &MachineFacts,
    by_name: Vec<IpAddr>,
    clock: &dyn Clock,
) -> NodeFacts {
    NodeFacts {
        machine: Some(describe(loaded, machine)),
        addresses: addresses(by_name),
        runtime_version: None,
        runtime: RuntimeAnswer::Never { since: clock.now() },
        loop_faults: Vec::new(),
        storage_fault: None,
        shutdown_fault: None,
        soft_faults: None,
        images: None,
        pressure: Pressure::default(),
        devices: DeviceResources::default(),
        volumes_in_use: None,
    }
}

/// The addresses that the name service has for the node's name; `None` when they do not matter, or it does not say.
pub(super) async fn look_up(settings: &NodeSettings) -> Option<Vec<IpAddr>> {
    if !looks_up_name(settings) {
        return None;
    }
    // The port is the interface's price; nobody connects.
    let found = timeout(NAME_SERVICE, lookup_host((settings.name.as_str(), 0))).await;
    match found {
        Ok(Ok(found)) => Some(found.map(|address| address.ip()).collect()),
        Ok(Err(_)) | Err(_) => None,
    }
}

/// Starts what keeps the facts current, and answers where they are shown.
pub(super) fn gather(
    settings: &Arc<NodeSettings>,
    first: NodeFacts,
    runtime: (Arc<dyn Runtime>, Arc<dyn Images>),
    health: (watch::Receiver<RuntimeHealth>, Arc<ListingHealth>),
    mut in_use: watch::Receiver<InUse>,
    clock: &Arc<dyn Clock>,
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<NodeFacts> {
    let (runtime, images) = runtime;
    let (mut health, listing) = health;
    let (facts, shown) = watch::channel(first);
    let facts = Arc::new(facts);

    let (listed, pictures, settings) = (facts.clone(), images, settings.clone());
    tasks.spawn(async move {
        let mut tick = interval(IMAGES_PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_late = false;
        loop {
            tick.tick().await;
            // The first listing may take a moment; only a runtime that stays unlisted is a fault.
            let fault = is_late.then(|| listing.check().err()).flatten();
            let fault = fault.map(|why| format!("PLEG is not healthy: {why}"));
            update(&listed, |facts| facts.loop_faults = fault.into_iter().collect());
            is_late = true;
            if let Ok(list) = pictures.list_images().await {
                update(&listed, |facts| facts.images = Some(list.into()));
            }
            // A name service that fails is no reason to move the node.
            let by_name = look_up(&settings).await;
            update(&listed, |facts| {
                let by_name = by_name.unwrap_or_else(|| facts.addresses.by_name.clone());
                facts.addresses = addresses(by_name);
            });
        }
    });
    let attached = facts.clone();
    tasks.spawn(async move {
        loop {
            let used = in_use.borrow_and_update().clone();
            if used.is_complete {
                let names = used.names.into_iter().collect();
                update(&attached, |facts| facts.volumes_in_use = Some(names));
            }
            if in_use.changed().await.is_err() {
                return;
            }
        }
    });
    let clock = clock.clone();
    tasks.spawn(async move {
        loop {
            let now = health.borrow_and_update().clone();
            let is_named = facts.borrow().runtime_version.is_some();
            if matches!(now, RuntimeHealth::Answered(_))
                && !is_named
                && let Ok(version) = runtime.version().await
            {
                update(&facts, |facts| facts.runtime_version = Some(version));
            }
            update(&facts, |facts| facts.runtime = answer(&facts.runtime, now, clock.as_ref()));
            if health.changed().await.is_err() {
                return;
            }
        }
    });
    shown
}

/// What the runtime's health means after what it was before.
pub(super) fn answer(
    before: &RuntimeAnswer,
    now: RuntimeHealth,
    clock: &dyn Clock,
) -> RuntimeAnswer {
    match (now, before) {
        (RuntimeHealth::Answered(status), _) => RuntimeAnswer::Answered(status),
        (_, RuntimeAnswer::Answered(last)) => {
            RuntimeAnswer::Silent { since: clock.now(), last: last.clone() }
        }
        (_, before) => before.clone(),
    }
}

fn update(facts: &watch::Sender<NodeFacts>, edit: impl FnOnce(&mut NodeFacts)) {
    facts.send_if_modified(|known| {
        let before = known.clone();
        edit(known);
        *known != before
    });
}

fn describe(loaded: &Loaded, machine: &MachineFacts) -> Machine {
    let config = &loaded.config;
    Machine {
        n_cpus: machine.n_cpus,
        memory_bytes: machine.memory_bytes,
        huge_pages: paging::huge_pages()
            .into_iter()
            .map(|(page_bytes, n_pages)| HugePages { page_bytes, n_pages })
            .collect(),
        ephemeral_storage_bytes: paging::file_system_bytes(&loaded.flags.root_dir),
        swap_bytes: machine.swap_bytes,
        machine_id: machine.machine_id.clone(),
        system_uuid: machine.system_uuid.clone(),
        boot_id: machine.boot_id.clone(),
        kernel_version: machine.kernel_version.clone(),
        os_image: machine.os_image.clone(),
        is_in_user_namespace: config
            .gates
            .enabled("KubeletInUserNamespace")
            .then_some(machine.is_in_user_namespace),
    }
}

fn addresses(by_name: Vec<IpAddr>) -> HostAddresses {
    let found = read_addresses();
    HostAddresses {
        interfaces: found.interfaces,
        by_name,
        default_v4: found.default_v4,
        default_v6: found.default_v6,
    }
}
