//! What Prometheus and metrics-server scrape: `/metrics`, `/metrics/resource`, `/metrics/probes`,
//! `/metrics/cadvisor`; and `/stats/summary`, from the same readings.
//!
//! What families there are is said by the table in `ports::metrics`. Sources ([`Measured`]) give
//! figures of those; [`text`] writes them, and [`forms`] turns the text into what
//! a client likes better. `resource` is computed from a usage snapshot at each scrape. Figures are
//! true or absent: a family nobody measures is not shown.

mod cadvisor;
#[cfg(test)]
mod catalogue;
mod forms;
mod http;
mod layers;
mod pods;
mod protobuf;
mod resource;
pub(crate) mod slis;
mod squeezed;
mod text;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use ferrolet_ports::{
    Clock, Detail, DiskUsage, HostError, Measured, RuntimeDisk, Sample, Tally, Usage, UsageFigures,
    UsageSnapshot,
    metrics::{self, Endpoint, Family},
};
use ferrolet_types::{ContainerId, Pod, Timestamp};

pub(crate) use forms::{Began, as_asked};
pub use http::Requests;
#[cfg(test)]
pub(crate) use http::known_paths;
pub(crate) use http::{bounded, count};
use layers::Kept;
pub(crate) use layers::Layers;
use text::Exposition;

use crate::query::{pairs_of, values};
use crate::refusal::Refusal;
use crate::routes::Views;
use crate::summary::{self, Summary};
use crate::target::running_names;

/// How old a reading may be that is scraped. Upstream's samples are ten to fifteen seconds old;
/// ours say when they were read, and whoever scrapes every ten seconds gets one of their own (ADR
/// 0022).
const SHARED: Duration = Duration::from_secs(8);
/// The same for somebody who watches a curve grow.
const LIVE: Duration = Duration::from_secs(1);

/// Where figures come from.
#[derive(Clone)]
pub struct Figures {
    /// The node's name.
    pub node_name: String,
    /// Since when the node's figures count.
    pub began: Timestamp,
    /// What is used.
    pub usage: Arc<dyn Usage>,
    /// What the runtime keeps on disk.
    pub disk: Arc<dyn RuntimeDisk>,
    /// The machine.
    pub machine: Arc<Machine>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Parts of the agent that keep figures of their own.
    pub sources: Arc<[Arc<dyn Measured>]>,
    /// What the listeners were asked; all of them share it.
    pub requests: Requests,
    /// What becomes of figures that upstream takes away.
    pub hidden: Hidden,
}

/// Whether figures are shown that upstream has deprecated and hides before it removes them
/// (`showHiddenMetricsForVersion`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// They are not.
    Away,
    /// Somebody still needs them.
    Shown,
}

/// What is told about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Differs after each boot.
    pub boot_id: String,
    /// Stays over boots.
    pub machine_id: String,
    /// The firmware's identity.
    pub system_uuid: String,
    /// The kernel's release.
    pub kernel_version: String,
    /// The distribution.
    pub os_image: String,
    /// Logical processors.
    pub n_cpus: u64,
    /// Cores.
    pub n_cores: u64,
    /// Sockets.
    pub n_sockets: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of swap.
    pub swap_bytes: u64,
}

/// What the handlers of figures need.
#[derive(Clone)]
pub(crate) struct FigureDoors {
    pub(crate) views: Views,
    pub(crate) figures: Figures,
    pub(crate) layers: Arc<Layers>,
    pub(crate) summaries: Arc<LastSummary>,
    pub(crate) checks: Arc<Tally>,
}

impl FigureDoors {
    pub(crate) fn new(views: Views, figures: Figures) -> Self {
        let checks = Arc::default();
        Self {
            views: slis::counted(&views, &checks),
            checks,
            figures,
            layers: Arc::default(),
            summaries: Arc::default(),
        }
    }
}

pub(crate) async fn own(State(doors): State<FigureDoors>) -> Response {
    let mut samples = doors.samples();
    samples.push(metrics::KUBELET_NODE_NAME.sample([&doors.figures.node_name], 1.0));
    samples.extend(doors.figures.requests.samples());
    for (stability, n) in Family::n_by_stability() {
        let labels = ["", stability.word()];
        samples.push(metrics::REGISTERED_METRICS_TOTAL.sample(labels, n as f64));
    }
    samples.push(metrics::DISABLED_METRICS_TOTAL.sample([], 0.0));
    samples.push(metrics::HIDDEN_METRICS_TOTAL.sample([], 0.0));
    let all = doors.views.pods.pods();
    samples.extend(pods::counted(&all));
    samples.extend(pods::resizes(&all));
    match doors.figures.usage.disk().await {
        Ok(disk) => samples.extend(pods::on_disk(&all, &disk)),
        Err(error) => tracing::warn!(err = %error, "Disks cannot be looked at"),
    }
    exposed(Family::shown_at(Endpoint::Metrics), &samples)
}

pub(crate) async fn probes(State(doors): State<FigureDoors>) -> Response {
    exposed(Family::shown_at(Endpoint::Probes), &doors.samples())
}

/// `/metrics/slis`.
pub(crate) async fn health(State(doors): State<FigureDoors>) -> Response {
    slis::ask(&doors.views, &doors.checks);
    let mut samples = doors.samples();
    samples.extend(doors.checks.samples());
    exposed(Family::shown_at(Endpoint::Slis), &samples)
}

/// `DELETE /metrics/slis`: counting begins anew.
pub(crate) async fn forget_health(State(doors): State<FigureDoors>) -> Response {
    doors.checks.clear();
    crate::routes::text(StatusCode::OK, "metrics reset\n".to_owned())
}

pub(crate) async fn resources(State(doors): State<FigureDoors>) -> Response {
    let pods = doors.views.pods.pods();
    let snapshot = slim(doors.figures.usage.as_ref(), &pods).await;
    if let Err(error) = &snapshot {
        tracing::warn!(err = %error, "Usage cannot be read");
    }
    let mut exposition = Exposition::default();
    resource::write(snapshot.as_deref().ok(), &pods, doors.figures.hidden, &mut exposition);
    answer(exposition)
}

/// Processor and memory of these pods: a reading that others share, unless a container began after
/// it.
async fn slim(usage: &dyn Usage, pods: &[Pod]) -> Result<Arc<UsageSnapshot>, HostError> {
    let shared = usage.snapshot(SHARED).await?;
    let known: HashSet<&str> = shared
        .pods
        .iter()
        .flat_map(|pod| pod.containers.iter().map(|(id, _)| id.as_str()))
        .collect();
    let is_complete = pods.iter().flat_map(running_names).all(|it| known.contains(it.id));
    if is_complete {
        return Ok(shared);
    }
    usage.snapshot(LIVE).await
}

pub(crate) async fn cadvisor(State(doors): State<FigureDoors>) -> Response {
    let figures = doors.figures.usage.figures(Detail::Whole, SHARED).await;
    if let Err(error) = &figures {
        tracing::warn!(err = %error, "Usage cannot be read");
    }
    let pods = doors.views.pods.pods();
    let now = doors.figures.clock.now();
    let figures = figures.as_deref().ok();
    let text = cadvisor::write(figures, &pods, &doors.figures.machine, now);
    plain(text)
}

/// `/stats/summary`, from the same readings.
pub(crate) async fn summary(State(doors): State<FigureDoors>, uri: Uri) -> Response {
    let pairs = pairs_of(uri.query().unwrap_or_default());
    // Anything but this one word, said once, counts as no, as upstream has it.
    let said: Vec<&str> = values(&pairs, "only_cpu_and_memory").collect();
    let is_slim = said == ["true"];
    let pods = doors.views.pods.pods();
    let text = if is_slim {
        let snapshot = slim(doors.figures.usage.as_ref(), &pods).await;
        snapshot.map(|snapshot| {
            let summary = summary::slim(&doors.figures, &snapshot, &pods);
            Bytes::from(summary.to_json(0))
        })
    } else {
        let gathered = gather(&doors.figures, &doors.layers, &pods, SHARED).await;
        gathered.map(|gathered| doors.summaries.text_of(&doors.figures, gathered, pods))
    };
    match text {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => Refusal::failed(format!("Internal Error: {error}")).into_response(),
    }
}

/// The whole summary of these pods, at most a moment old: for somebody who watches.
pub(crate) async fn live_summary(
    known: &Figures,
    layers: &Layers,
    pods: &[Pod],
) -> Result<serde_json::Value, HostError> {
    let gathered = gather(known, layers, pods, LIVE).await?;
    let summary = gathered.summary(known, pods);
    Ok(serde_json::to_value(summary).expect("a summary has no keys but words"))
}

/// What a whole summary is made from.
pub(super) struct Gathered {
    figures: Arc<UsageFigures>,
    disk: Option<Arc<DiskUsage>>,
    kept: Arc<Kept>,
}

impl Gathered {
    fn summary<'a>(&'a self, known: &'a Figures, pods: &'a [Pod]) -> Summary<'a> {
        let readings = summary::Readings {
            figures: &self.figures,
            disk: self.disk.as_deref(),
            layers: &self.kept.layers,
            stores: self.kept.stores,
        };
        summary::whole(known, &readings, pods)
    }

    /// True for the very same readings.
    fn is_same(&self, other: &Self) -> bool {
        let is_same_disk = match (&self.disk, &other.disk) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        is_same_disk
            && Arc::ptr_eq(&self.figures, &other.figures)
            && Arc::ptr_eq(&self.kept, &other.kept)
    }
}

async fn gather(
    known: &Figures,
    layers: &Layers,
    pods: &[Pod],
    max_age: Duration,
) -> Result<Gathered, HostError> {
    let shown = pods.iter().flat_map(running_names);
    let shown = shown.map(|it| ContainerId::from(it.id)).collect();
    let detail = Detail::Summary(Arc::new(shown));
    let figures = known.usage.figures(detail, max_age).await?;
    // Disks and the runtime may be slow or away; the rest of the summary is true without them.
    let disk = known.usage.disk().await;
    if let Err(error) = &disk {
        tracing::warn!(err = %error, "Disks cannot be looked at");
    }
    Ok(Gathered { figures, disk: disk.ok(), kept: layers.read(known).await })
}

/// The last summary's text, for whoever asks again before anything in it has changed.
#[derive(Default)]
pub(crate) struct LastSummary {
    kept: Mutex<Option<(Gathered, Vec<Pod>, Bytes)>>,
}

impl LastSummary {
    fn text_of(&self, known: &Figures, gathered: Gathered, pods: Vec<Pod>) -> Bytes {
        let mut kept = self.kept.lock().expect("no panic under this lock");
        if let Some((last, of, text)) = &*kept
            && last.is_same(&gathered)
            && crate::pods::is_same(of, &pods)
        {
            return text.clone();
        }
        // Nobody needs the old text beside the new.
        let about = kept.take().map_or(0, |(_, _, text)| text.len());
        // A little more than last time, so that it need not move when numbers grow.
        let text = gathered.summary(known, &pods).to_json(about + about / 16);
        let text = Bytes::from(text);
        *kept = Some((gathered, pods, text.clone()));
        text
    }
}

impl FigureDoors {
    fn samples(&self) -> Vec<Sample> {
        let sources = self.figures.sources.iter();
        sources.flat_map(|source| source.samples()).collect()
    }
}

fn exposed(families: impl Iterator<Item = &'static Family>, samples: &[Sample]) -> Response {
    let mut by_family: HashMap<&str, Vec<&Sample>> = HashMap::new();
    for sample in samples {
        by_family.entry(sample.family.name).or_default().push(sample);
    }
    let mut exposition = Exposition::default();
    for family in families {
        let own = by_family.get(family.name);
        exposition.family(family, own.map_or(&[], Vec::as_slice));
    }
    answer(exposition)
}

fn answer(exposition: Exposition) -> Response {
    plain(exposition.into_text())
}

fn plain(text: String) -> Response {
    ([(CONTENT_TYPE, forms::TEXT)], text).into_response()
}
