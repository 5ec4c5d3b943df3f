//! A `KubeletConfiguration` as given: checked for shape, not yet for sense.
//!
//! In: YAML or JSON text with a name, or flags. Out: [`RawConfig`], a tree that holds only fields
//! of the schema with values of the right type. Refuses to read files, to guess, and to say whether
//! a value makes sense: that is `config`.

use serde_json::{Map, Value, json};

use crate::{
    FieldError, NamedText, duration,
    schema::{self, API_VERSION, Document, FIELDS, Field, KIND, KUBELET, Kind, Presence},
    suggest, yaml,
};

/// A configuration whose fields have the right names and types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawConfig {
    fields: Map<String, Value>,
}

/// What a `null` means: nothing in a configuration, deletion in a merge patch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    Dropped,
    Kept,
}

impl RawConfig {
    /// Reads a configuration file's text strictly; relative paths in it are resolved against its
    /// directory.
    pub fn decode(text: &NamedText) -> Result<Self, Vec<FieldError>> {
        let (raw, faults) = Self::decode_rest(text);
        if faults.is_empty() { Ok(raw) } else { Err(faults) }
    }

    /// The same, with what can be understood of a text that has faults, so that all of them can be
    /// told at once.
    pub(crate) fn decode_rest(text: &NamedText) -> (Self, Vec<FieldError>) {
        let (mut fields, faults) = checked(text, KUBELET, Nulls::Dropped);
        resolve_paths(&mut fields, FIELDS, directory_of(text));
        (Self { fields }, faults)
    }

    /// Reads a text of another kind, such as the runtime's own file, by the same rules.
    pub(crate) fn decode_as(text: &NamedText, document: Document) -> (Self, Vec<FieldError>) {
        let (mut fields, faults) = checked(text, document, Nulls::Dropped);
        resolve_paths(&mut fields, document.fields, directory_of(text));
        (Self { fields }, faults)
    }

    /// Applies a drop-in to this configuration as a JSON merge patch: maps merge, the rest
    /// replaces, null deletes. Paths in a drop-in stay as they are. What cannot be understood of it
    /// is answered as faults.
    pub(crate) fn patch(&mut self, text: &NamedText) -> Vec<FieldError> {
        let (fields, faults) = checked(text, KUBELET, Nulls::Kept);
        merge_patch(&mut self.fields, fields);
        faults
    }

    /// The value at a dotted path.
    pub fn get(&self, path: &str) -> Option<&Value> {
        let mut names = path.split('.');
        let first = self.fields.get(names.next()?)?;
        names.try_fold(first, |value, name| value.get(name))
    }

    /// Sets the value at a dotted path; objects on the way are made.
    pub(crate) fn set(&mut self, path: &str, value: Value) {
        let (parents, name) =
            path.rsplit_once('.').map_or(("", path), |(parents, name)| (parents, name));
        let mut at = &mut self.fields;
        for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
            let slot = at.entry(parent).or_insert_with(|| json!({}));
            if !slot.is_object() {
                *slot = json!({});
            }
            at = slot.as_object_mut().expect("it was just made an object");
        }
        at.insert(name.to_owned(), value);
    }

    /// Takes the value at a dotted path away.
    pub(crate) fn remove(&mut self, path: &str) {
        let (parents, name) =
            path.rsplit_once('.').map_or(("", path), |(parents, name)| (parents, name));
        let mut at = &mut self.fields;
        for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
            match at.get_mut(parent).and_then(Value::as_object_mut) {
                Some(inner) => at = inner,
                None => return,
            }
        }
        at.remove(name);
    }

    pub(crate) fn fields_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.fields
    }

    /// The paths of all fields that hold a value, down to scalars, lists and maps.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        collect_paths(&self.fields, FIELDS, "", &mut paths);
        paths
    }

    /// The same without what says nothing, as upstream writes it.
    pub(crate) fn written(&self) -> Self {
        Self { fields: written(&self.fields, FIELDS) }
    }

    /// The configuration as an API object, as upstream serves it at `/configz`: empty optional
    /// fields left out.
    pub fn to_json(&self) -> Value {
        let mut object = written(&self.fields, FIELDS);
        object.insert("apiVersion".to_owned(), json!(API_VERSION));
        object.insert("kind".to_owned(), json!(KIND));
        Value::Object(object)
    }
}

fn directory_of(text: &NamedText) -> &str {
    text.name.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Checks one text against the schema; the result has neither `apiVersion` nor `kind`, nor anything
/// that has a fault.
fn checked(
    text: &NamedText,
    document: Document,
    nulls: Nulls,
) -> (Map<String, Value>, Vec<FieldError>) {
    let alone =
        |message: String| (Map::new(), vec![FieldError::whole(message).blamed_on(&text.name)]);
    if text.text.trim().is_empty() {
        return alone("the file is empty".to_owned());
    }
    let tree = match yaml::read(&text.text) {
        Ok(tree) => tree,
        Err(message) => return alone(message),
    };
    let Value::Object(mut object) = tree.value else {
        return alone(format!(
            "expected a {} object, found {}",
            document.kind,
            describe(&tree.value)
        ));
    };
    let duplicates = tree.duplicates.iter();
    let mut faults: Vec<FieldError> =
        duplicates.map(|path| FieldError::at(path, "", "this field is given twice")).collect();
    for (name, wanted) in [("apiVersion", document.api_version), ("kind", document.kind)] {
        match object.remove(name) {
            Some(Value::String(given)) if given == wanted => {}
            Some(Value::Null) | None => {
                faults.push(FieldError::at(name, "", format!("is missing, must be {wanted}")))
            }
            Some(given) => faults.push(FieldError::at(name, given, format!("must be {wanted}"))),
        }
    }
    let fields = check_object(&object, document.fields, "", nulls, &mut faults);
    let placed = faults.into_iter().map(|it| it.blamed_on(&text.name).in_line(&tree.lines));
    (fields, placed.collect())
}

fn check_object(
    object: &Map<String, Value>,
    fields: &'static [Field],
    path: &str,
    nulls: Nulls,
    faults: &mut Vec<FieldError>,
) -> Map<String, Value> {
    let mut result = Map::new();
    for (name, value) in object {
        let here = join(path, name);
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            let names = fields.iter().map(|field| field.name);
            faults.push(FieldError::at(
                here,
                value,
                suggest::or_suggest("unknown field", name, names),
            ));
            continue;
        };
        if value.is_null() {
            if nulls == Nulls::Kept {
                result.insert(name.clone(), Value::Null);
            }
            continue;
        }
        if let Some(value) = check_value(value, field.kind, &here, nulls, faults) {
            result.insert(name.clone(), value);
        }
    }
    result
}

fn check_value(
    value: &Value,
    kind: Kind,
    path: &str,
    nulls: Nulls,
    faults: &mut Vec<FieldError>,
) -> Option<Value> {
    let integer = |lowest: i64, highest: i64| {
        value.as_i64().filter(|n| (lowest..=highest).contains(n)).map(Value::from)
    };
    let checked = match (kind, value) {
        (Kind::Bool, Value::Bool(_)) => Some(value.clone()),
        (Kind::Float, Value::Number(number)) => Some(plain_number(number)),
        (Kind::Text | Kind::Path, Value::String(_)) => Some(value.clone()),
        (Kind::Int32, Value::Number(_)) => integer(i32::MIN.into(), i32::MAX.into()),
        (Kind::Int64, Value::Number(_)) => integer(i64::MIN, i64::MAX),
        (Kind::Uint32, Value::Number(_)) => integer(0, u32::MAX.into()),
        (Kind::Duration | Kind::DurationOrNanos, Value::String(text)) => {
            duration::parse(text).map(|nanos| json!(duration::format(nanos)))
        }
        (Kind::DurationOrNanos, Value::Number(nanos)) => {
            nanos.as_i64().map(|nanos| json!(duration::format(nanos)))
        }
        (Kind::Quantity, Value::String(text)) => {
            ferrolet_types::Quantity::parse(text).ok().map(|_| json!(text))
        }
        (Kind::Quantity, Value::Number(number)) => Some(json!(number.to_string())),
        (Kind::List(inner), Value::Array(items)) => {
            let items = items.iter().enumerate();
            let checked = items.filter_map(|(i, item)| {
                check_value(item, *inner, &format!("{path}[{i}]"), nulls, faults)
            });
            return Some(Value::Array(checked.collect()));
        }
        (Kind::Map(inner), Value::Object(entries)) => {
            let entries = entries.iter().filter_map(|(key, item)| {
                if item.is_null() && nulls == Nulls::Kept {
                    return Some((key.clone(), Value::Null));
                }
                Some((key.clone(), check_value(item, *inner, &join(path, key), nulls, faults)?))
            });
            return Some(Value::Object(entries.collect()));
        }
        (Kind::Object(fields), Value::Object(object)) => {
            return Some(Value::Object(check_object(object, fields, path, nulls, faults)));
        }
        _ => None,
    };
    if checked.is_none() {
        faults.push(FieldError::at(path, value, wrong_type(kind, value)));
    }
    checked
}

/// A whole number without a fraction of nothing, as upstream writes it.
fn plain_number(number: &serde_json::Number) -> Value {
    match number.as_f64() {
        #[expect(clippy::cast_possible_truncation, reason = "whole and small, so nothing is cut")]
        Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => json!(float as i64),
        _ => Value::Number(number.clone()),
    }
}

fn wrong_type(kind: Kind, value: &Value) -> String {
    let wanted = match kind {
        Kind::Bool => "true or false",
        Kind::Int32 => "a whole number of 32 bits",
        Kind::Int64 => "a whole number of 64 bits",
        Kind::Uint32 => "a whole number from 0 to 4294967295",
        Kind::Float => "a number",
        Kind::Text => "a text",
        Kind::Path => "a path",
        Kind::Duration => "a duration such as \"1m30s\"",
        Kind::DurationOrNanos => "a duration such as \"5s\" or a number of nanoseconds",
        Kind::Quantity => "a quantity such as \"64Mi\"",
        Kind::List(_) => "a list",
        Kind::Map(_) => "a map",
        Kind::Object(_) => "an object",
    };
    let quoted =
        matches!(kind, Kind::Text | Kind::Path) && (value.is_number() || value.is_boolean());
    let hint = if quoted { "; put it in quotes" } else { "" };
    format!("expected {wanted}, found {}{hint}", describe(value))
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// RFC 7386.
fn merge_patch(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                target.remove(&name);
            }
            Value::Object(inner) => {
                let slot = target.entry(name).or_insert_with(|| json!({}));
                if !slot.is_object() {
                    *slot = json!({});
                }
                merge_patch(slot.as_object_mut().expect("it was just made an object"), inner);
            }
            other => {
                target.insert(name, other);
            }
        }
    }
}

/// Makes relative paths absolute, as seen from `directory`. An empty path means "none" and stays
/// empty.
fn resolve_paths(object: &mut Map<String, Value>, fields: &[Field], directory: &str) {
    for field in fields {
        match (field.kind, object.get_mut(field.name)) {
            (Kind::Path, Some(Value::String(path)))
                if !path.is_empty() && !path.starts_with('/') =>
            {
                *path = clean(&format!("{directory}/{path}"));
            }
            (Kind::Object(inner), Some(Value::Object(object))) => {
                resolve_paths(object, inner, directory)
            }
            _ => {}
        }
    }
}

/// The shortest path with the same meaning: no `.`, no `..` that can be removed, no doubled slash.
pub(crate) fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            other => parts.push(other),
        }
    }
    match (rooted, parts.join("/")) {
        (true, path) => format!("/{path}"),
        (false, path) if path.is_empty() => ".".to_owned(),
        (false, path) => path,
    }
}

fn collect_paths(
    object: &Map<String, Value>,
    fields: &[Field],
    path: &str,
    paths: &mut Vec<String>,
) {
    for field in fields {
        let here = join(path, field.name);
        match (field.kind, object.get(field.name)) {
            (Kind::Object(inner), Some(Value::Object(object))) => {
                collect_paths(object, inner, &here, paths)
            }
            (_, Some(_)) => paths.push(here),
            (_, None) => {}
        }
    }
}

fn written(object: &Map<String, Value>, fields: &[Field]) -> Map<String, Value> {
    let mut result = Map::new();
    for field in fields {
        let Some(value) = object.get(field.name) else {
            continue;
        };
        let value = match (field.kind, value) {
            (Kind::Object(inner), Value::Object(object)) => Value::Object(written(object, inner)),
            (Kind::List(_), Value::Array(items)) if items.is_empty() => continue,
            (Kind::Map(_), Value::Object(entries)) if entries.is_empty() => continue,
            (Kind::Duration | Kind::DurationOrNanos, value) => value.clone(),
            (_, value) if field.presence == Presence::Plain && is_zero(value) => continue,
            (_, value) => value.clone(),
        };
        result.insert(field.name.to_owned(), value);
    }
    result
}

/// The value that Go gives a variable nobody set.
pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s",
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// The fields of the configuration, in the order of the schema.
pub fn field_names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name)
}

/// Whether a dotted path names a field of the configuration.
pub fn is_known_field(path: &str) -> bool {
    schema::kind_at(path).is_some()
}
