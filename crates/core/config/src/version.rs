//! What `--version` prints: the Kubernetes release we stand in for, and our own.

/// The Kubernetes release whose kubelet this is.
pub const KUBERNETES_VERSION: &str = "v1.37.1";
/// Our own release.
pub const FERROLET_VERSION: &str = env!("CARGO_PKG_VERSION");

/// How much of the version is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionFormat {
    /// One line for people and scripts.
    Short,
    /// Every detail.
    Raw,
}

/// The text for a format, without a newline.
pub fn version_text(format: VersionFormat) -> String {
    match format {
        VersionFormat::Short => {
            format!("Kubernetes {KUBERNETES_VERSION} (ferrolet {FERROLET_VERSION})")
        }
        VersionFormat::Raw => format!(
            "version.Info{{Major:\"1\", Minor:\"37\", GitVersion:\"{KUBERNETES_VERSION}\", \
             Implementation:\"ferrolet\", ImplementationVersion:\"{FERROLET_VERSION}\", Compiler:\"rustc\", \
             Platform:\"linux/{}\"}}",
            architecture()
        ),
    }
}

/// What is wrong with a version that we are told to report: it must be ours, with a suffix at most.
pub(crate) fn told_fault(told: &str) -> Option<String> {
    let ours = |rest: &str| {
        let is_mark = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '+');
        rest.is_empty()
            || (rest.starts_with(['-', '+']) && rest.len() > 1 && rest.chars().all(is_mark))
    };
    let is_ours = told.strip_prefix(KUBERNETES_VERSION).is_some_and(ours);
    (!is_ours).then(|| {
        format!(
            "--version: version {told:?} must match major/minor/patch of default version {KUBERNETES_VERSION:?}"
        )
    })
}

/// The name Kubernetes has for the architecture we were built for.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
