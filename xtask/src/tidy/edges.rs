//! Which crate may know which: the floors of the house (ARCHITECTURE.md, "Dependency direction") as
//! a table.
//!
//! A crate's floor is its place in the tree, so a new crate falls under the rules by being put
//! somewhere.

use std::collections::BTreeSet;
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
    directory: String,
    is_dev: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Floor {
    Core,
    Ports,
    /// The kernel, as all adapters of a Linux node need it; they do not know one another.
    Linux,
    /// CRI's own types, for the two that speak it.
    CriProto,
    /// WebSocket and SPDY as bytes, for the two that serve streams.
    Streams,
    Engine,
    Adapters,
    Runtime,
    /// What puts the agent together from settings and ports.
    Assembly,
    Executable,
    Testkit,
    Lab,
    /// What makes packages out of files.
    Dist,
    Sim,
    /// What damages the texts that others write, for whoever reads them.
    Parsers,
    /// Tools that drive the agent from outside: xtask, the end-to-end tests and the differential
    /// judge.
    Outside,
}

/// Edges inside the core, apart from those to `types` and to `pod`, which only knows `types`.
const INSIDE_CORE: [(&str, &str); 8] = [
    ("ferrolet-spec", "ferrolet-resources"),
    ("ferrolet-spec", "ferrolet-node"),
    ("ferrolet-resources", "ferrolet-node"),
    ("ferrolet-eviction", "ferrolet-config"),
    ("ferrolet-devices", "ferrolet-node"),
    ("ferrolet-devices", "ferrolet-spec"),
    ("ferrolet-placement", "ferrolet-node"),
    ("ferrolet-placement", "ferrolet-resources"),
];

/// Crates of the runtime that know few others. What runs in a process that forks (`sys`, `monitor`)
/// stays small, and `plan` and `seccomp` are pure; the rest of the runtime may know all of it.
const INSIDE_RUNTIME: [(&str, &[&str]); 6] = [
    ("ferrolet-runtime-protocol", &[]),
    ("ferrolet-runtime-seccomp", &[]),
    (
        "ferrolet-runtime-plan",
        &["ferrolet-cri-proto", "ferrolet-runtime-protocol", "ferrolet-runtime-seccomp"],
    ),
    ("ferrolet-runtime-sys", &["ferrolet-runtime-protocol"]),
    ("ferrolet-runtime-monitor", &["ferrolet-runtime-protocol", "ferrolet-runtime-sys"]),
    ("ferrolet-runtime-client", &["ferrolet-runtime-protocol", "ferrolet-runtime-sys"]),
];

/// Engine crates whose tests play another one behind its port.
const TESTED_TOGETHER: [(&str, &str); 1] = [("ferrolet-volumes", "ferrolet-rare-volumes")];

impl Package {
    /// Its directory, and those of the crates that it uses outside of tests.
    pub(super) fn edges(&self) -> (String, BTreeSet<String>) {
        let used = self.uses.iter().filter(|it| !it.is_dev);
        (directory(&self.manifest), used.map(|it| it.directory.clone()).collect())
    }
}

fn directory(manifest: &str) -> String {
    manifest.strip_suffix("/Cargo.toml").unwrap_or(manifest).to_owned()
}

/// The packages of `cargo metadata`.
pub(super) fn read(metadata: &Value, root: &Path) -> Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let relative = |path: &str| {
        Path::new(path).strip_prefix(root).unwrap_or(Path::new(path)).to_string_lossy().into_owned()
    };
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
                .map(|it| Use {
                    name: text(&it["name"]),
                    directory: relative(&text(&it["path"])),
                    is_dev: it["kind"] == "dev",
                })
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
        let expected = package_name(&package.manifest, packages);
        if expected.as_ref().is_some_and(|expected| *expected != package.name) {
            let expected = expected.unwrap_or_default();
            report(format!("{} is to be called {expected}", package.name));
        }
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
                && (used == "ferrolet-types"
                    || used == "ferrolet-pod"
                    || name != "ferrolet-pod" && INSIDE_CORE.contains(&(name, used)))
        }
        Floor::Ports | Floor::Testkit => {
            matches!(to, Floor::Core) || (from == Floor::Testkit && to == Floor::Ports)
        }
        Floor::Linux => matches!(to, Floor::Core | Floor::Ports),
        Floor::CriProto | Floor::Streams => false,
        // Engine crates meet in channels typed by `types`, never in each other's code.
        Floor::Engine => {
            matches!(to, Floor::Core | Floor::Ports)
                || (is_dev && (to == Floor::Testkit || TESTED_TOGETHER.contains(&(name, used))))
        }
        Floor::Adapters => {
            matches!(to, Floor::Core | Floor::Ports | Floor::Linux)
                || (to == Floor::CriProto && name == "ferrolet-cri")
                || (to == Floor::Streams && name == "ferrolet-server")
                || (is_dev && to == Floor::Testkit)
        }
        Floor::Runtime => {
            let few = INSIDE_RUNTIME.iter().find(|(it, _)| *it == name);
            match few {
                Some((_, known)) => known.contains(&used) || (is_dev && to == Floor::Runtime),
                None => {
                    matches!(to, Floor::Core | Floor::Runtime)
                        || (matches!(to, Floor::CriProto | Floor::Streams)
                            && name == "ferrolet-runtime-service")
                }
            }
        }
        // The assembly knows no adapter, so that whatever has ports can start the agent.
        Floor::Assembly => {
            matches!(to, Floor::Core | Floor::Ports | Floor::Engine)
                || (is_dev && to == Floor::Testkit)
        }
        Floor::Executable => {
            let is_beside = matches!(
                to,
                Floor::CriProto
                    | Floor::Lab
                    | Floor::Dist
                    | Floor::Sim
                    | Floor::Parsers
                    | Floor::Outside
            );
            !is_beside && to != Floor::Executable && (to != Floor::Testkit || is_dev)
        }
        Floor::Lab | Floor::Dist => false,
        Floor::Sim => !matches!(to, Floor::Lab | Floor::Dist | Floor::Parsers | Floor::Outside),
        Floor::Parsers => {
            is_dev
                && matches!(
                    to,
                    Floor::Core
                        | Floor::Ports
                        | Floor::Linux
                        | Floor::Streams
                        | Floor::Engine
                        | Floor::Adapters
                )
        }
        Floor::Outside => matches!(to, Floor::Lab | Floor::Dist),
    }
}

/// What the crate in that place is called: `ferrolet-<directory>`, and for a subject that has rules
/// in the core and loops in the engine, `ferrolet-<directory>-engine` for the loops. `None` outside
/// of the three floors that have rooms.
fn package_name(manifest: &str, packages: &[Package]) -> Option<String> {
    let parts: Vec<&str> = manifest.split('/').collect();
    let ["crates", floor @ ("core" | "engine" | "adapters"), room, ..] = parts.as_slice() else {
        return None;
    };
    let in_core = format!("crates/core/{room}/Cargo.toml");
    let is_twin = *floor == "engine" && packages.iter().any(|it| it.manifest == in_core);
    Some(format!("ferrolet-{room}{}", if is_twin { "-engine" } else { "" }))
}

fn floor(manifest: &str) -> Option<Floor> {
    let parts: Vec<&str> = manifest.split('/').collect();
    Some(match parts.as_slice() {
        ["crates", "core", ..] => Floor::Core,
        ["crates", "ports", ..] => Floor::Ports,
        ["crates", "linux", ..] => Floor::Linux,
        ["crates", "cri-proto", ..] => Floor::CriProto,
        ["crates", "streams", ..] => Floor::Streams,
        ["crates", "engine", ..] => Floor::Engine,
        ["crates", "adapters", ..] => Floor::Adapters,
        ["crates", "runtime", ..] => Floor::Runtime,
        ["crates", "agent", ..] => Floor::Assembly,
        ["crates", "ferrolet", ..] => Floor::Executable,
        ["crates", "testkit", ..] => Floor::Testkit,
        ["tests", "lab", ..] => Floor::Lab,
        ["dist", ..] => Floor::Dist,
        ["tests", "sim", ..] => Floor::Sim,
        ["tests", "parsers", ..] => Floor::Parsers,
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
            .map(|(name, is_dev)| Use {
                name: (*name).to_owned(),
                directory: String::new(),
                is_dev: *is_dev,
            })
            .collect();
        Package { name: name.to_owned(), manifest: format!("{manifest}/Cargo.toml"), uses }
    }

    /// A house with one edge under test.
    fn messages(from: &str, to: &str, is_dev: bool) -> Vec<String> {
        let rooms = [
            ("ferrolet-types", "crates/core/types"),
            ("ferrolet-pod", "crates/core/pod"),
            ("ferrolet-spec", "crates/core/spec"),
            ("ferrolet-resources", "crates/core/resources"),
            ("ferrolet-node", "crates/core/node"),
            ("ferrolet-node-engine", "crates/engine/node"),
            ("ferrolet-ports", "crates/ports"),
            ("ferrolet-linux", "crates/linux"),
            ("ferrolet-pods", "crates/engine/pods"),
            ("ferrolet-observe", "crates/engine/observe"),
            ("ferrolet-cri-proto", "crates/cri-proto"),
            ("ferrolet-streams", "crates/streams"),
            ("ferrolet-server", "crates/adapters/server"),
            ("ferrolet-cri", "crates/adapters/cri"),
            ("ferrolet-mounts", "crates/adapters/mounts"),
            ("ferrolet-runtime-sys", "crates/runtime/sys"),
            ("ferrolet-runtime-monitor", "crates/runtime/monitor"),
            ("ferrolet-runtime-client", "crates/runtime/client"),
            ("ferrolet-runtime-service", "crates/runtime/service"),
            ("ferrolet-agent", "crates/agent"),
            ("ferrolet", "crates/ferrolet"),
            ("ferrolet-testkit", "crates/testkit"),
            ("ferrolet-lab", "tests/lab"),
            ("ferrolet-sim", "tests/sim"),
            ("ferrolet-parsers-tests", "tests/parsers"),
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
            ("ferrolet-parsers-tests", "ferrolet-linux", dev, true),
            ("ferrolet-parsers-tests", "ferrolet-linux", normal, false),
            ("ferrolet", "ferrolet-parsers-tests", normal, false),
            ("ferrolet-spec", "ferrolet-resources", normal, true),
            ("ferrolet-resources", "ferrolet-spec", normal, false),
            ("ferrolet-resources", "ferrolet-node", normal, true),
            ("ferrolet-node", "ferrolet-resources", normal, false),
            ("ferrolet-pods", "ferrolet-node", normal, true),
            ("ferrolet-pods", "ferrolet-node-engine", normal, false),
            ("ferrolet-types", "ferrolet-resources", normal, false),
            ("ferrolet-types", "ferrolet-pod", normal, false),
            ("ferrolet-pod", "ferrolet-types", normal, true),
            ("ferrolet-pod", "ferrolet-resources", normal, false),
            ("ferrolet-resources", "ferrolet-pod", normal, true),
            ("ferrolet-spec", "ferrolet-ports", normal, false),
            ("ferrolet-ports", "ferrolet-spec", normal, true),
            ("ferrolet-pods", "ferrolet-ports", normal, true),
            ("ferrolet-pods", "ferrolet-observe", normal, false),
            ("ferrolet-pods", "ferrolet-cri", normal, false),
            ("ferrolet-pods", "ferrolet-testkit", dev, true),
            ("ferrolet-pods", "ferrolet-testkit", normal, false),
            ("ferrolet-cri", "ferrolet-pods", normal, false),
            ("ferrolet-mounts", "ferrolet-linux", normal, true),
            ("ferrolet-mounts", "ferrolet-cri", normal, false),
            ("ferrolet-linux", "ferrolet-ports", normal, true),
            ("ferrolet-linux", "ferrolet-mounts", normal, false),
            ("ferrolet-linux", "ferrolet-testkit", dev, false),
            ("ferrolet-pods", "ferrolet-linux", normal, false),
            ("ferrolet", "ferrolet-linux", normal, true),
            ("ferrolet-runtime-monitor", "ferrolet-runtime-sys", normal, true),
            ("ferrolet-runtime-monitor", "ferrolet-runtime-client", normal, false),
            ("ferrolet-runtime-monitor", "ferrolet-runtime-client", dev, true),
            ("ferrolet-runtime-monitor", "ferrolet-types", normal, false),
            ("ferrolet-runtime-service", "ferrolet-runtime-client", normal, true),
            ("ferrolet-runtime-service", "ferrolet-pods", normal, false),
            ("ferrolet-cri", "ferrolet-runtime-service", normal, false),
            ("ferrolet-cri", "ferrolet-cri-proto", normal, true),
            ("ferrolet-runtime-service", "ferrolet-cri-proto", normal, true),
            ("ferrolet-mounts", "ferrolet-cri-proto", normal, false),
            ("ferrolet-server", "ferrolet-streams", normal, true),
            ("ferrolet-runtime-service", "ferrolet-streams", normal, true),
            ("ferrolet-mounts", "ferrolet-streams", normal, false),
            ("ferrolet-streams", "ferrolet-types", normal, false),
            ("ferrolet-pods", "ferrolet-cri-proto", normal, false),
            ("ferrolet-cri-proto", "ferrolet-types", normal, false),
            ("ferrolet", "ferrolet-runtime-service", normal, true),
            ("ferrolet-agent", "ferrolet-pods", normal, true),
            ("ferrolet-agent", "ferrolet-cri", normal, false),
            ("ferrolet-pods", "ferrolet-agent", normal, false),
            ("ferrolet", "ferrolet-agent", normal, true),
            ("ferrolet", "ferrolet-cri", normal, true),
            ("ferrolet", "ferrolet-lab", dev, false),
            ("ferrolet-sim", "ferrolet-agent", normal, true),
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
    fn a_crate_is_called_as_its_room() {
        let check = |name: &str, place: &str, expected: &[&str]| {
            let rooms = [
                package(name, place, &[]),
                package("ferrolet-node", "crates/core/node", &[]),
                package("ferrolet", "crates/ferrolet", &[]),
            ];
            let findings = check(&rooms).into_iter().map(|it| it.message);
            assert_eq!(findings.collect::<Vec<_>>(), expected, "{name}");
        };
        check("ferrolet-pods", "crates/engine/pods", &[]);
        check("ferrolet-node-engine", "crates/engine/node", &[]);
        check(
            "ferrolet-node-loops",
            "crates/engine/node",
            &["ferrolet-node-loops is to be called ferrolet-node-engine"],
        );
        check("pods", "crates/engine/pods", &["pods is to be called ferrolet-pods"]);
    }

    #[test]
    fn a_crate_in_no_known_place_is_reported() {
        let findings = check(&[package("ferrolet-attic", "attic", &[])]);
        assert_eq!(findings[0].message, "ferrolet-attic is on no floor that tidy knows");
    }
}
