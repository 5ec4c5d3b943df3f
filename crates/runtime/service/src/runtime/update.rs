//! Limits changed while a container runs, or before it does.

use std::{fs, io::Write as _, path::Path, sync::Arc};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_plan::{
    Refusal,
    cgroups::{change, plan},
    container::limits,
    sandbox::cgroup_parent,
};
use ferrolet_runtime_protocol::launch::{LaunchSpec, Setting, Write};

use super::{
    Runtime,
    error::RuntimeError,
    files::{disk, off_thread, write_record},
    phase::Phase,
    record::ContainerSpec,
};

impl Runtime {
    /// Changes what a container may use. What is not mentioned stays.
    pub(crate) async fn update_container(
        &self,
        request: cri::UpdateContainerResourcesRequest,
    ) -> Result<(), RuntimeError> {
        let asked = request.linux.ok_or(Refusal::Missing("the container's resources"))?;
        let container = self.container(&request.container_id)?;
        let _turn = container.turn.lock().await;
        // Another change may have been made while this waited.
        let container = self.container(&container.spec.id)?;
        let id = container.spec.id.clone();
        let phase = container.phase();
        if !matches!(phase, Phase::Created | Phase::Running(_)) {
            let state = phase.name();
            return Err(RuntimeError::WrongState { id, state, needed: "created or running" });
        }
        let sandbox = self.sandbox(&container.spec.sandbox)?.record.config();
        let parent = cgroup_parent(&sandbox, &self.0.settings.cgroup_parent);
        let hierarchies = &self.0.settings.hierarchies;
        let mut spec = ContainerSpec::clone(&container.spec);
        let config = spec.config.get_or_insert_default();
        let linux = config.linux.get_or_insert_default();
        let merged = merge(linux.resources.clone().unwrap_or_default(), &asked);
        linux.resources = Some(merged.clone());
        if let Some(LaunchSpec { cgroups: Some(groups), .. }) = &mut spec.launch {
            // Devices stay as they are planned: they come from elsewhere in the request.
            let planned = plan(hierarchies, parent, &id, &limits(&merged));
            for group in groups.groups.iter_mut().filter(|it| it.is_own) {
                let new = planned.groups.iter().find(|it| it.directory == group.directory);
                let stays = |it: &Setting| it.file.starts_with("devices.");
                group.settings.retain(stays);
                let changed = new.into_iter().flat_map(|it| it.settings.clone());
                group.settings.extend(changed.filter(|it| !stays(it)));
            }
        }
        let changes = match phase {
            Phase::Running(_) => change(hierarchies, parent, &id, &limits(&asked)),
            _ => Vec::new(),
        };
        let (record, path) = (spec.clone(), self.0.places.container(&id).join("spec"));
        off_thread(move || {
            write_all(&changes)?;
            write_record(&path, &record)
        })
        .await?;
        if let Some(container) = self.table().containers.get_mut(&id) {
            container.spec = Arc::new(spec);
        }
        Ok(())
    }
}

/// What is asked for before what was; nothing mentioned is nothing changed.
fn merge(
    old: cri::LinuxContainerResources,
    new: &cri::LinuxContainerResources,
) -> cri::LinuxContainerResources {
    let number = |old: i64, new: i64| if new == 0 { old } else { new };
    let text = |old: String, new: &String| if new.is_empty() { old } else { new.clone() };
    let mut unified = old.unified;
    unified.extend(new.unified.clone());
    let mut hugepage_limits = old.hugepage_limits;
    for limit in &new.hugepage_limits {
        hugepage_limits.retain(|it| it.page_size != limit.page_size);
        hugepage_limits.push(limit.clone());
    }
    cri::LinuxContainerResources {
        cpu_period: number(old.cpu_period, new.cpu_period),
        cpu_quota: number(old.cpu_quota, new.cpu_quota),
        cpu_shares: number(old.cpu_shares, new.cpu_shares),
        memory_limit_in_bytes: number(old.memory_limit_in_bytes, new.memory_limit_in_bytes),
        oom_score_adj: number(old.oom_score_adj, new.oom_score_adj),
        cpuset_cpus: text(old.cpuset_cpus, &new.cpuset_cpus),
        cpuset_mems: text(old.cpuset_mems, &new.cpuset_mems),
        hugepage_limits,
        unified,
        memory_swap_limit_in_bytes: number(
            old.memory_swap_limit_in_bytes,
            new.memory_swap_limit_in_bytes,
        ),
    }
}

/// Writes settings. One may only be allowed after another: memory with swap has to stay above memory, so that what is
/// refused at first is tried once more.
fn write_all(changes: &[(String, Setting)]) -> Result<(), RuntimeError> {
    let refused: Vec<_> =
        changes.iter().filter(|(path, it)| put(path, &it.value).is_err()).collect();
    for (path, setting) in refused {
        match put(path, &setting.value) {
            Err(error) if setting.write() != Write::May => {
                return Err(disk("set limit", Path::new(path))(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn put(path: &str, value: &str) -> std::io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mentioned_stays() {
        let old = cri::LinuxContainerResources {
            cpu_shares: 2,
            memory_limit_in_bytes: 1 << 20,
            cpuset_cpus: "0".to_owned(),
            ..Default::default()
        };
        let new = cri::LinuxContainerResources {
            memory_limit_in_bytes: 2 << 20,
            unified: [("memory.high".to_owned(), "1".to_owned())].into(),
            ..Default::default()
        };
        let merged = merge(old.clone(), &new);
        let expected = cri::LinuxContainerResources {
            memory_limit_in_bytes: 2 << 20,
            unified: new.unified.clone(),
            ..old
        };
        assert_eq!(merged, expected);
    }

    #[test]
    fn a_setting_that_is_only_allowed_after_another_is_tried_again() {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        fs::write(file("there"), "").unwrap();
        let setting = |write: Write| Setting {
            file: String::new(),
            value: "7".to_owned(),
            write: write.into(),
        };
        write_all(&[(file("there"), setting(Write::Must)), (file("away"), setting(Write::May))])
            .unwrap();
        assert_eq!(fs::read_to_string(file("there")).unwrap(), "7");
        let error = write_all(&[(file("away"), setting(Write::Must))]).unwrap_err();
        assert!(error.to_string().starts_with("set limit "), "{error}");
    }
}
