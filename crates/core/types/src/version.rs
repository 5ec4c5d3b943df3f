//! Which of two copies of an object is the newer one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// True when `other` is an older copy of the same object. Resource versions of one object are
/// ordered numbers; whatever is not a number is taken as news, because a stale copy is corrected by
/// the next one and a refused one never is.
pub fn is_older(other: &ObjectMeta, known: &ObjectMeta) -> bool {
    let number = |metadata: &ObjectMeta| metadata.resource_version.as_ref()?.parse::<u128>().ok();
    other.uid == known.uid
        && matches!((number(other), number(known)), (Some(other), Some(known)) if other < known)
}

/// True when both are the same copy of the same object.
pub fn is_same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    one.uid == other.uid
        && one.resource_version.is_some()
        && one.resource_version == other.resource_version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_smaller_number_of_the_same_object_is_older() {
        let copy = |uid: &str, version: Option<&str>| ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: version.map(str::to_owned),
            ..ObjectMeta::default()
        };
        let check = |other: (&str, Option<&str>), known: (&str, Option<&str>), expected: bool| {
            let (other, known) = (copy(other.0, other.1), copy(known.0, known.1));
            assert_eq!(is_older(&other, &known), expected, "{other:?} {known:?}");
        };
        check(("a", Some("9")), ("a", Some("10")), true);
        check(("a", Some("10")), ("a", Some("10")), false);
        check(("a", Some("11")), ("a", Some("10")), false);
        check(("a", Some("9")), ("b", Some("10")), false);
        check(("a", None), ("a", Some("10")), false);
        check(("a", Some("x")), ("a", Some("10")), false);
    }
}
