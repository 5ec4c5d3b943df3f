//! Since when images are known and when they were last used. Pure; forgets what is no longer here.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_images::ImageName;
use ferrolet_ports::{ImageInfo, RuntimeListing};
use ferrolet_types::{
    Pod, Timestamp,
    pod::{Phase, PodView as _},
};

/// The history of the images that are here.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<String, History>,
}

#[derive(Clone, Copy, Debug)]
struct History {
    first_seen: Timestamp,
    last_used: Option<Timestamp>,
}

/// An image and what decides about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) id: String,
    /// For people.
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) first_seen: Timestamp,
    pub(super) last_used: Option<Timestamp>,
    pub(super) is_used: bool,
    pub(super) is_pinned: bool,
}

impl Ledger {
    /// Takes a look at what is here and what uses it.
    pub(super) fn look(
        &mut self,
        images: &[ImageInfo],
        used: &BTreeSet<String>,
        now: Timestamp,
    ) -> Vec<Known> {
        let here: BTreeSet<&String> = images.iter().map(|it| &it.id).collect();
        self.entries.retain(|id, _| here.contains(id));
        let mut known: Vec<Known> = images
            .iter()
            .map(|image| {
                let entry = self
                    .entries
                    .entry(image.id.clone())
                    .or_insert(History { first_seen: now, last_used: None });
                let is_used = used.contains(&image.id);
                if is_used {
                    entry.last_used = Some(now);
                }
                let names = image.tags.iter().chain(&image.digests);
                Known {
                    id: image.id.clone(),
                    name: names.clone().next().unwrap_or(&image.id).clone(),
                    size: image.size,
                    first_seen: entry.first_seen,
                    last_used: entry.last_used,
                    is_used,
                    is_pinned: image.is_pinned,
                }
            })
            .collect();
        known.sort_by(|a, b| a.id.cmp(&b.id));
        known.dedup_by(|a, b| a.id == b.id);
        known
    }
}

/// Which images are in use: by containers, dead ones too, and by pods of this node that have not
/// ended.
pub(super) fn used(
    images: &[ImageInfo],
    listing: &RuntimeListing,
    pods: &[Pod],
) -> BTreeSet<String> {
    let mut wanted: BTreeSet<String> =
        listing.containers.iter().map(|it| it.image_ref.clone()).collect();
    for pod in pods {
        if !pod.api_phase().is_some_and(Phase::is_terminal) {
            wanted.extend(names_of(pod));
        }
    }
    let is_wanted = |image: &&ImageInfo| {
        let mut names = image.tags.iter().chain(&image.digests).chain([&image.id]);
        names.any(|name| wanted.contains(name))
    };
    images.iter().filter(is_wanted).map(|it| it.id.clone()).collect()
}

/// The images that a pod names, as written and as a runtime spells them out.
fn names_of(pod: &Pod) -> Vec<String> {
    let spec = pod.spec_ref();
    let init = spec.init_containers.iter().flatten();
    let containers = init.chain(&spec.containers).map(|it| it.image.as_deref());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|it| it.image.as_deref());
    let volumes = spec.volumes.iter().flatten();
    let volumes = volumes.map(|it| it.image.as_ref()?.reference.as_deref());
    let mut names = Vec::new();
    for name in containers.chain(ephemeral).chain(volumes).flatten() {
        names.push(name.to_owned());
        if let Ok(parsed) = ImageName::parse(name) {
            let full = parsed.with_default_tag();
            let rest = &full[parsed.repository().len()..];
            names.push(format!("{}{rest}", parsed.place()));
        }
    }
    names
}
