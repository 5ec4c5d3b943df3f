//! Everything there is to say about a configuration before it is used: faults and warnings, each
//! with its place.
//!
//! For `ferrolet config check` and for whoever wants to show faults to a person. Pure.

use std::fmt;

use crate::{CommandLine, FieldError, NamedText, load};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The agent would not start.
    Fault,
    /// It would, and say this.
    Warning,
}

/// Something to say about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file, where it is known.
    pub file: Option<String>,
    /// The line in it, where it is known.
    pub line: Option<usize>,
    /// What is to say.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            (None, _) => {}
        }
        let word = match self.severity {
            Severity::Fault => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{word}: {}", self.text)
    }
}

impl From<FieldError> for Finding {
    fn from(fault: FieldError) -> Self {
        let FieldError { origin, line, path, value, message } = fault;
        let text = FieldError { origin: None, line: None, path, value, message }.to_string();
        Self { severity: Severity::Fault, file: origin, line, text }
    }
}

/// What there is to say about the configuration that these texts and flags make.
pub fn check(
    command_line: &CommandLine,
    main: Option<NamedText>,
    dropins: &[NamedText],
) -> Vec<Finding> {
    match load(command_line, main, dropins) {
        Err(error) => {
            let mut findings: Vec<Finding> = error.faults.into_iter().map(Finding::from).collect();
            findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
            findings
        }
        Ok(loaded) => loaded
            .warnings
            .into_iter()
            .map(|text| Finding { severity: Severity::Warning, file: None, line: None, text })
            .collect(),
    }
}
