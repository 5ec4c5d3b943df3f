//! PAX records: `LENGTH KEY=VALUE\n`, which say what the fixed fields of the next header cannot.

use std::collections::BTreeMap;

use super::header::user;

/// How extended attributes are told.
const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";

/// The records that mean something to us.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) modified: Option<(i64, u32)>,
    pub(super) attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) is_sparse: bool,
}

/// Reads one extended header. A key without value takes back what an earlier record said.
pub(super) fn parse(mut text: &[u8]) -> Result<Records, &'static str> {
    let mut records = Records::default();
    while !text.is_empty() {
        let (key, value, rest) = record(text).ok_or("a broken PAX record")?;
        records.take(key, value)?;
        text = rest;
    }
    Ok(records)
}

/// Key, value and what follows the first record. The length counts itself.
fn record(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = text.iter().position(|&byte| byte == b' ')?;
    let digits = std::str::from_utf8(&text[..blank]).ok()?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let length: usize = digits.parse().ok()?;
    if length <= blank + 1 || length > text.len() {
        return None;
    }
    let (record, rest) = text.split_at(length);
    let record = record[blank + 1..].strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    let (key, value) = (&record[..equals], &record[equals + 1..]);
    (!key.is_empty()).then_some((key, value, rest))
}

impl Records {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let given = (!value.is_empty()).then_some(value);
        match key {
            b"path" => self.path = given.map(name).transpose()?,
            b"linkpath" => self.link = given.map(name).transpose()?,
            b"size" => self.size = given.map(integer).transpose()?.map(size).transpose()?,
            b"uid" => self.uid = given.map(integer).transpose()?.map(owner).transpose()?,
            b"gid" => self.gid = given.map(integer).transpose()?.map(owner).transpose()?,
            b"mtime" => self.modified = given.map(time).transpose()?,
            _ if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
            _ => {
                if let Some(attribute) = key.strip_prefix(XATTR_PREFIX) {
                    if attribute.is_empty() || attribute.contains(&0) {
                        return Err("an extended attribute without a usable name");
                    }
                    // An attribute may be empty: there is no header's value to go back to.
                    self.attributes.insert(attribute.to_vec(), value.to_vec());
                }
            }
        }
        Ok(())
    }
}

fn name(value: &[u8]) -> Result<Vec<u8>, &'static str> {
    if value.contains(&0) { Err("a name with a NUL byte") } else { Ok(value.to_vec()) }
}

fn integer(value: &[u8]) -> Result<i64, &'static str> {
    let text = std::str::from_utf8(value).map_err(|_| "a PAX number that is none")?;
    text.parse().map_err(|_| "a PAX number that is none")
}

fn size(value: i64) -> Result<u64, &'static str> {
    u64::try_from(value).map_err(|_| "a negative size")
}

fn owner(value: i64) -> Result<u32, &'static str> {
    user(value).ok_or("an owner out of range")
}

/// Seconds with up to nine digits after the point; more are cut off. Before 1970 both parts count backwards.
fn time(value: &[u8]) -> Result<(i64, u32), &'static str> {
    const FAULT: &str = "a PAX time that is none";
    let text = std::str::from_utf8(value).map_err(|_| FAULT)?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = seconds.parse().map_err(|_| FAULT)?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FAULT);
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().map_err(|_| FAULT)?;
    if seconds.starts_with('-') && nanoseconds > 0 {
        let before = whole.checked_sub(1).ok_or(FAULT)?;
        return Ok((before, 1_000_000_000 - nanoseconds));
    }
    Ok((whole, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        let text = b"10 uid=17\n28 SCHILY.xattr.user.a=x=\ny\n";
        let records = parse(text).unwrap();
        assert_eq!(records.uid, Some(17));
        assert_eq!(records.attributes, BTreeMap::from([(b"user.a".to_vec(), b"x=\ny".to_vec())]));
    }

    #[test]
    fn broken_records_are_refused() {
        let cases: [&[u8]; 10] = [
            b"8 uid=17\n",
            b"11 uid=17\n",
            b"uid=17\n",
            b"+10 uid=1\n",
            b"99999999999999999999 a=b\n",
            b"5 =b\n",
            b"6 uid\n",
            b"3 \n",
            b"11 path=a\0\n",
            b"12 size=-10\n",
        ];
        for case in cases {
            assert!(parse(case).is_err(), "{}", String::from_utf8_lossy(case));
        }
    }

    #[test]
    fn an_empty_value_takes_back() {
        assert_eq!(parse(b"11 path=ab\n8 path=\n").unwrap().path, None);
    }

    #[test]
    fn times_have_nanoseconds_on_both_sides_of_1970() {
        assert_eq!(time(b"12.5"), Ok((12, 500_000_000)));
        assert_eq!(time(b"12"), Ok((12, 0)));
        assert_eq!(time(b"-1.25"), Ok((-2, 750_000_000)));
        assert_eq!(time(b"-0.25"), Ok((-1, 750_000_000)));
        assert_eq!(time(b"1.1234567899"), Ok((1, 123_456_789)));
        assert!(time(b"1.x").is_err() && time(b"").is_err());
    }
}
