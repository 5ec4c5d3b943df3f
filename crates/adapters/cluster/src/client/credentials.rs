//! The `Authorization` header: none, a fixed token, or whatever a file holds or a program says.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_ports::ReadFile;
use http::HeaderValue;
use tokio::{sync::Notify, task::spawn_blocking, time::Instant};

use crate::kubeconfig::Credentials;

/// How long a token file is believed, as with upstream's client.
const TOKEN_FILE_AGE: Duration = Duration::from_secs(60);

/// Where the header comes from.
pub(crate) enum Bearer {
    None,
    Fixed(HeaderValue),
    /// What a program said last.
    Told(Arc<Told>),
    File {
        path: PathBuf,
        files: Arc<dyn ReadFile>,
        last: Mutex<Option<(Instant, HeaderValue)>>,
    },
}

impl Bearer {
    /// The bearer for these credentials; certificates are shown by TLS, not by a header.
    pub(crate) fn new(credentials: &Credentials, files: &Arc<dyn ReadFile>) -> Self {
        match credentials {
            Credentials::Anonymous | Credentials::Certificate { .. } => Self::None,
            Credentials::Exec(plugin) => Self::Told(plugin.told()),
            Credentials::Token(token) => header(token).map_or(Self::None, Self::Fixed),
            Credentials::TokenFile(path) => {
                Self::File { path: path.clone(), files: Arc::clone(files), last: Mutex::new(None) }
            }
        }
    }

    /// The header to send now. A file that cannot be read leaves the last token in use: it may
    /// still be good.
    pub(crate) async fn header(&self) -> Option<HeaderValue> {
        let (path, files, last) = match self {
            Self::None => return None,
            Self::Fixed(value) => return Some(value.clone()),
            Self::Told(told) => return told.header(),
            Self::File { path, files, last } => (path, files, last),
        };
        let lock = || last.lock().unwrap_or_else(|held| held.into_inner());
        if let Some((read, value)) = &*lock()
            && read.elapsed() < TOKEN_FILE_AGE
        {
            return Some(value.clone());
        }
        // The file may be on a disk that hangs; others ask meanwhile, and read it too.
        let (path, files) = (path.clone(), Arc::clone(files));
        let read = spawn_blocking(move || files.read(&path)).await.ok();
        let fresh = read.and_then(Result::ok);
        let fresh = fresh.and_then(|bytes| header(String::from_utf8(bytes).ok()?.trim()));
        let mut last = lock();
        if let Some(value) = fresh {
            *last = Some((Instant::now(), value));
        }
        last.as_ref().map(|(_, value)| value.clone())
    }

    /// The server did not accept the token: read the file again next time.
    pub(crate) fn refused(&self) {
        match self {
            Self::None | Self::Fixed(_) => {}
            Self::Told(told) => told.refused(),
            Self::File { last, .. } => {
                *last.lock().unwrap_or_else(|held| held.into_inner()) = None;
            }
        }
    }
}

/// A token that somebody else finds, and the word that it is no good any more.
#[derive(Debug, Default)]
pub(crate) struct Told {
    value: Mutex<Option<HeaderValue>>,
    refused: Notify,
}

impl Told {
    /// Shows this token from now on, or none.
    pub(crate) fn tell(&self, token: Option<&str>) {
        let value = token.and_then(header);
        *self.value.lock().unwrap_or_else(|held| held.into_inner()) = value;
    }

    /// Waits until a server has refused it. Cancel-safe: a refusal that nobody waited for is kept.
    pub(crate) async fn until_refused(&self) {
        self.refused.notified().await;
    }

    pub(crate) fn header(&self) -> Option<HeaderValue> {
        self.value.lock().unwrap_or_else(|held| held.into_inner()).clone()
    }

    pub(crate) fn refused(&self) {
        self.refused.notify_one();
    }
}

fn header(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
