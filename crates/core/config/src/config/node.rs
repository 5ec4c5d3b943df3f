//! How this node presents itself to the cluster, and how fast it talks.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use serde_json::Value;

use super::{
    reader::{Reader, words},
    syntax::{is_label_value, is_qualified_name},
};

words! {
    /// What a taint does to pods that do not tolerate it.
    TaintEffect {
        /// New pods are not placed here.
        NoSchedule = "NoSchedule",
        /// New pods are placed elsewhere if possible.
        PreferNoSchedule = "PreferNoSchedule",
        /// Running pods have to go, too.
        NoExecute = "NoExecute",
    }
}

/// A taint the node registers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its name.
    pub key: String,
    /// Its value; often empty.
    pub value: String,
    /// What it does; none is allowed by the API and does nothing.
    pub effect: Option<TaintEffect>,
}

/// Registration, status and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Whether we create our own node object.
    pub register: bool,
    /// The taints it gets.
    pub taints: Vec<Taint>,
    /// The cloud's name for this machine.
    pub provider_id: Option<String>,
    /// How often the status is computed.
    pub status_update_frequency: Duration,
    /// How often it is sent although nothing changed.
    pub status_report_frequency: Duration,
    /// How long the lease lasts.
    pub lease_duration: Duration,
    /// How many images the status lists; none means all.
    pub status_max_images: Option<u32>,
    /// How many pods run here at most.
    pub max_pods: u32,
    /// How many pods run per core at most; none means that only `max_pods` counts.
    pub pods_per_core: Option<u32>,
    /// Addresses for pods when there is no API server to give them out.
    pub pod_cidr: Option<String>,
}

pub(super) fn read(r: &Reader<'_>) -> Node {
    if r.flag("runOnce") {
        r.refuse("runOnce", "this mode is gone and must not be set; --run-once-within=TIME starts pods once and leaves");
    }
    let max_images = r.int("nodeStatusMaxImages");
    if max_images < -1 {
        r.refuse("nodeStatusMaxImages", "must be -1 or more");
    }
    Node {
        register: r.flag("registerNode"),
        taints: read_taints(r),
        provider_id: r.optional_text("providerID"),
        status_update_frequency: r.period("nodeStatusUpdateFrequency"),
        status_report_frequency: r.period("nodeStatusReportFrequency"),
        lease_duration: Duration::from_secs(r.within("nodeLeaseDurationSeconds", 1..=i64::MAX)),
        status_max_images: u32::try_from(max_images).ok(),
        max_pods: r.count("maxPods"),
        pods_per_core: Some(r.count("podsPerCore")).filter(|pods| *pods != 0),
        pod_cidr: r.optional_text("podCIDR"),
    }
}

fn read_taints(r: &Reader<'_>) -> Vec<Taint> {
    let items = r.get("registerWithTaints").and_then(Value::as_array).into_iter().flatten();
    let taints = items.enumerate().map(|(i, item)| {
        let part =
            |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let path = |name: &str| format!("registerWithTaints[{i}].{name}");
        let (key, value, effect) = (part("key"), part("value"), part("effect"));
        if !is_qualified_name(&key) {
            r.fault(&path("key"), &key, "is not a valid taint key");
        }
        if !is_label_value(&value) {
            r.fault(&path("value"), &value, "is not a valid taint value");
        }
        let known =
            [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute];
        let effect_known = known.into_iter().find(|known| known.as_str() == effect);
        if effect_known.is_none() && !effect.is_empty() {
            r.fault(&path("effect"), &effect, "must be NoSchedule, PreferNoSchedule or NoExecute");
        }
        if item.get("timeAdded").is_some() {
            r.fault(&path("timeAdded"), part("timeAdded"), "must not be set");
        }
        Taint { key, value, effect: effect_known }
    });
    taints.collect()
}

/// Name resolution inside pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// The cluster's name servers.
    pub cluster_servers: Vec<IpAddr>,
    /// The cluster's domain.
    pub cluster_domain: Option<String>,
    /// The file that pods' resolver settings start from; none means an empty start.
    pub resolv_conf: Option<PathBuf>,
}

pub(super) fn read_dns(r: &Reader<'_>) -> Dns {
    // Upstream goes on without a server it cannot parse, so that one typing error does not keep a
    // node down.
    let parse = |text: &String| {
        let address = text.parse().ok();
        if address.is_none() {
            r.warn(format!("clusterDNS = {text}: is not an IP address and is ignored"));
        }
        address
    };
    Dns {
        cluster_servers: r.texts("clusterDNS").iter().filter_map(parse).collect(),
        cluster_domain: r.optional_text("clusterDomain"),
        resolv_conf: r.optional_text("resolvConf").map(PathBuf::from),
    }
}

/// A token bucket for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRates {
    /// Events per second; none means no limit.
    pub per_second: Option<u32>,
    /// How many may be sent at once.
    pub burst: u32,
}

pub(super) fn read_events(r: &Reader<'_>) -> EventRates {
    EventRates {
        per_second: Some(r.count("eventRecordQPS")).filter(|rate| *rate != 0),
        burst: r.count("eventBurst"),
    }
}

/// The main client of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiClients {
    /// Requests per second.
    pub per_second: u32,
    /// How many may be sent at once.
    pub burst: u32,
    /// How objects are encoded.
    pub content_type: String,
}

pub(super) fn read_api(r: &Reader<'_>) -> ApiClients {
    ApiClients {
        per_second: r.count("kubeAPIQPS"),
        burst: r.count("kubeAPIBurst"),
        content_type: r.text("contentType"),
    }
}
