//! Which program was asked for: by the name of the link, or by the first word.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use ferrolet_config::{
    CommandLine, Invocation, Next, Shell, VersionFormat, Word, completion, ferrolet_page,
    help_text, kubelet_page, version_text,
};

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
  ferrolet completion SHELL    print completion for bash, zsh or fish: source <(ferrolet completion bash)
  ferrolet man [kubelet]       print a manual page: ferrolet man kubelet | man -l -
  ferrolet --version           print the version
  ferrolet --help              print this

A node without a cluster, from a folder of pod manifests:
  ferrolet kubelet --config kubelet.yaml      (see examples/kubelet.yaml)
";

/// The words of the command line, for completion and the manual page; a test compares them with [`HELP`].
const WORDS: &[Word] = &[
    Word { name: "kubelet", help: "Run the node agent, with upstream's flags.", next: Next::Flags },
    Word {
        name: "runtime",
        help: "Run the embedded container runtime behind a socket.",
        next: Next::Words(&[Word {
            name: "check",
            help: "Say what this kernel can do for pods.",
            next: Next::Files,
        }]),
    },
    Word {
        name: "config",
        help: "Look at a configuration without starting anything.",
        next: Next::Words(&[
            Word {
                name: "check",
                help: "Every fault and warning, with its line.",
                next: Next::Flags,
            },
            Word {
                name: "show",
                help: "The merged configuration, and where each value comes from.",
                next: Next::Flags,
            },
            Word {
                name: "diff",
                help: "What a reload of the running agent would change, and when.",
                next: Next::Flags,
            },
        ]),
    },
    Word {
        name: "completion",
        help: "Print completion for a shell.",
        next: Next::Words(&[
            Word { name: "bash", help: "GNU Bash.", next: Next::Files },
            Word { name: "zsh", help: "Z shell.", next: Next::Files },
            Word { name: "fish", help: "Fish.", next: Next::Files },
        ]),
    },
    Word {
        name: "man",
        help: "Print a manual page.",
        next: Next::Words(&[Word {
            name: "kubelet",
            help: "The page of the kubelet.",
            next: Next::Files,
        }]),
    },
];

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
        Some("completion") => complete(&words[1..]),
        Some("man") => match words.get(1).map(String::as_str) {
            None => print(ferrolet_page(WORDS).trim_end()),
            Some("kubelet") => print(kubelet_page().trim_end()),
            Some(other) => {
                refuse(&format!("no page of {other:?}; there are `man` and `man kubelet`"))
            }
        },
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

fn complete(words: &[String]) -> ExitCode {
    let asked = words.first().map(String::as_str).unwrap_or_default();
    match Shell::ALL.into_iter().find(|(name, _)| *name == asked) {
        Some((_, shell)) => print(completion(shell, WORDS).trim_end()),
        None => refuse("say which shell: `ferrolet completion bash`, `zsh` or `fish`"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_word() {
        for word in WORDS {
            assert!(HELP.contains(&format!("  ferrolet {}", word.name)), "{}", word.name);
        }
        let Some(Next::Words(shells)) =
            WORDS.iter().find(|it| it.name == "completion").map(|it| it.next)
        else {
            panic!("completion is followed by shells");
        };
        let names: Vec<&str> = shells.iter().map(|it| it.name).collect();
        assert_eq!(names, Shell::ALL.map(|(name, _)| name));
    }
}
