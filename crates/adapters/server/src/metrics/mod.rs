//! What Prometheus and metrics-server scrape: `/metrics`, `/metrics/resource`, `/metrics/probes`.
//!
//! One [`table`] says what each family is called, of which type, with which labels and how stable; a test holds it against the
//! list of upstream's names (`upstream.txt`). Sources ([`Measured`]) give figures by the table's names; [`text`] writes them. `resource`
//! is computed from a usage snapshot at each scrape. Figures are true or absent: a family nobody measures is not shown.

mod http;
mod resource;
mod table;
mod text;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ferrolet_ports::{Measured, Sample, Usage};
use ferrolet_types::Timestamp;

pub(crate) use http::{HttpFigures, count};
use table::{Endpoint, Family};
use text::Exposition;

use crate::refusal::Refusal;
use crate::routes::Views;

/// Where figures come from.
#[derive(Clone)]
pub struct Figures {
    /// The node's name.
    pub node_name: String,
    /// Since when the node's figures count.
    pub began: Timestamp,
    /// What is used.
    pub usage: Arc<dyn Usage>,
    /// Parts of the agent that keep figures of their own.
    pub sources: Arc<[Arc<dyn Measured>]>,
}

/// What the handlers of figures need.
#[derive(Clone)]
pub(crate) struct FigureDoors {
    pub(crate) views: Views,
    pub(crate) figures: Figures,
    pub(crate) http: Arc<HttpFigures>,
}

pub(crate) async fn own(State(doors): State<FigureDoors>) -> Response {
    let mut samples = doors.samples();
    samples.push(Sample {
        family: "kubelet_node_name",
        labels: vec![doors.figures.node_name.clone()],
        value: ferrolet_ports::SampleValue::Number(1.0),
    });
    samples.extend(doors.http.samples());
    exposed(table::shown_at(Endpoint::Metrics), &samples)
}

pub(crate) async fn probes(State(doors): State<FigureDoors>) -> Response {
    exposed(table::shown_at(Endpoint::Probes), &doors.samples())
}

pub(crate) async fn resources(State(doors): State<FigureDoors>) -> Response {
    let snapshot = doors.figures.usage.snapshot().await;
    if let Err(error) = &snapshot {
        tracing::warn!(err = %error, "Usage cannot be read");
    }
    let pods = doors.views.pods.pods();
    let mut exposition = Exposition::default();
    resource::write(snapshot.as_deref().ok(), &pods, &mut exposition);
    answer(exposition)
}

/// `/stats/summary`, from the same snapshot.
pub(crate) async fn summary(State(doors): State<FigureDoors>) -> Response {
    match doors.figures.usage.snapshot().await {
        Ok(snapshot) => {
            let pods = doors.views.pods.pods();
            let summary = crate::summary::summary(&doors.figures, &snapshot, &pods);
            axum::Json(summary).into_response()
        }
        Err(error) => {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
        }
    }
}

impl FigureDoors {
    fn samples(&self) -> Vec<Sample> {
        let sources = self.figures.sources.iter();
        sources.flat_map(|source| source.samples()).collect()
    }
}

fn exposed(families: impl Iterator<Item = &'static Family>, samples: &[Sample]) -> Response {
    let mut exposition = Exposition::default();
    for family in families {
        let own: Vec<&Sample> = samples
            .iter()
            .filter(|sample| sample.family == family.name)
            .collect();
        exposition.family(family, &own);
    }
    answer(exposition)
}

fn answer(exposition: Exposition) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], exposition.into_text()).into_response()
}
