//! The fake image service: what is here, what could be fetched, and what cannot.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolet_ports::{
    Fut, ImageError, ImageInfo, Images, PullRequest, RuntimeError, RuntimeErrorKind,
};
use ferrolet_types::hash::fnv1a_128;

use crate::faults::Fault;
use crate::{Act, Call, World};

/// Images by their full name.
#[derive(Default)]
pub(crate) struct Store {
    here: BTreeMap<String, ImageInfo>,
    registry: BTreeMap<String, Offer>,
}

/// What the registry does when asked.
#[derive(Clone)]
struct Offer {
    takes: Duration,
    failure: Option<ImageError>,
    /// Who alone may fetch it.
    account: Option<(String, String)>,
}

impl Store {
    /// Finds an image by name, digest or id.
    pub(crate) fn find(&self, reference: &str) -> Option<&ImageInfo> {
        let name = normal(reference);
        self.here.get(&name).or_else(|| {
            let mut images = self.here.values();
            images.find(|it| it.id == reference || it.digests.contains(&name))
        })
    }

    fn add(&mut self, name: &str) -> String {
        let info = info_of(name);
        let id = info.id.clone();
        self.here.insert(name.to_owned(), info);
        id
    }
}

/// The full name of an image, as containerd resolves it: registry and tag are spelt out.
pub(crate) fn normal(image: &str) -> String {
    if image.starts_with("sha256:") {
        return image.to_owned();
    }
    let first = image.split('/').next().unwrap_or_default();
    let has_registry =
        image.contains('/') && (first.contains('.') || first.contains(':') || first == "localhost");
    let full = match (has_registry, image.contains('/')) {
        (true, _) => image.to_owned(),
        (false, true) => format!("docker.io/{image}"),
        (false, false) => format!("docker.io/library/{image}"),
    };
    let last = full.rsplit('/').next().unwrap_or_default();
    if last.contains(':') || last.contains('@') { full } else { format!("{full}:latest") }
}

fn info_of(name: &str) -> ImageInfo {
    let digest = |salt: &str| {
        let half = fnv1a_128(format!("{salt}{name}").as_bytes());
        format!("sha256:{half:032x}{half:032x}")
    };
    let repository = name.rsplit_once(['@', ':']).map_or(name, |(repository, _)| repository);
    ImageInfo {
        id: digest("config"),
        tags: vec![name.to_owned()],
        digests: vec![format!("{repository}@{}", digest("manifest"))],
        size: 1 << 20,
        user_id: Some(0),
        username: String::new(),
        is_pinned: false,
    }
}

/// Setting up images.
impl World {
    /// An image that is here.
    pub fn add_image(&self, image: &str) {
        self.change(|state| state.images.add(&normal(image)));
    }

    /// An image that is not here but can be fetched, in that time.
    pub fn add_pullable_image(&self, image: &str, takes: Duration) {
        let offer = Offer { takes, failure: None, account: None };
        self.offer(image, offer);
    }

    /// An image that can be fetched by one account only.
    pub fn add_private_image(&self, image: &str, user: &str, password: &str) {
        let offer = Offer {
            takes: Duration::ZERO,
            failure: None,
            account: Some((user.to_owned(), password.to_owned())),
        };
        self.offer(image, offer);
    }

    /// An image that cannot be fetched, for that reason, after that time.
    pub fn add_failing_image(&self, image: &str, takes: Duration, failure: ImageError) {
        let offer = Offer { takes, failure: Some(failure), account: None };
        self.offer(image, offer);
    }

    fn offer(&self, image: &str, offer: Offer) {
        self.change(|state| state.images.registry.insert(normal(image), offer));
    }

    /// True when the image is here.
    pub fn has_image(&self, image: &str) -> bool {
        self.look(|state| state.images.find(image).is_some())
    }
}

/// The image port on a [`World`].
pub struct FakeImages {
    world: World,
}

impl FakeImages {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }
}

fn of_runtime(call: Call) -> impl Fn(Fault) -> RuntimeError {
    move |fault| fault.of_runtime(call)
}

impl Images for FakeImages {
    fn image_status<'a>(
        &'a self,
        image: &'a str,
    ) -> Fut<'a, Result<Option<ImageInfo>, RuntimeError>> {
        Box::pin(async move {
            let guard = self.world.enter(Call::ImageStatus, None).await;
            let _guard = guard.map_err(of_runtime(Call::ImageStatus))?;
            Ok(self.world.look(|state| state.images.find(image).cloned()))
        })
    }

    fn pull_image<'a>(&'a self, request: PullRequest<'a>) -> Fut<'a, Result<String, ImageError>> {
        let PullRequest { image, auth, .. } = request;
        Box::pin(async move {
            let call = Call::PullImage;
            let refuse = |fault: Fault| ImageError::Runtime(fault.of_runtime(call));
            let _guard = self.world.enter(call, None).await.map_err(refuse)?;
            let name = normal(image);
            let (offer, is_here) = self.world.look(|state| {
                let offer = state.images.registry.get(&name).cloned();
                (offer, state.images.here.contains_key(&name))
            });
            // What is here came from somewhere: fetching it again finds nothing new.
            let offer = offer.or(is_here.then_some(Offer {
                takes: Duration::ZERO,
                failure: None,
                account: None,
            }));
            let Some(offer) = offer else {
                let message = format!(
                    "failed to pull and unpack image {name:?}: failed to resolve reference \
                     {name:?}: {name}: not found"
                );
                return Err(refuse(Fault::new(RuntimeErrorKind::NotFound, message)));
            };
            tokio::time::sleep(offer.takes).await;
            // The runtime may have gone away while the layers travelled.
            let fault = self.world.quietly(|state| state.faults.take(call, None));
            if let Some(fault) = fault {
                return Err(refuse(fault));
            }
            let given = auth.map(|it| (it.username.clone(), it.password.clone()));
            if offer.account.is_some() && offer.account != given {
                let message = format!("pull access denied for {name:?}");
                return Err(ImageError::Unspecified(message));
            }
            if let Some(failure) = offer.failure {
                return Err(failure);
            }
            Ok(self.world.change(|state| {
                let image = name.clone();
                state.write(None, Act::ImagePulled { image });
                state.images.add(&name)
            }))
        })
    }

    fn list_images(&self) -> Fut<'_, Result<Vec<ImageInfo>, RuntimeError>> {
        Box::pin(async move {
            let guard = self.world.enter(Call::ListImages, None).await;
            let _guard = guard.map_err(of_runtime(Call::ListImages))?;
            Ok(self.world.look(|state| state.images.here.values().cloned().collect()))
        })
    }

    fn remove_image<'a>(&'a self, image: &'a str) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let guard = self.world.enter(Call::RemoveImage, None).await;
            let _guard = guard.map_err(of_runtime(Call::RemoveImage))?;
            self.world.change(|state| {
                let Some(id) = state.images.find(image).map(|it| it.id.clone()) else {
                    return;
                };
                state.images.here.retain(|_, it| it.id != id);
                let image = image.to_owned();
                state.write(None, Act::ImageRemoved { image });
            });
            Ok(())
        })
    }
}
