//! What registries and archives say about an image: index, manifest, configuration. Pure.
//!
//! In: bytes, already bounded and checked against their digest. Out: the few fields that a runtime needs.
//!
//! A document must say what it is by media type *and* by shape: one that can be read as an index and as a manifest would
//! be different images to different readers under one digest (CVE-2021-41190). Addresses of layers that a manifest may
//! name are not even read (CVE-2020-15157).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    digest::Digest,
    limits::{Limits, OverLimit, within},
};

/// Media types of manifests, ours to ask for: OCI's and Docker's, single ones first.
pub const MANIFEST_TYPES: [&str; 4] = [OCI_MANIFEST, DOCKER_MANIFEST, OCI_INDEX, DOCKER_INDEX];

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const CONFIG_TYPES: [&str; 2] = [OCI_CONFIG, "application/vnd.docker.container.image.v1+json"];
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// What a layer's media type begins with; the compression behind it is found in the blob itself.
const LAYER_TYPES: [&str; 4] = [
    OCI_LAYER,
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

/// Why a document is not taken for what it claims to be.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON of the expected shape.
    #[error("read {what}")]
    Json {
        /// What it should have been.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// Its media type is not one of ours.
    #[error("{0:?} is not the media type of an image")]
    MediaType(String),
    /// It says one thing outside and another inside.
    #[error("it came as {outside:?} and calls itself {inside:?}")]
    TwoTypes {
        /// How it was served or listed.
        outside: String,
        /// Its own field.
        inside: String,
    },
    /// It could be read in two ways.
    #[error("it has the fields of {fields} beside those of {kind}")]
    Ambiguous {
        /// What its media type says.
        kind: &'static str,
        /// What else it could be.
        fields: &'static str,
    },
    /// A schema of another time.
    #[error("schema version {0} is not supported")]
    Schema(u32),
    /// No entry of the index is for this machine.
    #[error("no image for {0}")]
    NoPlatform(String),
    /// The numbers of layers and of diff ids differ.
    #[error("{layers} layers, but {diff_ids} diff ids in the configuration")]
    Layers {
        /// In the manifest.
        layers: usize,
        /// In the configuration.
        diff_ids: usize,
    },
    /// Too much of something.
    #[error(transparent)]
    Limit(#[from] OverLimit),
}

/// A pointer to a blob.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the blob is.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// Which machines it is for.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// Notes.
    #[serde(default, deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
}

/// A kind of machine, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// The operating system.
    #[serde(default)]
    pub os: String,
    /// The processor's architecture.
    #[serde(default)]
    pub architecture: String,
    /// Its variant, or nothing.
    #[serde(default)]
    pub variant: String,
}

/// A document that a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// Manifests for several platforms.
    Index(Vec<Descriptor>),
    /// One image.
    Manifest(Manifest),
}

/// One image: configuration and layers, the lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The configuration's blob.
    pub config: Descriptor,
    /// The layers' blobs.
    pub layers: Vec<Descriptor>,
}

/// What an image says of itself and of its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageConfig {
    /// The operating system.
    #[serde(default)]
    pub os: String,
    /// The architecture.
    #[serde(default)]
    pub architecture: String,
    /// How containers start.
    #[serde(default, deserialize_with = "nullable")]
    pub config: Execution,
    #[serde(default, deserialize_with = "nullable")]
    rootfs: RootFs,
}

/// How containers of an image start unless a pod says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Execution {
    /// User, or `user:group`, by name or number.
    #[serde(default, deserialize_with = "nullable")]
    pub user: String,
    /// `NAME=value`.
    #[serde(default, deserialize_with = "nullable")]
    pub env: Vec<String>,
    /// The command's beginning.
    #[serde(default, deserialize_with = "nullable")]
    pub entrypoint: Vec<String>,
    /// The command, or the arguments of the entrypoint.
    #[serde(default, deserialize_with = "nullable")]
    pub cmd: Vec<String>,
    /// Where the command runs.
    #[serde(default, deserialize_with = "nullable")]
    pub working_dir: String,
    /// Paths that want a fresh directory each.
    #[serde(default, deserialize_with = "keys")]
    pub volumes: Vec<String>,
    /// Labels.
    #[serde(default, deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    /// The polite signal.
    #[serde(default, deserialize_with = "nullable")]
    pub stop_signal: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct RootFs {
    #[serde(default, deserialize_with = "nullable")]
    diff_ids: Vec<Digest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Anything {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    // Fields of the first schema, which would make it readable as one.
    fs_layers: Option<serde::de::IgnoredAny>,
    signatures: Option<serde::de::IgnoredAny>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Index,
    Manifest,
}

/// Reads a manifest or index. `served_as` is what the registry's answer or the pointing descriptor calls it.
pub fn parse(bytes: &[u8], served_as: &str, limits: &Limits) -> Result<Document, ManifestError> {
    within("bytes in a manifest", bytes.len() as u64, limits.manifest_bytes)?;
    let read = |source| ManifestError::Json { what: "manifest", source };
    let document: Anything = serde_json::from_slice(bytes).map_err(read)?;
    if document.schema_version != 2 {
        return Err(ManifestError::Schema(document.schema_version));
    }
    let inside = document.media_type.as_str();
    if !inside.is_empty() && !served_as.is_empty() && inside != served_as {
        let (outside, inside) = (served_as.to_owned(), inside.to_owned());
        return Err(ManifestError::TwoTypes { outside, inside });
    }
    let named = if inside.is_empty() { served_as } else { inside };
    let is_old = document.fs_layers.is_some() || document.signatures.is_some();
    let has_image = document.config.is_some() || document.layers.is_some();
    match type_of(named, document.manifests.is_some())? {
        Type::Index if has_image || is_old => {
            Err(ManifestError::Ambiguous { kind: "an index", fields: "an image" })
        }
        Type::Manifest if document.manifests.is_some() || is_old => {
            Err(ManifestError::Ambiguous { kind: "an image", fields: "something else" })
        }
        Type::Index => {
            let manifests = document.manifests.unwrap_or_default();
            within("manifests in an index", manifests.len() as u64, 10_000)?;
            Ok(Document::Index(manifests))
        }
        Type::Manifest => {
            manifest(document.config, document.layers, limits).map(Document::Manifest)
        }
    }
}

fn type_of(name: &str, has_manifests: bool) -> Result<Type, ManifestError> {
    match name {
        OCI_INDEX | DOCKER_INDEX => Ok(Type::Index),
        OCI_MANIFEST | DOCKER_MANIFEST => Ok(Type::Manifest),
        // OCI's field may be missing, and archives list manifests without a type: the shape decides.
        "" if has_manifests => Ok(Type::Index),
        "" => Ok(Type::Manifest),
        other => Err(ManifestError::MediaType(other.chars().take(200).collect())),
    }
}

fn manifest(
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    limits: &Limits,
) -> Result<Manifest, ManifestError> {
    let missing = |what| ManifestError::Json { what, source: serde::de::Error::custom("missing") };
    let config = config.ok_or_else(|| missing("the configuration's descriptor"))?;
    let layers = layers.ok_or_else(|| missing("the list of layers"))?;
    within("layers in an image", layers.len() as u64, limits.n_layers as u64)?;
    within("bytes in an image's configuration", config.size, limits.config_bytes)?;
    let refuse =
        |it: &Descriptor| ManifestError::MediaType(it.media_type.chars().take(200).collect());
    if !CONFIG_TYPES.contains(&config.media_type.as_str()) {
        return Err(refuse(&config));
    }
    if let Some(other) = layers.iter().find(|it| !is_layer(&it.media_type)) {
        return Err(refuse(other));
    }
    Ok(Manifest { config, layers })
}

/// A layer's type, whatever its compression; encrypted ones cannot be read.
fn is_layer(media_type: &str) -> bool {
    LAYER_TYPES.iter().any(|it| {
        media_type
            .strip_prefix(it)
            .is_some_and(|rest| matches!(rest, "" | "+gzip" | "+zstd" | ".gzip" | ".zstd"))
    })
}

/// Reads an image's configuration and checks that it belongs to a manifest of `n_layers`.
pub fn parse_config(
    bytes: &[u8],
    n_layers: usize,
    limits: &Limits,
) -> Result<ImageConfig, ManifestError> {
    within("bytes in an image's configuration", bytes.len() as u64, limits.config_bytes)?;
    let read = |source| ManifestError::Json { what: "image configuration", source };
    let config: ImageConfig = serde_json::from_slice(bytes).map_err(read)?;
    let diff_ids = config.diff_ids().len();
    if diff_ids != n_layers {
        return Err(ManifestError::Layers { layers: n_layers, diff_ids });
    }
    Ok(config)
}

impl ImageConfig {
    /// The layers' archives, the lowest first.
    #[must_use]
    pub fn diff_ids(&self) -> &[Digest] {
        &self.rootfs.diff_ids
    }
}

impl Platform {
    /// The machine that this was built for.
    #[must_use]
    pub fn own() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "x86" => ("386", ""),
            "powerpc64" => ("ppc64le", ""),
            other => (other, ""),
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.to_owned(),
        }
    }

    /// How well what is meant for `other` runs here: not at all, or the higher the better.
    fn fit(&self, other: &Self) -> Option<u32> {
        if self.os != other.os || self.architecture != other.architecture {
            return None;
        }
        let level = |variant: &str| variant.strip_prefix('v').and_then(|it| it.parse::<u32>().ok());
        match (level(&self.variant), level(&other.variant)) {
            _ if self.variant == other.variant => Some(1000),
            // Unnamed is the architecture's usual variant.
            (_, None) if other.variant.is_empty() => Some(999),
            (Some(own), Some(needed)) if needed <= own => Some(needed),
            (None, Some(1)) => Some(1),
            _ => None,
        }
    }
}

/// The manifest of an index that suits this machine best; the first of equals.
pub fn choose<'i>(
    index: &'i [Descriptor],
    own: &Platform,
) -> Result<&'i Descriptor, ManifestError> {
    let fit = |it: &Descriptor| it.platform.as_ref().map_or(Some(0), |platform| own.fit(platform));
    index
        .iter()
        .filter_map(|it| Some((fit(it)?, it)))
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, it)| it)
        .ok_or_else(|| {
            let variant = if own.variant.is_empty() { "" } else { "/" };
            ManifestError::NoPlatform(format!(
                "{}/{}{variant}{}",
                own.os, own.architecture, own.variant
            ))
        })
}

/// Go writes empty lists and maps as `null`.
fn nullable<'d, T: Default + Deserialize<'d>, D: serde::Deserializer<'d>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Go's sets: maps whose values say nothing.
fn keys<'d, D: serde::Deserializer<'d>>(from: D) -> Result<Vec<String>, D::Error> {
    let map: Option<BTreeMap<String, serde::de::IgnoredAny>> = Option::deserialize(from)?;
    Ok(map.unwrap_or_default().into_keys().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn image() -> Value {
        json!({
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": { "mediaType": OCI_CONFIG, "digest": DIGEST, "size": 2 },
            "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": DIGEST, "size": 3,
                         "urls": ["https://elsewhere/layer"] }],
        })
    }

    fn read(document: &Value, served_as: &str) -> String {
        match parse(document.to_string().as_bytes(), served_as, &Limits::USUAL) {
            Ok(Document::Index(manifests)) => format!("index of {}", manifests.len()),
            Ok(Document::Manifest(manifest)) => format!("image of {}", manifest.layers.len()),
            Err(error) => error.to_string(),
        }
    }

    fn with(mut document: Value, field: &str, value: Value) -> Value {
        document[field] = value;
        document
    }

    #[test]
    fn a_document_is_what_type_and_shape_say() {
        let index = || json!({ "schemaVersion": 2, "manifests": [] });
        assert_eq!(read(&image(), OCI_MANIFEST), "image of 1");
        assert_eq!(read(&image(), ""), "image of 1");
        assert_eq!(read(&index(), OCI_INDEX), "index of 0");
        assert_eq!(read(&index(), ""), "index of 0");
        let both = with(image(), "manifests", json!([]));
        assert_eq!(read(&both, ""), "it has the fields of something else beside those of an image");
        let both = with(index(), "layers", json!([]));
        assert_eq!(
            read(&both, OCI_INDEX),
            "it has the fields of an image beside those of an index"
        );
        let first = with(image(), "fsLayers", json!([]));
        assert_eq!(
            read(&first, OCI_MANIFEST),
            "it has the fields of something else beside those of an image"
        );
        let expected = format!("it came as {OCI_INDEX:?} and calls itself {OCI_MANIFEST:?}");
        assert_eq!(read(&image(), OCI_INDEX), expected);
        assert_eq!(
            read(&with(image(), "schemaVersion", json!(1)), ""),
            "schema version 1 is not supported"
        );
        assert_eq!(
            read(&index(), OCI_MANIFEST),
            "it has the fields of something else beside those of an image"
        );
        assert_eq!(read(&index(), "text/html"), "\"text/html\" is not the media type of an image");
    }

    #[test]
    fn configuration_and_layers_must_be_an_images() {
        let config = json!({ "mediaType": "application/vnd.unknown", "digest": DIGEST, "size": 2 });
        let refusal = "\"application/vnd.unknown\" is not the media type of an image";
        assert_eq!(read(&with(image(), "config", config.clone()), ""), refusal);
        assert_eq!(read(&with(image(), "layers", json!([config])), ""), refusal);
        let large = json!({ "mediaType": OCI_CONFIG, "digest": DIGEST, "size": 1_u64 << 40 });
        assert_eq!(
            read(&with(image(), "config", large), ""),
            "more than 8388608 bytes in an image's configuration"
        );
        let layer = image()["layers"][0].clone();
        let many = with(image(), "layers", Value::from(vec![layer; 513]));
        assert_eq!(read(&many, ""), "more than 512 layers in an image");
        assert!(!is_layer("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"));
    }

    #[test]
    fn go_writes_null_for_what_is_empty() {
        let config = json!({
            "os": "linux", "architecture": "amd64",
            "config": { "User": "", "Env": null, "Entrypoint": null, "Cmd": ["sh"], "Labels": null,
                        "Volumes": { "/data": {} }, "OnBuild": null },
            "rootfs": { "type": "layers", "diff_ids": [DIGEST] },
        });
        let read = parse_config(config.to_string().as_bytes(), 1, &Limits::USUAL).unwrap();
        assert_eq!(
            (read.config.cmd, read.config.volumes),
            (vec!["sh".to_owned()], vec!["/data".to_owned()])
        );
        let error = parse_config(config.to_string().as_bytes(), 2, &Limits::USUAL).unwrap_err();
        assert_eq!(error.to_string(), "2 layers, but 1 diff ids in the configuration");
    }

    #[test]
    fn the_best_platform_is_chosen() {
        let platform = |architecture: &str, variant: &str| Platform {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.to_owned(),
        };
        let index: Vec<Descriptor> = [
            ("unknown", ""),
            ("arm", "v6"),
            ("arm", "v7"),
            ("arm", "v5"),
            ("arm64", ""),
            ("amd64", "v3"),
            ("amd64", ""),
        ]
        .iter()
        .enumerate()
        .map(|(i, (architecture, variant))| Descriptor {
            media_type: String::new(),
            digest: DIGEST.parse().unwrap(),
            size: i as u64,
            platform: Some(platform(architecture, variant)),
            annotations: BTreeMap::new(),
        })
        .collect();
        let chosen = |own: Platform| {
            choose(&index, &own).map(|it| it.size).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(platform("arm", "v7")), Ok(2));
        assert_eq!(chosen(platform("arm", "v6")), Ok(1));
        assert_eq!(chosen(platform("arm64", "v8")), Ok(4));
        assert_eq!(chosen(platform("amd64", "")), Ok(6));
        assert_eq!(chosen(platform("s390x", "")), Err("no image for linux/s390x".to_owned()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_document_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes, "", &Limits::USUAL);
            let _ = parse_config(&bytes, 0, &Limits::USUAL);
        }

        /// JSON that differs from an image's in a few places.
        #[test]
        fn a_changed_manifest_is_read_or_refused(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut bytes = image().to_string().into_bytes();
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if let Ok(Document::Manifest(manifest)) = parse(&bytes, "", &Limits::USUAL) {
                prop_assert!(manifest.layers.iter().all(|it| is_layer(&it.media_type)));
            }
        }
    }
}
