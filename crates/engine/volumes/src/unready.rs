//! Volumes that are not ready: what is told of them and when, and the one case in which waiting for
//! them is given up, a node that is full. Pure.

use std::time::Duration;

use ferrolet_ports::{Retry, VolumeError, VolumeStep};

use crate::state::Failure;

/// As long as upstream lets a pod wait for its volumes before it looks why.
const PATIENCE: Duration = Duration::from_secs(123);

/// Why one volume of a pod is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unready {
    pub(crate) error: VolumeError,
    pub(crate) step: VolumeStep,
    /// It will be when some object comes, which is announced.
    pub(crate) awaits_objects: bool,
    /// The driver that has no room for another volume on this node.
    pub(crate) full: Option<String>,
}

impl Unready {
    /// Refused again without another try.
    pub(crate) fn paused(failure: Failure) -> Self {
        let Failure { step, error, .. } = failure;
        Self { error, step, awaits_objects: false, full: None }
    }
}

/// The refusal of a pod whose volumes will never be attached here, and the driver that has no room
/// for them; `None` while it may still wait: what another pod gives back can be attached yet.
pub(crate) fn rejection(failed: &[Unready], waiting: Duration) -> Option<(String, VolumeError)> {
    if waiting < PATIENCE {
        return None;
    }
    let driver = failed.iter().find_map(|it| it.full.clone())?;
    let refusal = VolumeError {
        volume: None,
        reason: VolumeError::NODE_IS_FULL,
        message: format!(
            "Node has reached its volume attachment limit, rejecting pod. {}",
            overdue(failed)
        ),
        retry: Retry::Never,
    };
    Some((driver, refusal))
}

/// What is told of volumes that are not ready, the first being what the pod is answered with. That
/// a volume is not attached yet is told when it takes too long, and only if there is nothing else
/// to tell.
pub(crate) fn to_tell(failed: Vec<Unready>, waiting: Duration) -> Vec<VolumeError> {
    let is_loud = |it: &Unready| !it.error.is_expected();
    let Some(silent) = failed.first().filter(|_| !failed.iter().any(is_loud)) else {
        let loud = failed.into_iter().filter(is_loud);
        return loud.map(|it| it.error).collect();
    };
    if waiting < PATIENCE {
        return vec![silent.error.clone()];
    }
    let overdue = VolumeError {
        volume: None,
        reason: "FailedMount",
        message: format!("Unable to attach or mount volumes: {}", overdue(&failed)),
        retry: Retry::Later,
    };
    vec![overdue]
}

/// Who is waited for, as upstream says it.
fn overdue(failed: &[Unready]) -> String {
    let names = |wanted: fn(&VolumeStep) -> bool| {
        let mut names: Vec<&str> = failed
            .iter()
            .filter(|it| wanted(&it.step))
            .filter_map(|it| it.error.volume.as_deref())
            .collect();
        names.sort_unstable();
        names.join(" ")
    };
    format!(
        "unmounted volumes=[{}], unattached volumes=[{}], failed to process volumes=[{}]: context deadline exceeded",
        names(|_| true),
        names(|step| matches!(step, VolumeStep::Attach | VolumeStep::Verify)),
        names(|step| *step == VolumeStep::Process),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolet_ports::VolumeFault;

    fn unready(volume: &str, step: VolumeStep, full: Option<&str>) -> Unready {
        let fault = VolumeFault::later(format!("of {volume}")).at(step);
        Unready {
            error: VolumeError {
                volume: Some(volume.to_owned()),
                reason: fault.reason(),
                message: fault.message,
                retry: Retry::Later,
            },
            step,
            awaits_objects: false,
            full: full.map(str::to_owned),
        }
    }

    #[test]
    fn a_volume_that_is_not_attached_yet_is_told_when_it_takes_too_long() {
        let check = |failed: &[Unready], seconds: u64, expected: &[(&str, &str)]| {
            let told = to_tell(failed.to_vec(), Duration::from_secs(seconds));
            let told: Vec<_> = told.iter().map(|it| (it.reason, it.message.as_str())).collect();
            assert_eq!(told, expected);
        };
        let quiet =
            [unready("b", VolumeStep::Verify, None), unready("a", VolumeStep::Verify, None)];
        let loud = [
            unready("a", VolumeStep::Verify, None),
            unready("b", VolumeStep::SetUp, None),
            unready("c", VolumeStep::Attach, None),
        ];
        let late = "Unable to attach or mount volumes: unmounted volumes=[a b], unattached volumes=[a b], failed to process volumes=[]: context deadline exceeded";
        check(&quiet, 122, &[(VolumeError::NOT_ATTACHED, "of b")]);
        check(&quiet, 123, &[("FailedMount", late)]);
        let others = [("FailedMount", "of b"), ("FailedAttachVolume", "of c")];
        check(&loud, 1, &others);
        check(&loud, 1000, &others);
    }

    #[test]
    fn a_pod_is_refused_for_a_full_node_only_after_it_has_waited() {
        let full = unready("b", VolumeStep::Attach, Some("d"));
        let others = [
            unready("c", VolumeStep::Process, None),
            full.clone(),
            unready("a", VolumeStep::Verify, None),
            unready("d", VolumeStep::SetUp, None),
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
