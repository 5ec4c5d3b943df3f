//! Why a container waits and why a pod was ended, as enums. Their words are made where a status or
//! an event is written, and read back only from statuses that an earlier life of the agent wrote.

use std::{collections::BTreeMap, fmt};

/// Why a container does not run although it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingReason {
    /// It ended again and again, and waits before its next start.
    CrashLoopBackOff,
    /// Its image could not be pulled, and waits before the next try.
    ImagePullBackOff,
    /// Its image could not be pulled.
    ErrImagePull,
    /// Its image is not here, and must not be pulled.
    ErrImageNeverPull,
    /// Its image has a name that names nothing.
    InvalidImageName,
    /// The runtime cannot say whether its image is here.
    ImageInspectError,
    /// The registry of its image is away.
    RegistryUnavailable,
    /// Its image has a signature that is wrong.
    SignatureValidationFailed,
    /// What it is made from is incomplete.
    CreateContainerConfigError,
    /// The runtime could not make it.
    CreateContainerError,
    /// The runtime could not start it.
    RunContainerError,
    /// Its postStart hook failed.
    PostStartHookError,
}

impl WaitingReason {
    /// Every reason there is.
    pub const ALL: [Self; 12] = [
        Self::CrashLoopBackOff,
        Self::ImagePullBackOff,
        Self::ErrImagePull,
        Self::ErrImageNeverPull,
        Self::InvalidImageName,
        Self::ImageInspectError,
        Self::RegistryUnavailable,
        Self::SignatureValidationFailed,
        Self::CreateContainerConfigError,
        Self::CreateContainerError,
        Self::RunContainerError,
        Self::PostStartHookError,
    ];

    /// The word in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::ErrImagePull => "ErrImagePull",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::InvalidImageName => "InvalidImageName",
            Self::ImageInspectError => "ImageInspectError",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::SignatureValidationFailed => "SignatureValidationFailed",
            Self::CreateContainerConfigError => "CreateContainerConfigError",
            Self::CreateContainerError => "CreateContainerError",
            Self::RunContainerError => "RunContainerError",
            Self::PostStartHookError => "PostStartHookError",
        }
    }
}

impl fmt::Display for WaitingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a container waits, with the sentence that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Why.
    pub reason: WaitingReason,
    /// One sentence.
    pub message: String,
}

/// Why a pod that the node had taken was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The node could not afford it any longer.
    Evicted,
    /// A critical pod needed its place.
    Preempting,
    /// The machine goes down.
    Terminated,
    /// It was active for longer than its specification allows.
    DeadlineExceeded,
    /// Anything else, by its word in the status.
    Other(String),
}

impl EndReason {
    /// Reads the word in a status.
    pub fn parse(word: &str) -> Self {
        match word {
            "Evicted" => Self::Evicted,
            "Preempting" => Self::Preempting,
            "Terminated" => Self::Terminated,
            "DeadlineExceeded" => Self::DeadlineExceeded,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The word in the status.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Evicted => "Evicted",
            Self::Preempting => "Preempting",
            Self::Terminated => "Terminated",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::Other(word) => word,
        }
    }
}

/// Why a pod that the node had taken was ended, with the sentence that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Why.
    pub reason: EndReason,
    /// One sentence.
    pub message: String,
    /// The message of its condition `DisruptionTarget`, where the end is a disruption.
    pub disruption: Option<String>,
    /// What its event carries besides.
    pub annotations: BTreeMap<String, String>,
}

impl Ending {
    /// An end that is nobody's disruption and whose event has nothing to add.
    pub fn new(reason: EndReason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message, disruption: None, annotations: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_variants() {
        for reason in WaitingReason::ALL {
            assert_eq!(format!("{reason:?}"), reason.to_string());
        }
        for word in ["Evicted", "Preempting", "DeadlineExceeded", "VolumeAttachmentLimitExceeded"] {
            assert_eq!(EndReason::parse(word).as_str(), word);
        }
        assert_eq!(EndReason::parse("Evicted"), EndReason::Evicted);
    }
}
