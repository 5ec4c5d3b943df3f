//! Who a process is, from the container's own `passwd` and `group`.
//!
//! Pure: the files' bytes in, numbers out. Lines that make no sense are passed over, as the C
//! library does. A name that is not there is an error: guessing would mean root.

use std::str;

use ferrolet_runtime_protocol::launch::{GroupsPolicy, User};

use crate::failure::Failure;

/// The largest id that may be asked for: what does not fit into a signed number has been taken for
/// root before.
const MAX_ID: u32 = i32::MAX.cast_unsigned();

/// Who a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// All groups, the first one included.
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
}

/// A line of `passwd`.
struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

pub(crate) fn resolve(user: &User, passwd: &[u8], group: &[u8]) -> Result<Identity, Failure> {
    let wanted = if user.user.is_empty() { "0" } else { &user.user };
    let (uid, account) = match number(wanted) {
        Some(Ok(uid)) => (uid, accounts(passwd).find(|it| it.uid == uid)),
        Some(Err(())) => return Err(Failure::refused("user id out of range:", wanted)),
        None => {
            let found = accounts(passwd).find(|it| it.name == wanted);
            let found = found.ok_or_else(|| Failure::refused("no such user in image:", wanted))?;
            (found.uid, Some(found))
        }
    };
    let gid = if user.group.is_empty() {
        account.as_ref().map_or(0, |it| it.gid)
    } else {
        match number(&user.group) {
            Some(Ok(gid)) => gid,
            Some(Err(())) => {
                return Err(Failure::refused("group id out of range:", &*user.group));
            }
            None => groups(group)
                .find(|it| it.name == user.group)
                .map(|it| it.gid)
                .ok_or_else(|| Failure::refused("no such group in image:", &*user.group))?,
        }
    };
    let mut all = vec![gid];
    all.extend(&user.supplemental_groups);
    if let (GroupsPolicy::Merge, Some(account)) = (user.policy(), &account) {
        let of_user = groups(group).filter(|it| it.members.split(',').any(|it| it == account.name));
        all.extend(of_user.map(|it| it.gid));
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|gid| seen.insert(*gid));
    let home = account.map_or("/", |it| it.home).to_owned();
    Ok(Identity { uid, gid, groups: all, home })
}

/// A number, or one that is out of range; none: a name.
fn number(text: &str) -> Option<Result<u32, ()>> {
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().ok().filter(|id| *id <= MAX_ID).ok_or(()))
}

fn accounts(passwd: &[u8]) -> impl Iterator<Item = Account<'_>> {
    lines(passwd).filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let _password = fields.next()?;
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        let _comment = fields.next();
        let home = fields.next().filter(|it| !it.is_empty()).unwrap_or("/");
        Some(Account { name, uid, gid, home })
    })
}

/// A line of `group`.
struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

fn groups(group: &[u8]) -> impl Iterator<Item = Group<'_>> {
    lines(group).filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let _password = fields.next()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Group { name, gid, members: fields.next().unwrap_or("") })
    })
}

fn lines(content: &[u8]) -> impl Iterator<Item = &str> {
    content.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\n\xff\xfe\nbroken\n\
        www:x:33:34::/var/www:\nnohome:x:40:41:::\n";
    const GROUP: &[u8] = b"root:x:0:\nweb:x:34:\nlogs:x:50:other,www\nmore:x:51:www\nstaff:x:60:";

    fn user(user: &str, group: &str) -> User {
        User { user: user.into(), group: group.into(), ..User::default() }
    }

    fn check(who: &User) -> Result<(u32, u32, Vec<u32>, String), String> {
        resolve(who, PASSWD, GROUP)
            .map(|it| (it.uid, it.gid, it.groups, it.home))
            .map_err(|it| format!("{} {}", it.message().step, it.message().path))
    }

    #[test]
    fn names_and_numbers_are_found_in_the_images_files() {
        let found =
            |uid, gid, groups: &[u32], home: &str| Ok((uid, gid, groups.to_vec(), home.to_owned()));
        let cases = [
            (user("", ""), found(0, 0, &[0], "/root")),
            (user("www", ""), found(33, 34, &[34, 50, 51], "/var/www")),
            (user("33", ""), found(33, 34, &[34, 50, 51], "/var/www")),
            (user("www", "staff"), found(33, 60, &[60, 50, 51], "/var/www")),
            (user("1000", "5"), found(1000, 5, &[5], "/")),
            (user("1000", ""), found(1000, 0, &[0], "/")),
            (user("nohome", ""), found(40, 41, &[41], "/")),
            (user("nobody", ""), Err("no such user in image: nobody".to_owned())),
            (user("0", "nogroup"), Err("no such group in image: nogroup".to_owned())),
        ];
        for (who, expected) in cases {
            assert_eq!(check(&who), expected, "{who:?}");
        }
    }

    #[test]
    fn ids_that_are_none_are_refused_and_never_taken_for_root() {
        for text in ["2147483648", "4294967296", "99999999999999999999"] {
            assert_eq!(check(&user(text, "")), Err(format!("user id out of range: {text}")));
            assert_eq!(check(&user("", text)), Err(format!("group id out of range: {text}")));
        }
        for text in ["-1", "+0", " 0", "0x0", "0 "] {
            assert_eq!(check(&user(text, "")), Err(format!("no such user in image: {text}")));
        }
    }

    #[test]
    fn strict_groups_are_those_that_were_asked_for() {
        let supplemental_groups = vec![7, 34, 7];
        let strict = GroupsPolicy::Strict.into();
        let merged = User { supplemental_groups: supplemental_groups.clone(), ..user("www", "") };
        assert_eq!(check(&merged).unwrap().2, [34, 7, 50, 51]);
        let strict = User { policy: strict, ..merged };
        assert_eq!(check(&strict).unwrap().2, [34, 7]);
    }
}
