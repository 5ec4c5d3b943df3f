//! Certificates that the cluster trusts, as files: selectors and normal form. Pure.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const LINE: usize = 64;

/// Every certificate of the bundles once, in an order that does not depend on who named it first.
pub(crate) fn anchors(bundles: &[String]) -> Vec<u8> {
    let found: BTreeSet<String> = bundles.iter().flat_map(|text| blocks(text)).collect();
    let text: String = found.iter().map(|block| encoded(block)).collect();
    text.into_bytes()
}

/// A chain of certificates in its order, without anything between or in front of them.
pub(crate) fn chain(text: &str) -> String {
    blocks(text).iter().map(|block| encoded(block)).collect()
}

fn encoded(block: &str) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in block.as_bytes().chunks(LINE) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// The contents of PEM blocks, without line breaks.
fn blocks(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut current: Option<String> = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with(BEGIN) {
            current = Some(String::new());
        } else if line.starts_with(END) {
            found.extend(current.take());
        } else if let Some(block) = &mut current {
            // Headers are not part of what is encoded.
            if !line.contains(':') {
                block.push_str(line);
            }
        }
    }
    found
}

/// A selector in the words of a query; `None` matches nothing.
pub(crate) fn selector_text(selector: Option<&LabelSelector>) -> Option<String> {
    let selector = selector?;
    let labels = selector.match_labels.iter().flatten();
    let mut parts: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    for it in selector.match_expressions.iter().flatten() {
        let values = it.values.clone().unwrap_or_default().join(",");
        let key = &it.key;
        parts.push(match it.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            _ => format!("!{key}"),
        });
    }
    Some(parts.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn certificates_are_there_once_and_in_one_order() {
        let pem = |kind: &str, body: &str| {
            format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")
        };
        let long = "A".repeat(70);
        let one = pem("CERTIFICATE", "BBBB") + &pem("CERTIFICATE", &long);
        let other =
            format!("words\n{}", pem("CERTIFICATE", &format!("{}\n{}", &long[..40], &long[40..])));
        let expected = pem("CERTIFICATE", &format!("{}\n{}", &long[..64], &long[64..]))
            + &pem("CERTIFICATE", "BBBB");
        assert_eq!(String::from_utf8(anchors(&[one.clone(), other.clone()])).unwrap(), expected);
        assert_eq!(anchors(&[other, one]), expected.into_bytes());
        assert!(anchors(&["nothing".to_owned()]).is_empty());
    }

    #[test]
    fn selectors_become_queries() {
        let check = |selector: serde_json::Value, expected: &str| {
            let selector = serde_json::from_value(selector).unwrap();
            assert_eq!(selector_text(Some(&selector)).as_deref(), Some(expected));
        };
        check(json!({}), "");
        check(json!({"matchLabels": {"a": "b"}}), "a=b");
        check(
            json!({"matchExpressions": [
                {"key": "a", "operator": "In", "values": ["b", "c"]},
                {"key": "d", "operator": "NotIn", "values": ["e"]},
                {"key": "f", "operator": "Exists"},
                {"key": "g", "operator": "DoesNotExist"},
            ]}),
            "a in (b,c),d notin (e),f,!g",
        );
        assert_eq!(selector_text(None), None);
    }
}
