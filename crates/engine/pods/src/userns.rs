//! Ranges of user ids for pods with a user namespace of their own (`hostUsers: false`).
//!
//! Each pod gets a block of ids that no other pod has, from the range that belongs to the agent.
//! The block is noted in the pod's directory in upstream's format (`pods/<uid>/userns`), so that it
//! outlives the agent and can be handed over. [`UserRanges`] is pure; [`user_mappings`] is the part
//! that reads, writes and asks the runtime. Must never happen: two pods with one id, or a pod with
//! an id of the node's own.

use std::{collections::BTreeMap, sync::Mutex};

use ferrolet_spec::IdMapping;
use ferrolet_types::{Pod, PodUid, pod::PodView};
use serde_json::{Value, json};

use crate::World;

/// Upstream's name of the file in the pod's directory.
const FILE: &str = "userns";
/// The smallest block.
const UNIT: u32 = 65_536;
const LARGEST_FILE: usize = 4096;

/// The ids that pods may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserIds {
    /// The first.
    pub first: u32,
    /// How many.
    pub n_ids: u32,
    /// How many each pod gets.
    pub per_pod: u32,
}

/// Why a range cannot be used for pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserIdsError {
    /// Blocks must be whole units.
    #[error("kubelet user namespace length {0} is not a multiple of {UNIT}")]
    Block(u32),
    /// Blocks begin at multiples of their length.
    #[error("kubelet user assigned ID {first} is not a multiple of {per_pod}")]
    First {
        /// Where the range begins.
        first: u32,
        /// The length of a block.
        per_pod: u32,
    },
    /// The node's own ids are nobody else's.
    #[error("kubelet user assigned ID {first} must be greater or equal to {per_pod}")]
    NodesOwn {
        /// Where the range begins.
        first: u32,
        /// The length of a block.
        per_pod: u32,
    },
    /// The range is a whole number of blocks.
    #[error("kubelet user assigned IDs length {n_ids} is not a multiple of {per_pod}")]
    Length {
        /// How long the range is.
        n_ids: u32,
        /// The length of a block.
        per_pod: u32,
    },
    /// Every pod of the node must be able to have one.
    #[error("kubelet user assigned IDs are not enough to support {0} pods")]
    TooFew(u32),
}

impl UserIds {
    /// The range without any configuration: everything above the first block.
    pub fn all(per_pod: u32) -> Self {
        Self { first: per_pod, n_ids: per_pod.wrapping_neg(), per_pod }
    }

    /// Checks the range as upstream does.
    pub fn check(self, max_pods: u32) -> Result<Self, UserIdsError> {
        let Self { first, n_ids, per_pod } = self;
        if per_pod == 0 || !per_pod.is_multiple_of(UNIT) {
            Err(UserIdsError::Block(per_pod))
        } else if !first.is_multiple_of(per_pod) {
            Err(UserIdsError::First { first, per_pod })
        } else if first < per_pod {
            Err(UserIdsError::NodesOwn { first, per_pod })
        } else if !n_ids.is_multiple_of(per_pod) {
            Err(UserIdsError::Length { n_ids, per_pod })
        } else if n_ids / per_pod < max_pods {
            Err(UserIdsError::TooFew(max_pods))
        } else {
            Ok(self)
        }
    }
}

/// Who has which block.
#[derive(Debug)]
pub(crate) struct UserRanges {
    ids: UserIds,
    taken: Mutex<BTreeMap<PodUid, u32>>,
}

impl UserRanges {
    pub(crate) fn new(ids: UserIds) -> Self {
        Self { ids, taken: Mutex::default() }
    }

    /// The first id of the pod's block: the one it has, else the lowest free one.
    fn take(&self, uid: &PodUid) -> Result<u32, String> {
        let mut taken = self.taken.lock().expect("no panic while the lock is held");
        if let Some(first) = taken.get(uid) {
            return Ok(*first);
        }
        let per_pod = self.ids.per_pod;
        let blocks = 0..self.ids.n_ids / per_pod;
        let mut firsts = blocks.map(|index| self.ids.first + index * per_pod);
        let free = firsts.find(|first| !taken.values().any(|it| it == first));
        let free = free.ok_or("could not find an empty slot to allocate a user namespace")?;
        taken.insert(uid.clone(), free);
        Ok(free)
    }

    /// Notes a block that an earlier life of the agent gave away.
    fn record(&self, uid: &PodUid, first: u32, length: u32) -> Result<(), String> {
        let UserIds { first: lowest, n_ids, per_pod } = self.ids;
        if length != per_pod {
            return Err(format!("wrong user namespace length {length}"));
        }
        if !first.is_multiple_of(per_pod) {
            return Err(format!("wrong user namespace offset specified {first}"));
        }
        if first < lowest || first - lowest >= n_ids {
            return Err(format!("id {first} is out of range"));
        }
        let mut taken = self.taken.lock().expect("no panic while the lock is held");
        match taken.get(uid) {
            Some(own) if *own == first => return Ok(()),
            Some(_) => {
                return Err(format!(
                    "different user namespace range already used by pod \"{uid}\""
                ));
            }
            None => {}
        }
        if taken.values().any(|it| *it == first) {
            return Err(format!("range picked for pod \"{uid}\" already taken"));
        }
        taken.insert(uid.clone(), first);
        Ok(())
    }

    /// Gives a pod's block back.
    pub(crate) fn release(&self, uid: &PodUid) {
        let mut taken = self.taken.lock().expect("no panic while the lock is held");
        taken.remove(uid);
    }
}

/// The id mappings of a pod; none for a pod that uses the node's users.
pub(crate) async fn user_mappings(
    world: &World,
    pod: &Pod,
    handler: &str,
) -> Result<Vec<IdMapping>, String> {
    if pod.spec_ref().host_users != Some(false) {
        return Ok(Vec::new());
    }
    check_handler(world, handler).await?;
    let (uid, ranges) = (pod.uid(), &world.user_ranges);
    let known = world.files.read_pod_file(&uid, FILE, LARGEST_FILE).await;
    let known = known.map_err(|error| error.to_string())?;
    let first = match known.filter(|content| !content.is_empty()) {
        Some(content) => {
            let (first, length) =
                parse(&content).map_err(|why| format!("user namespace: {why}"))?;
            ranges.record(&uid, first, length).map_err(|why| format!("user namespace: {why}"))?;
            first
        }
        None => {
            let first = ranges.take(&uid).map_err(|why| format!("create user namespace: {why}"))?;
            let content = written(first, ranges.ids.per_pod);
            let noted = world.files.write_pod_file(&uid, FILE, content).await;
            if let Err(error) = noted {
                ranges.release(&uid);
                return Err(format!("create user namespace: {error}"));
            }
            first
        }
    };
    Ok(vec![IdMapping { host_id: first, container_id: 0, length: ranges.ids.per_pod }])
}

/// Notes the block of a pod that is on disk, so that nobody else gets it.
pub(crate) async fn remember(world: &World, uid: &PodUid) {
    let content = world.files.read_pod_file(uid, FILE, LARGEST_FILE).await;
    let Ok(Some(content)) = content else { return };
    let noted =
        parse(&content).and_then(|(first, length)| world.user_ranges.record(uid, first, length));
    if let Err(error) = noted {
        tracing::warn!(pod_uid = %uid, error, "User namespace of a pod cannot be taken over");
    }
}

/// Gives a pod's block back, after its last process has ended.
pub(crate) async fn release_users(world: &World, uid: &PodUid) {
    match world.files.remove_pod_file(uid, FILE).await {
        Ok(()) => world.user_ranges.release(uid),
        // Kept rather than given away while a file still names it.
        Err(error) => {
            tracing::warn!(pod_uid = %uid, %error, "User ids of a pod cannot be given back")
        }
    }
}

async fn check_handler(world: &World, handler: &str) -> Result<(), String> {
    let refusal = match handler {
        "" => {
            "can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned()
        }
        handler => format!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces"
        ),
    };
    let status = world.runtime.status().await.map_err(|error| format!("{refusal}: {error}"))?;
    let found = status.handlers.iter().find(|it| it.name == handler);
    match found {
        Some(it) if it.user_namespaces => Ok(()),
        Some(_) => Err(refusal),
        None => Err(format!("{refusal}: the handler {handler:?} is not known")),
    }
}

fn written(first: u32, length: u32) -> Vec<u8> {
    let mapping = json!([{"hostId": first, "containerId": 0, "length": length}]);
    json!({"uidMappings": mapping, "gidMappings": mapping}).to_string().into_bytes()
}

/// The first id and the length of the one block that a file names.
fn parse(content: &[u8]) -> Result<(u32, u32), String> {
    let file: Value = serde_json::from_slice(content)
        .map_err(|error| format!("invalid user namespace mappings file: {error}"))?;
    let (uids, gids) = (&file["uidMappings"], &file["gidMappings"]);
    let Some([only]) = uids.as_array().map(Vec::as_slice) else {
        return Err(
            "invalid user namespace configuration: no more than one mapping allowed.".to_owned()
        );
    };
    if uids != gids {
        return Err(
            "invalid user namespace configuration: GID and UID mapping should be identical"
                .to_owned(),
        );
    }
    if only["containerId"] != 0 {
        return Err("invalid user namespace configuration: UID 0 must be mapped".to_owned());
    }
    let number = |name: &str| only[name].as_u64().and_then(|it| u32::try_from(it).ok());
    match (number("hostId"), number("length")) {
        (Some(first), Some(length)) => Ok((first, length)),
        _ => Err("invalid user namespace mappings file: not numbers".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(first: u32, n_ids: u32) -> UserIds {
        UserIds { first, n_ids, per_pod: UNIT }
    }

    /// User namespaces: the range.
    #[test]
    fn a_range_must_hold_whole_blocks_for_every_pod_and_none_of_the_nodes() {
        let check = |ids: UserIds, expected: &str| {
            let told = ids.check(2).err().map(|it| it.to_string());
            assert_eq!(told.unwrap_or_default(), expected);
        };
        check(UserIds::all(UNIT), "");
        check(UserIds::all(2 * UNIT), "");
        check(ids(UNIT, 2 * UNIT), "");
        check(ids(0, 2 * UNIT), "kubelet user assigned ID 0 must be greater or equal to 65536");
        check(ids(1, 2 * UNIT), "kubelet user assigned ID 1 is not a multiple of 65536");
        check(ids(UNIT, UNIT), "kubelet user assigned IDs are not enough to support 2 pods");
        check(
            ids(UNIT, 2 * UNIT + 1),
            "kubelet user assigned IDs length 131073 is not a multiple of 65536",
        );
        let odd = UserIds { per_pod: 1000, ..ids(UNIT, UNIT) };
        check(odd, "kubelet user namespace length 1000 is not a multiple of 65536");
    }

    /// User namespaces: the first free slot.
    #[test]
    fn no_two_pods_have_one_block_and_a_block_comes_back() {
        let ranges = UserRanges::new(ids(UNIT, 2 * UNIT));
        let [a, b, c] = ["a", "b", "c"].map(PodUid::new);
        assert_eq!(ranges.take(&a), Ok(UNIT));
        assert_eq!(ranges.take(&b), Ok(2 * UNIT));
        assert_eq!(ranges.take(&a), Ok(UNIT));
        assert!(ranges.take(&c).is_err());
        assert!(ranges.record(&c, UNIT, UNIT).is_err());
        ranges.release(&a);
        assert_eq!(ranges.record(&c, UNIT, UNIT), Ok(()));
        assert!(ranges.record(&a, 3 * UNIT, UNIT).is_err(), "out of range");
        assert!(ranges.record(&a, UNIT + 1, UNIT).is_err());
        assert!(ranges.record(&a, 2 * UNIT, 7).is_err());
    }

    /// User namespaces: what is kept.
    #[test]
    fn the_file_is_upstreams() {
        assert_eq!(parse(&written(UNIT, UNIT)), Ok((UNIT, UNIT)));
        let theirs = r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}"#;
        assert_eq!(parse(theirs.as_bytes()), Ok((UNIT, UNIT)));
        for bad in [
            "",
            "{}",
            r#"{"uidMappings":[],"gidMappings":[]}"#,
            r#"{"uidMappings":[{"hostId":1,"containerId":0,"length":1}],"gidMappings":[]}"#,
            r#"{"uidMappings":[{"hostId":1,"containerId":5,"length":1}],"gidMappings":[{"hostId":1,"containerId":5,"length":1}]}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
