//! Which program was asked for: by the name of the link, or by the first word.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use ferrolet_config::{CommandLine, Invocation, VersionFormat, help_text, version_text};

use crate::{agent, config_command, run_command, runtime};

const HELP: &str = "\
ferrolet: the Kubernetes node agent, in Rust

One executable. Called through a link named `kubelet` it is the kubelet, with upstream's flags.

Usage:
  ferrolet kubelet [flags]     run the node agent; `ferrolet kubelet --help` lists the flags
  ferrolet run POD.yaml        run one pod in the foreground, with nothing else; `ferrolet run --help` says more
  ferrolet runtime [flags]     run the embedded container runtime behind a socket; `ferrolet runtime --help` lists the flags
  ferrolet runtime check       say what this kernel can do for pods
  ferrolet config …            check, show or compare a configuration; `ferrolet config help` says more
  ferrolet --version           print the version
  ferrolet --help              print this

A node without a cluster, from a folder of pod manifests:
  ferrolet kubelet --config kubelet.yaml      (see examples/kubelet.yaml)
";

/// Runs what the arguments ask for.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let called = args.next().unwrap_or_default();
    let name = Path::new(&called).file_name().map(|name| name.to_string_lossy().into_owned());
    let mut words = Vec::new();
    for arg in args {
        match arg.into_string() {
            Ok(word) => words.push(word),
            Err(arg) => return refuse(&format!("argument {arg:?} is not valid UTF-8")),
        }
    }
    if name.as_deref() == Some("kubelet") {
        return kubelet(&words);
    }
    match words.first().map(String::as_str) {
        Some("kubelet") => kubelet(&words[1..]),
        Some("runtime") => match words.get(1).map(String::as_str) {
            Some("--help" | "-h" | "help") => print(runtime::HELP.trim_end()),
            _ => runtime::main(&words[1..]).unwrap_or_else(|error| refuse(&format!("{error:#}"))),
        },
        // Before anything starts a thread: what forks must be alone.
        Some(runtime::SPAWNER) => ferrolet_runtime_monitor::spawner::main(),
        Some("run") => match words.get(1).map(String::as_str) {
            Some("--help" | "-h" | "help") => print(run_command::HELP.trim_end()),
            _ => {
                run_command::run(&words[1..]).unwrap_or_else(|error| refuse(&format!("{error:#}")))
            }
        },
        Some("config") => config_command::run(&words[1..]),
        Some("--version" | "-V" | "version") => print(&version_text(VersionFormat::Short)),
        Some("--help" | "-h" | "help") => print(HELP.trim_end()),
        Some(word) => {
            refuse(&format!("unknown command {word:?}; `ferrolet --help` lists what there is"))
        }
        None => {
            print(HELP.trim_end());
            ExitCode::FAILURE
        }
    }
}

fn kubelet(words: &[String]) -> ExitCode {
    match CommandLine::parse(words.iter().cloned()) {
        Ok(Invocation::Help) => print(help_text().trim_end()),
        Ok(Invocation::Version(format)) => print(&version_text(format)),
        Ok(Invocation::Run(command_line)) => match agent::run(&command_line) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refuse(&format!("{error:#}")),
        },
        Err(error) => refuse(&error.to_string()),
    }
}

pub(crate) fn print(text: &str) -> ExitCode {
    // A reader that went away has read enough.
    writeln!(io::stdout(), "{text}").map_or(ExitCode::SUCCESS, |()| ExitCode::SUCCESS)
}

fn refuse(message: &str) -> ExitCode {
    writeln!(io::stderr(), "Error: {message}").ok();
    ExitCode::FAILURE
}
