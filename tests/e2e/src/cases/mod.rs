//! The tests, by subject. A test is a function over a [`Context`]; its name is a sentence.

pub(crate) mod bench;
mod life;

use anyhow::Result;

use crate::context::Context;
use crate::runner::Outcome;

/// A named test.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Context<'_>) -> Result<Outcome>,
}

/// Makes the list of a module from its functions' names.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn cases() -> Vec<$crate::cases::Case> {
            vec![$($crate::cases::Case { name: stringify!($name), run: $name }),*]
        }
    };
}
use cases;

/// Every test. The long ones come first, so that none is left over at the end.
pub(crate) fn all() -> Vec<Case> {
    [life::cases(), bench::cases()]
        .into_iter()
        .flatten()
        .collect()
}
