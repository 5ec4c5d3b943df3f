//! A collection as the server answered it, object by object. Pure.
//!
//! One object that makes no sense (a field of another type than it should have) must not hide all
//! others: it is named with what is wrong, and the rest is read. Refuses: guessing what such an
//! object meant.

use k8s_openapi::{ListableResource, apimachinery::pkg::apis::meta::v1::ListMeta};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::decode;

/// A collection at one version.
#[derive(Debug, PartialEq)]
pub struct Listed<K> {
    /// The version it was read at.
    pub version: String,
    /// What could be read.
    pub objects: Vec<K>,
    /// What is there and could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// An object that is there and makes no sense. What it does not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// Where it is; empty for objects of the cluster.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The list around its objects.
#[derive(Deserialize)]
struct Envelope<'a> {
    kind: String,
    metadata: ListMeta,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// Whether there is anything under the key, be it null.
#[derive(Deserialize)]
struct Spoken {
    #[serde(default, deserialize_with = "something")]
    items: bool,
}

fn something<'de, D: serde::Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(value).map(|_| true)
}

/// What names an object. Each part by itself may be of a wrong type, too.
#[derive(Default, Deserialize)]
struct Named {
    metadata: serde_json::Value,
}

/// Decodes an answer.
pub(crate) fn read<K>(bytes: &mut [u8]) -> Result<Listed<K>, serde_json::Error>
where
    K: ListableResource + DeserializeOwned,
{
    decode::blank_managed_fields(bytes);
    // Nearly always everything can be read, and then in one go.
    match serde_json::from_slice::<k8s_openapi::List<K>>(bytes) {
        // An answer that does not speak of objects at all is not one without objects.
        Ok(list) if list.items.is_empty() && !serde_json::from_slice::<Spoken>(bytes)?.items => {
            Err(serde::de::Error::missing_field("items"))
        }
        Ok(list) => Ok(Listed {
            version: list.metadata.resource_version.unwrap_or_default(),
            objects: list.items,
            unreadable: Vec::new(),
        }),
        Err(error) => one_by_one(bytes, error),
    }
}

fn one_by_one<K>(bytes: &[u8], whole: serde_json::Error) -> Result<Listed<K>, serde_json::Error>
where
    K: ListableResource + DeserializeOwned,
{
    let envelope: Envelope<'_> = match serde_json::from_slice(bytes) {
        Ok(envelope) => envelope,
        Err(_) => return Err(whole),
    };
    if envelope.kind != K::LIST_KIND {
        return Err(whole);
    }
    let mut listed = Listed {
        version: envelope.metadata.resource_version.unwrap_or_default(),
        objects: Vec::new(),
        unreadable: Vec::new(),
    };
    for item in envelope.items {
        match serde_json::from_str(item.get()) {
            Ok(object) => listed.objects.push(object),
            Err(error) => listed.unreadable.push(named(item, &error)),
        }
    }
    Ok(listed)
}

fn named(item: &RawValue, error: &serde_json::Error) -> Unreadable {
    let named: Named = serde_json::from_str(item.get()).unwrap_or_default();
    let text = |key: &str| named.metadata[key].as_str().unwrap_or_default().to_owned();
    Unreadable {
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn check(items: serde_json::Value, good: &[&str], bad: &[&str]) {
        let list = json!({"kind": "ConfigMapList", "apiVersion": "v1",
            "metadata": {"resourceVersion": "7"}, "items": items});
        let mut bytes = list.to_string().into_bytes();
        let listed: Listed<ConfigMap> = read(&mut bytes).unwrap();
        assert_eq!(listed.version, "7");
        let names: Vec<_> =
            listed.objects.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
        assert_eq!(names, good);
        let names: Vec<_> = listed.unreadable.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, bad);
    }

    #[test]
    fn an_object_that_makes_no_sense_is_named_and_the_others_are_read() {
        let good = |name: &str| json!({"metadata": {"name": name, "uid": name}});
        let bad = json!({"metadata": {"name": "x", "namespace": "n", "uid": "u"}, "data": 7});
        check(json!([good("a"), good("b")]), &["a", "b"], &[]);
        check(json!([good("a"), bad, good("b")]), &["a", "b"], &["x"]);
        check(json!([{"metadata": {"name": 7}}, null, good("b")]), &["b"], &["", ""]);
        check(json!([]), &[], &[]);
        check(json!(null), &[], &[]);
    }

    #[test]
    fn what_is_no_list_of_that_kind_is_refused() {
        for bad in [
            "",
            "{",
            r#"{"kind":"SecretList","metadata":{},"items":[]}"#,
            r#"{"kind":"ConfigMapList","metadata":{}}"#,
            r#"{"kind":"ConfigMapList","metadata":{},"items":{}}"#,
        ] {
            let mut bytes = bad.as_bytes().to_vec();
            read::<ConfigMap>(&mut bytes).map(|_| ()).unwrap_err();
        }
    }
}
