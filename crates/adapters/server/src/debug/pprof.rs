//! A profile in pprof's format: gzipped protobuf, addresses and mappings without names.
//!
//! Numbers of messages and fields are those of `profile.proto`. Pure.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use ferrolet_ports::Profile;
use flate2::{Compression, write::GzEncoder};

use crate::protobuf::{message, number};

/// A kind of figure and its unit.
pub(super) type Kind = (&'static str, &'static str);

/// The file's bytes.
pub(super) fn encode(
    profile: &Profile,
    kinds: &[Kind],
    period: Kind,
    span: Option<Duration>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut texts = Texts::default();
    for kind in kinds {
        message(1, &value_type(&mut texts, *kind), &mut out);
    }
    let mut locations: BTreeMap<u64, u64> = BTreeMap::new();
    for sample in &profile.samples {
        let mut inner = Vec::new();
        for address in &sample.stack {
            let next = locations.len() as u64 + 1;
            let id = *locations.entry(*address).or_insert(next);
            number(1, id, &mut inner);
        }
        for figure in &sample.figures {
            number(2, figure.cast_unsigned(), &mut inner);
        }
        message(2, &inner, &mut out);
    }
    for (id, mapping) in (1..).zip(&profile.mappings) {
        let mut inner = Vec::new();
        number(1, id, &mut inner);
        number(2, mapping.start, &mut inner);
        number(3, mapping.end, &mut inner);
        number(4, mapping.offset, &mut inner);
        number(5, texts.index(&mapping.file), &mut inner);
        message(3, &inner, &mut out);
    }
    for (address, id) in &locations {
        let mut inner = Vec::new();
        number(1, *id, &mut inner);
        let within = |it: &ferrolet_ports::CodeMapping| (it.start..it.end).contains(address);
        let mapping = profile.mappings.iter().position(within);
        // Zero says that it is in none of them.
        number(2, mapping.map_or(0, |at| at as u64 + 1), &mut inner);
        number(3, *address, &mut inner);
        message(4, &inner, &mut out);
    }
    if let Some(span) = span {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        number(10, nanos, &mut out);
    }
    message(11, &value_type(&mut texts, period), &mut out);
    number(12, profile.period.cast_unsigned(), &mut out);
    for text in &texts.all {
        message(6, text.as_bytes(), &mut out);
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed
        .write_all(&out)
        .and_then(|()| packed.finish())
        .expect("a vector takes all that is written to it")
}

fn value_type(texts: &mut Texts, (kind, unit): Kind) -> Vec<u8> {
    let mut inner = Vec::new();
    number(1, texts.index(kind), &mut inner);
    number(2, texts.index(unit), &mut inner);
    inner
}

/// Texts are named by their place in a table that begins with the empty one.
struct Texts {
    all: Vec<String>,
}

impl Default for Texts {
    fn default() -> Self {
        Self { all: vec![String::new()] }
    }
}

impl Texts {
    fn index(&mut self, text: &str) -> u64 {
        let known = self.all.iter().position(|it| it == text);
        let at = known.unwrap_or_else(|| {
            self.all.push(text.to_owned());
            self.all.len() - 1
        });
        at as u64
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use ferrolet_ports::{CodeMapping, ProfileSample};

    use super::*;

    #[test]
    fn a_profile_is_gzipped_protobuf() {
        let profile = Profile {
            samples: vec![ProfileSample { stack: vec![0x1010, 0x9], figures: vec![3] }],
            mappings: vec![CodeMapping {
                start: 0x1000,
                end: 0x2000,
                offset: 0,
                file: "/bin/x".to_owned(),
            }],
            period: 7,
        };
        let packed = encode(&profile, &[("a", "b")], ("a", "b"), None);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
        let expected = [
            &b"\x0a\x04\x08\x01\x10\x02"[..],
            b"\x12\x06\x08\x01\x08\x02\x10\x03",
            b"\x1a\x0c\x08\x01\x10\x80\x20\x18\x80\x40\x20\x00\x28\x03",
            b"\x22\x06\x08\x02\x10\x00\x18\x09",
            b"\x22\x07\x08\x01\x10\x01\x18\x90\x20",
            b"\x5a\x04\x08\x01\x10\x02",
            b"\x60\x07",
            b"\x32\x00\x32\x01a\x32\x01b\x32\x06/bin/x",
        ];
        assert_eq!(plain, expected.concat());
    }
}
