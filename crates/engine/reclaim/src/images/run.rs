//! The loop of image collection: look, plan, remove one at a time, measure after each.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use ferrolet_images::record::decode_record;
use ferrolet_ports::{
    Clock, DiskSpace, Disks, Event, EventKind, EventObject, Events, HostError, ImagePlace, Images,
    PodsView, PullFile, PullFiles, Runtime, RuntimeError,
};
use ferrolet_types::Timestamp;
use tokio::{
    sync::{Mutex, watch},
    time::sleep,
};

use crate::metrics;

use super::{
    ledger::{Known, Ledger, used},
    plan::{FreePlan, Policy, SpacePlan, by_age, by_space, complaint, still_needed, unused},
};

/// How often images are looked at when nothing calls for it sooner.
const PERIOD: Duration = Duration::from_secs(300);
/// Never sooner than this after the last look.
const SHORTEST: Duration = Duration::from_secs(1);

/// The doors of image collection.
pub(crate) struct Doors {
    /// Images.
    pub images: Arc<dyn Images>,
    /// Containers that use them.
    pub runtime: Arc<dyn Runtime>,
    /// Pods that name them.
    pub pods: Arc<dyn PodsView>,
    /// Where they are kept.
    pub place: Arc<dyn ImagePlace>,
    /// How full that is.
    pub disks: Arc<dyn Disks>,
    /// What was pulled, for records of images that are gone.
    pub records: Arc<dyn PullFiles>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// Why a round could not be finished.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Disk(#[from] HostError),
    #[error("invalid capacity 0 on image filesystem")]
    NoCapacity,
    #[error("wanted to free {wanted} bytes, but image {image} cannot be removed: {cause}")]
    Remove { wanted: u64, image: String, cause: RuntimeError },
    #[error("image {image} was not used for imageMaximumGCAge and cannot be removed: {cause}")]
    RemoveOld { image: String, cause: RuntimeError },
    #[error("{0}")]
    TooFull(String),
}

/// Collects images for ever, by the policy as it is at each look and beside whoever asks for more.
pub(crate) async fn run(collector: Arc<Mutex<Collector>>, mut policies: watch::Receiver<Policy>) {
    let mut has_failed = false;
    let mut was_active = true;
    loop {
        let policy = *policies.borrow_and_update();
        collector.lock().await.policy = policy;
        if was_active && !policy.is_active() {
            tracing::info!(
                "Images are never collected: imageGCHighThresholdPercent is 100 and imageMaximumGCAge is 0"
            );
        }
        was_active = policy.is_active();
        let (next, result) = match was_active {
            true => collector.lock().await.round().await,
            false => (PERIOD, collector.lock().await.notice().await),
        };
        match result {
            Ok(()) => has_failed = false,
            Err(error) => {
                tracing::error!(%error, "Image garbage collection failed");
                // The first failure may be the runtime's own start.
                if has_failed {
                    collector.lock().await.say("ImageGCFailed", error.to_string());
                }
                has_failed = true;
            }
        }
        tokio::select! {
            // Both are cancel-safe: a policy that is not seen stays, and a pause is only a pause.
            () = another(&mut policies) => {}
            () = sleep(next) => {}
        }
    }
}

/// Waits for another policy, for ever where none can come.
async fn another(policies: &mut watch::Receiver<Policy>) {
    if policies.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What is known of images, and who removes them.
pub(crate) struct Collector {
    doors: Doors,
    policy: Policy,
    ledger: Ledger,
    began: Timestamp,
}

impl Collector {
    pub(crate) fn new(doors: Doors, policy: Policy) -> Self {
        Self { began: doors.clock.now(), doors, policy, ledger: Ledger::default() }
    }

    /// Only looks at what is here, so that its age is known when the node runs short.
    async fn notice(&mut self) -> Result<(), RoundError> {
        let now = self.doors.clock.now();
        if let Err(error) = self.look(now).await {
            tracing::debug!(%error, "Images cannot be looked at");
        }
        Ok(())
    }

    /// Removes every image that may go, however much room there is; answers with how many went.
    pub(crate) async fn remove_unused(&mut self) -> Result<usize, RuntimeError> {
        let started = self.doors.clock.now();
        let known = self.look(started).await?;
        let (mut n_removed, mut failure) = (0, None);
        for image in unused(&self.policy, &known, started) {
            match self.remove(&image).await {
                Ok(()) => {
                    metrics::image_removed("space");
                    n_removed += 1;
                }
                Err(error) => failure = Some(error),
            }
        }
        if n_removed > 0 {
            self.forget_records(started).await;
        }
        failure.map_or(Ok(n_removed), Err)
    }

    /// One round, and how long to wait for the next.
    async fn round(&mut self) -> (Duration, Result<(), RoundError>) {
        let mut next = None;
        let result = self.collect(&mut next).await;
        let now = self.doors.clock.now();
        // Strictly after the moment, because an age has to be exceeded.
        let wait = next.map_or(PERIOD, |at: Timestamp| at.since(now) + SHORTEST);
        (wait.clamp(SHORTEST, PERIOD), result)
    }

    async fn collect(&mut self, next: &mut Option<Timestamp>) -> Result<(), RoundError> {
        let started = self.doors.clock.now();
        let mut known = self.look(started).await?;
        let aged = by_age(&self.policy, &known, self.began, started);
        *next = aged.next;
        let (mut has_removed, mut failure) = (false, None);
        for image in &aged.remove {
            // One that stays is no reason for the others to stay, nor for a full disk to stay full.
            if let Err(cause) = self.remove(image).await {
                let image = image.name.clone();
                failure = Some(RoundError::RemoveOld { image, cause });
                continue;
            }
            metrics::image_removed("age");
            known.retain(|it| it.id != image.id);
            has_removed = true;
        }
        let freed = self.free_space(&known, started, next, &mut has_removed).await;
        if has_removed {
            self.forget_records(started).await;
        }
        freed.and(failure.map_or(Ok(()), Err))
    }

    async fn look(&mut self, now: Timestamp) -> Result<Vec<Known>, RuntimeError> {
        let images = self.doors.images.list_images().await?;
        let listing = self.doors.runtime.list().await?;
        let used = used(&images, &listing, &self.doors.pods.pods());
        Ok(self.ledger.look(&images, &used, now))
    }

    async fn free_space(
        &self,
        known: &[Known],
        now: Timestamp,
        next: &mut Option<Timestamp>,
        has_removed: &mut bool,
    ) -> Result<(), RoundError> {
        let place = self.doors.place.image_directory().await?;
        let space = self.space(&place).await?;
        let SpacePlan::Free(plan) = by_space(&self.policy, space, known, now) else {
            return Ok(());
        };
        *next = (*next).into_iter().chain(plan.next).min();
        tracing::info!(
            used = plan.used_percent,
            high = self.policy.high_percent,
            low = self.policy.low_percent,
            needed = plan.needed,
            images = plan.remove.len(),
            "Disk usage on image filesystem is over the high threshold"
        );
        let after = self.execute(&plan, &place, space, has_removed).await?;
        if still_needed(&self.policy, after) == 0 {
            return Ok(());
        }
        let freed = after.available.saturating_sub(space.available);
        let message = complaint(&plan, after, freed);
        self.say("FreeDiskSpaceFailed", message.clone());
        Err(RoundError::TooFull(message))
    }

    /// Removes what was planned, one at a time; images share layers, so the disk itself says when
    /// it is enough.
    async fn execute(
        &self,
        plan: &FreePlan,
        place: &Path,
        before: DiskSpace,
        has_removed: &mut bool,
    ) -> Result<DiskSpace, RoundError> {
        let (mut space, mut failure) = (before, None);
        for image in &plan.remove {
            if let Err(cause) = self.remove(image).await {
                failure = Some(RoundError::Remove {
                    wanted: plan.needed,
                    image: image.name.clone(),
                    cause,
                });
                continue;
            }
            metrics::image_removed("space");
            *has_removed = true;
            space = self.space(place).await?;
            if still_needed(&self.policy, space) == 0 {
                return Ok(space);
            }
        }
        failure.map_or(Ok(space), Err)
    }

    async fn space(&self, place: &Path) -> Result<DiskSpace, RoundError> {
        let space = self.doors.disks.space(place).await?;
        if space.capacity == 0 {
            let error = RoundError::NoCapacity;
            self.say("InvalidDiskCapacity", error.to_string());
            return Err(error);
        }
        Ok(space)
    }

    async fn remove(&self, image: &Known) -> Result<(), RuntimeError> {
        tracing::info!(
            image = image.id,
            name = image.name,
            size = image.size,
            "Removing image to free bytes"
        );
        self.doors.images.remove_image(&image.id).await
    }

    /// Removes records of images that are gone, unless they were written since this round began.
    async fn forget_records(&self, started: Timestamp) {
        let (images, files) = (
            self.doors.images.list_images().await,
            self.doors.records.list(PullFile::Record).await,
        );
        let (Ok(images), Ok(files)) = (images, files) else {
            tracing::warn!("Records of removed images stay until the next round");
            return;
        };
        let here: BTreeSet<&str> = images.iter().map(|it| it.id.as_str()).collect();
        let started = started.to_second_precision();
        for (name, content) in files {
            let Ok(record) = decode_record(&content) else {
                continue;
            };
            if here.contains(record.image_ref.as_str()) || record.last_updated >= started {
                continue;
            }
            if let Err(error) = self.doors.records.remove(PullFile::Record, &name).await {
                tracing::warn!(record = name, %error, "The record of a removed image cannot be removed");
            }
        }
    }

    fn say(&self, reason: &str, message: String) {
        self.doors.events.record(Event {
            object: EventObject::Node,
            kind: EventKind::Warning,
            reason: reason.to_owned(),
            message,
        });
    }
}
