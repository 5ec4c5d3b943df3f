//! Volumes that are not ready, and the one case in which waiting for them is given up: a node that is full. Pure.

use std::time::Duration;

use ferrolet_ports::{Retry, VolumeError};

use crate::fault::Step;

/// As long as upstream lets a pod wait for its volumes before it looks why.
const PATIENCE: Duration = Duration::from_secs(123);

/// Why one volume of a pod is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unready {
    pub(crate) error: VolumeError,
    pub(crate) step: Step,
    /// It will be when some object comes, which is announced.
    pub(crate) awaits_objects: bool,
    /// The driver that has no room for another volume on this node.
    pub(crate) full: Option<String>,
}

impl Unready {
    /// Refused again without another try.
    pub(crate) fn paused(error: VolumeError) -> Self {
        Self {
            error,
            step: Step::SetUp,
            awaits_objects: false,
            full: None,
        }
    }
}

/// The refusal of a pod whose volumes will never be attached here, and the driver that has no room for them; `None` while it may
/// still wait: what another pod gives back can be attached yet.
pub(crate) fn rejection(failed: &[Unready], waiting: Duration) -> Option<(String, VolumeError)> {
    if waiting < PATIENCE {
        return None;
    }
    let driver = failed.iter().find_map(|it| it.full.clone())?;
    let names = |wanted: fn(&Step) -> bool| {
        let mut names: Vec<&str> = failed
            .iter()
            .filter(|it| wanted(&it.step))
            .filter_map(|it| it.error.volume.as_deref())
            .collect();
        names.sort_unstable();
        names.join(" ")
    };
    let message = format!(
        "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[{}], unattached volumes=[{}], failed to process volumes=[{}]: context deadline exceeded",
        names(|_| true),
        names(|step| matches!(step, Step::Attach | Step::Verify)),
        names(|step| *step == Step::Process),
    );
    let refusal = VolumeError {
        volume: None,
        reason: VolumeError::NODE_IS_FULL,
        message,
        retry: Retry::Never,
    };
    Some((driver, refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_refused_for_a_full_node_only_after_it_has_waited() {
        let unready = |volume: &str, step: Step, full: Option<&str>| Unready {
            error: VolumeError {
                volume: Some(volume.to_owned()),
                reason: "",
                message: String::new(),
                retry: Retry::Later,
            },
            step,
            awaits_objects: false,
            full: full.map(str::to_owned),
        };
        let full = unready("b", Step::Attach, Some("d"));
        let others = [
            unready("c", Step::Process, None),
            full.clone(),
            unready("a", Step::Verify, None),
            unready("d", Step::SetUp, None),
        ];
        let check = |failed: &[Unready], seconds: u64, expected: Option<&str>| {
            let found = rejection(failed, Duration::from_secs(seconds));
            let said = found.as_ref().map(|(driver, refusal)| {
                assert_eq!(
                    (driver.as_str(), refusal.reason),
                    ("d", "VolumeAttachmentLimitExceeded")
                );
                refusal.message.as_str()
            });
            assert_eq!(said, expected);
        };
        let alone = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[b], unattached volumes=[b], failed to process volumes=[]: context deadline exceeded";
        let among = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[a b c d], unattached volumes=[a b], failed to process volumes=[c]: context deadline exceeded";
        check(std::slice::from_ref(&full), 122, None);
        check(&[full], 123, Some(alone));
        check(&others, 1000, Some(among));
        check(&others[2..], 1000, None);
    }
}
