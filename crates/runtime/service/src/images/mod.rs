//! CRI's image service, on the store and the puller.

mod answer;
mod built_in;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use ferrolet_cri_proto::{self as cri, server::image_service_server::ImageService};
use ferrolet_runtime_images::{Image, PullProgress, Puller, Reference, Store, StoreError};
use tokio::{
    sync::{Mutex, watch},
    task::spawn_blocking,
};
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{chain::chain, runtime::Runtime, upkeep::UpkeepHandle};
pub use built_in::BuiltIn;

use answer::{credentials, image, pull_code};

/// Images in one message of a stream.
const PAGE: usize = 100;

/// The time of day, in nanoseconds since 1970.
#[derive(Clone)]
pub struct WallClock(pub Arc<dyn Fn() -> i64 + Send + Sync>);

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

/// The image service. Clones serve the same store.
#[derive(Clone)]
pub struct ImageServer {
    store: Store,
    puller: Arc<Puller>,
    upkeep: UpkeepHandle,
    clock: WallClock,
    /// Whose containers write beside the images; none: nobody's.
    runtime: Option<Runtime>,
    built_in: Option<BuiltIn>,
    /// One at a time puts it there; the others find it.
    loading: Arc<Mutex<()>>,
}

impl ImageServer {
    /// A service on a store, with a puller into the same.
    #[must_use]
    pub fn new(store: Store, puller: Arc<Puller>, upkeep: UpkeepHandle, clock: WallClock) -> Self {
        Self {
            store,
            puller,
            upkeep,
            clock,
            runtime: None,
            built_in: None,
            loading: Arc::default(),
        }
    }

    /// The same with an image that is not pulled from anywhere.
    #[must_use]
    pub fn with_built_in(self, built_in: BuiltIn) -> Self {
        Self { built_in: Some(built_in), ..self }
    }

    /// The built-in image, put into the store, if it is the one that is meant.
    async fn take_built_in(&self, reference: &Reference) -> Option<Result<String, Status>> {
        let built_in = self.built_in.filter(|it| (it.is_meant)(&reference.to_string()))?;
        let _turn = self.loading.lock().await;
        if let Some(image) = self.store.find(&reference.to_string()) {
            return Some(Ok(image.id.to_string()));
        }
        let store = self.store.clone();
        let loaded = spawn_blocking(move || built_in.load(&store)).await;
        Some(match loaded {
            Ok(Ok(id)) => Ok(id.to_string()),
            Ok(Err(error)) => Err(Status::internal(chain(&error))),
            Err(lost) => Err(Status::internal(lost.to_string())),
        })
    }

    /// Tells of what this runtime's containers write, too.
    pub(crate) fn with_containers(self, runtime: Runtime) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    fn list(&self, filter: Option<cri::ImageFilter>) -> Vec<cri::Image> {
        let wanted = filter.and_then(|it| it.image).map(|it| it.image).filter(|it| !it.is_empty());
        let images: Vec<Image> = match wanted {
            Some(name) => self.store.find(&name).into_iter().collect(),
            None => self.store.images(),
        };
        images.iter().map(image).collect()
    }

    async fn remove(&self, name: String) -> Result<(), StoreError> {
        let store = self.store.clone();
        let removal = move || {
            if let Some(image) = store.find(&name) {
                store.remove_image(&image.id)?;
                store.collect()?;
            }
            Ok(())
        };
        // The thread is only lost while the program ends.
        let removed = spawn_blocking(removal).await.unwrap_or(Ok(()));
        self.upkeep.wake();
        removed
    }
}

#[tonic::async_trait]
impl ImageService for ImageServer {
    async fn list_images(
        &self,
        request: Request<cri::ListImagesRequest>,
    ) -> Result<Response<cri::ListImagesResponse>, Status> {
        let images = self.list(request.into_inner().filter);
        Ok(Response::new(cri::ListImagesResponse { images }))
    }

    async fn stream_images(
        &self,
        request: Request<cri::StreamImagesRequest>,
    ) -> Result<Response<BoxStream<cri::StreamImagesResponse>>, Status> {
        let images = self.list(request.into_inner().filter);
        let pages: Vec<_> = images
            .chunks(PAGE)
            .map(|page| Ok(cri::StreamImagesResponse { images: page.to_vec() }))
            .collect();
        Ok(Response::new(Box::pin(futures::stream::iter(pages))))
    }

    async fn image_status(
        &self,
        request: Request<cri::ImageStatusRequest>,
    ) -> Result<Response<cri::ImageStatusResponse>, Status> {
        let request = request.into_inner();
        let found = self.store.find(&name(request.image)?);
        let info = found.as_ref().filter(|_| request.verbose).map(answer::info).unwrap_or_default();
        Ok(Response::new(cri::ImageStatusResponse { image: found.as_ref().map(image), info }))
    }

    async fn pull_image(
        &self,
        request: Request<cri::PullImageRequest>,
    ) -> Result<Response<cri::PullImageResponse>, Status> {
        let request = request.into_inner();
        let name = name(request.image)?;
        let reference =
            Reference::parse(&name).map_err(|error| Status::invalid_argument(chain(&error)))?;
        if let Some(loaded) = self.take_built_in(&reference).await {
            self.upkeep.wake();
            return Ok(Response::new(cri::PullImageResponse { image_ref: loaded? }));
        }
        let credentials = credentials(request.auth, &reference)?;
        let (progress, _) = watch::channel(PullProgress::default());
        // A caller that leaves ends its pull: the call is dropped with it.
        let pulled = self.puller.pull(&reference, &credentials, &progress).await;
        self.upkeep.wake();
        let image = pulled.map_err(|error| pull_code(&name, &error))?;
        Ok(Response::new(cri::PullImageResponse { image_ref: image.id.to_string() }))
    }

    async fn remove_image(
        &self,
        request: Request<cri::RemoveImageRequest>,
    ) -> Result<Response<cri::RemoveImageResponse>, Status> {
        let name = name(request.into_inner().image)?;
        self.remove(name).await.map_err(|error| Status::internal(chain(&error)))?;
        Ok(Response::new(cri::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<cri::ImageFsInfoRequest>,
    ) -> Result<Response<cri::ImageFsInfoResponse>, Status> {
        let mountpoint = self.store.path().display().to_string();
        let usage = answer::usage(self.store.usage(), mountpoint, (self.clock.0)());
        let containers = match &self.runtime {
            Some(runtime) => vec![runtime.writable_layers().await?],
            None => Vec::new(),
        };
        Ok(Response::new(cri::ImageFsInfoResponse {
            image_filesystems: vec![usage],
            container_filesystems: containers,
        }))
    }
}

fn name(spec: Option<cri::ImageSpec>) -> Result<String, Status> {
    let name = spec.map(|it| it.image).filter(|it| !it.is_empty());
    name.ok_or_else(|| Status::invalid_argument("no image is named"))
}
