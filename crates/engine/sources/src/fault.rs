//! What is wrong with a manifest: one place and one sentence per fault, and all faults of a file
//! together.

use std::fmt;

use serde_json::Value;

/// Longest rendering of a value in a message; the rest is cut.
const LONGEST_VALUE: usize = 80;

/// One fault of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, in the API's notation: `spec.containers[0].name`.
    pub path: String,
    /// What is wrong there, with the value.
    pub problem: String,
}

impl Fault {
    pub(crate) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }

    /// A value that must be there and is not.
    pub(crate) fn required(path: impl Into<String>) -> Self {
        Self::new(path, "required value is missing")
    }

    /// A value that breaks a rule.
    pub(crate) fn invalid(path: impl Into<String>, value: impl Show, rule: &str) -> Self {
        Self::new(path, format!("invalid value {}: {rule}", value.show()))
    }

    /// A value that is not one of the known words.
    pub(crate) fn unsupported(path: impl Into<String>, value: &str, known: &[&str]) -> Self {
        Self::new(
            path,
            format!("unsupported value {}: must be one of {}", value.show(), known.join(", ")),
        )
    }

    /// A value that occurs a second time.
    pub(crate) fn duplicate(path: impl Into<String>, value: impl Show) -> Self {
        Self::new(path, format!("duplicate value {}", value.show()))
    }

    /// Something that must not be there.
    pub(crate) fn forbidden(path: impl Into<String>, why: &str) -> Self {
        Self::new(path, format!("forbidden: {why}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.problem)
        } else {
            write!(f, "{}: {}", self.path, self.problem)
        }
    }
}

/// How a value looks in a message.
pub(crate) trait Show {
    fn show(&self) -> String;
}

impl Show for &str {
    fn show(&self) -> String {
        cut(format!("{self:?}"))
    }
}

impl Show for &String {
    fn show(&self) -> String {
        self.as_str().show()
    }
}

impl Show for &Value {
    fn show(&self) -> String {
        cut(self.to_string())
    }
}

impl Show for i32 {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Show for i64 {
    fn show(&self) -> String {
        self.to_string()
    }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_VALUE) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// All faults in one line, as a message shows them.
pub(crate) fn join(faults: &[Fault]) -> String {
    let texts: Vec<String> = faults.iter().map(Fault::to_string).collect();
    texts.join("; ")
}
