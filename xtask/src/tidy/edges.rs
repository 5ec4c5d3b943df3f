//! Which crate may know which: the floors of the house (ARCHITECTURE.md, "Dependency direction") as a table.
//!
//! A crate's floor is its place in the tree, so a new crate falls under the rules by being put somewhere.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;

/// A crate of ours and the crates of ours that it uses.
#[derive(Debug, Clone)]
pub(super) struct Package {
    name: String,
    manifest: String,
    uses: Vec<Use>,
}

#[derive(Debug, Clone)]
struct Use {
    name: String,
    is_dev: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Floor {
    Core,
    Ports,
    Engine,
    Adapters,
    Agent,
    Testkit,
    Lab,
    Sim,
    /// Tools that drive the agent from outside: xtask, the end-to-end tests and the differential judge.
    Outside,
}

/// Edges inside the core, apart from those to `types`.
const INSIDE_CORE: [(&str, &str); 1] = [("ferrolet-spec", "ferrolet-resources")];

/// The packages of `cargo metadata`.
pub(super) fn read(metadata: &Value, root: &Path) -> Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    packages
        .iter()
        .map(|package| {
            let manifest = text(&package["manifest_path"]);
            let manifest = Path::new(&manifest).strip_prefix(root)?.to_string_lossy().into_owned();
            let dependencies =
                package["dependencies"].as_array().context("package without dependencies")?;
            let uses = dependencies
                .iter()
                .filter(|it| it["path"].is_string())
                .map(|it| Use { name: text(&it["name"]), is_dev: it["kind"] == "dev" })
                .collect();
            Ok(Package { name: text(&package["name"]), manifest, uses })
        })
        .collect()
}

/// Every forbidden edge.
pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let mut report = |message: String| {
            findings.push(Finding { path: package.manifest.clone(), line: 1, message });
        };
        let Some(from) = floor(&package.manifest) else {
            report(format!("{} is on no floor that tidy knows", package.name));
            continue;
        };
        for used in &package.uses {
            let Some(to) =
                packages.iter().find(|it| it.name == used.name).and_then(|it| floor(&it.manifest))
            else {
                continue;
            };
            if !is_allowed((from, &package.name), (to, &used.name), used.is_dev) {
                report(format!(
                    "{} ({from:?}) must not depend on {} ({to:?})",
                    package.name, used.name
                ));
            }
        }
    }
    findings
}

fn is_allowed((from, name): (Floor, &str), (to, used): (Floor, &str), is_dev: bool) -> bool {
    match from {
        Floor::Core => {
            to == Floor::Core
                && name != "ferrolet-types"
                && (used == "ferrolet-types" || INSIDE_CORE.contains(&(name, used)))
        }
        Floor::Ports | Floor::Testkit => {
            matches!(to, Floor::Core) || (from == Floor::Testkit && to == Floor::Ports)
        }
        // Engine crates meet in channels typed by `types`, never in each other's code.
        Floor::Engine | Floor::Adapters => {
            matches!(to, Floor::Core | Floor::Ports) || (is_dev && to == Floor::Testkit)
        }
        Floor::Agent => {
            matches!(to, Floor::Core | Floor::Ports | Floor::Engine | Floor::Adapters)
                || (is_dev && to == Floor::Testkit)
        }
        Floor::Lab => false,
        Floor::Sim => !matches!(to, Floor::Lab | Floor::Outside),
        Floor::Outside => to == Floor::Lab,
    }
}

fn floor(manifest: &str) -> Option<Floor> {
    let parts: Vec<&str> = manifest.split('/').collect();
    Some(match parts.as_slice() {
        ["crates", "core", ..] => Floor::Core,
        ["crates", "ports", ..] => Floor::Ports,
        ["crates", "engine", ..] => Floor::Engine,
        ["crates", "adapters", ..] => Floor::Adapters,
        ["crates", "ferrolet", ..] => Floor::Agent,
        ["crates", "testkit", ..] => Floor::Testkit,
        ["tests", "lab", ..] => Floor::Lab,
        ["tests", "sim", ..] => Floor::Sim,
        ["tests", "e2e" | "differential", ..] | ["xtask", ..] => Floor::Outside,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, manifest: &str, uses: &[(&str, bool)]) -> Package {
        let uses = uses
            .iter()
            .map(|(name, is_dev)| Use { name: (*name).to_owned(), is_dev: *is_dev })
            .collect();
        Package { name: name.to_owned(), manifest: format!("{manifest}/Cargo.toml"), uses }
    }

    /// A house with one edge under test.
    fn messages(from: &str, to: &str, is_dev: bool) -> Vec<String> {
        let rooms = [
            ("ferrolet-types", "crates/core/types"),
            ("ferrolet-spec", "crates/core/spec"),
            ("ferrolet-resources", "crates/core/resources"),
            ("ferrolet-ports", "crates/ports"),
            ("ferrolet-pods", "crates/engine/pods"),
            ("ferrolet-observe", "crates/engine/observe"),
            ("ferrolet-cri", "crates/adapters/cri"),
            ("ferrolet", "crates/ferrolet"),
            ("ferrolet-testkit", "crates/testkit"),
            ("ferrolet-lab", "tests/lab"),
            ("ferrolet-sim", "tests/sim"),
            ("xtask", "xtask"),
        ];
        let packages: Vec<Package> = rooms
            .iter()
            .map(|(name, place)| {
                let edge = [(to, is_dev)];
                package(name, place, if *name == from { &edge } else { &[] })
            })
            .collect();
        check(&packages).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn arrows_only_go_down() {
        let (dev, normal) = (true, false);
        let cases = [
            ("ferrolet-spec", "ferrolet-types", normal, true),
            ("ferrolet-spec", "ferrolet-resources", normal, true),
            ("ferrolet-resources", "ferrolet-spec", normal, false),
            ("ferrolet-types", "ferrolet-resources", normal, false),
            ("ferrolet-spec", "ferrolet-ports", normal, false),
            ("ferrolet-ports", "ferrolet-spec", normal, true),
            ("ferrolet-pods", "ferrolet-ports", normal, true),
            ("ferrolet-pods", "ferrolet-observe", normal, false),
            ("ferrolet-pods", "ferrolet-cri", normal, false),
            ("ferrolet-pods", "ferrolet-testkit", dev, true),
            ("ferrolet-pods", "ferrolet-testkit", normal, false),
            ("ferrolet-cri", "ferrolet-pods", normal, false),
            ("ferrolet", "ferrolet-cri", normal, true),
            ("ferrolet", "ferrolet-lab", dev, false),
            ("ferrolet-sim", "ferrolet", dev, true),
            ("ferrolet-sim", "ferrolet-lab", dev, false),
            ("xtask", "ferrolet-lab", normal, true),
            ("xtask", "ferrolet-types", normal, false),
            ("ferrolet-lab", "ferrolet-types", normal, false),
        ];
        for (from, to, is_dev, is_fine) in cases {
            assert_eq!(messages(from, to, is_dev).is_empty(), is_fine, "{from} -> {to}");
        }
    }

    #[test]
    fn a_crate_in_no_known_place_is_reported() {
        let findings = check(&[package("ferrolet-attic", "attic", &[])]);
        assert_eq!(findings[0].message, "ferrolet-attic is on no floor that tidy knows");
    }
}
