//! What `docker save` wrote before it knew OCI layouts: `manifest.json`, configurations, layers as plain archives.

use serde::Deserialize;
use serde_json::json;

use super::{LoadError, Loader, keys, tags};
use crate::{
    digest::{Digest, Hasher},
    layers::{Checked, Wish, find, unpack_blob},
    limits::within,
    manifest::{ManifestError, OCI_CONFIG, OCI_LAYER, OCI_MANIFEST},
    store::{Hold, Image, ImageParts, LayerKey},
};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Loader<'_> {
    pub(super) fn load_docker(&self) -> Result<Vec<Image>, LoadError> {
        let text = self.document("manifest.json", self.limits.manifest_bytes)?;
        let listed: Vec<Listed> =
            serde_json::from_slice(&text).map_err(|source| LoadError::Manifest {
                name: "manifest.json".to_owned(),
                source: ManifestError::Json { what: "Docker's list of images", source },
            })?;
        listed.iter().map(|it| self.load_docker_image(it)).collect()
    }

    fn load_docker_image(&self, listed: &Listed) -> Result<Image, LoadError> {
        within("layers in an image", listed.layers.len() as u64, self.limits.n_layers as u64)?;
        let config_bytes = self.document(&listed.config, self.limits.config_bytes)?;
        let config = self.config(&listed.config, &config_bytes, listed.layers.len())?;
        let mut holds: Vec<Hold> = Vec::new();
        let (mut chain, mut described) = (Vec::new(), Vec::new());
        for (name, diff_id) in listed.layers.iter().zip(config.diff_ids()) {
            let (hold, digest, size) = self.docker_layer(name, &chain, diff_id, &keys(&holds))?;
            described.push(json!({ "mediaType": OCI_LAYER, "digest": digest, "size": size }));
            holds.push(hold);
            chain.push(digest);
        }
        // The archive has no manifest; the store's images have one.
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": { "mediaType": OCI_CONFIG, "digest": Digest::of(&config_bytes), "size": config_bytes.len() },
            "layers": described,
        });
        let parts = ImageParts {
            manifest: manifest.to_string().into_bytes(),
            config: config_bytes,
            layers: keys(&holds),
            tags: tags(listed.repo_tags.iter().flatten()),
            digests: [].into(),
        };
        Ok(self.store.add_image(parts, config)?)
    }

    /// A layer without a digest of its own: plain, so that the diff id is its digest, unless reading shows otherwise.
    fn docker_layer(
        &self,
        name: &str,
        chain: &[Digest],
        diff_id: &Digest,
        below: &[LayerKey],
    ) -> Result<(Hold, Digest, u64), LoadError> {
        let at = self.table.find(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
        let wish = |digest: &Digest| Wish {
            chain: chain.iter().chain([digest]).cloned().collect(),
            diff_id: diff_id.clone(),
        };
        if let Some(hold) = find(self.store, &wish(diff_id))? {
            return Ok((hold, diff_id.clone(), at.size));
        }
        let mut blob =
            Checked::new(at.reader(self.archive).map_err(LoadError::Read)?, Hasher::sha256());
        let open = unpack_blob(self.store, diff_id, &mut blob, self.limits)?;
        let (digest, size) = blob.finish();
        let wish = wish(&digest);
        let hold = open.commit(&wish)?.settle(self.store, &wish, below)?;
        Ok((hold, digest, size))
    }
}
