//! What can be wrong with a configuration, told so that the reader knows which file, which field
//! and which value.
//!
//! Every check of this crate appends to a list of these; nothing stops at the first fault.

use std::fmt;

use crate::yaml::Lines;

/// One fault: where it is, what was found there, and why that will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The file (or `command line`) it comes from, when known.
    pub origin: Option<String>,
    /// The line of that file, when it is known.
    pub line: Option<usize>,
    /// The field's path, as in `authentication.webhook.cacheTTL`; empty for the file as a whole.
    pub path: String,
    /// The value as given; empty when there is none.
    pub value: String,
    /// What is wrong with it, and what would be right.
    pub message: String,
}

impl FieldError {
    /// A fault in a field's value.
    pub(crate) fn at(
        path: impl Into<String>,
        value: impl fmt::Display,
        message: impl Into<String>,
    ) -> Self {
        let (path, message) = (path.into(), message.into());
        let value = if path.starts_with("staticPodURLHeader") {
            "<masked>".to_owned()
        } else {
            value.to_string()
        };
        Self { origin: None, line: None, path, value, message }
    }

    /// A fault of a text as a whole.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self {
            origin: None,
            line: None,
            path: String::new(),
            value: String::new(),
            message: message.into(),
        }
    }

    /// The same fault, with the place it came from.
    #[must_use]
    pub(crate) fn blamed_on(mut self, origin: &str) -> Self {
        self.origin = Some(origin.to_owned());
        self
    }

    /// The same fault, with the line it is in.
    #[must_use]
    pub(crate) fn in_line(mut self, lines: &Lines) -> Self {
        self.line = lines.of(&self.path);
        self
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}", self.path)?;
            if !self.value.is_empty() {
                write!(f, " = {}", self.value)?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.message)
    }
}

/// Every fault that keeps a configuration from being used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", listed(.faults))]
pub struct LoadError {
    /// The faults, in the order of the texts and fields they were found in.
    pub faults: Vec<FieldError>,
}

fn listed(faults: &[FieldError]) -> String {
    match faults {
        [one] => format!("invalid configuration: {one}"),
        many => {
            let lines: String = many.iter().map(|fault| format!("\n  {fault}")).collect();
            format!("invalid configuration, {} faults:{lines}", many.len())
        }
    }
}
