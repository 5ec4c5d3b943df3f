//! Images for containers: is it here, may this pod use it, may it be fetched, with which
//! credentials, and whose turn is it.
//!
//! ```text
//!  name ─► here? ─► may this pod use it (records) ─► credentials (secrets, node, plugins) ─► line ─► rate ─► runtime
//! ```
//!
//! Waiting times after failures are not kept here: a failure becomes a fact of its pod, and
//! `lifecycle` decides when to try again. Refuses: deciding whose turn it is (`turns`) and who may
//! use what (core's `images`).

mod credentials;
mod line;
mod plugins;
mod rate;
mod records;
#[cfg(test)]
mod tests;
mod turns;

use std::{sync::Arc, time::Duration};

use ferrolet_images::{Credential, ImageName, provider::Provider, verify::Verification};
use ferrolet_lifecycle::{FailureKind, StartError};
use ferrolet_pod::WaitingReason;
use ferrolet_ports::{
    Clock, ImageError, ImageInfo, Images, PullFiles, PullRequest, RegistryAuth, RegistryLogins,
};
use ferrolet_spec::SandboxSpec;
use ferrolet_types::{Pod, format_go_duration, pod::PodView as _};
use tokio::time::{Instant, sleep};

use self::{
    credentials::{Found, Gatherer, say_missing_secrets},
    line::Line,
    rate::Bucket,
    records::{Known, PullRecords},
};
pub use self::{rate::PullRate, turns::PullLimits};
use crate::{
    World, metrics,
    tell::{ContainerEvents, Happened},
};

/// A pull that takes longer says so, after this long for the first time and then after twice as
/// long each time. Nobody wonders about less, and a pull of an hour is told of nine times.
const LONG: Duration = Duration::from_secs(10);

/// How images are pulled on this node.
#[derive(Clone, Debug)]
pub struct PullSettings {
    /// How many at once.
    pub limits: PullLimits,
    /// How many in a second; `None` for no limit.
    pub rate: Option<PullRate>,
    /// Which present images need proof; `None` keeps no records at all.
    pub verification: Option<Verification>,
    /// Plugins that know credentials.
    pub providers: Vec<Provider>,
}

/// What pulls need of the node besides the runtime.
#[derive(Clone)]
pub struct PullDoors {
    /// The memory of pulls.
    pub files: Arc<dyn PullFiles>,
    /// The node's credentials.
    pub logins: Arc<dyn RegistryLogins>,
}

/// Fetches images.
pub(crate) struct Puller {
    images: Arc<dyn Images>,
    line: Line,
    rate: Option<Bucket>,
    records: Option<PullRecords>,
    gatherer: Gatherer,
}

/// When an image is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// The specification's policy, else what the tag implies.
    pub(crate) fn of(given: Option<&str>, image: &str) -> Self {
        match given {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some("IfNotPresent") => Self::IfNotPresent,
            _ if image.ends_with(":latest") => Self::Always,
            _ => Self::IfNotPresent,
        }
    }

    /// As figures call it.
    fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::IfNotPresent => "ifnotpresent",
            Self::Never => "never",
        }
    }
}

/// An image that a pod wants.
pub(crate) struct Wanted<'a> {
    pub(crate) pod: &'a Pod,
    /// As the specification names it.
    pub(crate) named: &'a str,
    pub(crate) policy: Option<&'a str>,
    /// What the runtime is told about the pod.
    pub(crate) sandbox: &'a SandboxSpec,
}

/// A wanted image whose name was understood.
struct Order<'a> {
    pod: &'a Pod,
    sandbox: &'a SandboxSpec,
    named: &'a str,
    name: ImageName,
    /// With its tag spelt out.
    image: String,
}

/// A pull that worked.
struct Pulled {
    info: ImageInfo,
    took: Duration,
    used: Option<Credential>,
}

impl Puller {
    pub(crate) fn new(
        images: Arc<dyn Images>,
        doors: Option<PullDoors>,
        settings: PullSettings,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let logins = doors.as_ref().map(|it| it.logins.clone());
        let files = doors.map(|it| it.files);
        let records = files.zip(settings.verification);
        Self {
            images,
            line: Line::new(settings.limits),
            rate: settings.rate.map(Bucket::new),
            records: records.map(|(files, policy)| PullRecords::new(files, policy, clock)),
            gatherer: Gatherer::new(logins, settings.providers),
        }
    }

    /// Makes sure that an image is here and that the pod may use it, and answers what it is.
    pub(crate) async fn ensure(
        &self,
        world: &World,
        wanted: Wanted<'_>,
        tell: &ContainerEvents<'_>,
    ) -> Result<ImageInfo, StartError> {
        let Wanted { pod, named, policy, sandbox } = wanted;
        let name = ImageName::parse(named).map_err(|error| {
            let message = format!("Failed to apply default image tag {named:?}: {error}");
            tell.say(Happened::InspectFailed(message.clone()));
            StartError::other(WaitingReason::InvalidImageName, message)
        })?;
        let order = Order { pod, sandbox, named, image: name.with_default_tag(), name };
        let policy = PullPolicy::of(policy, &order.image);
        if let Some(records) = &self.records {
            records.recover(self.images.as_ref()).await;
        }
        let mut found = None;
        if policy != PullPolicy::Always
            && let Some(info) = self.look(&order, tell).await?
            && self.may_use(world, &order, &info, &mut found).await?
        {
            tell.say(Happened::ImagePresent {
                image: named.to_owned(),
                is_checked: self.records.is_some(),
            });
            metrics::image_wanted(policy.word(), "true", "false");
            return Ok(info);
        }
        if policy == PullPolicy::Never {
            metrics::image_wanted(policy.word(), "false", "unknown");
            // Also for an image that is here and not for this pod: nobody should learn that it is
            // here.
            let message =
                format!("Container image {named:?} is not present with pull policy of Never");
            tell.say(Happened::NeverPull(message.clone()));
            return Err(StartError::other(WaitingReason::ErrImageNeverPull, message));
        }
        let is_here = match policy {
            PullPolicy::Always => "unknown",
            // Credentials are looked for beforehand only for the sake of an image that is here.
            _ if found.is_some() => "true",
            _ => "false",
        };
        metrics::image_wanted(policy.word(), is_here, "true");
        let found = match found {
            Some(found) => found,
            None => self.gather(world, &order).await?,
        };
        let pulled = self.pull_noted(&order, &found.credentials, tell).await;
        // A registry that is away, or a signature that is wrong, has nothing to do with secrets.
        let is_refused = |failure: &StartError| failure.reason == WaitingReason::ErrImagePull;
        if pulled.as_ref().is_err_and(is_refused) && !found.missing.is_empty() {
            say_missing_secrets(world, pod, &found.missing);
        }
        pulled
    }

    async fn look(
        &self,
        order: &Order<'_>,
        tell: &ContainerEvents<'_>,
    ) -> Result<Option<ImageInfo>, StartError> {
        let image = &order.image;
        self.images.image_status(image).await.map_err(|error| {
            let message = format!("Failed to inspect image {image:?}: {error}");
            tell.say(Happened::InspectFailed(message.clone()));
            StartError::other(WaitingReason::ImageInspectError, message)
        })
    }

    /// Whether the pod may use an image that is here. Credentials that had to be gathered for it
    /// are left in `found`.
    async fn may_use(
        &self,
        world: &World,
        order: &Order<'_>,
        info: &ImageInfo,
        found: &mut Option<Found>,
    ) -> Result<bool, StartError> {
        let Some(records) = &self.records else {
            return Ok(true);
        };
        match records.look(order.named, &order.name, &info.id).await {
            Known::NotNeeded => {
                metrics::use_checked("credentialPolicyAllowed");
                Ok(true)
            }
            Known::Allowed => {
                metrics::use_checked("credentialRecordFound");
                Ok(true)
            }
            Known::PullAgain => {
                metrics::use_checked("mustAuthenticate");
                Ok(false)
            }
            Known::Depends(known) => {
                let gathered = self.gather(world, order).await;
                let offered = gathered.inspect_err(|_| metrics::use_checked("error"))?;
                let offered = &found.insert(offered).credentials;
                let is_proven = records.is_proven(&order.name, &info.id, &known, offered);
                let is_proven = is_proven.await;
                metrics::use_checked(if is_proven {
                    "credentialRecordFound"
                } else {
                    "mustAuthenticate"
                });
                Ok(is_proven)
            }
        }
    }

    async fn gather(&self, world: &World, order: &Order<'_>) -> Result<Found, StartError> {
        let place = order.name.place();
        let found = self.gatherer.gather(world, order.pod, &place).await;
        found.map_err(|error| {
            pull_failure(order.named, WaitingReason::ErrImagePull, error.to_string())
        })
    }

    /// Pulls, and keeps the records before and after.
    async fn pull_noted(
        &self,
        order: &Order<'_>,
        candidates: &[Credential],
        tell: &ContainerEvents<'_>,
    ) -> Result<ImageInfo, StartError> {
        let intent = match &self.records {
            Some(records) => match records.begin(order.named).await {
                Ok(intent) => Some(intent),
                Err(error) => {
                    let named = order.named;
                    let message = format!(
                        "Failed to record image pull intent for container image {named:?}: {error}"
                    );
                    return Err(pull_failure(named, WaitingReason::ErrImagePull, message));
                }
            },
            None => None,
        };
        let pulled = self.pull(order, candidates, tell).await;
        match (pulled, intent) {
            (Ok(pulled), Some(intent)) => {
                let (id, used) = (&pulled.info.id, pulled.used.as_ref());
                intent.succeeded(&order.name, id, used).await;
                Ok(pulled.info)
            }
            (Err(failure), Some(intent)) => {
                intent.failed().await;
                Err(failure)
            }
            (pulled, None) => pulled.map(|it| it.info),
        }
    }

    async fn pull(
        &self,
        order: &Order<'_>,
        candidates: &[Credential],
        tell: &ContainerEvents<'_>,
    ) -> Result<Pulled, StartError> {
        let (named, queued) = (order.named, Instant::now());
        tell.say(Happened::Pulling(named.to_owned()));
        let pulled = self.wait_and_pull(order, candidates, tell, queued).await;
        let pulled = pulled.map_err(|refusal| {
            tell.say(Happened::PullFailed(format!(
                "Failed to pull image {named:?}: {}",
                refusal.event
            )));
            pull_failure(named, refusal.reason, refusal.message)
        })?;
        metrics::pulled(&order.pod.uid(), pulled.info.size, pulled.took);
        tell.say(Happened::Pulled {
            image: named.to_owned(),
            took: rounded(pulled.took),
            with_wait: rounded(queued.elapsed()),
            size: pulled.info.size,
        });
        Ok(pulled)
    }

    async fn wait_and_pull(
        &self,
        order: &Order<'_>,
        candidates: &[Credential],
        tell: &ContainerEvents<'_>,
        queued: Instant,
    ) -> Result<Pulled, Refusal> {
        let named = order.named;
        let mut place = self.line.join(order.name.registry());
        let mut note = LONG;
        let _turn = loop {
            // Cancel-safe: a place is kept until it is dropped.
            tokio::select! {
                turn = place.turn() => break turn,
                () = sleep(note) => {
                    tell.say(Happened::StillPulling(format!(
                        "Image {named:?} has waited {} to be pulled; {} ahead of it",
                        seconds(queued.elapsed()),
                        place.ahead(),
                    )));
                    note *= 2;
                }
            }
        };
        let began = Instant::now();
        if self.rate.as_ref().is_some_and(|bucket| !bucket.take()) {
            return Err(Refusal::plain("pull QPS exceeded".to_owned()));
        }
        let mut work = std::pin::pin!(self.try_each(order, candidates));
        let mut note = LONG;
        loop {
            // Cancel-safe: the same future is waited for again.
            tokio::select! {
                done = &mut work => {
                    let (info, used) = done?;
                    return Ok(Pulled { info, took: began.elapsed(), used });
                }
                () = sleep(note) => {
                    tell.say(Happened::StillPulling(format!(
                        "Still pulling image {named:?} after {}",
                        seconds(began.elapsed()),
                    )));
                    note *= 2;
                }
            }
        }
    }

    /// Tries one credential after the other, or none at all.
    async fn try_each(
        &self,
        order: &Order<'_>,
        candidates: &[Credential],
    ) -> Result<(ImageInfo, Option<Credential>), Refusal> {
        let mut refusals: Vec<ImageError> = Vec::new();
        let tries: Vec<Option<&Credential>> =
            if candidates.is_empty() { vec![None] } else { candidates.iter().map(Some).collect() };
        for credential in tries {
            let auth = credential.map(|it| RegistryAuth {
                username: it.login.username.clone(),
                password: it.login.password.clone(),
                ..RegistryAuth::default()
            });
            let request = PullRequest {
                image: &order.image,
                auth: auth.as_ref(),
                sandbox: Some(order.sandbox),
            };
            match self.images.pull_image(request).await {
                Ok(reference) => {
                    let info = self.images.image_status(&reference).await;
                    let info = info.map_err(|error| Refusal::plain(error.to_string()))?;
                    let info = info.ok_or_else(|| {
                        Refusal::plain(format!("image {reference:?} vanished after its pull"))
                    })?;
                    return Ok((info, credential.cloned()));
                }
                Err(error) if refusals.contains(&error) => {}
                Err(error) => refusals.push(error),
            }
        }
        Err(Refusal::of(order.named, &refusals))
    }
}

/// Why a pull did not work, for the event and for the status.
struct Refusal {
    reason: WaitingReason,
    event: String,
    message: String,
}

impl Refusal {
    fn plain(message: String) -> Self {
        Self { reason: WaitingReason::ErrImagePull, event: message.clone(), message }
    }

    /// One cause speaks for itself; several are listed.
    fn of(named: &str, causes: &[ImageError]) -> Self {
        let because = |reason: WaitingReason, what: &str, detail: &str| Self {
            reason,
            event: format!("{reason}: {detail}"),
            message: format!("image pull failed for {named} because {what}: {detail}"),
        };
        match causes {
            [ImageError::RegistryUnavailable(detail)] => {
                because(WaitingReason::RegistryUnavailable, "the registry is unavailable", detail)
            }
            [ImageError::SignatureValidationFailed(detail)] => because(
                WaitingReason::SignatureValidationFailed,
                "the signature validation failed",
                detail,
            ),
            [only] => Self::plain(only.to_string()),
            several => {
                let texts: Vec<String> = several.iter().map(ToString::to_string).collect();
                Self::plain(format!("[{}]", texts.join(", ")))
            }
        }
    }
}

fn pull_failure(named: &str, reason: WaitingReason, message: String) -> StartError {
    StartError { kind: FailureKind::ImagePull { image: named.to_owned() }, reason, message }
}

/// To the millisecond, as the event shows it.
fn rounded(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    format_go_duration(Duration::from_millis(millis))
}

fn seconds(span: Duration) -> String {
    format_go_duration(Duration::from_secs(span.as_secs()))
}
