//! What a driver answered, held against what it was asked.

use std::collections::BTreeMap;

use crate::ClaimRef;

/// What a driver says of each claim, by the claim's UID; else why it failed, in the driver's words.
pub type Answer<T> = BTreeMap<String, Result<T, String>>;

/// An answer that does not do, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    /// It speaks of a claim that nobody asked about.
    #[error("{call} returned result for unknown claim UID {uid}")]
    Unasked {
        /// Which call.
        call: &'static str,
        /// The claim's UID.
        uid: String,
    },
    /// The driver failed.
    #[error("{call} failed for ResourceClaim {name}: {why}")]
    Failed {
        /// Which call.
        call: &'static str,
        /// The claim's name.
        name: String,
        /// The driver's words.
        why: String,
    },
    /// It says nothing of some claims.
    #[error("{call} skipped {n} ResourceClaims")]
    Skipped {
        /// Which call.
        call: &'static str,
        /// How many.
        n: usize,
    },
}

/// The answer for each claim that was asked about; all or none.
pub fn complete<T>(
    call: &'static str,
    asked: &[ClaimRef],
    mut answer: Answer<T>,
) -> Result<Vec<(ClaimRef, T)>, AnswerFault> {
    let is_asked = |uid: &&String| asked.iter().any(|claim| claim.uid == **uid);
    if let Some(uid) = answer.keys().find(|uid| !is_asked(uid)) {
        return Err(AnswerFault::Unasked { call, uid: uid.clone() });
    }
    let n = asked.len() - answer.len();
    let mut all = Vec::new();
    for claim in asked {
        match answer.remove(&claim.uid) {
            None => {}
            Some(Ok(found)) => all.push((claim.clone(), found)),
            Some(Err(why)) => {
                return Err(AnswerFault::Failed { call, name: claim.name.clone(), why });
            }
        }
    }
    match n {
        0 => Ok(all),
        n => Err(AnswerFault::Skipped { call, n }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> ClaimRef {
        let (namespace, uid) = ("shop".to_owned(), format!("uid-{name}"));
        ClaimRef { namespace, name: name.to_owned(), uid }
    }

    #[test]
    fn an_answer_is_for_each_claim_that_was_asked_about_and_for_no_other() {
        let asked = [claim("a"), claim("b")];
        let check = |answer: &[(&str, Result<u8, &str>)], expected: Result<usize, &str>| {
            let answer = answer.iter().map(|(uid, it)| {
                ((*uid).to_owned(), it.as_ref().map(|it| *it).map_err(|it| (*it).to_owned()))
            });
            let found = complete("Call", &asked, answer.collect());
            let found = found.map(|it| it.len()).map_err(|fault| fault.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        check(&[("uid-a", Ok(1)), ("uid-b", Ok(2))], Ok(2));
        check(&[("uid-a", Ok(1))], Err("Call skipped 1 ResourceClaims"));
        check(&[], Err("Call skipped 2 ResourceClaims"));
        check(
            &[("uid-a", Ok(1)), ("uid-b", Err("no"))],
            Err("Call failed for ResourceClaim b: no"),
        );
        check(&[("uid-a", Err("no"))], Err("Call failed for ResourceClaim a: no"));
        check(
            &[("uid-a", Ok(1)), ("uid-b", Ok(1)), ("uid-c", Ok(1))],
            Err("Call returned result for unknown claim UID uid-c"),
        );
    }
}
