//! A flag's texts into one value, in the form the configuration uses for the same field.
//!
//! Lists and maps may be given several times; the occurrences add up. Everything else: the last one
//! counts.

use std::net::IpAddr;

use ferrolet_types::Quantity;
use serde_json::{Map, Value, json};

use super::table::Kind;
use crate::duration;

/// Reads all occurrences of one flag. There is at least one.
pub(super) fn read(kind: Kind, texts: &[&str]) -> Result<Value, String> {
    let last = texts.last().copied().unwrap_or_default();
    match kind {
        Kind::Bool => boolean(last).map(Value::Bool),
        Kind::Int32 => whole(last, i32::MIN.into(), i32::MAX.into()),
        Kind::Int64 => whole(last, i64::MIN, i64::MAX),
        Kind::Uint32 => whole(last, 0, u32::MAX.into()),
        Kind::Text | Kind::Version => Ok(json!(last)),
        Kind::Duration => duration::parse(last)
            .map(|nanos| json!(duration::format(nanos)))
            .ok_or_else(|| format!("{last:?} is not a duration such as 1m30s")),
        Kind::Address if last.is_empty() || last.parse::<IpAddr>().is_ok() => Ok(json!(last)),
        Kind::Address => Err(format!("{last:?} is not an IP address")),
        Kind::Quantity => match Quantity::parse(last) {
            Ok(_) => Ok(json!(last)),
            Err(_) => Err(format!("{last:?} is not a quantity such as 64Mi")),
        },
        Kind::List => Ok(json!(items(texts).collect::<Vec<_>>())),
        Kind::Pairs => pairs(texts, '='),
        Kind::Thresholds => pairs(texts, '<'),
        Kind::Labels => {
            let pairs = items(texts).map(|item| item.split_once('=').unwrap_or((item, "")));
            Ok(pairs.map(|(key, value)| (key.trim().to_owned(), json!(value.trim()))).collect())
        }
        Kind::Gates => gates(texts),
        Kind::Headers => headers(texts),
        Kind::Taints => items(texts).map(taint).collect(),
        Kind::NumaMemory => texts
            .iter()
            .flat_map(|text| text.split(';'))
            .filter(|s| !s.is_empty())
            .map(numa)
            .collect(),
        Kind::Verbosities => items(texts).map(verbosity).collect(),
    }
}

/// Go's idea of a boolean.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

fn whole(text: &str, lowest: i64, highest: i64) -> Result<Value, String> {
    let number: i64 = text.parse().map_err(|_| format!("{text:?} is not a whole number"))?;
    if (lowest..=highest).contains(&number) {
        Ok(json!(number))
    } else {
        Err(format!("{text:?} is out of range, {lowest} to {highest}"))
    }
}

fn items<'a>(texts: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    texts.iter().flat_map(|text| text.split(',')).filter(|item| !item.is_empty())
}

fn split(item: &str, separator: char) -> Result<(&str, &str), String> {
    let (key, value) =
        item.split_once(separator).ok_or_else(|| format!("{item:?} is not key{separator}value"))?;
    Ok((key.trim(), value.trim()))
}

fn pairs(texts: &[&str], separator: char) -> Result<Value, String> {
    let pairs = items(texts)
        .map(|item| split(item, separator).map(|(key, value)| (key.to_owned(), json!(value))));
    pairs.collect::<Result<Map<_, _>, _>>().map(Value::Object)
}

fn gates(texts: &[&str]) -> Result<Value, String> {
    let pairs = items(texts).map(|item| {
        let (name, on) = split(item, '=')?;
        Ok((name.to_owned(), json!(boolean(on).map_err(|message| format!("{name}: {message}"))?)))
    });
    pairs.collect::<Result<Map<_, _>, String>>().map(Value::Object)
}

fn headers(texts: &[&str]) -> Result<Value, String> {
    let mut headers = Map::new();
    for item in items(texts) {
        // The value is a secret more often than not, so the message does not show it.
        let (name, value) =
            split(item, ':').map_err(|_| "a header is not name:value".to_owned())?;
        let slot = headers.entry(name).or_insert_with(|| json!([]));
        slot.as_array_mut().expect("only lists are put in here").push(json!(value));
    }
    Ok(Value::Object(headers))
}

fn taint(item: &str) -> Result<Value, String> {
    let bad = || format!("{item:?} is not key=value:Effect");
    let (name, effect) = match item.split_once(':') {
        Some((_, effect)) if effect.contains(':') => return Err(bad()),
        Some((name, effect))
            if ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) =>
        {
            (name, effect)
        }
        Some((_, effect)) => {
            return Err(format!("{effect:?} is not NoSchedule, PreferNoSchedule or NoExecute"));
        }
        None => (item, ""),
    };
    match name.split_once('=') {
        Some((_, value)) if value.contains('=') => Err(bad()),
        Some((key, value)) => Ok(json!({"key": key, "value": value, "effect": effect})),
        None => Ok(json!({"key": name, "effect": effect})),
    }
}

fn numa(item: &str) -> Result<Value, String> {
    let bad = || format!("{item:?} is not NODE:memory=QUANTITY[,hugepages-SIZE=QUANTITY]");
    let (node, limits) = item.split_once(':').ok_or_else(bad)?;
    let node: i32 = node.trim().parse().map_err(|_| bad())?;
    let mut map = Map::new();
    for limit in limits.split(',') {
        let (resource, quantity) = limit.split_once('=').ok_or_else(bad)?;
        Quantity::parse(quantity)
            .map_err(|_| format!("{quantity:?} is not a quantity such as 64Mi"))?;
        map.insert(resource.to_owned(), json!(quantity));
    }
    Ok(json!({"numaNode": node, "limits": map}))
}

fn verbosity(item: &str) -> Result<Value, String> {
    let (pattern, level) = split(item, '=')?;
    Ok(json!({"filePattern": pattern, "verbosity": whole(level, 0, i32::MAX.into())?}))
}
