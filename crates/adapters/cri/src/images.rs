//! The `Images` port.

use std::path::PathBuf;

use ferrolet_ports::{Fut, ImageError, ImageInfo, ImagePlace, Images, PullRequest, RuntimeError};

use crate::call::Call;
use crate::client::CriClient;
use crate::error::{found, incomplete, or_gone, pull_error};
use crate::{decode, encode, proto};

impl Images for CriClient {
    fn image_status<'a>(
        &'a self,
        image: &'a str,
    ) -> Fut<'a, Result<Option<ImageInfo>, RuntimeError>> {
        Box::pin(async move {
            let request =
                proto::ImageStatusRequest { image: Some(encode::image(image)), verbose: false };
            let mut client = self.images();
            let call = self.call("ImageStatus");
            let answer = call
                .run(request, |request| async move { client.image_status(request).await })
                .await;
            let Some(found) = found(answer)?.and_then(|answer| answer.image) else {
                return Ok(None);
            };
            if found.id.is_empty() || found.size == 0 {
                let message = format!("Id or size of image {image:?} is not set");
                return Err(incomplete(call.method, message));
            }
            Ok(Some(decode::image(found)))
        })
    }

    fn pull_image<'a>(&'a self, request: PullRequest<'a>) -> Fut<'a, Result<String, ImageError>> {
        Box::pin(async move {
            let PullRequest { image, auth, sandbox } = request;
            let annotations = sandbox.map(|it| it.annotations.clone()).unwrap_or_default();
            let request = proto::PullImageRequest {
                image: Some(proto::ImageSpec {
                    annotations: annotations.into_iter().collect(),
                    ..encode::image(image)
                }),
                auth: auth.map(encode::auth),
                sandbox_config: sandbox.map(encode::sandbox_config),
            };
            let mut client = self.images();
            // No deadline: how long a pull may take is for its caller to say, by dropping it.
            let call = Call { method: "PullImage", deadline: None };
            let answer = call
                .run(request, |request| async move { client.pull_image(request).await })
                .await
                .map_err(pull_error)?;
            if answer.image_ref.is_empty() {
                let message = format!("imageRef of image {image:?} is not set");
                return Err(ImageError::Unspecified(message));
            }
            Ok(answer.image_ref)
        })
    }

    fn list_images(&self) -> Fut<'_, Result<Vec<ImageInfo>, RuntimeError>> {
        Box::pin(async move {
            let mut client = self.images();
            let answer = self
                .call("ListImages")
                .run(proto::ListImagesRequest { filter: None }, |request| async move {
                    client.list_images(request).await
                })
                .await?;
            Ok(answer.images.into_iter().map(decode::image).collect())
        })
    }

    fn remove_image<'a>(&'a self, image: &'a str) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::RemoveImageRequest { image: Some(encode::image(image)) };
            let mut client = self.images();
            or_gone(
                self.call("RemoveImage")
                    .run(request, |request| async move { client.remove_image(request).await })
                    .await,
            )
        })
    }
}

impl ImagePlace for CriClient {
    fn image_directory(&self) -> Fut<'_, Result<PathBuf, RuntimeError>> {
        Box::pin(async move {
            let mut client = self.images();
            let call = self.call("ImageFsInfo");
            let answer = call
                .run(proto::ImageFsInfoRequest {}, |request| async move {
                    client.image_fs_info(request).await
                })
                .await?;
            let places = answer.image_filesystems.into_iter();
            let mut places = places.filter_map(|it| Some(it.fs_id?.mountpoint));
            match places.find(|place| !place.is_empty()) {
                Some(place) => Ok(PathBuf::from(place)),
                None => {
                    let message = "the runtime names no file system of images".to_owned();
                    Err(incomplete(call.method, message))
                }
            }
        })
    }
}
