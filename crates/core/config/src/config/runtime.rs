//! The container runtime: where it listens, how long we wait for it, and the log files it writes.

use std::{fmt, path::PathBuf, time::Duration};

use super::reader::Reader;

/// The word for the runtime that is built in.
pub(crate) const EMBEDDED: &str = "embedded";

/// Who speaks CRI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The runtime that is built in, in the agent's own process.
    Embedded,
    /// Whoever listens on the unix socket at this path.
    Socket(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str(EMBEDDED),
            Self::Socket(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Endpoints and time limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The runtime service.
    pub endpoint: Endpoint,
    /// The image service; the same socket unless told otherwise.
    pub image_endpoint: Endpoint,
    /// How long a call may take, pulls and streams apart.
    pub request_timeout: Duration,
    /// The first wait between restarts of a crashing container.
    pub first_restart_back_off: Duration,
    /// The longest wait between restarts of a crashing container.
    pub max_restart_back_off: Duration,
    /// Whether containers without a seccomp profile get the runtime's default one.
    pub seccomp_default: bool,
}

/// Upstream's waits between restarts, the first and the longest, and those of gate
/// `ReduceDefaultCrashLoopBackOffDecay`.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
const REDUCED_BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

pub(super) fn read(r: &Reader<'_>) -> Runtime {
    let endpoint = read_endpoint(r, "containerRuntimeEndpoint");
    if endpoint.is_none() {
        r.refuse("containerRuntimeEndpoint", "must not be empty");
    }
    let endpoint = endpoint.unwrap_or(Endpoint::Socket(PathBuf::new()));
    let image_endpoint =
        read_endpoint(r, "imageServiceEndpoint").unwrap_or_else(|| endpoint.clone());
    if image_endpoint != endpoint && endpoint == Endpoint::Embedded {
        r.refuse(
            "imageServiceEndpoint",
            "must be left out where containerRuntimeEndpoint is embedded: that runtime has its own images",
        );
    }
    if image_endpoint != endpoint && image_endpoint == Endpoint::Embedded {
        r.refuse(
            "imageServiceEndpoint",
            "may be embedded only where containerRuntimeEndpoint is embedded too",
        );
    }
    let (first_restart_back_off, max_restart_back_off) = read_back_off(r);
    Runtime {
        image_endpoint,
        endpoint,
        request_timeout: r.period("runtimeRequestTimeout"),
        first_restart_back_off,
        max_restart_back_off,
        seccomp_default: r.flag("seccompDefault"),
    }
}

/// `embedded`, `unix:///path`, or the old form without a scheme, which is accepted with a remark.
fn read_endpoint(r: &Reader<'_>, path: &str) -> Option<Endpoint> {
    let text = r.optional_text(path)?;
    if text == EMBEDDED {
        return Some(Endpoint::Embedded);
    }
    let socket = match text.split_once("://") {
        Some(("unix", socket)) => socket.to_owned(),
        None => {
            r.warn(format!(
                "{path} = {text}: an endpoint without a scheme is deprecated, write unix://{text}"
            ));
            text.clone()
        }
        Some(_) => {
            r.refuse(
                path,
                "must be embedded, or a unix socket such as unix:///run/containerd/containerd.sock",
            );
            return Some(Endpoint::Socket(PathBuf::new()));
        }
    };
    if !socket.starts_with('/') {
        r.refuse(
            path,
            "must be embedded, or hold an absolute path such as unix:///run/containerd/containerd.sock",
        );
    }
    Some(Endpoint::Socket(socket.into()))
}

/// The first wait and the longest. What is configured stands above every gate's longest one.
fn read_back_off(r: &Reader<'_>) -> (Duration, Duration) {
    let path = "crashLoopBackOff.maxContainerRestartPeriod";
    let enabled = r.gates.enabled("KubeletCrashLoopBackOffMax");
    let (first, longest) = if r.gates.enabled("ReduceDefaultCrashLoopBackOffDecay") {
        REDUCED_BACK_OFF
    } else {
        BACK_OFF
    };
    let longest = match (enabled, r.nanos(path)) {
        (true, Some(1_000_000_000..=300_000_000_000)) => r.duration(path),
        (true, Some(_)) => {
            r.refuse(path, "must be between 1s and 300s");
            longest
        }
        (true, None) => {
            r.refuse(path, "must be set while the feature gate KubeletCrashLoopBackOffMax is on");
            longest
        }
        (false, Some(_)) => {
            r.needs_gate(path, "KubeletCrashLoopBackOffMax");
            longest
        }
        (false, None) => longest,
    };
    (first.min(longest), longest)
}

/// Rotation of the files that containers write their output to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerLogs {
    /// The size at which a file is rotated, in bytes; `None` for never, which a negative size asks
    /// for.
    pub max_size: Option<u64>,
    /// How many files one container keeps.
    pub max_files: u32,
    /// How many rotations run at once.
    pub max_workers: u32,
    /// How often sizes are looked at.
    pub monitor_interval: Duration,
}

pub(super) fn read_container_logs(r: &Reader<'_>) -> ContainerLogs {
    let max_size = r.quantity("containerLogMaxSize", &r.text("containerLogMaxSize")).value();
    if r.nanos("containerLogMonitorInterval").is_some_and(|nanos| nanos < 3_000_000_000) {
        r.refuse("containerLogMonitorInterval", "must be 3s or more");
    }
    ContainerLogs {
        max_size: u64::try_from(max_size).ok(),
        max_files: r.within("containerLogMaxFiles", 2..=i64::MAX),
        max_workers: r.within("containerLogMaxWorkers", 1..=i64::MAX),
        monitor_interval: Duration::from_nanos(
            r.nanos("containerLogMonitorInterval")
                .and_then(|nanos| u64::try_from(nanos).ok())
                .unwrap_or(0),
        ),
    }
}
