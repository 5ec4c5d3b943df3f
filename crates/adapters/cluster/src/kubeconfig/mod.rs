//! Where the API server is and who we are, as a kubeconfig says it.
//!
//! In: the file's text and the directory it stands in (relative paths start there). Out: an
//! [`Access`], with every file it names already read through [`ReadFile`]. Refuses: proxies, auth
//! providers, basic auth and impersonation, each with an error that names the field;
//! guessing a context.

mod exec;
mod model;
#[cfg(test)]
mod tests;
mod write;

use std::{
    io,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use ferrolet_ports::ReadFile;

pub use exec::{ExecCredential, ExecPlugin};
pub use model::{Cluster, Config, Context, NamedCluster, NamedContext, NamedUser, User};
pub use write::write_bootstrapped;

/// Bundles of the usual distributions, tried in order when a kubeconfig names no authority of its
/// own.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How to reach the API server and as whom.
#[derive(Clone)]
pub struct Access {
    /// `https://host:port`, without a slash at the end.
    pub server: String,
    /// How the server proves itself.
    pub trust: Trust,
    /// The name on the server's certificate, when it is not the host.
    pub server_name: Option<String>,
    /// Who we are.
    pub credentials: Credentials,
    /// The authority's file, as the kubeconfig names it: what a kubeconfig written from this one
    /// repeats.
    pub authority_file: Option<PathBuf>,
}

/// How the server proves itself.
#[derive(Clone, PartialEq, Eq)]
pub enum Trust {
    /// By a certificate of one of these authorities (PEM).
    Authorities(Vec<u8>),
    /// Not at all.
    Anybody,
}

/// Who we are.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Nobody.
    Anonymous,
    /// The holder of a certificate.
    Certificate {
        /// The certificate, leaf first (PEM).
        certificate: Vec<u8>,
        /// Its key (PEM).
        key: Vec<u8>,
        /// The file the certificate is from, if it is from one.
        file: Option<PathBuf>,
    },
    /// The bearer of a token.
    Token(String),
    /// The bearer of whatever token a file holds at the time.
    TokenFile(PathBuf),
    /// Whoever a program says.
    Exec(ExecPlugin),
}

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// It is not a kubeconfig.
    #[error("{file}: not a kubeconfig: {reason}")]
    Parse {
        /// The kubeconfig.
        file: String,
        /// What the parser says.
        reason: String,
    },
    /// A field has a value that makes no sense.
    #[error("{file}: {field}: {value:?}: {reason}")]
    Value {
        /// The kubeconfig.
        file: String,
        /// The field, as a path.
        field: String,
        /// What it says.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A field asks for something that this agent does not do.
    #[error("{file}: {field}: {value:?} is not supported; {instead}")]
    Unsupported {
        /// The kubeconfig.
        file: String,
        /// The field, as a path.
        field: String,
        /// What it says.
        value: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// A file that it names cannot be read.
    #[error("{file}: {field}: read {path:?}")]
    Read {
        /// The kubeconfig.
        file: String,
        /// The field, as a path.
        field: String,
        /// The file it names.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Reads a kubeconfig: parses it, follows its current context, reads the files it names.
pub fn load(file: &Path, files: &dyn ReadFile) -> Result<Access, KubeconfigError> {
    let name = file.display().to_string();
    let bytes = files.read(file).map_err(|source| KubeconfigError::Read {
        file: name.clone(),
        field: "kubeconfig".to_owned(),
        path: file.to_owned(),
        source,
    })?;
    let text = String::from_utf8(bytes).map_err(|error| KubeconfigError::Parse {
        file: name.clone(),
        reason: error.to_string(),
    })?;
    let directory = file.parent().unwrap_or(Path::new("."));
    resolve(&name, &text, directory, files)
}

/// The same from a text: `file` is only for error messages, relative paths start at `directory`.
pub fn resolve(
    file: &str,
    text: &str,
    directory: &Path,
    files: &dyn ReadFile,
) -> Result<Access, KubeconfigError> {
    let config: Config = serde_saphyr::from_str(text).map_err(|error| KubeconfigError::Parse {
        file: file.to_owned(),
        reason: error.to_string(),
    })?;
    let reader = Reader { file, directory, files };
    let context = reader.named("current-context", &config.current_context, || {
        let found = config.contexts.iter();
        found
            .into_iter()
            .find(|it| it.name == config.current_context)
            .map(|it| (&it.context, it.name.as_str()))
    })?;
    let field = format!("contexts[{}].context", context.1);
    let cluster = reader.named(&format!("{field}.cluster"), &context.0.cluster, || {
        let found = config.clusters.iter();
        found
            .into_iter()
            .find(|it| it.name == context.0.cluster)
            .map(|it| (&it.cluster, it.name.as_str()))
    })?;
    let anonymous = User::default();
    let user = if context.0.user.is_empty() {
        (&anonymous, "")
    } else {
        reader.named(&format!("{field}.user"), &context.0.user, || {
            let found = config.users.iter();
            found
                .into_iter()
                .find(|it| it.name == context.0.user)
                .map(|it| (&it.user, it.name.as_str()))
        })?
    };
    let cluster_field = format!("clusters[{}].cluster", cluster.1);
    Ok(Access {
        server: reader.server(&cluster_field, cluster.0)?,
        trust: reader.trust(&cluster_field, cluster.0)?,
        server_name: some(&cluster.0.tls_server_name),
        credentials: reader.credentials(&format!("users[{}].user", user.1), user.0, cluster.0)?,
        authority_file: some(&cluster.0.certificate_authority)
            .filter(|_| cluster.0.certificate_authority_data.is_empty())
            .map(|path| directory.join(path)),
    })
}

/// What every question about one kubeconfig needs.
struct Reader<'a> {
    file: &'a str,
    directory: &'a Path,
    files: &'a dyn ReadFile,
}

impl Reader<'_> {
    fn named<T>(
        &self,
        field: &str,
        value: &str,
        find: impl FnOnce() -> Option<T>,
    ) -> Result<T, KubeconfigError> {
        find().ok_or_else(|| self.wrong(field, value, "there is no entry of that name"))
    }

    fn server(&self, field: &str, cluster: &Cluster) -> Result<String, KubeconfigError> {
        let field = |name: &str| format!("{field}.{name}");
        if !cluster.proxy_url.is_empty() {
            return Err(self.unsupported(
                &field("proxy-url"),
                &cluster.proxy_url,
                "give an address that can be reached directly",
            ));
        }
        let server = cluster.server.trim_end_matches('/');
        let uri: http::Uri = server.parse().map_err(|error: http::uri::InvalidUri| {
            self.wrong(&field("server"), server, &error.to_string())
        })?;
        match (uri.scheme_str(), uri.host()) {
            (Some("https" | "http"), Some(_)) => Ok(server.to_owned()),
            _ => Err(self.wrong(&field("server"), server, "expected https://HOST:PORT")),
        }
    }

    fn trust(&self, field: &str, cluster: &Cluster) -> Result<Trust, KubeconfigError> {
        if cluster.insecure_skip_tls_verify {
            let has_authority = !cluster.certificate_authority.is_empty()
                || !cluster.certificate_authority_data.is_empty();
            if has_authority {
                return Err(self.wrong(
                    &format!("{field}.insecure-skip-tls-verify"),
                    "true",
                    "cannot stand beside a certificate-authority",
                ));
            }
            return Ok(Trust::Anybody);
        }
        let given = self.data_or_file(
            &format!("{field}.certificate-authority"),
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        )?;
        if let Some(given) = given {
            return Ok(Trust::Authorities(given));
        }
        if cluster.server.starts_with("http:") {
            return Ok(Trust::Anybody);
        }
        let system = SYSTEM_BUNDLES.iter().find_map(|path| self.files.read(Path::new(path)).ok());
        system.map(Trust::Authorities).ok_or_else(|| {
            self.wrong(
                &format!("{field}.certificate-authority"),
                "",
                "neither given nor found among the system's",
            )
        })
    }

    fn credentials(
        &self,
        field: &str,
        user: &User,
        cluster: &Cluster,
    ) -> Result<Credentials, KubeconfigError> {
        let field = |name: &str| format!("{field}.{name}");
        let refused: [(&str, Option<String>, &'static str); 3] = [
            (
                "auth-provider",
                user.auth_provider.as_ref().map(|provider| {
                    let name = provider.get("name").and_then(|it| it.as_str());
                    name.unwrap_or_default().to_owned()
                }),
                "use a client certificate, a token or --bootstrap-kubeconfig",
            ),
            ("username", some(&user.username), "use a client certificate or a token"),
            ("as", some(&user.impersonate), "a node speaks in its own name"),
        ];
        for (name, value, instead) in refused {
            if let Some(value) = value {
                return Err(self.unsupported(&field(name), &value, instead));
            }
        }
        if let Some(given) = &user.exec {
            let plugin = ExecPlugin::read(given, self.directory, cluster).map_err(|fault| {
                self.wrong(&field(&format!("exec.{}", fault.field)), &fault.value, fault.reason)
            })?;
            return Ok(Credentials::Exec(plugin));
        }
        let certificate = self.data_or_file(
            &field("client-certificate"),
            &user.client_certificate_data,
            &user.client_certificate,
        )?;
        let key =
            self.data_or_file(&field("client-key"), &user.client_key_data, &user.client_key)?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Credentials::Certificate {
                certificate,
                key,
                file: some(&user.client_certificate)
                    .filter(|_| user.client_certificate_data.is_empty())
                    .map(|path| self.directory.join(path)),
            }),
            (Some(_), None) => {
                Err(self.wrong(&field("client-key"), "", "missing beside client-certificate"))
            }
            (None, Some(_)) => {
                Err(self.wrong(&field("client-certificate"), "", "missing beside client-key"))
            }
            (None, None) if !user.token_file.is_empty() => {
                let path = self.directory.join(&user.token_file);
                self.read(&field("tokenFile"), &path)?;
                Ok(Credentials::TokenFile(path))
            }
            (None, None) if !user.token.is_empty() => Ok(Credentials::Token(user.token.clone())),
            (None, None) => Ok(Credentials::Anonymous),
        }
    }

    /// Data in the file itself wins over a file that it names, as with upstream.
    fn data_or_file(
        &self,
        field: &str,
        data: &str,
        path: &str,
    ) -> Result<Option<Vec<u8>>, KubeconfigError> {
        if !data.is_empty() {
            let compact: String = data.split_whitespace().collect();
            return STANDARD.decode(compact).map(Some).map_err(|error| {
                self.wrong(&format!("{field}-data"), "<data>", &error.to_string())
            });
        }
        if path.is_empty() {
            return Ok(None);
        }
        self.read(field, &self.directory.join(path)).map(Some)
    }

    fn read(&self, field: &str, path: &Path) -> Result<Vec<u8>, KubeconfigError> {
        self.files.read(path).map_err(|source| KubeconfigError::Read {
            file: self.file.to_owned(),
            field: field.to_owned(),
            path: path.to_owned(),
            source,
        })
    }

    fn wrong(&self, field: &str, value: &str, reason: &str) -> KubeconfigError {
        KubeconfigError::Value {
            file: self.file.to_owned(),
            field: field.to_owned(),
            value: value.to_owned(),
            reason: reason.to_owned(),
        }
    }

    fn unsupported(&self, field: &str, value: &str, instead: &'static str) -> KubeconfigError {
        KubeconfigError::Unsupported {
            file: self.file.to_owned(),
            field: field.to_owned(),
            value: value.to_owned(),
            instead,
        }
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}
