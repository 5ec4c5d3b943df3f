//! The node's docker configuration, and plugins as child processes.
//!
//! A plugin runs in a process group of its own, gets a minute, and may write a megabyte; then the
//! group is killed. Its standard error goes into the error, cut short.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use ferrolet_linux::{
    children::Group,
    offload::{Job, Pool, refused},
};
use ferrolet_ports::{Fut, HostError, NodeDockerConfig, PluginCall, RegistryLogins, Retry};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};

/// How long a plugin may take.
const TIME: Duration = Duration::from_secs(60);
/// How much a plugin may answer.
const LARGEST_ANSWER: usize = 1 << 20;
/// How much of its complaint is shown.
const LONGEST_COMPLAINT: usize = 1024;
/// No docker configuration is bigger.
const LARGEST_CONFIG: u64 = 10 << 20;

/// Where to look.
#[derive(Clone, Debug)]
pub struct LoginPlaces {
    /// Directories that may hold a `config.json`, the best first.
    pub json: Vec<PathBuf>,
    /// Directories that may hold a `.dockercfg`, the best first; these come after.
    pub old: Vec<PathBuf>,
    /// Where plugins are.
    pub plugins: Option<PathBuf>,
}

impl LoginPlaces {
    /// Upstream's places: the agent's root directory, its working directory, the user's, and the
    /// machine's.
    pub fn usual(root: &Path, home: Option<&Path>, plugins: Option<PathBuf>) -> Self {
        let shared = [root.to_owned(), PathBuf::new()];
        let below = |docker: &str| {
            let home = home.map(|home| home.join(docker));
            let machine = Path::new("/").join(docker);
            shared.iter().cloned().chain(home).chain([machine]).collect()
        };
        Self { json: below(".docker"), old: below(""), plugins }
    }
}

/// The node's own credentials.
#[derive(Clone, Debug)]
pub struct NodeLogins {
    places: LoginPlaces,
}

impl NodeLogins {
    /// Takes the places; touches nothing.
    pub fn new(places: LoginPlaces) -> Self {
        Self { places }
    }

    /// Makes sure that a plugin is there and can be run.
    pub fn check_plugin(&self, name: &str) -> Result<(), HostError> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.plugin(name);
        let attempt = format!("find the credential provider {}", path.display());
        let meta = std::fs::metadata(&path).map_err(|cause| refused(&attempt, &cause))?;
        if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
            return Err(ferrolet_linux::offload::never(attempt, "it is not executable"));
        }
        Ok(())
    }

    fn plugin(&self, name: &str) -> PathBuf {
        self.places.plugins.clone().unwrap_or_default().join(name)
    }
}

/// The first file that can be read whole.
fn first(directories: &[PathBuf], name: &str) -> Option<Vec<u8>> {
    directories.iter().find_map(|directory| {
        let path = directory.join(name);
        let meta = std::fs::metadata(&path).ok()?;
        if !meta.is_file() || meta.len() > LARGEST_CONFIG {
            return None;
        }
        std::fs::read(&path).ok()
    })
}

impl RegistryLogins for NodeLogins {
    fn node_config(&self) -> Fut<'_, Option<NodeDockerConfig>> {
        let places = self.places.clone();
        Box::pin(async move {
            let read =
                Job::on(Pool::State, "read the node's docker configuration").run(move || {
                    let json = first(&places.json, "config.json").map(NodeDockerConfig::Json);
                    Ok(json.or_else(|| first(&places.old, ".dockercfg").map(NodeDockerConfig::Old)))
                });
            read.await.unwrap_or_else(|error| {
                tracing::warn!(%error, "The node's docker configuration cannot be read");
                None
            })
        })
    }

    fn ask_plugin<'a>(&'a self, call: &'a PluginCall) -> Fut<'a, Result<Vec<u8>, HostError>> {
        Box::pin(run(self.plugin(&call.name), call, TIME))
    }
}

/// Runs a plugin to its end.
pub(super) async fn run(
    path: PathBuf,
    call: &PluginCall,
    time: Duration,
) -> Result<Vec<u8>, HostError> {
    let failed = |cause: String| HostError {
        attempt: format!("exec credential provider plugin {}", call.name),
        cause,
        retry: Retry::Later,
    };
    let mut command = Command::new(path);
    command
        .args(&call.args)
        .envs(call.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let child = command.spawn().map_err(|cause| failed(cause.to_string()))?;
    let _group = Group::of(&child);
    match timeout(time, converse(child, call.input.as_bytes())).await {
        Ok(answer) => answer.map_err(failed),
        Err(_elapsed) => Err(failed(format!("no end within {} s", time.as_secs()))),
    }
}

async fn converse(mut child: Child, input: &[u8]) -> Result<Vec<u8>, String> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let tell = async {
        if let Some(mut stdin) = stdin {
            // A plugin may answer without reading.
            let _ = stdin.write_all(input).await;
        }
    };
    let ((), answer, complaint) = tokio::join!(
        tell,
        read(stdout, LARGEST_ANSWER, Excess::Refuse),
        read(stderr, LONGEST_COMPLAINT, Excess::Drop),
    );
    let answer = answer.map_err(|error| error.to_string())?;
    let complaint = complaint.unwrap_or_default();
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(answer);
    }
    let complaint = String::from_utf8_lossy(&complaint);
    let ended = match status.code() {
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    };
    Err(format!("{ended}: {}", complaint.trim_end()))
}

/// What happens to more than the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excess {
    Refuse,
    Drop,
}

async fn read(
    from: Option<impl AsyncRead + Unpin>,
    limit: usize,
    excess: Excess,
) -> io::Result<Vec<u8>> {
    let (mut kept, mut piece) = (Vec::new(), vec![0; 16 * 1024]);
    let Some(mut from) = from else {
        return Ok(kept);
    };
    loop {
        let n = from.read(&mut piece).await?;
        if n == 0 {
            return Ok(kept);
        }
        let room = limit - kept.len();
        if n > room && excess == Excess::Refuse {
            let message = format!("it answers more than {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        kept.extend_from_slice(&piece[..n.min(room)]);
    }
}
