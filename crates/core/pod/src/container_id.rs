//! Container ids in a pod's status: the API writes `containerd://0123`, the runtime just `0123`.

use ferrolet_types::ContainerId;

const SEPARATOR: &str = "://";

/// The runtime's own id in one that the API shows.
pub fn bare_container_id(shown: &str) -> &str {
    shown.split_once(SEPARATOR).map_or(shown, |(_, id)| id)
}

/// The id as the API shows it.
pub fn full_container_id(runtime: &str, id: &ContainerId) -> String {
    format!("{runtime}{SEPARATOR}{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_runtimes_behind_its_name() {
        assert_eq!(full_container_id("containerd", &"0123".into()), "containerd://0123");
        for (shown, bare) in
            [("containerd://0123", "0123"), ("cri-o://a://b", "a://b"), ("0123", "0123"), ("", "")]
        {
            assert_eq!(bare_container_id(shown), bare);
        }
    }
}
