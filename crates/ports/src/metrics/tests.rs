//! The table against upstream's list, and against the places that count.

use std::{collections::BTreeSet, fs, path::Path};

use super::table::families;
use super::*;

/// Endpoint, name, type, stability, labels of each family that upstream shows.
fn upstream() -> impl Iterator<Item = [&'static str; 5]> {
    let lines = include_str!("upstream.txt").lines();
    lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        words.try_into().expect("five words in each line")
    })
}

fn word(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Metrics => "metrics",
        Endpoint::Resource => "resource",
        Endpoint::Probes => "probes",
        Endpoint::Slis => "slis",
    }
}

#[test]
fn every_family_is_upstreams_and_none_is_there_twice() {
    for family in families() {
        for endpoint in family.endpoints {
            let mut all = upstream().filter(|it| it[0] == word(*endpoint));
            let found = all.find(|it| it[1] == family.name);
            let [.., kind, stability, labels] = found.unwrap_or_else(|| panic!("{}", family.name));
            assert_eq!(kind, family.kind.word(), "{}", family.name);
            assert_eq!(stability, family.stability.word().to_lowercase(), "{}", family.name);
            let mut labels: Vec<&str> = labels.split(',').filter(|it| *it != "-").collect();
            labels.sort_unstable();
            assert_eq!(labels, family.labels, "{}", family.name);
        }
        assert!(family.help.ends_with('.') && !family.help.contains('\n'));
        assert_eq!(family.id as usize, families().iter().position(|it| it == family).unwrap());
        // The handle is called as the family.
        assert_eq!(format!("{:?}", family.id), family.name.to_uppercase());
        let is_rising = family.bounds.is_sorted_by(|one, next| one < next);
        assert!(is_rising, "{}", family.name);
    }
    let names: Vec<&str> = families().iter().map(|it| it.name).collect();
    assert!(names.is_sorted_by(|one, next| one < next), "in order, once each");
    // What upstream promises to keep is all here; where nobody measures it yet, nothing is shown.
    for [_, name, _, stability, _] in upstream() {
        let is_promised = ["stable", "beta"].contains(&stability);
        assert!(names.contains(&name) || !is_promised, "{name}");
    }
}

/// Words of the production code below a directory, this module's apart.
fn words(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_ours = directory.ends_with("ports/src") && name == "metrics";
        if path.is_dir() && !is_ours && !["tests", "main_tests", "target"].contains(&&*name) {
            words(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            // What a module's own tests count is not counted for anybody else.
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let all = code.flat_map(|line| line.split(move |c| !is_part(c)));
            found.extend(all.filter(|it| !it.is_empty()).map(str::to_owned));
        }
    }
}

/// A handle that nobody uses would promise a family that is never counted. The other way round is
/// the compiler's business.
#[test]
fn every_family_of_the_table_is_counted_somewhere() {
    let mut found = BTreeSet::new();
    words(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut found);
    for family in families() {
        assert!(found.contains(&format!("{:?}", family.id)), "nobody counts {}", family.name);
        // A name as a text is what handles are instead of; cAdvisor's has two in common.
        let is_a_word = found.contains(family.name);
        let is_cadvisors = family.name.starts_with("container_");
        assert!(!is_a_word || is_cadvisors, "{} stands as a text somewhere", family.name);
    }
}

#[test]
fn what_is_added_is_shown_until_it_is_forgotten() {
    let tally = Tally::new();
    tally.add(KUBELET_EVICTIONS, ["a"], 1.0);
    tally.add(KUBELET_EVICTIONS, ["a"], 2.0);
    tally.add(KUBELET_EVICTIONS, ["b"], 1.0);
    tally.adjust(WORKQUEUE_DEPTH, ["line"], 2.0);
    tally.adjust(WORKQUEUE_DEPTH, ["line"], -1.0);
    for seen in [0.5, 1.0, 17.0] {
        tally.observe(KUBELET_CONTAINERS_PER_POD_COUNT, [], seen);
    }
    let histogram = KUBELET_CONTAINERS_PER_POD_COUNT.sample([], &[2, 0, 0, 0, 0], 1, 18.5);
    let expected = [
        histogram,
        KUBELET_EVICTIONS.sample(["a"], 3.0),
        KUBELET_EVICTIONS.sample(["b"], 1.0),
        WORKQUEUE_DEPTH.sample(["line"], 1.0),
    ];
    assert_eq!(tally.samples(), expected);
    tally.forget(KUBELET_EVICTIONS, |labels| labels == ["a"]);
    assert_eq!(tally.samples_of(KUBELET_EVICTIONS), [KUBELET_EVICTIONS.sample(["b"], 1.0)]);
    tally.clear();
    assert!(tally.samples().is_empty());
}
