//! May a pod use an image that is already here, or does it have to prove by a pull that its
//! credentials open the registry?
//!
//! Two steps, because the credentials of a pod may cost a plugin's run: [`first_look`] needs the
//! record alone, and only where that is not enough [`compare`] is given the credentials.

use crate::{
    keyring::{Credential, Source},
    name::ImageName,
    record::{PullCredentials, PulledRecord, SecretUse},
};

/// A record with this many secrets takes in no more by mere comparison.
const MOST_SECRETS: usize = 100;

/// Which images need proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// None.
    Never,
    /// Those that a kubelet pulled.
    UnlessPreloaded,
    /// Those that are not on this list: names without tag, or beginnings that end in `/*`.
    UnlessListed(Vec<String>),
    /// All.
    Always,
}

impl Verification {
    /// Whether a pod has to prove that it may use this image.
    #[must_use]
    pub fn is_needed(&self, image: &ImageName, is_pulled_by_us: bool) -> bool {
        match self {
            Self::Never => false,
            Self::UnlessPreloaded => is_pulled_by_us,
            Self::UnlessListed(patterns) => {
                let name = image.repository();
                !patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                    Some(beginning) => name.starts_with(beginning),
                    None => name == pattern,
                })
            }
            Self::Always => true,
        }
    }
}

/// What is known about a present image without asking for credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstLook<'a> {
    /// The policy wants no proof.
    NotNeeded,
    /// Every pod of the node may use it.
    Allowed,
    /// Only a pull can tell.
    PullAgain,
    /// It depends on the pod's credentials.
    Depends(&'a PullCredentials),
}

/// Looks at the record of an image; `has_intent` when a pull of its name began and nobody knows how
/// it ended.
#[must_use]
pub fn first_look<'a>(
    policy: &Verification,
    image: &ImageName,
    record: Option<&'a PulledRecord>,
    has_intent: bool,
) -> FirstLook<'a> {
    if !policy.is_needed(image, record.is_some() || has_intent) {
        return FirstLook::NotNeeded;
    }
    match record.and_then(|it| it.credentials.get(image.repository())) {
        Some(known) if known.is_node_wide => FirstLook::Allowed,
        Some(known) if known.secrets.is_empty() && known.service_accounts.is_empty() => {
            FirstLook::PullAgain
        }
        Some(known) => FirstLook::Depends(known),
        None => FirstLook::PullAgain,
    }
}

/// What a pod's credentials are worth against those that opened the registry before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The pod may use the image.
    Allowed,
    /// It may, and this is to be added to the record: the secret was replaced, or another one holds
    /// the same.
    AllowedAndNew(PullCredentials),
    /// Only a pull can tell.
    PullAgain,
}

/// Compares a pod's credentials with the known ones.
#[must_use]
pub fn compare(known: &PullCredentials, offered: &[Credential]) -> Verdict {
    let has_room = known.secrets.len() < MOST_SECRETS;
    for credential in offered {
        let Source::Secret(secret) = &credential.source else {
            continue;
        };
        let fingerprint = credential.fingerprint();
        for it in &known.secrets {
            let is_same_content = !it.fingerprint.is_empty() && it.fingerprint == fingerprint;
            let is_same_secret = it.secret == *secret;
            let new = || {
                Verdict::AllowedAndNew(PullCredentials {
                    secrets: vec![SecretUse {
                        secret: secret.clone(),
                        fingerprint: fingerprint.clone(),
                    }],
                    ..PullCredentials::default()
                })
            };
            match (is_same_content, is_same_secret) {
                (true, true) => return Verdict::Allowed,
                (true, false) if has_room => return new(),
                (true, false) => return Verdict::Allowed,
                (false, true) if has_room => return new(),
                (false, _) => {}
            }
        }
    }
    // One service account per pod: its audience does not matter here.
    let account = offered.iter().find_map(|it| match &it.source {
        Source::ServiceAccount(account) => Some(account),
        Source::Node | Source::Secret(_) => None,
    });
    match account {
        Some(account) if known.service_accounts.contains(account) => Verdict::Allowed,
        _ => Verdict::PullAgain,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ferrolet_types::Timestamp;

    use super::*;
    use crate::{docker::Login, keyring::Coordinates};

    fn image(name: &str) -> ImageName {
        ImageName::parse(name).unwrap()
    }

    fn named(name: &str) -> Coordinates {
        Coordinates {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }
    }

    fn credential(source: Source, password: &str) -> Credential {
        Credential { login: Login { password: password.to_owned(), ..Login::default() }, source }
    }

    fn secret(name: &str, password: &str) -> Credential {
        credential(Source::Secret(named(name)), password)
    }

    /// Credential verification: the policies.
    #[test]
    fn policies_say_which_images_need_proof() {
        use Verification as V;
        let list = || {
            V::UnlessListed(vec![
                "a.test/app".to_owned(),
                "b.test/team/*".to_owned(),
                "busybox".to_owned(),
            ])
        };
        for (policy, name, is_pulled, is_needed) in [
            (V::Never, "a.test/app", true, false),
            (V::Always, "a.test/app", false, true),
            (V::UnlessPreloaded, "a.test/app", true, true),
            (V::UnlessPreloaded, "a.test/app", false, false),
            (list(), "a.test/app:1", true, false),
            (list(), "a.test/app2:1", true, true),
            (list(), "b.test/team/x@sha256:1", true, false),
            (list(), "b.test/teams/x", true, true),
            (list(), "busybox:1", false, false),
            (list(), "c.test/x", false, true),
        ] {
            let name = name.replace("sha256:1", &format!("sha256:{}", "1".repeat(64)));
            let found = policy.is_needed(&image(&name), is_pulled);
            assert_eq!(found, is_needed, "{policy:?} {name}");
        }
    }

    /// Credential verification: open to every pod of the node.
    #[test]
    fn a_record_alone_may_be_enough() {
        let record = |credentials: PullCredentials| PulledRecord {
            last_updated: Timestamp::from_second(0),
            image_ref: "ref".to_owned(),
            credentials: BTreeMap::from([("a.test/app".to_owned(), credentials)]),
        };
        let (open, closed) =
            (record(PullCredentials::of(None)), record(PullCredentials::default()));
        let private = record(PullCredentials::of(Some(&secret("pull", "p"))));
        let look = |name: &str, record: Option<&PulledRecord>, has_intent| match first_look(
            &Verification::UnlessPreloaded,
            &image(name),
            record,
            has_intent,
        ) {
            FirstLook::NotNeeded => "not needed",
            FirstLook::Allowed => "allowed",
            FirstLook::PullAgain => "pull",
            FirstLook::Depends(_) => "depends",
        };
        assert_eq!(look("a.test/app:1", None, false), "not needed");
        assert_eq!(look("a.test/app:1", None, true), "pull");
        assert_eq!(look("a.test/app:1", Some(&open), false), "allowed");
        assert_eq!(look("a.test/app:1", Some(&closed), false), "pull");
        assert_eq!(look("a.test/app:2", Some(&private), false), "depends");
        assert_eq!(look("b.test/app:1", Some(&open), false), "pull");
    }

    /// Credential verification: by hash, by coordinates, by service account.
    #[test]
    fn credentials_are_compared_by_content_and_by_name() {
        let mut known = PullCredentials::of(Some(&secret("pull", "p")));
        known.service_accounts.push(named("robot"));
        let robot = credential(Source::ServiceAccount(named("robot")), "t");
        let other = credential(Source::ServiceAccount(named("other")), "t");
        let check = |offered: &[Credential], expected: &str| {
            let found = match compare(&known, offered) {
                Verdict::Allowed => "allowed",
                Verdict::AllowedAndNew(_) => "new",
                Verdict::PullAgain => "pull",
            };
            assert_eq!(found, expected, "{offered:?}");
        };
        check(&[], "pull");
        check(&[secret("pull", "p")], "allowed");
        check(&[secret("copy", "p")], "new");
        check(&[secret("pull", "changed")], "new");
        check(&[secret("copy", "changed")], "pull");
        check(&[credential(Source::Node, "p")], "pull");
        check(std::slice::from_ref(&robot), "allowed");
        check(std::slice::from_ref(&other), "pull");
        check(&[other, robot], "pull");
    }

    /// Credential verification: a hundred entries.
    #[test]
    fn a_full_record_takes_nothing_in_and_an_unknown_content_proves_nothing() {
        let mut known = PullCredentials::default();
        for n in 0..MOST_SECRETS {
            let used = PullCredentials::of(Some(&secret(&format!("s{n}"), &format!("p{n}"))));
            known.secrets.extend(used.secrets);
        }
        assert_eq!(compare(&known, &[secret("copy", "p7")]), Verdict::Allowed);
        assert_eq!(compare(&known, &[secret("s7", "changed")]), Verdict::PullAgain);
    }
}
