//! How much an image may ask of the node. Every limit is an error that names it.

/// What is taken from archives and registries, at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a manifest or index.
    pub manifest_bytes: u64,
    /// Bytes of an image's configuration.
    pub config_bytes: u64,
    /// Layers of an image.
    pub n_layers: usize,
    /// Entries of one layer, directories that it implies included.
    pub n_entries: u64,
    /// Bytes of one extended header (PAX, or GNU's long names).
    pub extended_header_bytes: u64,
    /// Bytes of a path or of a link's target.
    pub path_bytes: usize,
    /// Bytes of names that have to be remembered until the layer's end: directories, for their times, and what the
    /// layers below must settle.
    pub remembered_bytes: usize,
    /// Bytes that may follow the end of an archive.
    pub trailing_bytes: u64,
    /// Largest window of a zstd stream, as a power of two.
    pub zstd_window_log: u32,
    /// Bytes of the disk that stay free.
    pub reserved_bytes: u64,
    /// Bytes of an image on disk, if that is limited.
    pub image_bytes: Option<u64>,
}

impl Limits {
    /// What real images stay far below.
    pub const USUAL: Self = Self {
        manifest_bytes: 4 << 20,
        config_bytes: 8 << 20,
        n_layers: 512,
        n_entries: 10_000_000,
        extended_header_bytes: 1 << 20,
        path_bytes: 4096,
        remembered_bytes: 64 << 20,
        trailing_bytes: 16 << 20,
        zstd_window_log: 27,
        reserved_bytes: 256 << 20,
        image_bytes: None,
    };
}

/// A limit that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {limit} {what}")]
pub struct OverLimit {
    /// What there is too much of.
    pub what: &'static str,
    /// How much would have been taken.
    pub limit: u64,
}

/// `Ok` while `n` is within `limit`.
pub(crate) fn within(what: &'static str, n: u64, limit: u64) -> Result<(), OverLimit> {
    if n > limit { Err(OverLimit { what, limit }) } else { Ok(()) }
}
