//! `cpu_manager_state`.

use std::collections::BTreeMap;

use ferrolet_types::PodUid;
use serde_json::{Map, Value};

use super::{
    CheckpointError, braced, checksum, checksum_of_data, content, entries, quoted, shape, text,
};
use crate::cpu::{CpuAssignments, CpuSet};

/// Writes who has which processors under the static policy.
pub fn encode_cpus(assignments: &CpuAssignments) -> Vec<u8> {
    let mut pods: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for (uid, container, cpus) in assignments.iter() {
        pods.entry(uid.as_str()).or_default().insert(container, cpus.to_string());
    }
    encode("static", &assignments.shared.to_string(), &pods)
}

/// Writes that nobody has any, under the policy `none`.
pub fn encode_no_cpus() -> Vec<u8> {
    encode("none", "", &BTreeMap::new())
}

fn encode(policy: &str, shared: &str, pods: &BTreeMap<&str, BTreeMap<&str, String>>) -> Vec<u8> {
    let containers = |all: &BTreeMap<&str, String>| {
        braced(all.iter().map(|(name, cpus)| ((*name).to_owned(), quoted(cpus))))
    };
    let entries = match pods.is_empty() {
        true => String::new(),
        false => {
            let pods = pods.iter().map(|(uid, all)| ((*uid).to_owned(), containers(all)));
            format!(r#","entries":{}"#, braced(pods))
        }
    };
    let fields =
        format!(r#""policyName":{},"defaultCpuSet":{}{entries}"#, quoted(policy), quoted(shared));
    let printed: Vec<String> = pods
        .iter()
        .map(|(uid, all)| {
            let all: Vec<String> =
                all.iter().map(|(name, cpus)| format!("{name}:{cpus}")).collect();
            format!("{uid}:map[{}]", all.join(" "))
        })
        .collect();
    let old = checksum(&print(policy, shared, &printed.join(" "), ""));
    let data = format!("{{{fields}}}");
    format!(
        r#"{{{fields},"checksum":{old},"data":{},"dataChecksum":{}}}"#,
        quoted(&data),
        checksum_of_data(&data)
    )
    .into_bytes()
}

/// What Go prints for the value.
fn print(policy: &str, shared: &str, entries: &str, pods: &str) -> String {
    format!(
        "(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){shared} \
         Entries:(map[string]map[string]string)map[{entries}]{pods} Checksum:(checksum.Checksum)0}}"
    )
}

fn print_versions(file: &Map<String, Value>) -> Vec<String> {
    let word = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut pods = Vec::new();
    for (uid, all) in entries(file, "entries").unwrap_or_default() {
        let all = all.as_object().into_iter().flatten();
        let all: Vec<String> = all
            .map(|(name, cpus)| format!("{name}:{}", cpus.as_str().unwrap_or_default()))
            .collect();
        pods.push(format!("{uid}:map[{}]", all.join(" ")));
    }
    let (policy, shared, pods) = (word("policyName"), word("defaultCpuSet"), pods.join(" "));
    let with_pods = " PodEntries:(state.PodCPUAssignments)map[]";
    ["", with_pods].map(|more| print(policy, shared, &pods, more)).to_vec()
}

/// Reads a file of any version since 1.18: the policy that wrote it, and who had what.
pub fn decode_cpus(file: &[u8]) -> Result<(String, CpuAssignments), CheckpointError> {
    let data = content(file, print_versions)?;
    let cpus = |list: &str| CpuSet::parse(list).map_err(shape);
    let mut assignments = CpuAssignments::sharing(cpus(text(&data, "defaultCpuSet")?)?);
    for (uid, containers) in entries(&data, "entries")? {
        let containers = containers.as_object().ok_or_else(|| shape("a pod is no object"))?;
        for (name, list) in containers {
            let list = list.as_str().ok_or_else(|| shape("a set of CPUs is no string"))?;
            assignments.insert(&PodUid::new(uid.as_str()), name, cpus(list)?);
        }
    }
    Ok((text(&data, "policyName")?.to_owned(), assignments))
}
