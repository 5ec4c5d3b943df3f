//! What the program is made of, in CycloneDX 1.5.
//!
//! From `cargo metadata` (resolved for one target) and the checksums of `Cargo.lock`: the crates
//! that are linked into one package's executable or run while it is built, with version, licence
//! and checksum. Crates of tests only are not in it. No time and no random number, so that the same
//! tree gives the same list.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The list for one package of the workspace, as JSON text.
pub fn bill(metadata: &Value, lock: &str, package: &str) -> Result<String> {
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"])
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let root = packages.iter().find(|(_, it)| it["name"] == package);
    let (root, described) = root.with_context(|| format!("cargo knows no package {package}"))?;
    let needs = needs(&metadata["resolve"]);
    let mut linked = BTreeSet::new();
    let mut left = vec![*root];
    while let Some(id) = left.pop() {
        if linked.insert(id) {
            left.extend(needs.get(id).into_iter().flatten());
        }
    }
    linked.remove(root);
    let sums = checksums(lock);
    let components: Vec<Value> =
        linked.iter().filter_map(|id| Some(component(packages.get(id)?, &sums))).collect();
    let edges: Vec<Value> = std::iter::once(root)
        .chain(&linked)
        .map(|id| {
            let on = needs.get(id).into_iter().flatten();
            let on: Vec<String> = on.filter_map(|it| Some(reference(packages.get(it)?))).collect();
            json!({"ref": packages.get(id).map(|it| reference(it)), "dependsOn": on})
        })
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application",
            "bom-ref": reference(described),
            "name": described["name"],
            "version": described["version"],
        }},
        "components": components,
        "dependencies": edges,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Which package needs which, for tests apart.
fn needs(resolve: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    list(&resolve["nodes"])
        .filter_map(|node| {
            let needed = list(&node["deps"])
                .filter(|dep| list(&dep["dep_kinds"]).any(|kind| kind["kind"] != "dev"));
            Some((node["id"].as_str()?, needed.filter_map(|dep| dep["pkg"].as_str()).collect()))
        })
        .collect()
}

/// Checksums of crates by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for block in lock.split("[[package]]") {
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            line.map(|text| text.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            found.insert((name, version), sum);
        }
    }
    found
}

fn reference(package: &Value) -> String {
    let text = |name: &str| package[name].as_str().unwrap_or_default();
    format!("pkg:cargo/{}@{}", text("name"), text("version").replace('+', "%2B"))
}

fn component(package: &Value, sums: &BTreeMap<(String, String), String>) -> Value {
    let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    });
    if let Some(licence) = package["license"].as_str() {
        // Older crates write a slash where the expression says OR.
        let expression = licence.replace(" / ", " OR ").replace('/', " OR ");
        component["licenses"] = json!([{"expression": expression}]);
    }
    if let Some(sum) = sums.get(&(text("name"), text("version"))) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        let package = |id: &str, name: &str| json!({"id": id, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0"});
        let dep = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        json!({
            "packages": [package("a", "agent"), package("b", "linked"), package("c", "tested"), package("d", "built"), package("e", "other")],
            "resolve": {"nodes": [
                {"id": "a", "deps": [dep("b", Value::Null), dep("c", json!("dev"))]},
                {"id": "b", "deps": [dep("d", json!("build"))]},
                {"id": "c", "deps": []}, {"id": "d", "deps": []}, {"id": "e", "deps": []},
            ]},
        })
    }

    const LOCK: &str =
        "version = 4\n\n[[package]]\nname = \"linked\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n";

    #[test]
    fn what_is_linked_or_builds_is_listed_and_tests_are_not() {
        let bill: Value = serde_json::from_str(&bill(&metadata(), LOCK, "agent").unwrap()).unwrap();
        let names: Vec<&str> =
            list(&bill["components"]).filter_map(|it| it["name"].as_str()).collect();
        assert_eq!(names, ["linked", "built"]);
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "abc");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][0]["purl"], "pkg:cargo/linked@1.0.0");
        assert_eq!(bill["dependencies"][0]["dependsOn"], json!(["pkg:cargo/linked@1.0.0"]));
    }

    #[test]
    fn a_package_that_is_not_there_is_an_error() {
        assert!(bill(&metadata(), LOCK, "nobody").is_err());
    }
}
