//! Volumes mounted inside others: a read-only volume needs the directories that others are mounted
//! on before it is mounted.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::paths::clean;

/// Directories to make in the volume, because some container mounts another volume there. Only the
/// outermost are needed.
pub(crate) fn nested_mount_points(pod: &Pod, volume: &str) -> Vec<String> {
    let mut points = Vec::new();
    for container in all_containers(pod) {
        add_points(&container, volume, &mut points);
    }
    points.sort();
    points.dedup();
    points
}

/// Every container of the pod, of every kind.
pub(crate) fn all_containers(pod: &Pod) -> Vec<Container> {
    ferrolet_pod::all_containers(pod).map(|(_, container)| container.into_owned()).collect()
}

fn add_points(container: &Container, volume: &str, points: &mut Vec<String>) {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let mut all: Vec<String> = mounts.iter().map(|it| clean(&it.mount_path)).collect();
    all.sort();
    for mount in mounts.iter().filter(|it| it.name == volume) {
        let top = format!("{}/", clean(&mount.mount_path).trim_end_matches('/'));
        let mut outer: Vec<String> = Vec::new();
        for point in all.iter().filter_map(|it| it.strip_prefix(&top)) {
            let is_covered = outer.iter().any(|it| point.starts_with(it.as_str()));
            if !is_covered && !point.is_empty() {
                outer.push(format!("{point}/"));
                points.push(point.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSpec, VolumeMount};

    use super::*;

    #[test]
    fn only_the_outermost_of_nested_mounts_are_made() {
        let check = |mounts: &[(&str, &str)], expected: &[&str]| {
            let mounts = mounts.iter().map(|(name, path)| VolumeMount {
                name: (*name).to_owned(),
                mount_path: (*path).to_owned(),
                ..VolumeMount::default()
            });
            let container =
                Container { volume_mounts: Some(mounts.collect()), ..Container::default() };
            let pod = Pod {
                spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
                ..Pod::default()
            };
            assert_eq!(nested_mount_points(&pod, "v"), expected);
        };
        check(&[("v", "/dir"), ("a", "/other")], &[]);
        check(&[("v", "/dir"), ("a", "/dir/nested")], &["nested"]);
        check(
            &[
                ("v", "/dir"),
                ("a", "/dir/nested"),
                ("b", "/dir/nested/other"),
                ("c", "/dir/nested-2"),
            ],
            &["nested", "nested-2"],
        );
        check(&[("v", "/dir"), ("v", "/dir/again")], &["again"]);
        check(&[("v", "/dir/../a"), ("b", "/a/x/y")], &["x/y"]);
        check(&[("v", "/dir"), ("a", "/directory/x")], &[]);
    }
}
