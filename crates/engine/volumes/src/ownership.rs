//! Giving volumes to pods' `fsGroup`: once for each mount, as upstream does, however often a pod is
//! looked at.
//!
//! A local volume that several pods have keeps the group of the first; the others are told. What was
//! given is known in the table only: after a restart a volume is given once more, which costs little
//! where nothing has changed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ferrolet_ports::{FsGroupOwner, Ownership, VolumeFault};
use tokio::time::{Instant, sleep_until};

use crate::{VolumeEngine, local::LOCAL, mount::Job, plan::PodPlan, table::OwnerBefore};

/// A walk through a volume that takes longer than this is told of, and then again every so often.
const FIRST_WORD: Duration = Duration::from_secs(30);
const MORE_WORDS: Duration = Duration::from_secs(60);

impl VolumeEngine {
    /// Gives the volume to the pod's group. One that pods share keeps the group of the first.
    pub(crate) async fn set_ownership(&self, job: &Job<'_>) -> Result<(), VolumeFault> {
        let (plan, place) = (job.plan, &job.place);
        let Some(mut group) = plan.group else {
            return Ok(());
        };
        let ownership = job.mounter.needs().ownership;
        match self.table.owner_before(place) {
            OwnerBefore::OfAnotherPod(other) if place.plugin == LOCAL => {
                if other != group {
                    let message = format!(
                        "The requested fsGroup is {group}, but the volume {} has GID {other}. The volume may not be shareable.",
                        place.name
                    );
                    self.warn_pod(plan, "AlreadyMountedVolume", message);
                }
                group = other;
            }
            OwnerBefore::OfAnotherPod(_) | OwnerBefore::Nobody => {
                let path = job.mounter.mount().host_path;
                match ownership {
                    // Publishing has found that nobody has to.
                    Ownership::NotOurs => {}
                    Ownership::Required => self.walk(plan, group, &path).await?,
                    Ownership::BestEffort => {
                        if let Err(fault) = self.walk(plan, group, &path).await {
                            let why = fault.message;
                            tracing::warn!(
                                path,
                                why,
                                "Volume cannot be given to its pod's fsGroup"
                            );
                        }
                    }
                }
            }
        }
        self.table.amend(&plan.uid, job.name, |it| it.fs_group = Some(group));
        Ok(())
    }

    /// Gives everything in the volume to the group, and says so from time to time when that takes
    /// long.
    async fn walk(&self, plan: &PodPlan, group: u32, path: &str) -> Result<(), VolumeFault> {
        let owner = FsGroupOwner { group, policy: plan.group_change };
        let walked = Arc::new(AtomicU64::new(0));
        let walk = self.doors.mounts.set_ownership(path, owner, Arc::clone(&walked));
        tokio::pin!(walk);
        let shown = path.find(plan.uid.as_str()).map_or(path, |at| &path[at..]);
        let mut next = Instant::now() + FIRST_WORD;
        let mut is_first = true;
        loop {
            tokio::select! {
                // Cancel-safe: the walk is kept across turns of the loop.
                given = &mut walk => return Ok(given?),
                // Cancel-safe: the moment stays the same until it has come.
                () = sleep_until(next) => {
                    let message = if is_first {
                        format!(
                            "Setting volume ownership for {shown} is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
                        )
                    } else {
                        format!(
                            "Setting volume ownership for {shown}, processed {} files.",
                            walked.load(Ordering::Relaxed)
                        )
                    };
                    is_first = false;
                    next += MORE_WORDS;
                    self.warn_pod(plan, "VolumePermissionChangeInProgress", message);
                }
            }
        }
    }
}
