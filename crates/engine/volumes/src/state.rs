//! How far one volume of a pod is, and what is to be done next for it. Pure.
//!
//! ```text
//!  Wanted ─► Attaching ─► Staged ─► Published        what it needs none of is left out
//!     └──────────┴──────────┴──────────┴──► Failed, in a step, with an error: from there on again after a pause
//!                                      └──► Releasing ─► the row goes
//! ```
//!
//! Each variant holds the evidence of what has been done, so that what has to be undone is known,
//! and what was done once is not done again. Losing all of it costs a few calls that change nothing:
//! disk and mount table know the rest.

use ferrolet_ports::{
    AttachedBy, MountNeeds, NodeVolume, Ownership, Repeats, VolumeError, VolumeMode, VolumeStep,
};
use ferrolet_types::Timestamp;

use crate::renewal::back_off;

/// How far a volume is on its way to its pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The pod should have it; nothing was begun.
    #[default]
    Wanted,
    /// The node has said that it uses this volume, or has begun to attach it.
    Attaching(NodeVolume),
    /// It is ready for the node.
    Staged(NodeVolume),
    /// The pod has it.
    Published(Published),
}

/// A volume that a pod has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// What of it belongs to the node.
    pub(crate) node_volume: Option<NodeVolume>,
    /// Where it is attached, as its driver says.
    pub(crate) device: String,
    /// The group that its files were given to.
    pub(crate) fs_group: Option<u32>,
    /// It has to be looked at from time to time: its driver wants to be called again, or it may
    /// grow.
    pub(crate) is_looked_after: bool,
    /// Its driver does not let it grow as it is used here.
    pub(crate) cannot_grow: bool,
}

impl Progress {
    /// What of the volume belongs to the node.
    pub(crate) fn node_volume(&self) -> Option<&NodeVolume> {
        match self {
            Self::Wanted => None,
            Self::Attaching(volume) | Self::Staged(volume) => Some(volume),
            Self::Published(published) => published.node_volume.as_ref(),
        }
    }

    pub(crate) fn published(&self) -> Option<&Published> {
        match self {
            Self::Published(published) => Some(published),
            Self::Wanted | Self::Attaching(_) | Self::Staged(_) => None,
        }
    }

    /// How far it is when the pod does not have it any more, and the node still does.
    fn without_pod(self) -> Self {
        match self {
            Self::Published(Published { node_volume: Some(volume), .. }) => Self::Staged(volume),
            Self::Published(_) => Self::Wanted,
            other => other,
        }
    }
}

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VolumeState {
    /// It is on its way, or there.
    Going(Progress),
    /// The last attempt failed, that far on its way.
    Failed(Failure, Progress),
    /// The pod is to have it no more.
    Releasing(Progress),
}

/// Why the last attempt at a volume failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// In which step.
    pub(crate) step: VolumeStep,
    /// What the pod is told.
    pub(crate) error: VolumeError,
    /// Failures in a row after which somebody else wanted to be left alone.
    n_failures: u32,
    /// Until when nobody tries.
    until: Option<Timestamp>,
}

impl Default for VolumeState {
    fn default() -> Self {
        Self::Going(Progress::Wanted)
    }
}

impl VolumeState {
    pub(crate) fn progress(&self) -> &Progress {
        match self {
            Self::Going(progress) | Self::Failed(_, progress) | Self::Releasing(progress) => {
                progress
            }
        }
    }

    pub(crate) fn progress_mut(&mut self) -> &mut Progress {
        match self {
            Self::Going(progress) | Self::Failed(_, progress) | Self::Releasing(progress) => {
                progress
            }
        }
    }

    /// The refusal that stands until its pause is over.
    pub(crate) fn refusal(&self, now: Timestamp) -> Option<&Failure> {
        match self {
            Self::Failed(failure, _) if failure.until.is_some_and(|it| now < it) => Some(failure),
            Self::Going(_) | Self::Failed(..) | Self::Releasing(_) => None,
        }
    }

    /// The attempt came to its end.
    pub(crate) fn succeeded(self) -> Self {
        match self {
            Self::Failed(_, progress) => Self::Going(progress),
            other => other,
        }
    }

    /// The attempt failed. Where somebody else failed us, it is not asked again at once: half a
    /// second, doubled up to two minutes and two seconds, as upstream's operations do.
    pub(crate) fn failed(
        self,
        step: VolumeStep,
        error: VolumeError,
        wants_pause: bool,
        now: Timestamp,
    ) -> Self {
        let (n_before, progress) = match self {
            Self::Failed(failure, progress) => (failure.n_failures, progress),
            Self::Going(progress) => (0, progress),
            releasing @ Self::Releasing(_) => return releasing,
        };
        let n_failures = if wants_pause { n_before.saturating_add(1) } else { n_before };
        let until = wants_pause.then(|| now.after(back_off(n_failures)));
        Self::Failed(Failure { step, error, n_failures, until }, progress)
    }

    /// The pod is to have it, also where it was to give it back before.
    pub(crate) fn wanted(self) -> Self {
        match self {
            Self::Releasing(progress) => Self::Going(progress),
            other => other,
        }
    }

    /// The pod is to have it no more.
    pub(crate) fn releasing(self) -> Self {
        match self {
            Self::Going(progress) | Self::Failed(_, progress) | Self::Releasing(progress) => {
                Self::Releasing(progress)
            }
        }
    }

    /// It was taken away from the pod.
    pub(crate) fn unpublished(&mut self) {
        let progress = std::mem::take(self.progress_mut());
        *self.progress_mut() = progress.without_pod();
    }
}

/// One step on the way from wish to mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountStep {
    /// Say that it is used, and hear that a controller has attached it.
    VerifyAttached,
    /// Find its device, or attach it.
    Attach,
    /// Make it ready for the node.
    Stage,
    /// Make it ready for the pod.
    Publish,
    /// Give it to the pod's `fsGroup`.
    SetOwnership,
    /// Have it use what it has become.
    Expand,
    /// Hand a raw device to the pod.
    Map,
}

/// What the steps depend on beside the volume's needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountFacts<'a> {
    pub(crate) mode: VolumeMode,
    /// What the pod has already.
    pub(crate) published: Option<&'a Published>,
    /// The node has it already.
    pub(crate) is_staged: bool,
    /// The pod has an `fsGroup`.
    pub(crate) has_fs_group: bool,
}

/// The steps that are left to do, in their order.
pub(crate) fn plan_steps(needs: &MountNeeds, facts: &MountFacts<'_>) -> Vec<MountStep> {
    let is_published = facts.published.is_some();
    let is_raw = facts.mode == VolumeMode::Block;
    let each_time = needs.repeats == Repeats::EachTime;
    let is_by_controller = matches!(needs.attached_by, AttachedBy::Controller { .. });
    let stages_now = match needs.repeats {
        Repeats::EachTime => true,
        Repeats::Once | Repeats::Republish => !facts.is_staged,
        Repeats::OnceAttached => !is_published,
    };
    let publishes_now = match needs.repeats {
        // A raw device of ours is mapped, and that is all.
        Repeats::EachTime => !is_raw,
        Repeats::Republish => true,
        Repeats::Once | Repeats::OnceAttached => !is_published,
    };
    let has_owner = facts.published.is_some_and(|it| it.fs_group.is_some());
    let cannot_grow = facts.published.is_some_and(|it| it.cannot_grow);
    let gives = needs.ownership != Ownership::NotOurs && facts.has_fs_group;
    let steps = [
        (is_by_controller && (each_time || !is_published), MountStep::VerifyAttached),
        (needs.repeats != Repeats::OnceAttached || !is_published, MountStep::Attach),
        (needs.stages && stages_now, MountStep::Stage),
        (publishes_now, MountStep::Publish),
        (gives && !has_owner && !is_raw, MountStep::SetOwnership),
        (needs.may_grow && !cannot_grow, MountStep::Expand),
        (is_raw, MountStep::Map),
    ];
    steps.into_iter().filter(|(is_due, _)| *is_due).map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferrolet_ports::Retry;

    use super::*;

    fn error() -> VolumeError {
        VolumeError {
            volume: None,
            reason: "FailedMount",
            message: "no".to_owned(),
            retry: Retry::Later,
        }
    }

    fn node_volume() -> NodeVolume {
        NodeVolume::Csi { driver: "d".to_owned(), handle: "h".to_owned() }
    }

    #[test]
    fn a_refusal_stands_for_its_pause_and_pauses_double() {
        let step = VolumeStep::SetUp;
        let mut state = VolumeState::default();
        let mut now = Timestamp::from_second(1000);
        assert_eq!(state.refusal(now), None);
        for wait in [500, 1000, 2000] {
            state = state.failed(step, error(), true, now);
            let almost = now.after(Duration::from_millis(wait - 1));
            assert_eq!(state.refusal(almost).map(|it| &it.error), Some(&error()));
            now = now.after(Duration::from_millis(wait));
            assert_eq!(state.refusal(now), None);
            // What is only not there yet is tried at once, and does not make the pauses forgotten.
            state = state.failed(step, error(), false, now);
            assert_eq!(state.refusal(now), None);
        }
        state = state.succeeded().failed(step, error(), true, now);
        assert_eq!(state.refusal(now.after(Duration::from_millis(500))), None);
    }

    #[test]
    fn what_was_done_for_a_volume_stays_known_whatever_becomes_of_it() {
        let published = Published { node_volume: Some(node_volume()), ..Published::default() };
        let now = Timestamp::from_second(1);
        let mut state = VolumeState::Going(Progress::Published(published.clone()));
        state = state.failed(VolumeStep::SetUp, error(), true, now);
        assert_eq!(state.progress().published(), Some(&published));
        state = state.releasing().failed(VolumeStep::SetUp, error(), true, now);
        assert_eq!(state, VolumeState::Releasing(Progress::Published(published)));
        state.unpublished();
        assert_eq!(state, VolumeState::Releasing(Progress::Staged(node_volume())));
        assert_eq!(state.wanted(), VolumeState::Going(Progress::Staged(node_volume())));
    }

    #[test]
    fn steps_lead_from_wish_to_mount() {
        let needs = |repeats: Repeats| MountNeeds {
            node_volume: Some(node_volume()),
            attached_by: AttachedBy::Controller { unique_name: "v".to_owned() },
            stages: true,
            repeats,
            may_grow: true,
            ownership: Ownership::Required,
        };
        let check = |needs: &MountNeeds, facts: MountFacts<'_>, expected: &str| {
            let steps: Vec<String> =
                plan_steps(needs, &facts).iter().map(|it| format!("{it:?}")).collect();
            assert_eq!(steps.join(" "), expected, "{needs:?} {facts:?}");
        };
        let files = VolumeMode::Filesystem;
        let new = MountFacts { mode: files, published: None, is_staged: false, has_fs_group: true };
        let whole = "VerifyAttached Attach Stage Publish SetOwnership Expand";
        for repeats in [Repeats::EachTime, Repeats::Once, Repeats::Republish, Repeats::OnceAttached]
        {
            check(&needs(repeats), new, whole);
        }
        let owned = Published { fs_group: Some(7), ..Published::default() };
        let again = MountFacts { published: Some(&owned), is_staged: true, ..new };
        let each = "VerifyAttached Attach Stage Publish Expand";
        check(&needs(Repeats::EachTime), again, each);
        check(&needs(Repeats::Once), again, "Attach Expand");
        check(&needs(Repeats::Republish), again, "Attach Publish Expand");
        check(&needs(Repeats::OnceAttached), again, "Expand");
        // What was left undone is done, and no more than that.
        let plain = Published { cannot_grow: true, ..Published::default() };
        let left = MountFacts { published: Some(&plain), ..again };
        check(&needs(Repeats::Once), left, "Attach SetOwnership");
        let second = MountFacts { is_staged: true, ..new };
        check(&needs(Repeats::Once), second, "VerifyAttached Attach Publish SetOwnership Expand");
        let raw = MountFacts { mode: VolumeMode::Block, ..new };
        check(&needs(Repeats::Once), raw, "VerifyAttached Attach Stage Publish Expand Map");
        let simple = MountNeeds {
            node_volume: None,
            attached_by: AttachedBy::Plugin,
            stages: false,
            repeats: Repeats::EachTime,
            may_grow: false,
            ownership: Ownership::NotOurs,
        };
        check(&simple, new, "Attach Publish");
        check(&simple, raw, "Attach Map");
    }
}
