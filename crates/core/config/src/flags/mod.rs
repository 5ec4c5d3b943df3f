//! The command line of `kubelet`: arguments in, flags and overrides of the configuration out.
//!
//! Follows pflag where users can notice: `_` counts as `-` in names, booleans take a value only
//! after `=`, a value may begin with a dash, repeated lists add up, the last of repeated scalars
//! counts. Refuses unknown flags, with the nearest known one, and words that are not flags. Reads
//! no environment and prints nothing.

mod complete;
mod help;
mod man;
mod own;
mod table;
mod value;

use std::collections::BTreeMap;

use clap::{
    Arg, ArgAction, Command,
    builder::NonEmptyStringValueParser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use serde_json::Value;

use crate::{
    FeatureGates, KUBERNETES_VERSION, RawConfig, suggest,
    version::{self, VersionFormat},
};
use table::{FLAGS, Flag, Future, Kind, Target};

pub use complete::{Next, Shell, Word, completion};
pub use man::{ferrolet_page, kubelet_page};
pub use own::{Flags, MEANINGLESS_FLAGS};

/// What the user wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Invocation {
    /// The node agent.
    Run(Box<CommandLine>),
    /// The help text.
    Help,
    /// The version.
    Version(VersionFormat),
}

/// A command line that has been understood.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandLine {
    /// What is not part of the configuration.
    pub flags: Flags,
    /// Configuration fields by path, as the flags set them.
    overrides: Vec<(&'static str, Value)>,
    /// Deprecated flags that were used.
    deprecated: Vec<&'static str>,
}

/// Why a command line was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandLineError {
    /// There is no such flag.
    #[error("unknown flag {flag}{hint}")]
    UnknownFlag {
        /// As given.
        flag: String,
        /// `; did you mean …?` or nothing.
        hint: String,
    },
    /// A word that is not a flag.
    #[error("unknown command {0:?}")]
    UnknownCommand(String),
    /// A flag without its value.
    #[error("flag {0} needs a value")]
    MissingValue(String),
    /// Values that will not do, one line each.
    #[error("{}", .0.join("\n"))]
    BadValues(Vec<String>),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// The text of `kubelet --help`.
pub fn help_text() -> String {
    help::text()
}

/// Every flag's name, in the order of the help text.
pub fn flag_names() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().map(|flag| flag.name)
}

/// The flags that are not fields of the configuration.
pub fn own_flag_names() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().filter(|flag| matches!(flag.target, Target::Own(_))).map(|flag| flag.name)
}

impl CommandLine {
    /// Understands arguments, the program's name not among them.
    pub fn parse<I: IntoIterator<Item = String>>(
        arguments: I,
    ) -> Result<Invocation, CommandLineError> {
        let arguments: Vec<String> = arguments.into_iter().collect();
        let matches = command()
            .try_get_matches_from(normalised(&arguments))
            .map_err(|error| explain(&error))?;
        if let Some(word) = matches.get_many::<String>(WORDS).and_then(|mut words| words.next()) {
            return Err(CommandLineError::UnknownCommand(word.clone()));
        }
        let mut given: BTreeMap<&'static str, Value> = BTreeMap::new();
        let (mut overrides, mut deprecated, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for flag in FLAGS {
            let Some(texts) = matches.get_many::<String>(flag.name) else {
                continue;
            };
            let texts: Vec<&str> = texts.map(String::as_str).collect();
            match value::read(flag.kind, &texts) {
                Err(message) => faults.push(format!("--{}: {message}", flag.name)),
                Ok(value) => match flag.target {
                    Target::Own(_) => {
                        given.insert(flag.name, value);
                    }
                    Target::Field(path) => overrides.push((path, value)),
                },
            }
            if flag.future == Future::Deprecated {
                deprecated.push(flag.name);
            }
        }
        if given.get("help") == Some(&Value::Bool(true)) {
            return Ok(Invocation::Help);
        }
        if let Some(wanted) = given.get("version").and_then(Value::as_str) {
            match wanted {
                "true" => return Ok(Invocation::Version(VersionFormat::Short)),
                "raw" => return Ok(Invocation::Version(VersionFormat::Raw)),
                "false" => {}
                told if told.starts_with('v') => faults.extend(version::told_fault(told)),
                other => faults.push(format!(
                    "--version: {other:?} is neither true nor raw nor a version such as {KUBERNETES_VERSION}-mine"
                )),
            }
        }
        let flags = own::read(&given, &mut faults);
        if !faults.is_empty() {
            return Err(CommandLineError::BadValues(faults));
        }
        Ok(Invocation::Run(Box::new(Self { flags, overrides, deprecated })))
    }

    /// The configuration fields that flags set.
    pub(crate) fn overrides(&self) -> &[(&'static str, Value)] {
        &self.overrides
    }

    /// Lays the flags over a configuration. They win, except that feature gates they do not name
    /// stay.
    pub(crate) fn apply(&self, raw: &mut RawConfig) {
        for (path, value) in &self.overrides {
            match (*path, value) {
                ("featureGates", Value::Object(gates)) => {
                    gates.iter().for_each(|(name, on)| {
                        raw.set(&format!("featureGates.{name}"), on.clone())
                    });
                }
                _ => raw.set(path, value.clone()),
            }
        }
        if self.flags.seccomp_default {
            raw.set("seccompDefault", Value::Bool(true));
        }
    }

    /// One remark for all deprecated flags that were used, and one for each without effect.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let names: Vec<String> = self.deprecated.iter().map(|name| format!("--{name}")).collect();
        let mut remarks = Vec::new();
        if !names.is_empty() {
            remarks.push(format!(
                "deprecated flags, better set in the file given by --config: {}",
                names.join(", ")
            ));
        }
        remarks.extend(self.flags.remarks());
        remarks
    }
}

/// Every flag's value as `/flagz` shows it: what was given, else the default without a file.
pub fn flag_values(command_line: &CommandLine) -> Vec<(&'static str, String)> {
    let mut raw = RawConfig::legacy_defaults(&FeatureGates::default());
    command_line.apply(&mut raw);
    let own = command_line.flags.values();
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let value_of = |flag: &Flag| match flag.target {
        Target::Own(default) => own.get(flag.name).cloned().unwrap_or_else(|| default.to_owned()),
        Target::Field("staticPodURLHeader") => String::new(),
        Target::Field(path) => raw.get(path).map(shown).unwrap_or_default(),
    };
    let mut values: Vec<_> = FLAGS.iter().map(|flag| (flag.name, value_of(flag))).collect();
    values.sort_unstable();
    values
}

const WORDS: &str = "words";

fn command() -> Command {
    let words = Arg::new(WORDS)
        .num_args(0..)
        .action(ArgAction::Append)
        .value_parser(NonEmptyStringValueParser::new());
    let command = Command::new("kubelet")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .no_binary_name(true);
    FLAGS.iter().map(argument).fold(command.arg(words), Command::arg)
}

fn argument(flag: &Flag) -> Arg {
    let argument = Arg::new(flag.name).long(flag.name).action(ArgAction::Append);
    let argument = match flag.name {
        "v" => argument.short('v'),
        "help" => argument.short('h'),
        _ => argument,
    };
    match flag.kind {
        Kind::Bool | Kind::Version => {
            argument.num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        _ => argument.num_args(1).allow_hyphen_values(true),
    }
}

/// Underscores in flag names become dashes; values are left alone.
fn normalised(arguments: &[String]) -> Vec<String> {
    let mut rest_are_words = false;
    let each = arguments.iter().map(|argument| {
        rest_are_words |= argument == "--";
        if rest_are_words || !argument.starts_with("--") {
            return argument.clone();
        }
        match argument.split_once('=') {
            Some((name, value)) => format!("{}={value}", name.replace('_', "-")),
            None => argument.replace('_', "-"),
        }
    });
    each.collect()
}

fn explain(error: &clap::Error) -> CommandLineError {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let name = argument.split([' ', '=']).next().unwrap_or_default().to_owned();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let nearest = suggest::nearest(name.trim_start_matches('-'), flag_names());
            let hint =
                nearest.map(|nearest| format!("; did you mean --{nearest}?")).unwrap_or_default();
            CommandLineError::UnknownFlag { flag: name, hint }
        }
        ErrorKind::InvalidValue
        | ErrorKind::NoEquals
        | ErrorKind::TooFewValues
        | ErrorKind::WrongNumberOfValues => CommandLineError::MissingValue(name),
        _ => CommandLineError::Other(error.to_string().trim().to_owned()),
    }
}
