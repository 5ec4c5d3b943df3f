//! Where certificates and keys are kept; `host` implements it on files.

use std::{io, path::PathBuf};

use ferrolet_types::Timestamp;

/// Which certificate is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairName {
    /// The one we show to the API server.
    Client,
    /// The one we show to who calls us.
    Server,
}

impl PairName {
    /// The beginning of its file names.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Client => "kubelet-client",
            Self::Server => "kubelet-server",
        }
    }

    /// The link to the certificate in use.
    pub fn current_file(self) -> String {
        format!("{}-current.pem", self.prefix())
    }

    /// The file for a certificate stored now.
    pub fn file_at(self, now: Timestamp) -> String {
        format!("{}-{}.pem", self.prefix(), now.0.strftime("%Y-%m-%d-%H-%M-%S"))
    }
}

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, leaf first (PEM).
    pub certificate: String,
    /// Its key (PEM).
    pub key: String,
}

impl Pair {
    /// Both in one text, as the file has them.
    pub fn to_pem(&self) -> String {
        let end = |text: &str| format!("{}\n", text.trim_end());
        format!("{}{}", end(&self.certificate), end(&self.key))
    }

    /// The parts of such a text; `None` when one is missing.
    pub fn from_pem(text: &str) -> Option<Self> {
        let (mut certificate, mut key) = (String::new(), String::new());
        let mut block = String::new();
        for line in text.lines() {
            if line.starts_with("-----BEGIN ") {
                block.clear();
            }
            block.push_str(line);
            block.push('\n');
            if line.starts_with("-----END CERTIFICATE") {
                certificate.push_str(&block);
            } else if line.starts_with("-----END ") && line.contains("PRIVATE KEY") {
                key.push_str(&block);
            }
        }
        let is_whole = !certificate.is_empty() && !key.is_empty();
        is_whole.then_some(Self { certificate, key })
    }
}

/// Keeps certificates in the node's certificate directory. Calls are short and may block.
pub trait CertStore: Send + Sync {
    /// Makes the directory if it is missing, and finishes what a crash has interrupted. Before it
    /// is called, the directory is only read.
    fn prepare(&self) -> io::Result<()>;
    /// The text of a file of the directory, if it is there.
    fn read(&self, file: &str) -> io::Result<Option<String>>;
    /// Writes a file of the directory with that mode, at once or not at all.
    fn write(&self, file: &str, text: &str, mode: u32) -> io::Result<()>;
    /// The file behind the current link, if there is one.
    fn current(&self, name: PairName) -> io::Result<Option<Pair>>;
    /// Writes the pair to [`PairName::file_at`] (mode 0600) and moves the link
    /// [`PairName::current_file`] to it, atomically.
    fn update(&self, name: PairName, pair: &Pair, now: Timestamp) -> io::Result<()>;
    /// The absolute path of the current link.
    fn current_path(&self, name: PairName) -> PathBuf;
    /// The key of a request that is under way (`kubelet-client.key.tmp`), so that a restart goes on
    /// with it.
    fn pending_key(&self) -> io::Result<Option<String>>;
    /// Keeps (mode 0600) or, with `None`, removes that key.
    fn set_pending_key(&self, key: Option<&str>) -> io::Result<()>;
}
