//! Images for containers: is it here, may it be fetched, and whose turn is it to fetch.
//!
//! Pulls wait in one fair line with a bounded number at its head. Waiting times after failures are not kept here: a failure
//! becomes a fact of its pod, and `lifecycle` decides when to try again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ferrolet_lifecycle::FailureKind;
use ferrolet_ports::{EventKind, ImageError, ImageInfo, Images, RegistryAuth};
use ferrolet_types::{Pod, format_go_duration};
use k8s_openapi::api::core::v1::Container;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    World,
    image_name::with_default_tag,
    keyring::credentials,
    objects::pull_secrets,
    start::StartFailure,
    tell::{ContainerEvents, Happened, say_of_pod},
};

/// Fetches images, so many at once.
pub(crate) struct Puller {
    images: Arc<dyn Images>,
    slots: Semaphore,
}

/// When an image is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl Puller {
    pub(crate) fn new(images: Arc<dyn Images>, n_parallel: usize) -> Self {
        Self {
            images,
            slots: Semaphore::new(n_parallel.max(1)),
        }
    }

    /// Makes sure that a container's image is here and answers what it is.
    pub(crate) async fn ensure(
        &self,
        world: &World,
        pod: &Pod,
        container: &Container,
        tell: &ContainerEvents<'_>,
    ) -> Result<ImageInfo, StartFailure> {
        let named = container.image.as_deref().unwrap_or_default();
        let image = with_default_tag(named).map_err(|error| {
            let message = format!("Failed to apply default image tag {named:?}: {error}");
            tell.say(Happened::InspectFailed(message.clone()));
            StartFailure::other("InvalidImageName", message)
        })?;
        let policy = policy_of(container, &image);
        if policy != PullPolicy::Always {
            let present = self.images.image_status(&image).await.map_err(|error| {
                let message = format!("Failed to inspect image {image:?}: {error}");
                tell.say(Happened::InspectFailed(message.clone()));
                StartFailure::other("ImageInspectError", message)
            })?;
            match (present, policy) {
                (Some(info), _) => {
                    tell.say(Happened::ImagePresent(named.to_owned()));
                    return Ok(info);
                }
                (None, PullPolicy::Never) => {
                    let message = format!(
                        "Container image {named:?} is not present with pull policy of Never"
                    );
                    tell.say(Happened::NeverPull(message.clone()));
                    return Err(StartFailure::other("ErrImageNeverPull", message));
                }
                (None, _) => {}
            }
        }
        let (secrets, missing) = match world.objects.as_deref() {
            Some(objects) => pull_secrets(objects, pod).await,
            None => Default::default(),
        };
        let candidates = credentials(&image, &secrets);
        let pulled = self.pull(named, &image, &candidates, tell).await;
        if pulled.is_err() && !missing.is_empty() {
            say_missing_secrets(world, pod, &missing);
        }
        pulled
    }

    async fn pull(
        &self,
        named: &str,
        image: &str,
        candidates: &[RegistryAuth],
        tell: &ContainerEvents<'_>,
    ) -> Result<ImageInfo, StartFailure> {
        let queued = Instant::now();
        let _slot = self
            .slots
            .acquire()
            .await
            .expect("the line of pulls is never closed");
        let began = Instant::now();
        tell.say(Happened::Pulling(named.to_owned()));
        let failed = |reason: &'static str, message: String| {
            tell.say(Happened::PullFailed(format!(
                "Failed to pull image {named:?}: {message}"
            )));
            StartFailure {
                kind: FailureKind::ImagePull {
                    image: named.to_owned(),
                },
                reason,
                message,
            }
        };
        let answer = self.try_each(image, candidates).await;
        let reference = answer.map_err(|error| match &error {
            ImageError::RegistryUnavailable(_) => failed("RegistryUnavailable", error.to_string()),
            ImageError::SignatureValidationFailed(_) => {
                failed("SignatureValidationFailed", error.to_string())
            }
            ImageError::Unspecified(_) | ImageError::Runtime(_) => {
                failed("ErrImagePull", error.to_string())
            }
        })?;
        let info = self
            .images
            .image_status(&reference)
            .await
            .map_err(|error| failed("ErrImagePull", error.to_string()))?;
        let info = info.ok_or_else(|| {
            failed(
                "ErrImagePull",
                format!("image {reference:?} vanished after its pull"),
            )
        })?;
        tell.say(Happened::Pulled {
            image: named.to_owned(),
            took: rounded(began.elapsed()),
            with_wait: rounded(queued.elapsed()),
            size: info.size,
        });
        Ok(info)
    }

    /// Tries one credential after the other, or none at all; the last refusal counts.
    async fn try_each(
        &self,
        image: &str,
        candidates: &[RegistryAuth],
    ) -> Result<String, ImageError> {
        let Some((last, others)) = candidates.split_last() else {
            return self.images.pull_image(image, None).await;
        };
        for auth in others {
            if let Ok(reference) = self.images.pull_image(image, Some(auth)).await {
                return Ok(reference);
            }
        }
        self.images.pull_image(image, Some(last)).await
    }
}

fn say_missing_secrets(world: &World, pod: &Pod, missing: &BTreeSet<String>) {
    let names: Vec<&str> = missing.iter().map(String::as_str).collect();
    let message = format!(
        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
        names.join(", ")
    );
    say_of_pod(
        world.events.as_ref(),
        pod,
        EventKind::Warning,
        "FailedToRetrieveImagePullSecret",
        message,
    );
}

/// The specification's policy, else what the tag implies.
fn policy_of(container: &Container, image: &str) -> PullPolicy {
    match container.image_pull_policy.as_deref() {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ if image.ends_with(":latest") => PullPolicy::Always,
        _ => PullPolicy::IfNotPresent,
    }
}

/// To the millisecond, as the event shows it.
fn rounded(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    format_go_duration(Duration::from_millis(millis))
}
