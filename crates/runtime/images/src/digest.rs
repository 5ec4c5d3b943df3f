//! Content digests: the only names that a blob, a manifest or a layer has here.
//!
//! In: text from manifests and references, or bytes as they pass. Out: a [`Digest`] that is known to be well formed.
//! Refuses algorithms that cannot be checked, so that holding a digest means that its content can be verified.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};

/// An algorithm and its value in lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Algorithm {
    Sha256,
    Sha512,
}

/// A text that is no digest, or one of an algorithm that cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a sha256 or sha512 digest")]
pub struct DigestError(String);

impl Digest {
    /// The SHA-256 of bytes that are all there.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::sha256();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digits alone.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// The digest as the name of a file: a colon would have to be escaped in overlay's options.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}-{}", self.algorithm.name(), self.hex)
    }

    /// Reads what [`Self::file_name`] wrote.
    pub fn from_file_name(name: &str) -> Result<Self, DigestError> {
        name.replacen('-', ":", 1).parse()
    }

    /// A hasher whose result can be compared with this digest.
    #[must_use]
    pub fn hasher(&self) -> Hasher {
        match self.algorithm {
            Algorithm::Sha256 => Hasher::sha256(),
            Algorithm::Sha512 => Hasher(State::Sha512(Box::default())),
        }
    }
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn n_digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let refuse = || DigestError(text.chars().take(200).collect());
        let (name, hex) = text.split_once(':').ok_or_else(refuse)?;
        let algorithm = [Algorithm::Sha256, Algorithm::Sha512]
            .into_iter()
            .find(|it| it.name() == name)
            .ok_or_else(refuse)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() != algorithm.n_digits() || !hex.bytes().all(is_digit) {
            return Err(refuse());
        }
        Ok(Self { algorithm, hex: hex.to_owned() })
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.hex)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest in the making.
#[derive(Clone)]
pub struct Hasher(State);

#[derive(Clone)]
enum State {
    Sha256(Box<Sha256>),
    Sha512(Box<Sha512>),
}

impl Hasher {
    /// A hasher for SHA-256.
    #[must_use]
    pub fn sha256() -> Self {
        Self(State::Sha256(Box::default()))
    }

    /// Takes more bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
        }
    }

    /// The digest of everything taken in.
    #[must_use]
    pub fn finish(self) -> Digest {
        match self.0 {
            State::Sha256(state) => {
                Digest { algorithm: Algorithm::Sha256, hex: hex(&state.finalize()) }
            }
            State::Sha512(state) => {
                Digest { algorithm: Algorithm::Sha512, hex: hex(&state.finalize()) }
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_what_the_world_computes() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        let abc = "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                   2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
        let digest: Digest = abc.parse().unwrap();
        let mut hasher = digest.hasher();
        hasher.update(b"a");
        hasher.update(b"bc");
        assert_eq!(hasher.finish(), digest);
    }

    #[test]
    fn a_file_name_reads_back_and_has_no_colon() {
        let digest: Digest = EMPTY.parse().unwrap();
        assert!(!digest.file_name().contains(':'));
        assert_eq!(Digest::from_file_name(&digest.file_name()), Ok(digest));
    }

    #[test]
    fn what_cannot_be_checked_or_is_a_path_is_no_digest() {
        let upper = EMPTY.to_uppercase();
        let dots = format!("sha256:{}", "../".repeat(22).get(..64).unwrap());
        for text in [
            "",
            "sha256",
            "sha256:",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            &upper,
            &dots,
            &EMPTY[..70],
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
