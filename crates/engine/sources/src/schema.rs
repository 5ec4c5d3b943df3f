//! The shape of a pod: every type that the API's `Pod` is made of, with its fields in order.
//!
//! Facts, not code: [`schema.txt`](schema.txt) was printed from upstream's own types. Two readers
//! use it: the strict check of manifests (JSON names and types) and the identity of static pods (Go
//! names, types and order). Refuses: values.

use std::{collections::HashMap, sync::OnceLock};

/// The name of the type of a whole pod.
pub(crate) const POD: &str = "core.Pod";

/// What a type is, as far as walking a value needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// A value that may be absent.
    Pointer(&'static str),
    /// A list of that type.
    List(&'static str),
    /// A map from text to that type.
    Map(&'static str),
    /// An object with these fields.
    Struct(&'static [Field]),
    /// Text.
    Text,
    /// True or false.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A resource quantity.
    Quantity,
    /// A moment.
    Time,
    /// A port number or a name.
    IntOrString,
    /// Some object that is kept as it is.
    Raw,
}

/// One field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its name in Go.
    pub(crate) go_name: &'static str,
    /// Its type in Go.
    pub(crate) ty: &'static str,
    /// Its name in JSON; `None` where its fields stand directly in the parent's object.
    pub(crate) json: Option<&'static str>,
}

enum Definition {
    Struct(&'static [Field]),
    Alias(&'static str),
}

/// What `ty`, in Go's spelling, is.
pub(crate) fn shape(ty: &'static str) -> Shape {
    if let Some(inner) = ty.strip_prefix('*') {
        return Shape::Pointer(inner);
    }
    if let Some(inner) = ty.strip_prefix("[]") {
        return Shape::List(inner);
    }
    if let Some((_, value)) = ty.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return Shape::Map(value);
    }
    match ty {
        "string" => Shape::Text,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "resource.Quantity" => Shape::Quantity,
        "v1.Time" => Shape::Time,
        "intstr.IntOrString" => Shape::IntOrString,
        "v1.FieldsV1" => Shape::Raw,
        _ => match table().get(ty) {
            Some(Definition::Struct(fields)) => Shape::Struct(fields),
            Some(Definition::Alias(inner)) => shape(inner),
            // A test walks the whole table, so a hole in it cannot stay.
            None => Shape::Raw,
        },
    }
}

/// Every field that may stand in the JSON object of `fields`, inlined ones included.
pub(crate) fn json_fields(
    fields: &'static [Field],
) -> Box<dyn Iterator<Item = (&'static str, &'static str)>> {
    Box::new(fields.iter().flat_map(
        |field| -> Box<dyn Iterator<Item = (&'static str, &'static str)>> {
            match (field.json, shape(field.ty)) {
                (Some(name), _) => Box::new(std::iter::once((name, field.ty))),
                (None, Shape::Struct(inner)) => json_fields(inner),
                (None, _) => Box::new(std::iter::empty()),
            }
        },
    ))
}

fn table() -> &'static HashMap<&'static str, Definition> {
    static TABLE: OnceLock<HashMap<&'static str, Definition>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = HashMap::new();
        let mut open: Option<(&'static str, Vec<Field>)> = None;
        for line in include_str!("schema.txt").lines() {
            if let Some(field) = line.strip_prefix(' ') {
                let mut words = field.split(' ');
                if let (Some(go_name), Some(ty), Some(json), Some((_, fields))) =
                    (words.next(), words.next(), words.next(), open.as_mut())
                {
                    let json = (json != ".").then_some(json);
                    fields.push(Field { go_name, ty, json });
                }
                continue;
            }
            close(&mut table, open.take());
            if let Some((name, kind)) = line.split_once(" = ") {
                table.insert(name, Definition::Alias(kind));
            } else if !line.starts_with('#') {
                open = Some((line, Vec::new()));
            }
        }
        close(&mut table, open);
        table
    })
}

/// The table lives as long as the process, so its lists may too.
fn close(table: &mut HashMap<&'static str, Definition>, open: Option<(&'static str, Vec<Field>)>) {
    if let Some((name, fields)) = open {
        table.insert(name, Definition::Struct(Vec::leak(fields)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn walk(ty: &'static str, seen: &mut BTreeSet<&'static str>) {
        if !seen.insert(ty) {
            return;
        }
        match shape(ty) {
            Shape::Pointer(inner) | Shape::List(inner) | Shape::Map(inner) => walk(inner, seen),
            Shape::Struct(fields) => {
                assert!(!fields.is_empty(), "{ty} has no fields");
                fields.iter().for_each(|field| walk(field.ty, seen));
            }
            Shape::Raw => assert_eq!(ty, "v1.FieldsV1", "{ty} is not in the table"),
            _ => {}
        }
    }

    #[test]
    fn every_type_of_a_pod_is_in_the_table() {
        let mut seen = BTreeSet::new();
        walk(POD, &mut seen);
        assert!(seen.len() > 200, "{}", seen.len());
    }

    #[test]
    fn inlined_fields_are_found_under_their_parent() {
        let Shape::Struct(fields) = shape("core.Volume") else {
            panic!("a volume is a struct");
        };
        let names: Vec<_> = json_fields(fields).map(|(name, _)| name).collect();
        assert!(names.contains(&"name") && names.contains(&"hostPath"), "{names:?}");
    }
}
