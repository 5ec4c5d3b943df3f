//! Whom to ask for a registry's images: containerd's `hosts.toml`, because operators have those files.
//!
//! ```text
//! <directory>/<registry>/hosts.toml, else <directory>/_default/hosts.toml, else the registry itself
//! ```
//!
//! Mirrors come in the file's order, the registry's own server last. What cannot be honoured is refused by name rather
//! than passed over: a node that trusts more or less than its operator wrote is worse than one that says so.

use std::{
    io,
    path::{Path, PathBuf},
};

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::Deserialize;

/// Larger ones are no configuration.
const MOST_BYTES: u64 = 1 << 20;

/// Why the configuration of hosts cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// A file cannot be read.
    #[error("read {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("{path:?}: {fault}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: String,
    },
}

/// What a host may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ability {
    /// Content by digest.
    Pull,
    /// What a tag means.
    Resolve,
}

/// One server of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// Scheme, authority and path up to the repository.
    pub(super) base: String,
    pub(super) is_mirror: bool,
    /// Certificates to trust it by, beside the system's.
    pub(super) roots_pem: Vec<u8>,
    pub(super) headers: HeaderMap,
    can_pull: bool,
    can_resolve: bool,
}

impl Host {
    pub(super) fn can(&self, ability: Ability) -> bool {
        match ability {
            Ability::Pull => self.can_pull,
            Ability::Resolve => self.can_resolve,
        }
    }

    /// For messages.
    pub(super) fn authority(&self) -> &str {
        let rest = self.base.split_once("://").map_or(self.base.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    pub(super) fn is_plain(&self) -> bool {
        self.base.starts_with("http://")
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostsFile {
    server: Option<String>,
    #[serde(default)]
    host: toml::Table,
    #[serde(flatten)]
    own: HostEntry,
}

#[derive(Clone, Default, Deserialize)]
struct HostEntry {
    capabilities: Option<Vec<String>>,
    ca: Option<OneOrMore>,
    client: Option<toml::Value>,
    #[serde(default)]
    skip_verify: bool,
    #[serde(default)]
    override_path: bool,
    header: Option<std::collections::BTreeMap<String, OneOrMore>>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }
}

/// The servers of a registry, in the order in which they are asked.
pub(super) fn of(directory: Option<&Path>, registry: &str) -> Result<Vec<Host>, HostsError> {
    let Some(directory) = directory else { return Ok(vec![own_server(registry)]) };
    for name in [registry, "_default"] {
        let path = directory.join(name).join("hosts.toml");
        if let Some(text) = read(&path)? {
            let text = String::from_utf8(text).map_err(|_| content(&path, "not text"))?;
            return parse(&text, registry, &path);
        }
    }
    Ok(vec![own_server(registry)])
}

fn parse(text: &str, registry: &str, path: &Path) -> Result<Vec<Host>, HostsError> {
    let file: HostsFile = toml::from_str(text).map_err(|error| content(path, error.message()))?;
    let mut hosts = Vec::new();
    for (address, entry) in file.host {
        let entry: HostEntry =
            entry.try_into().map_err(|error: toml::de::Error| content(path, error.message()))?;
        hosts.push(host(&address, &entry, true, path)?);
    }
    hosts.push(match &file.server {
        Some(server) => host(server, &file.own, false, path)?,
        None => Host {
            headers: headers(&file.own, path)?,
            roots_pem: roots(&file.own, path)?,
            ..own_server(registry)
        },
    });
    Ok(hosts)
}

fn host(
    address: &str,
    entry: &HostEntry,
    is_mirror: bool,
    path: &Path,
) -> Result<Host, HostsError> {
    let address =
        if address.contains("://") { address.to_owned() } else { format!("https://{address}") };
    let uri: Uri =
        address.parse().map_err(|_| content(path, &format!("{address:?} is not an address")))?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority())
    else {
        return Err(content(path, &format!("{address:?} is not an address")));
    };
    if entry.skip_verify || entry.client.is_some() {
        return Err(content(
            path,
            "skip_verify and client certificates are not supported; name the server's authority with ca",
        ));
    }
    let place = uri.path().trim_end_matches('/');
    let version = if entry.override_path || place.ends_with("/v2") { "" } else { "/v2" };
    let can = |ability: &str| {
        entry.capabilities.as_ref().is_none_or(|all| all.iter().any(|it| it == ability))
    };
    Ok(Host {
        base: format!("{scheme}://{authority}{place}{version}"),
        is_mirror,
        roots_pem: roots(entry, path)?,
        headers: headers(entry, path)?,
        can_pull: can("pull"),
        can_resolve: can("resolve"),
    })
}

/// The registry by its name. Docker's has another; those on this machine have no certificates.
fn own_server(registry: &str) -> Host {
    let server = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
    let name = server
        .rsplit_once(':')
        .map_or(server, |(name, port)| if port.contains(']') { server } else { name });
    let is_local = matches!(name, "localhost" | "127.0.0.1" | "[::1]") && !server.ends_with(":443");
    let scheme = if is_local { "http" } else { "https" };
    Host {
        base: format!("{scheme}://{server}/v2"),
        is_mirror: false,
        roots_pem: Vec::new(),
        headers: HeaderMap::new(),
        can_pull: true,
        can_resolve: true,
    }
}

fn roots(entry: &HostEntry, path: &Path) -> Result<Vec<u8>, HostsError> {
    let mut pem = Vec::new();
    for name in entry.ca.iter().flat_map(OneOrMore::all) {
        // Relative ones lie beside the file.
        let place = path.parent().unwrap_or(path).join(name);
        let text =
            read(&place)?.ok_or_else(|| content(path, &format!("{name:?} does not exist")))?;
        pem.extend_from_slice(&text);
        pem.push(b'\n');
    }
    Ok(pem)
}

fn headers(entry: &HostEntry, path: &Path) -> Result<HeaderMap, HostsError> {
    let mut map = HeaderMap::new();
    for (name, values) in entry.header.iter().flatten() {
        let bad = || content(path, &format!("{name:?} is not a header that can be sent"));
        let header: HeaderName = name.parse().map_err(|_| bad())?;
        for value in values.all() {
            map.append(header.clone(), HeaderValue::from_str(value).map_err(|_| bad())?);
        }
    }
    Ok(map)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, HostsError> {
    use std::io::Read as _;
    let failed = |source| HostsError::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    let mut text = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(content(path, "too large"));
    }
    Ok(Some(text))
}

fn content(path: &Path, fault: &str) -> HostsError {
    HostsError::Content { path: path.to_owned(), fault: fault.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(text: &str) -> Result<Vec<String>, String> {
        let hosts =
            parse(text, "docker.io", Path::new("hosts.toml")).map_err(|error| error.to_string())?;
        let mark = |host: &Host, ability, mark| if host.can(ability) { mark } else { "" };
        let show = |host: &Host| {
            format!(
                "{}{}{}",
                host.base,
                mark(host, Ability::Pull, " p"),
                mark(host, Ability::Resolve, " r")
            )
        };
        Ok(hosts.iter().map(show).collect())
    }

    #[test]
    fn mirrors_come_in_the_files_order_and_the_server_last() {
        let text = r#"
            server = "https://registry-1.docker.io"
            [host."https://z.example"]
              capabilities = ["pull"]
            [host."http://10.0.0.1:5000"]
            [host."https://a.example/cache/docker.io"]
              override_path = true
              [host."https://a.example/cache/docker.io".header]
                x-team = ["node"]
            [host."b.example/v2/"]
        "#;
        assert_eq!(
            bases(text).unwrap(),
            [
                "https://z.example/v2 p",
                "http://10.0.0.1:5000/v2 p r",
                "https://a.example/cache/docker.io p r",
                "https://b.example/v2 p r",
                "https://registry-1.docker.io/v2 p r",
            ]
        );
    }

    #[test]
    fn a_registry_without_a_file_is_asked_itself() {
        let cases = [
            ("docker.io", "https://registry-1.docker.io/v2"),
            ("registry.k8s.io", "https://registry.k8s.io/v2"),
            ("localhost:5000", "http://localhost:5000/v2"),
            ("127.0.0.1:5000", "http://127.0.0.1:5000/v2"),
            ("[::1]:5000", "http://[::1]:5000/v2"),
            ("localhost:443", "https://localhost:443/v2"),
            ("127.0.0.2:5000", "https://127.0.0.2:5000/v2"),
        ];
        for (registry, base) in cases {
            assert_eq!(of(None, registry).unwrap()[0].base, base);
        }
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for text in [
            "server = 1",
            "[host.\"ftp://a\"]",
            "[host.\"https://a\"]\nskip_verify = true",
            "[host.\"https://a\"]\nca = \"/nowhere/at/all\"",
            "[host.\"https://a\".header]\n\"no header\" = \"x\"",
        ] {
            assert!(bases(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_default_file_serves_registries_without_their_own() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("_default")).unwrap();
        std::fs::write(place.path().join("_default/hosts.toml"), "[host.\"http://mirror:5000\"]")
            .unwrap();
        let hosts = of(Some(place.path()), "example.com").unwrap();
        let bases: Vec<&str> = hosts.iter().map(|it| it.base.as_str()).collect();
        assert_eq!(bases, ["http://mirror:5000/v2", "https://example.com/v2"]);
        assert_eq!(hosts[0].authority(), "mirror:5000");
    }
}
