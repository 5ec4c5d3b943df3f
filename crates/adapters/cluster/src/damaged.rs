//! What others write, damaged in every way: whatever comes, the parsers of this crate answer, and with
//! no more than they were given.
//!
//! Seeds are what real servers and people write; each round cuts, repeats and overwrites some of it.
//! The same seed of chance every time, so that what fails fails again.

use std::{collections::BTreeMap, io, path::Path};

use fastrand::Rng;
use ferrolet_ports::ReadFile;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};

use crate::{
    answer,
    client::testing::{Lines, read_list},
    decode, kubeconfig,
    watch::testing::read_frame,
};

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"u","resourceVersion":"12",
"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}],"labels":{"a":"\u00e9\"]"}},"spec":{"containers":[{"name":"c"}]}}"#;

/// Calls `take` with so many damaged versions of the seeds.
fn damaged(seeds: &[&str], n_rounds: usize, mut take: impl FnMut(&[u8])) {
    let mut chance = Rng::with_seed(47);
    for _ in 0..n_rounds {
        let seed = seeds[chance.usize(..seeds.len())];
        let mut bytes = seed.as_bytes().to_vec();
        for _ in 0..chance.usize(1..6) {
            damage(&mut bytes, &mut chance);
        }
        take(&bytes);
    }
}

fn damage(bytes: &mut Vec<u8>, chance: &mut Rng) {
    if bytes.is_empty() {
        bytes.push(chance.u8(..));
        return;
    }
    let at = chance.usize(..bytes.len());
    let end = at + chance.usize(..=(bytes.len() - at).min(16));
    match chance.u8(..5) {
        0 => bytes[at] = chance.u8(..),
        1 => drop(bytes.drain(at..end)),
        2 => bytes.truncate(at),
        3 => {
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
        _ => {
            let odd = *chance.choice(b"\"\\{}[]:,-\n\x00\xff09ne").expect("there are some");
            bytes.insert(at, odd);
        }
    }
}

#[test]
fn lines_of_a_watch_and_lists_may_be_anything() {
    let event = format!(r#"{{"type":"ADDED","object":{POD}}}"#);
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
    let list =
        format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{POD},{POD}]}}"#);
    damaged(&[&event, gone], 5_000, |bytes| {
        read_frame::<Pod>(bytes);
    });
    damaged(&[&list], 3_000, |bytes| {
        let n = bytes.len();
        let mut bytes = bytes.to_vec();
        if let Ok(list) = read_list::<Pod>(&mut bytes) {
            assert!(list.objects.len() + list.unreadable.len() <= n);
        }
        drop(read_list::<ConfigMap>(&mut bytes));
    });
}

#[test]
fn blanking_keeps_the_length_and_text_that_was_json_stays_so() {
    damaged(&[POD], 20_000, |bytes| {
        let was_json = serde_json::from_slice::<serde_json::Value>(bytes).is_ok();
        let mut blanked = bytes.to_vec();
        decode::blank_managed_fields(&mut blanked);
        assert_eq!(blanked.len(), bytes.len());
        let is_json = serde_json::from_slice::<serde_json::Value>(&blanked).is_ok();
        assert!(is_json || !was_json, "{}", String::from_utf8_lossy(bytes));
    });
}

#[test]
fn lines_come_out_as_they_were_put_in_however_they_are_cut() {
    let mut chance = Rng::with_seed(48);
    for _ in 0..2_000 {
        let text: Vec<u8> =
            (0..chance.usize(..200)).map(|_| *chance.choice(b"ab\n\xff").unwrap()).collect();
        let expected: Vec<&[u8]> = match text.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => text[..end].split(|byte| *byte == b'\n').collect(),
            None => Vec::new(),
        };
        let expected: Vec<&[u8]> = expected.into_iter().filter(|it| !it.is_empty()).collect();
        let (mut lines, mut seen) = (Lines::new(1000), Vec::new());
        let mut rest = text.as_slice();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(chance.usize(1..=rest.len()));
            lines.push(piece);
            while let Some(line) = lines.next().unwrap() {
                seen.push(line);
            }
            rest = more;
        }
        assert_eq!(seen, expected);
    }
}

#[test]
fn refusals_may_be_anything() {
    let status = r#"{"kind":"Status","status":"Failure","message":"m","reason":"TooManyRequests",
        "details":{"retryAfterSeconds":7,"causes":[{"field":"f","message":"m"}]},"code":429}"#;
    let mut chance = Rng::with_seed(49);
    damaged(&[status, "bad gateway\nmore"], 10_000, |bytes| {
        let error = answer::refusal("GET /x".to_owned(), chance.u16(..), None, bytes);
        assert!(!error.message.is_empty());
    });
}

struct Files(BTreeMap<&'static str, &'static str>);

impl ReadFile for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = self.0.get(path.to_str().unwrap_or_default());
        text.map(|text| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[test]
fn kubeconfigs_may_be_anything() {
    let files = Files(BTreeMap::from([("/etc/k/ca.crt", "AUTHORITY"), ("/etc/k/token", "secret")]));
    let seeds = [
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{name: c, context: {cluster: k, user: u}}]\n\
         clusters: [{name: k, cluster: {server: 'https://1.2.3.4:6443/', certificate-authority: ca.crt}}]\n\
         users: [{name: u, user: {tokenFile: token}}]\n",
        "clusters:\n- name: &a k\n  cluster: {server: 'http://[::1]:1', proxy-url: socks5://x:1}\nusers: *a\n",
    ];
    damaged(&seeds, 2_000, |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            drop(kubeconfig::resolve("kubeconfig", text, Path::new("/etc/k"), &files));
        }
    });
}
