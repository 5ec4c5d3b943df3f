//! URLs, as far as probes go, printed as Go prints them since users know them from events.

use std::fmt;

use crate::dial::join_host_port;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: Scheme,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port as written.
    authority: String,
    path: String,
    query: Option<String>,
    fragment: Option<String>,
}

impl Url {
    /// The URL of a specified path on a host. The path may bring a query along.
    pub(crate) fn new(scheme: Scheme, host: &str, port: u16, path: &str) -> Self {
        let (path, query, fragment) = split_reference(path);
        // Whoever writes a whole URL as path means its path.
        let path = match path.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => after_authority(rest),
            _ => path.strip_prefix("//").map_or(path, after_authority),
        };
        let mut path = escaped(path, is_path_byte);
        if !path.is_empty() && !path.starts_with('/') {
            path.insert(0, '/');
        }
        Self {
            scheme,
            host: host.to_owned(),
            port,
            authority: join_host_port(host, port),
            path,
            query: query.map(str::to_owned),
            fragment: fragment.map(str::to_owned),
        }
    }

    /// What stands in the request's first line.
    pub(crate) fn request_target(&self) -> String {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        match &self.query {
            Some(query) => format!("{path}?{}", escaped(query, is_query_byte)),
            None => path.to_owned(),
        }
    }

    /// Host and port, as the `Host` header names them.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The same URL over plain HTTP.
    pub(crate) fn without_tls(mut self) -> Self {
        self.scheme = Scheme::Http;
        self
    }

    /// Where a redirect from here leads, and whether its location is relative; `None` when it is no
    /// URL for us.
    pub(crate) fn redirected(&self, location: &str) -> Option<(Self, bool)> {
        if location.bytes().any(|it| it.is_ascii_control()) || location.starts_with(':') {
            return None;
        }
        let (whole, query, fragment) = split_reference(location);
        let (scheme, rest) = match whole.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => match scheme.to_lowercase().as_str() {
                "http" => (Some(Scheme::Http), Some(rest)),
                "https" => (Some(Scheme::Https), Some(rest)),
                _ => return None,
            },
            _ => (None, whole.strip_prefix("//")),
        };
        let mut to = self.clone();
        to.scheme = scheme.unwrap_or(self.scheme);
        to.query = query.map(str::to_owned);
        to.fragment = fragment.map(str::to_owned);
        if let Some(rest) = rest {
            let authority = rest.split('/').next().unwrap_or_default();
            // Credentials in URLs are not for probes.
            let authority = authority.rsplit_once('@').map_or(authority, |it| it.1);
            let default_port = match to.scheme {
                Scheme::Http => 80,
                Scheme::Https => 443,
            };
            (to.host, to.port) = split_authority(authority, default_port)?;
            to.authority = authority.to_owned();
            to.path = escaped(&normal(after_authority(rest)), is_path_byte);
            return Some((to, false));
        }
        if whole.starts_with('/') {
            to.path = escaped(&normal(whole), is_path_byte);
        } else if !whole.is_empty() {
            let directory = self.path.rsplit_once('/').map_or("", |it| it.0);
            let merged = format!("{directory}/{}", escaped(whole, is_path_byte));
            to.path = normal(&merged);
        } else if query.is_none() {
            to.query.clone_from(&self.query);
        }
        Some((to, true))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority, self.path)?;
        if let Some(query) = &self.query {
            write!(f, "?{query}")?;
        }
        match &self.fragment {
            Some(fragment) if !fragment.is_empty() => write!(f, "#{fragment}"),
            _ => Ok(()),
        }
    }
}

/// Path, query and fragment.
fn split_reference(text: &str) -> (&str, Option<&str>, Option<&str>) {
    let (text, fragment) = match text.split_once('#') {
        Some((text, fragment)) => (text, Some(fragment)),
        None => (text, None),
    };
    match text.split_once('?') {
        Some((path, query)) => (path, Some(query), fragment),
        None => (text, None, fragment),
    }
}

fn split_authority(text: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, tail) = rest.split_once(']')?;
            (host, tail.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None | Some("") => default_port,
        Some(port) => port.parse().ok()?,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"+-.".contains(&it))
}

fn after_authority(text: &str) -> &str {
    text.find('/').map_or("", |at| &text[at..])
}

/// A path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let mut is_directory = false;
    for part in path.split('/').skip(1) {
        is_directory = matches!(part, "." | "..");
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let slash = if is_directory && !parts.is_empty() { "/" } else { "" };
    match path {
        "" => String::new(),
        _ => format!("/{}{slash}", parts.join("/")),
    }
}

/// Bytes that Go leaves alone in a path. A percent sign stays only where it begins an escape.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]".contains(&byte)
}

fn is_query_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"<>\"`{}|\\^#".contains(&byte)
}

fn escaped(text: &str, is_plain: fn(u8) -> bool) -> String {
    let bytes = text.as_bytes();
    let mut result = String::with_capacity(text.len());
    for (at, byte) in bytes.iter().copied().enumerate() {
        let mut digits = bytes.iter().skip(at + 1).take(2);
        let is_escape = byte == b'%' && digits.len() == 2 && digits.all(u8::is_ascii_hexdigit);
        if is_plain(byte) || is_escape {
            result.push(char::from(byte));
        } else {
            result.push_str(&format!("%{byte:02X}"));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_print_as_go_prints_them() {
        for (host, path, printed, target) in [
            ("10.0.0.1", "/", "http://10.0.0.1:80/", "/"),
            ("10.0.0.1", "", "http://10.0.0.1:80", "/"),
            ("10.0.0.1", "healthz", "http://10.0.0.1:80/healthz", "/healthz"),
            ("fd00::1", "/x", "http://[fd00::1]:80/x", "/x"),
            ("web", "/a?b=c", "http://web:80/a?b=c", "/a?b=c"),
            ("web", "/a b?c d#e", "http://web:80/a%20b?c d#e", "/a%20b?c%20d"),
            ("web", "/a%20b", "http://web:80/a%20b", "/a%20b"),
            ("web", "/100%", "http://web:80/100%25", "/100%25"),
            ("web", "/é", "http://web:80/%C3%A9", "/%C3%A9"),
            ("web", "http://other/x", "http://web:80/x", "/x"),
            ("web", "//other/x", "http://web:80/x", "/x"),
        ] {
            let url = Url::new(Scheme::Http, host, 80, path);
            assert_eq!(url.to_string(), printed, "{path}");
            assert_eq!(url.request_target(), target, "{path}");
        }
    }

    #[test]
    fn redirects_lead_where_they_say() {
        let from = Url::new(Scheme::Http, "10.0.0.1", 8080, "/a/b?q");
        for (location, to) in [
            ("/x", Some("http://10.0.0.1:8080/x")),
            ("x?y", Some("http://10.0.0.1:8080/a/x?y")),
            ("../x", Some("http://10.0.0.1:8080/x")),
            ("./", Some("http://10.0.0.1:8080/a/")),
            ("?z", Some("http://10.0.0.1:8080/a/b?z")),
            ("", Some("http://10.0.0.1:8080/a/b?q")),
            ("http://10.0.0.1/x", Some("http://10.0.0.1/x")),
            ("https://10.0.0.1:8443/", Some("https://10.0.0.1:8443/")),
            ("//other:1/x", Some("http://other:1/x")),
            ("http://[::1]:1/", Some("http://[::1]:1/")),
            ("ftp://x/", None),
            (":::", None),
            ("http://:80/", None),
        ] {
            let redirected = from.redirected(location).map(|it| it.0.to_string());
            assert_eq!(redirected.as_deref(), to, "{location}");
        }
        let secure = from.redirected("https://10.0.0.1/").unwrap().0;
        assert_eq!((secure.port, secure.host.as_str()), (443, "10.0.0.1"));
    }
}
