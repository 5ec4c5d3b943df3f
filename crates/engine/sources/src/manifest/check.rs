//! The strict check of a manifest against the shape of a pod: unknown fields, wrong types, numbers
//! out of range.
//!
//! Walks the whole value, so one message names every fault. On the way it makes the value what the
//! typed reader takes: a quantity written as a number becomes text, an empty entry of a map or list
//! of texts becomes the empty text, as in Go.

use serde_json::{Map, Value};

use crate::{
    fault::{Fault, Show as _},
    identity::quantity,
    schema::{self, Field, Shape},
};

/// Largest edit distance at which a known name is suggested for an unknown one.
const SUGGEST_WITHIN: usize = 3;

/// Checks `value` against the type `ty`, in place.
pub(super) fn check(ty: &'static str, value: &mut Value, path: &str, faults: &mut Vec<Fault>) {
    match (schema::shape(ty), &mut *value) {
        (Shape::Pointer(inner), _) => check(inner, value, path, faults),
        (Shape::Struct(fields), Value::Object(object)) => {
            check_object(fields, object, path, faults);
        }
        (Shape::List(inner), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                check_entry(inner, item, &format!("{path}[{index}]"), faults);
            }
        }
        (Shape::Map(inner), Value::Object(entries)) => {
            for (key, item) in entries {
                check_entry(inner, item, &format!("{path}[{key}]"), faults);
            }
        }
        (Shape::Text, Value::String(_))
        | (Shape::Time, Value::String(_))
        | (Shape::Bool, Value::Bool(_))
        | (Shape::IntOrString, Value::String(_))
        | (Shape::Raw, Value::Object(_)) => {}
        (Shape::Int64, Value::Number(_)) => {
            check_number(value, i64::MIN, i64::MAX, path, faults);
        }
        (Shape::Int32 | Shape::IntOrString, Value::Number(_)) => {
            check_number(value, i32::MIN.into(), i32::MAX.into(), path, faults);
        }
        (Shape::Quantity, Value::String(text)) => check_quantity(text.clone(), value, path, faults),
        (Shape::Quantity, Value::Number(number)) => {
            let text = match number.as_f64() {
                // Go writes a whole floating-point number without a fraction, and reads the
                // quantity from that.
                Some(float) if number.is_f64() => format!("{float}"),
                _ => number.to_string(),
            };
            check_quantity(text, value, path, faults);
        }
        (shape, found) => {
            let is_unquoted =
                matches!(shape, Shape::Text) && (found.is_number() || found.is_boolean());
            let hint = if is_unquoted { "; quote it" } else { "" };
            let problem = format!(
                "invalid value {}: expected {}, found {}{hint}",
                (&*found).show(),
                expected(shape),
                kind_of(found)
            );
            faults.push(Fault::new(path, problem));
        }
    }
}

/// The fault of a field that the API does not know.
pub(super) fn unknown(path: &str, name: &str, value: &Value, near: Option<&str>) -> Fault {
    let hint = near.map_or_else(String::new, |near| format!(", did you mean {near:?}?"));
    let problem = format!("unknown field {name:?} with value {}{hint}", value.show());
    Fault::new(path, problem)
}

/// The path of the field `name` below `path`.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn check_object(
    fields: &'static [Field],
    object: &mut Map<String, Value>,
    path: &str,
    faults: &mut Vec<Fault>,
) {
    let known: Vec<(&str, &'static str)> = schema::json_fields(fields).collect();
    for (name, value) in object {
        let path = child(path, name);
        match known.iter().find(|(known, _)| known == name) {
            // Null means absent, for every type.
            Some(_) if value.is_null() => {}
            Some((_, ty)) => check(ty, value, &path, faults),
            None => {
                let near = nearest(name, known.iter().map(|(known, _)| *known));
                faults.push(unknown(&path, name, value, near));
            }
        }
    }
}

fn check_entry(ty: &'static str, value: &mut Value, path: &str, faults: &mut Vec<Fault>) {
    if value.is_null() && matches!(schema::shape(ty), Shape::Text) {
        *value = Value::String(String::new());
    }
    check(ty, value, path, faults);
}

fn check_number(value: &mut Value, min: i64, max: i64, path: &str, faults: &mut Vec<Fault>) {
    // `8080.0` is the whole number 8080 after Go's detour over JSON.
    let whole = value.as_i64().or_else(|| {
        let text = value.as_f64()?.to_string();
        text.parse::<i64>().ok()
    });
    match whole {
        Some(number) if (min..=max).contains(&number) => *value = number.into(),
        Some(_) => {
            let rule = format!("must be between {min} and {max}");
            faults.push(Fault::invalid(path, &*value, &rule));
        }
        None => faults.push(Fault::invalid(path, &*value, "must be a whole number")),
    }
}

fn check_quantity(text: String, value: &mut Value, path: &str, faults: &mut Vec<Fault>) {
    let text = text.trim().to_owned();
    if quantity::parse(&text).is_none() {
        let rule = "must be a quantity such as 500m, 1.5 or 64Mi";
        faults.push(Fault::invalid(path, &*value, rule));
    }
    *value = Value::String(text);
}

fn expected(shape: Shape) -> &'static str {
    match shape {
        Shape::Pointer(inner) => expected(schema::shape(inner)),
        Shape::List(_) => "a list",
        Shape::Map(_) => "a map",
        Shape::Struct(_) | Shape::Raw => "an object",
        Shape::Text => "a string",
        Shape::Bool => "true or false",
        Shape::Int32 | Shape::Int64 => "a whole number",
        Shape::Quantity => "a quantity",
        Shape::Time => "a time",
        Shape::IntOrString => "a port number or name",
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The known name that is closest to `name`, where one is close enough to have been meant.
fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let lower = name.to_lowercase();
    known
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .min()
        .filter(|(steps, candidate)| *steps <= SUGGEST_WITHIN.min(candidate.len() / 2))
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance between two names.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let above = row[j + 1];
            let replaced = diagonal + usize::from(a != *b);
            row[j + 1] = replaced.min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[right.len()]
}
