//! What an earlier life wrote, fitted to the machine and the configuration of today.
//!
//! Where upstream refuses to start until somebody deletes the file, what is still possible is kept,
//! and each thing that is not is named: its container gets other processors when its pod is met
//! again (ADR 0041).

use super::{CpuAssignments, CpuSet, StaticCpus};

impl StaticCpus {
    /// Takes over who had what. Answers with what could not be kept, and why, as sentences.
    pub fn restore(&mut self, policy: &str, written: &CpuAssignments) -> Vec<String> {
        if policy != "static" {
            return vec![format!(
                "it was written under the policy {policy:?} and says nothing of exclusive CPUs"
            )];
        }
        let mut notes = Vec::new();
        let mut kept = CpuAssignments::default();
        let allocatable = self.allocatable();
        for (uid, container, cpus) in written.iter() {
            let others = kept.exclusive().difference(&kept.of_pod(uid));
            let why = if cpus.is_empty() {
                "are none".to_owned()
            } else if !cpus.is_subset(&self.layout().all) {
                format!("{} are not online", cpus.difference(&self.layout().all))
            } else if !cpus.is_subset(&allocatable) {
                format!("{} are reserved now", cpus.intersection(self.reserved()))
            } else if cpus.n_common(&others) > 0 {
                format!("{} belong to another pod too", cpus.intersection(&others))
            } else {
                kept.insert(uid, container, cpus.clone());
                continue;
            };
            notes.push(format!(
                "pod {uid}, container {container}: CPUs {cpus} cannot be kept: {why}"
            ));
        }
        kept.shared = self.pool().difference(&kept.exclusive());
        let was_empty = written.shared.is_empty() && written.iter().next().is_none();
        if notes.is_empty() && !was_empty && kept.shared != written.shared {
            let show = |cpus: &CpuSet| match cpus.is_empty() {
                true => "none".to_owned(),
                false => cpus.to_string(),
            };
            let (was, is) = (show(&written.shared), show(&kept.shared));
            notes.push(format!("the shared CPUs were {was} and are {is} now"));
        }
        self.assignments = kept;
        notes
    }
}
