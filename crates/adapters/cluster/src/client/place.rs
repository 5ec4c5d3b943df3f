//! Where an object or a collection stands in the API: paths and selectors. Pure.

use std::fmt::Write as _;

use k8s_openapi::Resource;

/// The path of a collection, an object or a subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    path: String,
}

impl Place {
    /// The collection of this kind, in a namespace or over the whole cluster.
    pub fn all<K: Resource>(namespace: Option<&str>) -> Self {
        let mut path = if K::GROUP.is_empty() {
            format!("/api/{}", K::VERSION)
        } else {
            format!("/apis/{}/{}", K::GROUP, K::VERSION)
        };
        if let Some(namespace) = namespace {
            path.push_str("/namespaces/");
            push_escaped(&mut path, namespace);
        }
        path.push('/');
        path.push_str(K::URL_PATH_SEGMENT);
        Self { path }
    }

    /// One object of this kind.
    pub fn one<K: Resource>(namespace: Option<&str>, name: &str) -> Self {
        Self::all::<K>(namespace).under(name)
    }

    /// A part of this: the object of that name, or an object's subresource.
    pub fn under(mut self, segment: &str) -> Self {
        self.path.push('/');
        push_escaped(&mut self.path, segment);
        self
    }

    /// A path outside the resources, `/healthz` and its like.
    pub fn raw(path: &str) -> Self {
        Self { path: path.to_owned() }
    }

    /// The path itself.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Which objects of a collection are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// By fields, as in `spec.nodeName=a`.
    pub fields: Option<String>,
    /// By labels.
    pub labels: Option<String>,
}

impl Selector {
    /// The object of this name alone.
    pub fn named(name: &str) -> Self {
        Self::fields(format!("metadata.name={name}"))
    }

    /// By fields.
    pub fn fields(fields: String) -> Self {
        Self { fields: Some(fields), labels: None }
    }
}

/// Writes `path?key=value&…`, leaving out keys without a value.
pub(crate) fn with_query(path: &str, query: &[(&str, Option<&str>)]) -> String {
    let mut text = path.to_owned();
    let mut mark = '?';
    for (key, value) in query {
        if let Some(value) = value {
            text.push(mark);
            text.push_str(key);
            text.push('=');
            push_escaped(&mut text, value);
            mark = '&';
        }
    }
    text
}

fn push_escaped(text: &mut String, part: &str) {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("writing to a string does not fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    };

    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let check = |place: Place, path: &str| assert_eq!(place.path(), path);
        check(Place::all::<Pod>(None), "/api/v1/pods");
        check(Place::one::<Node>(None, "a.b"), "/api/v1/nodes/a.b");
        check(
            Place::one::<Pod>(Some("ns"), "p").under("status"),
            "/api/v1/namespaces/ns/pods/p/status",
        );
        check(
            Place::one::<Lease>(Some("kube-node-lease"), "a"),
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a",
        );
        check(Place::one::<Pod>(Some("../x"), "a/b"), "/api/v1/namespaces/..%2Fx/pods/a%2Fb");
    }

    #[test]
    fn queries_leave_out_what_is_not_said() {
        let query = [("a", Some("x=y,z")), ("b", None), ("c", Some(""))];
        assert_eq!(with_query("/p", &query), "/p?a=x%3Dy%2Cz&c=");
        assert_eq!(with_query("/p", &[]), "/p");
    }
}
