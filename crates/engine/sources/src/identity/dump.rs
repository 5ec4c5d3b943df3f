//! A pod written out the way upstream's hash sees it: every field of every type by name, with its
//! Go type.
//!
//! The format is that of go-spew with `%#v`, sorted keys and no pointer addresses; a type is
//! written before a value except for entries of lists and maps and behind pointers. One thing
//! cannot be known here: a moment other than "never" is printed upstream together with the node's
//! time-zone tables, so a manifest with, say, a `creationTimestamp` of its own gets a UID that
//! differs from upstream's. The same holds for `managedFields` and for the long removed `scaleIO`
//! volumes without a secret. Of 560 pods found in upstream's own and other projects' sources, all
//! others that validate gave upstream's UID.

use serde_json::{Map, Value};

use super::quantity::{self, Amount, InMemory};
use crate::schema::{self, Field, Shape};

/// Writes the pod out; `pod` is its JSON object.
pub(super) fn dump(pod: &Value) -> String {
    let mut out = String::with_capacity(16 * 1024);
    out.push_str("(*core.Pod)");
    write(&mut out, schema::POD, Some(pod), Types::Hidden);
    out
}

/// Whether the type stands before the value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Types {
    Shown,
    Hidden,
}

fn write(out: &mut String, ty: &'static str, value: Option<&Value>, types: Types) {
    let value = value.filter(|value| !value.is_null());
    if types == Types::Shown {
        out.push('(');
        out.push_str(ty);
        out.push(')');
    }
    match schema::shape(ty) {
        Shape::Pointer(inner) => match value {
            None => out.push_str("<nil>"),
            Some(_) => write(out, inner, value, Types::Hidden),
        },
        Shape::List(inner) => match value.and_then(Value::as_array) {
            None => out.push_str("<nil>"),
            Some(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    space(out, index);
                    write(out, inner, Some(item), Types::Hidden);
                }
                out.push(']');
            }
        },
        Shape::Map(inner) => match value.and_then(Value::as_object) {
            None => out.push_str("<nil>"),
            Some(entries) => write_map(out, ty, inner, entries),
        },
        Shape::Struct(fields) => write_struct(out, fields, value),
        Shape::Text => out.push_str(value.and_then(Value::as_str).unwrap_or_default()),
        Shape::Bool => out.push_str(match value {
            Some(Value::Bool(true)) => "true",
            _ => "false",
        }),
        Shape::Int32 | Shape::Int64 => {
            let number = value.and_then(Value::as_i64).unwrap_or(0);
            out.push_str(&number.to_string());
        }
        Shape::Quantity => {
            write_quantity(out, value.and_then(Value::as_str).and_then(quantity::parse));
        }
        Shape::Time => write_time(out, value.and_then(Value::as_str)),
        Shape::IntOrString => write_int_or_string(out, value),
        Shape::Raw => out.push_str("{Raw:([]uint8)<nil>}"),
    }
}

fn write_struct(out: &mut String, fields: &'static [Field], value: Option<&Value>) {
    out.push('{');
    for (index, field) in fields.iter().enumerate() {
        space(out, index);
        out.push_str(field.go_name);
        out.push(':');
        let value = match field.json {
            Some(name) => value.and_then(|object| object.get(name)),
            None => value,
        };
        write(out, field.ty, value, Types::Shown);
    }
    out.push('}');
}

fn write_map(
    out: &mut String,
    ty: &'static str,
    inner: &'static str,
    entries: &Map<String, Value>,
) {
    let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
    entries.sort_by_key(|(key, _)| key.as_str());
    out.push_str("map[");
    for (index, (key, value)) in entries.into_iter().enumerate() {
        space(out, index);
        out.push_str(key);
        out.push(':');
        match (schema::shape(inner), value.as_str()) {
            // Defaulting rounds the entries of resource lists, and only those.
            (Shape::Quantity, Some(text)) if ty == "core.ResourceList" => {
                write_quantity(out, quantity::parse(text).map(InMemory::rounded_to_milli));
            }
            _ => write(out, inner, Some(value), Types::Hidden),
        }
    }
    out.push(']');
}

fn write_quantity(out: &mut String, quantity: Option<InMemory>) {
    let quantity = quantity.unwrap_or(InMemory {
        amount: Amount::Fast { value: 0, scale: 0 },
        text: String::new(),
        format: "",
    });
    let (value, scale, big) = match &quantity.amount {
        Amount::Fast { value, scale } => (*value, *scale, "<nil>".to_owned()),
        Amount::Big { is_negative, unscaled, scale } => {
            let big = format!(
                "{{unscaled:(big.Int){{neg:(bool){is_negative} abs:(big.nat)[{}]}} scale:(inf.Scale){scale}}}",
                words(*unscaled)
            );
            (0, 0, big)
        }
    };
    out.push_str(&format!(
        "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
         d:(resource.infDecAmount){{Dec:(*inf.Dec){big}}} s:(string){} Format:(resource.Format){}}}",
        quantity.text, quantity.format
    ));
}

/// Go's big numbers are lists of 64-bit words, the lowest first.
fn words(number: u128) -> String {
    let low = number & u128::from(u64::MAX);
    match (low, number >> 64) {
        (0, 0) => String::new(),
        (low, 0) => low.to_string(),
        (low, high) => format!("{low} {high}"),
    }
}

/// "Never" is exact; any other moment only makes a difference where upstream's would.
fn write_time(out: &mut String, moment: Option<&str>) {
    let moment = moment.unwrap_or("0");
    out.push_str(&format!(
        "{{Time:(time.Time){{wall:(uint64)0 ext:(int64){moment} loc:(*time.Location)<nil>}}}}"
    ));
}

fn write_int_or_string(out: &mut String, value: Option<&Value>) {
    let (kind, number, text) = match value {
        Some(Value::String(text)) => (1, 0, text.as_str()),
        Some(other) => (0, other.as_i64().unwrap_or(0), ""),
        None => (0, 0, ""),
    };
    out.push_str(&format!(
        "{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}"
    ));
}

fn space(out: &mut String, index: usize) {
    if index > 0 {
        out.push(' ');
    }
}
