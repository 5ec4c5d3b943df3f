//! Pulling images, deciding who may use them, and collecting those nobody needs.

use std::{num::NonZeroU32, time::Duration};

use super::reader::{Reader, words};

/// How many pulls run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullConcurrency {
    /// One after the other.
    Serial,
    /// One after the other from each registry: nobody asked for anything.
    SerialPerRegistry,
    /// Up to so many.
    AtMost(NonZeroU32),
    /// As many as pods ask for.
    Unbounded,
}

words! {
    /// When a pod has to prove that it may use an image that is already here.
    CredentialVerification {
        /// Except for images that were here before the kubelet.
        NeverVerifyPreloadedImages = "NeverVerifyPreloadedImages",
        /// Never.
        NeverVerify = "NeverVerify",
        /// Except for images on a list.
        NeverVerifyAllowlistedImages = "NeverVerifyAllowlistedImages",
        /// Always.
        AlwaysVerify = "AlwaysVerify",
    }
}

/// When images are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageCollection {
    /// Unused images younger than this stay.
    pub minimum_age: Duration,
    /// Unused images older than this go; none means never for age alone.
    pub maximum_age: Option<Duration>,
    /// Collection starts at this use of the disk, in percent.
    pub high_threshold: u8,
    /// It stops at this use, in percent.
    pub low_threshold: u8,
}

/// Everything about images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Pulls per second; none means no limit.
    pub pulls_per_second: Option<u32>,
    /// How many pulls may start at once.
    pub pull_burst: u32,
    /// How many pulls run at once.
    pub concurrency: PullConcurrency,
    /// Whether use of a present image needs proof; none when the gate is off.
    pub credential_verification: Option<CredentialVerification>,
    /// Images that need no proof: exact names, or ending in `/*`.
    pub verification_allowlist: Vec<String>,
    /// When images are removed.
    pub collection: ImageCollection,
}

pub(super) fn read(r: &Reader<'_>) -> Images {
    let (credential_verification, verification_allowlist) = read_verification(r);
    Images {
        pulls_per_second: Some(r.count("registryPullQPS")).filter(|rate| *rate != 0),
        pull_burst: r.count("registryBurst"),
        concurrency: read_concurrency(r),
        credential_verification,
        verification_allowlist,
        collection: read_collection(r),
    }
}

fn read_concurrency(r: &Reader<'_>) -> PullConcurrency {
    let limit = r.optional_int("maxParallelImagePulls");
    if limit.is_some_and(|limit| limit < 1) {
        r.refuse("maxParallelImagePulls", "must be 1 or more");
    }
    match (r.flag("serializeImagePulls"), limit) {
        (true, limit) => {
            if limit.is_some_and(|limit| limit > 1) {
                r.refuse(
                    "maxParallelImagePulls",
                    "must not be more than 1 while serializeImagePulls is true",
                );
            }
            PullConcurrency::Serial
        }
        (false, limit) => limit
            .and_then(|limit| NonZeroU32::new(u32::try_from(limit).ok()?))
            .map_or(PullConcurrency::Unbounded, PullConcurrency::AtMost),
    }
}

fn read_verification(r: &Reader<'_>) -> (Option<CredentialVerification>, Vec<String>) {
    let (policy, list) =
        ("imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist");
    let allowed = r.texts(list);
    if !r.gates.enabled("KubeletEnsureSecretPulledImages") {
        for path in [policy, list]
            .into_iter()
            .filter(|path| r.optional_text(path).is_some() || !r.texts(path).is_empty())
        {
            r.needs_gate(path, "KubeletEnsureSecretPulledImages");
        }
        return (None, Vec::new());
    }
    let verification: CredentialVerification = r.word(policy);
    if !allowed.is_empty() && verification != CredentialVerification::NeverVerifyAllowlistedImages {
        r.refuse(list, format!("needs {policy} to be NeverVerifyAllowlistedImages"));
    } else {
        for pattern in &allowed {
            if let Some(message) = pattern_fault(pattern) {
                r.fault(list, pattern, message);
            }
        }
    }
    (Some(verification), allowed)
}

fn pattern_fault(pattern: &str) -> Option<&'static str> {
    let stem = pattern.strip_suffix("/*").unwrap_or(pattern);
    let last = stem.rsplit('/').next().unwrap_or_default();
    if pattern.trim() != pattern {
        Some("must not begin or end with a space")
    } else if stem.is_empty() {
        Some("must name at least a registry")
    } else if stem.contains('*') {
        Some("a star is allowed only as the ending /*")
    } else if stem == pattern
        && (last.contains(':') && pattern.contains('/') || pattern.contains('@'))
    {
        Some("must have neither tag nor digest")
    } else if stem.contains(char::is_whitespace) || stem.chars().any(|c| c.is_ascii_uppercase()) {
        Some("is not an image name")
    } else {
        None
    }
}

fn read_collection(r: &Reader<'_>) -> ImageCollection {
    let (high, low) = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent");
    if r.int(low) >= r.int(high) {
        r.refuse(low, format!("must be less than {high}, {}", r.int(high)));
    }
    let minimum_age = r.duration("imageMinimumGCAge");
    let maximum_age = r.optional_duration("imageMaximumGCAge");
    if let Some(maximum) = maximum_age {
        r.needs_gate("imageMaximumGCAge", "ImageMaximumGCAge");
        if maximum <= minimum_age {
            r.refuse("imageMaximumGCAge", "must be more than imageMinimumGCAge");
        }
    }
    ImageCollection {
        minimum_age,
        maximum_age,
        high_threshold: r.within(high, 0..=100),
        low_threshold: r.within(low, 0..=100),
    }
}
