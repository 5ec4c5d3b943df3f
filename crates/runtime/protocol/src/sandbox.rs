//! A pod's shell: the namespaces that its monitor makes and keeps.

use prost::{Enumeration, Message};

use crate::launch::Cgroups;

/// Everything a monitor is born with.
#[derive(Clone, PartialEq, Message)]
pub struct SandboxSpec {
    /// The sandbox's id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The directory of the pod's socket and records; it is made if missing.
    #[prost(string, tag = "2")]
    pub directory: String,
    /// The name that the pod gives its machine; empty: the node's.
    #[prost(string, tag = "3")]
    pub hostname: String,
    /// Whether the pod has a network of its own. Its UTS namespace goes with it.
    #[prost(enumeration = "Share", tag = "4")]
    pub network: i32,
    /// Whether the pod has System V IPC, message queues and `/dev/shm` of its own.
    #[prost(enumeration = "Share", tag = "5")]
    pub ipc: i32,
    /// Whose processes a container of the pod sees.
    #[prost(enumeration = "PidShare", tag = "6")]
    pub pid: i32,
    /// Where the pod's users are on the node; absent: as on the node.
    #[prost(message, optional, tag = "7")]
    pub user: Option<IdMaps>,
    /// Kernel settings of the pod's own namespaces.
    #[prost(message, repeated, tag = "8")]
    pub sysctls: Vec<Sysctl>,
    /// Bytes of the pod's `/dev/shm`.
    #[prost(uint64, tag = "9")]
    pub shm_size: u64,
    /// The group of the pod's init, which only a pod that shares its processes has.
    #[prost(message, optional, tag = "10")]
    pub init_cgroups: Option<Cgroups>,
    /// The monitor's own OOM score, where the kernel allows it.
    #[prost(sint32, tag = "11")]
    pub oom_score_adj: i32,
}

/// A namespace of the pod's own, or the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Share {
    /// The pod's own.
    Pod = 0,
    /// The node's.
    Node = 1,
}

/// Whose processes a container sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum PidShare {
    /// Its own only.
    Container = 0,
    /// The whole pod's.
    Pod = 1,
    /// The node's.
    Node = 2,
    /// Those of another container of the pod.
    Target = 3,
}

/// Where the users and groups of a user namespace are outside.
#[derive(Clone, PartialEq, Message)]
pub struct IdMaps {
    /// Users.
    #[prost(message, repeated, tag = "1")]
    pub uids: Vec<IdMap>,
    /// Groups.
    #[prost(message, repeated, tag = "2")]
    pub gids: Vec<IdMap>,
}

/// One range of ids.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct IdMap {
    /// The first id inside.
    #[prost(uint32, tag = "1")]
    pub inside: u32,
    /// The first id outside.
    #[prost(uint32, tag = "2")]
    pub outside: u32,
    /// How many.
    #[prost(uint32, tag = "3")]
    pub length: u32,
}

/// A kernel setting, by the name that `sysctl` has for it, with dots.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sysctl {
    /// Its name: `net.ipv4.ping_group_range`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

impl IdMaps {
    /// Where the namespace's root user and group are outside; none if they are nowhere.
    #[must_use]
    pub fn root(&self) -> Option<(u32, u32)> {
        Some((outside(&self.uids, 0)?, outside(&self.gids, 0)?))
    }
}

fn outside(maps: &[IdMap], inside: u32) -> Option<u32> {
    let map =
        maps.iter().find(|it| inside.checked_sub(it.inside).is_some_and(|n| n < it.length))?;
    map.outside.checked_add(inside - map.inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_where_the_map_puts_it() {
        let range = |inside, outside, length| IdMap { inside, outside, length };
        let maps =
            IdMaps { uids: vec![range(0, 65536, 10)], gids: vec![range(5, 9, 1), range(0, 7, 5)] };
        assert_eq!(maps.root(), Some((65536, 7)));
        assert_eq!(IdMaps { gids: vec![range(1, 2, 3)], ..maps }.root(), None);
    }
}
