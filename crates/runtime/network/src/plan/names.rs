//! What is this runtime's, by name: so that two of them on one machine leave one another's links and rules alone.

use crate::plan::pod::fnv;

/// The usual runtime's name.
pub(crate) const USUAL: &str = "ferrolet";
/// How its links begin.
const USUAL_PREFIX: &str = "frl";
/// Nobody else's numbers for who placed an address.
const USUAL_MARK: u8 = 157;
const OTHER_MARK: u8 = 158;
/// Names of links have at most 15 characters.
const LONGEST_LINK: usize = 15;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Names of one runtime's things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// The packet filter's table.
    pub(crate) table: String,
    /// How the host end of every pod's link begins; what begins so is ours, and no other's.
    pub(crate) prefix: String,
}

impl Names {
    pub(crate) fn of(runtime: &str) -> Self {
        let prefix = match runtime {
            USUAL => USUAL_PREFIX.to_owned(),
            other => {
                let mut hash = fnv(other.as_bytes());
                let mut prefix = "f".to_owned();
                for _ in 0..3 {
                    let digit = usize::try_from(hash % 36).unwrap_or_default();
                    prefix.push(char::from(DIGITS[digit]));
                    hash /= 36;
                }
                prefix
            }
        };
        Self { table: runtime.to_owned(), prefix }
    }

    /// The usual runtime takes away what is marked as its and it does not know.
    pub(crate) fn is_usual(&self) -> bool {
        self.table == USUAL
    }

    /// What the node's addresses among the pods' are marked with. All runtimes of other names share one mark, so each
    /// takes away only what it placed itself.
    pub(crate) fn mark(&self) -> u8 {
        match self.is_usual() {
            true => USUAL_MARK,
            false => OTHER_MARK,
        }
    }

    /// The host end's name. Ids are 64 random hexadecimal digits; two that begin alike are refused by the kernel.
    pub(crate) fn link(&self, sandbox: &str) -> String {
        let letters = sandbox.chars().filter(char::is_ascii_alphanumeric);
        let start: String = letters.take(self.n_from_id()).collect();
        format!("{}{start}", self.prefix)
    }

    /// True for a name that [`Names::link`] could have made.
    pub(crate) fn has_link(&self, link: &str) -> bool {
        link.strip_prefix(&self.prefix).is_some_and(|rest| {
            rest.len() == self.n_from_id() && rest.bytes().all(|it| it.is_ascii_hexdigit())
        })
    }

    fn n_from_id(&self) -> usize {
        LONGEST_LINK - self.prefix.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_link_is_called_after_its_sandbox() {
        let names = Names::of(USUAL);
        assert_eq!(names.link(ID), "frl0123456789ab");
        assert!(names.has_link(&names.link(ID)));
        for other in ["eth0", "frl0", "frl0123456789xy", "frl0123456789abc", "", "lo"] {
            assert!(!names.has_link(other), "{other}");
        }
    }

    #[test]
    fn runtimes_of_different_names_do_not_know_one_anothers_links() {
        let all = ["ferrolet", "ferrolet-1", "ferrolet-2", "other"].map(Names::of);
        for one in &all {
            assert_eq!(*one, Names::of(&one.table));
            assert_eq!(one.link(ID).len(), LONGEST_LINK);
            for other in all.iter().filter(|it| *it != one) {
                assert!(!other.has_link(&one.link(ID)), "{one:?} {other:?}");
            }
        }
    }
}
