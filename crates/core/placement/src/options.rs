//! Options of the CPU and topology managers' policies: words to values, with upstream's complaints.

/// Why an option cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Nobody knows it.
    #[error("unknown CPU Manager Policy option: {0:?}")]
    UnknownCpu(String),
    /// Nobody knows it.
    #[error("unknown Topology Manager Policy option: {0:?}")]
    UnknownTopology(String),
    /// The gate of its maturity is closed.
    #[error("CPU Manager Policy {stage}-level Options not enabled, but option {name:?} provided")]
    Gated {
        /// `Alpha` or `Beta`.
        stage: &'static str,
        /// Which option.
        name: String,
    },
    /// Neither yes nor no.
    #[error("bad value for option {name:?}: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    Bool {
        /// Which option.
        name: String,
        /// What it says.
        value: String,
    },
    /// Not a number.
    #[error(
        "unable to convert policy option to integer {name:?}: strconv.Atoi: parsing {value:?}: invalid syntax"
    )]
    Number {
        /// Which option.
        name: String,
        /// What it says.
        value: String,
    },
    /// Fewer nodes than are allowed anyway.
    #[error("the minimum value of {name:?} should not be less than {least}")]
    TooFewNodes {
        /// Which option.
        name: String,
        /// The least.
        least: usize,
    },
    /// Two that cannot be followed at once.
    #[error("static policy options {0} and {1} can not be used at the same time")]
    Together(&'static str, &'static str),
}

/// Reads a truth value with Go's words for it.
pub(crate) fn parse_bool(name: &str, value: &str) -> Result<bool, OptionError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(OptionError::Bool { name: name.to_owned(), value: value.to_owned() }),
    }
}
