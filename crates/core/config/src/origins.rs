//! Which text said what: the file and line of each field that somebody set.
//!
//! Filled while a configuration is put together, later texts after earlier ones; the last word
//! counts. Read for faults (whom to blame) and for `config show`.

use crate::{CommandLine, FieldError, NamedText, RawConfig, yaml::Lines};

/// The command line as a place that values come from.
pub(crate) const COMMAND_LINE: &str = "command line";

/// A place that a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, or `command line`.
    pub name: String,
    /// The line, where there are lines.
    pub line: Option<usize>,
}

/// Which text set which field; later entries win.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    fields: Vec<(String, Origin)>,
}

impl Origins {
    /// Who set this field, or something it lies in. A field that nobody set is nobody's.
    pub fn of(&self, path: &str) -> Option<&Origin> {
        let inside = |outer: &str| {
            let rest = path.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.fields.iter().rev().find(|(outer, _)| inside(outer)).map(|(_, origin)| origin)
    }

    pub(crate) fn add(&mut self, text: &NamedText, raw: &RawConfig) {
        let lines = Lines::read(&text.text);
        self.fields.extend(raw.paths().into_iter().map(|path| {
            let origin = Origin { name: text.name.clone(), line: lines.of(&path) };
            (path, origin)
        }));
    }

    pub(crate) fn add_patch(&mut self, dropin: &NamedText) {
        let mut alone = RawConfig::default();
        // Whoever lays it over the others has told its faults.
        let _ = alone.patch(dropin);
        self.add(dropin, &alone);
    }

    pub(crate) fn add_command_line(&mut self, command_line: &CommandLine) {
        let paths = command_line.overrides().iter().map(|(path, _)| (*path).to_owned());
        self.fields
            .extend(paths.map(|path| (path, Origin { name: COMMAND_LINE.to_owned(), line: None })));
    }

    /// Names the text that a fault comes from.
    pub(crate) fn blame(&self, fault: FieldError) -> FieldError {
        match self.of(&fault.path) {
            Some(origin) => FieldError { line: origin.line, ..fault.blamed_on(&origin.name) },
            None => fault,
        }
    }
}
