//! What a pod may send and receive, from its annotations.
//!
//! `kubernetes.io/ingress-bandwidth` and `kubernetes.io/egress-bandwidth` are quantities of bits a second, from 1k to 1P,
//! as upstream's network plugins take them.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::attachment::Bandwidth;

const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";
const LEAST: u64 = 1000;
const MOST: u64 = 1_000_000_000_000_000;

/// An annotation that says no bandwidth.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("annotation {name} is {value:?}: {reason}")]
pub struct BandwidthError {
    /// Which one.
    pub name: &'static str,
    /// What it says.
    pub value: String,
    /// What is wrong with that.
    pub reason: &'static str,
}

/// The bandwidth that annotations ask for; none if they do not.
pub(crate) fn bandwidth(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<Bandwidth>, BandwidthError> {
    let read = |name: &'static str| match annotations.get(name) {
        None => Ok(0),
        Some(value) => bits(value).map_err(|reason| {
            let value = value.chars().take(64).collect();
            BandwidthError { name, value, reason }
        }),
    };
    let found = Bandwidth { ingress: read(INGRESS)?, egress: read(EGRESS)? };
    Ok((found.ingress > 0 || found.egress > 0).then_some(found))
}

fn bits(text: &str) -> Result<u64, &'static str> {
    let n_digits = text.bytes().take_while(|it| it.is_ascii_digit() || *it == b'.').count();
    let (digits, unit) = text.split_at(n_digits);
    let factor: u128 = match unit {
        "" => 1,
        "k" => 1000,
        "M" => 1000 * 1000,
        "G" => 1000 * 1000 * 1000,
        "T" => 1000 * 1000 * 1000 * 1000,
        "P" => 1000 * 1000 * 1000 * 1000 * 1000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        _ => return Err("not a quantity"),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() > 18 || part.len() > 15 || digits.is_empty() || part.contains('.') {
        return Err("not a quantity");
    }
    let read = |it: &str| if it.is_empty() { Ok(0) } else { it.parse::<u128>() };
    let (Ok(whole), Ok(after)) = (read(whole), read(part)) else { return Err("not a quantity") };
    let scale = 10u128.pow(u32::try_from(part.len()).unwrap_or(0));
    let value = whole * factor + (after * factor).div_ceil(scale);
    match u64::try_from(value) {
        Ok(value) if value < LEAST => Err("resource is unreasonably small (< 1kbit)"),
        Ok(value) if value <= MOST => Ok(value),
        _ => Err("resource is unreasonably large (> 1Pbit)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_a_quantity_of_bits() {
        for (text, expected) in [
            ("10M", Ok(10_000_000)),
            ("1.5k", Ok(1500)),
            ("1000", Ok(1000)),
            ("1Ki", Ok(1024)),
            ("1P", Ok(MOST)),
            ("999", Err("resource is unreasonably small (< 1kbit)")),
            ("2P", Err("resource is unreasonably large (> 1Pbit)")),
            ("999999999999999999P", Err("resource is unreasonably large (> 1Pbit)")),
            ("", Err("not a quantity")),
            ("-1k", Err("not a quantity")),
            ("1.2.3k", Err("not a quantity")),
            ("10Mbit", Err("not a quantity")),
            ("9999999999999999999999999999999999999999", Err("not a quantity")),
        ] {
            assert_eq!(bits(text), expected, "{text}");
        }
    }

    #[test]
    fn annotations_name_either_direction() {
        let of = |pairs: &[(&str, &str)]| {
            bandwidth(&pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect())
        };
        assert_eq!(of(&[("a", "b")]), Ok(None));
        assert_eq!(of(&[(INGRESS, "1M")]), Ok(Some(Bandwidth { ingress: 1_000_000, egress: 0 })));
        assert_eq!(
            of(&[(EGRESS, "much")]).unwrap_err().to_string(),
            "annotation kubernetes.io/egress-bandwidth is \"much\": not a quantity"
        );
    }
}
