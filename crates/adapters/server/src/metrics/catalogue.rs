//! `docs/metrics.md`: every figure that is served, made from the tables that serve it.
//!
//! `cargo xtask metrics` writes it, and the test below fails while it says something else than the
//! tables. No code of the agent uses it, so it is a module of tests.

use std::{fs, path::Path};

use ferrolet_ports::metrics::{Endpoint, Family};

/// Set by `cargo xtask metrics`: the page is written instead of being compared.
const WRITE: &str = "FERROLET_WRITE_PAGES";

const HEAD: &str = "\
# Figures

What the node tells Prometheus and its kin. Written by `cargo xtask metrics` from the tables that serve it; do not edit.

Names, types, labels and stability are those of Kubernetes 1.37's kubelet; the words are ours. All paths are on the main port (10250, with
authentication) and, without `/metrics/slis`, on the read-only port. A family that nothing was measured for is not shown: one about certificates, say, on a
node without a cluster. What is deprecated is shown only with `showHiddenMetricsForVersion`.
";

const CADVISOR: &str = "
## /metrics/cadvisor

Figures of every control group, with cAdvisor's names. Besides the labels below, those about containers carry `container`, `id`, `image`, `name`,
`namespace` and `pod`; a pod's own group has an empty `container`.

| name | type | labels |
| --- | --- | --- |
";

const ABSENT: &str = "
## Not served

Names of upstream's kubelet that are not measured here.

| name | type | labels |
| --- | --- | --- |
";

const ENDPOINTS: [(Endpoint, &str); 4] = [
    (Endpoint::Metrics, "/metrics"),
    (Endpoint::Resource, "/metrics/resource"),
    (Endpoint::Probes, "/metrics/probes"),
    (Endpoint::Slis, "/metrics/slis"),
];

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (endpoint, path) in ENDPOINTS {
        page.push_str(&format!("\n## {path}\n\n"));
        page.push_str("| name | type | stability | labels | what it says |\n");
        page.push_str("| --- | --- | --- | --- | --- |\n");
        for family in Family::shown_at(endpoint) {
            page.push_str(&format!(
                "| `{}` | {} | {} | {} | {} |\n",
                family.name,
                family.kind.word(),
                family.stability.word().to_lowercase(),
                labels(family.labels.iter().copied()),
                family.help.replace('|', "\\|"),
            ));
        }
    }
    page.push_str(CADVISOR);
    let of_containers = ["container", "id", "image", "name", "namespace", "pod"];
    for line in include_str!("cadvisor/upstream.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let others = words[2].split(',').filter(|it| *it != "-" && !of_containers.contains(it));
        page.push_str(&format!("| `{}` | {} | {} |\n", words[0], words[1], labels(others)));
    }
    page.push_str(ABSENT);
    let shown: Vec<&str> = ENDPOINTS
        .into_iter()
        .flat_map(|(endpoint, _)| Family::shown_at(endpoint))
        .map(|family| family.name)
        .collect();
    for line in include_str!("../../../../ports/src/metrics/upstream.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if !shown.contains(&words[1]) {
            let all = labels(words[4].split(',').filter(|it| *it != "-"));
            page.push_str(&format!("| `{}` | {} | {all} |\n", words[1], words[2]));
        }
    }
    page
}

fn labels<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_page_of_figures_is_of_these_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/metrics.md");
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(
        written == page,
        "docs/metrics.md is not of these tables; `cargo xtask metrics` writes it"
    );
}
