//! The hash that says whether a running container still is what its pod describes.
//!
//! Kept in an annotation and compared after every restart of the agent, also by the other kubelet
//! after a hand-over: one different bit restarts every container of the node. Covers name and
//! image, which are all that may change.

use std::fmt::Write as _;

use ferrolet_types::hash::fnv1a_32;
use k8s_openapi::api::core::v1::Container;

use crate::gojson::{json_object, json_string};

/// The hash of a container's specification.
pub fn container_hash(container: &Container) -> u64 {
    let json = json_object([
        ("image", Some(json_string(container.image.as_deref().unwrap_or_default()))),
        ("name", Some(json_string(&container.name))),
    ]);
    // Upstream hashes the printed form of the byte slice, not the bytes.
    let mut dump = String::from("([]uint8)[");
    for (index, byte) in json.bytes().enumerate() {
        let blank = if index == 0 { "" } else { " " };
        write!(dump, "{blank}{byte}").expect("writing to a string cannot fail");
    }
    dump.push(']');
    u64::from(fnv1a_32(dump.as_bytes()))
}

/// The hash as it stands in the annotation: hexadecimal without leading zeros.
pub fn container_hash_text(container: &Container) -> String {
    format!("{:x}", container_hash(container))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec hash.
    #[test]
    fn the_hash_equals_upstreams() {
        let busybox = "docker.io/library/busybox:latest";
        for (name, image, hash) in [
            ("test_container", "foo/image:v1", "8e45cbd0"),
            ("main", busybox, "85580d84"),
            ("first", busybox, "ae670f2c"),
            ("side", busybox, "d27e232c"),
        ] {
            let container = Container {
                name: name.to_owned(),
                image: Some(image.to_owned()),
                ..Container::default()
            };
            assert_eq!(container_hash_text(&container), hash, "{name}");
        }
    }
}
