//! Which volumes this agent has given to which groups: once for each mount, as upstream does, however often a pod is looked at.
//!
//! A local volume that several pods have is given to the group of the first; the others are told. Kept in memory only: after
//! a restart a volume is given once more, which costs little where nothing has changed. Refuses: giving, which is `provide`'s.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ferrolet_ports::VolumePlace;

/// Volumes of pods and the groups that they were given to.
#[derive(Default)]
pub(crate) struct Gifts(Mutex<BTreeMap<VolumePlace, u32>>);

/// What became of a volume before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing that we know of.
    Nothing,
    /// It was given for this pod.
    Given,
    /// It was given to that group for another pod, which has it still.
    GivenForAnother(u32),
}

impl Gifts {
    fn given(&self) -> MutexGuard<'_, BTreeMap<VolumePlace, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn before(&self, place: &VolumePlace) -> Before {
        let given = self.given();
        if given.contains_key(place) {
            return Before::Given;
        }
        let mut others = given.iter();
        let other = others.find(|(it, _)| it.plugin == place.plugin && it.name == place.name);
        other.map_or(Before::Nothing, |(_, group)| Before::GivenForAnother(*group))
    }

    /// The volume has that group now, for this pod.
    pub(crate) fn note(&self, place: &VolumePlace, group: u32) {
        self.given().insert(place.clone(), group);
    }

    /// The pod has the volume no longer.
    pub(crate) fn forget(&self, place: &VolumePlace) {
        self.given().remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_given_once_for_all_who_share_it() {
        let place = |uid: &str, name: &str| VolumePlace {
            uid: uid.into(),
            plugin: "p".to_owned(),
            name: name.to_owned(),
        };
        let gifts = Gifts::default();
        assert_eq!(gifts.before(&place("a", "v")), Before::Nothing);
        gifts.note(&place("a", "v"), 7);
        assert_eq!(gifts.before(&place("a", "v")), Before::Given);
        assert_eq!(gifts.before(&place("b", "v")), Before::GivenForAnother(7));
        assert_eq!(gifts.before(&place("b", "w")), Before::Nothing);
        gifts.forget(&place("a", "v"));
        assert_eq!(gifts.before(&place("b", "v")), Before::Nothing);
    }
}
