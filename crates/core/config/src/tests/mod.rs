//! Tests of the crate as a whole: tables of data, each through one check.

mod change;
mod check;
mod command_line;
mod decode;
mod defaults;
mod doors;
mod gates;
mod load;
mod oracle;
mod rules;

use crate::{CommandLine, Invocation, LoadError, Loaded, NamedText, load as load_all};

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// A configuration file with the given fields.
fn file(fields: &str) -> NamedText {
    NamedText { name: "/etc/kubelet/config.yaml".to_owned(), text: format!("{HEAD}{fields}\n") }
}

fn command_line(arguments: &[&str]) -> CommandLine {
    match CommandLine::parse(arguments.iter().map(|text| (*text).to_owned())) {
        Ok(Invocation::Run(command_line)) => *command_line,
        other => panic!("expected a run, got {other:?}"),
    }
}

fn load_file(fields: &str) -> Result<Loaded, LoadError> {
    load_all(&command_line(&[]), Some(file(fields)), &[])
}

/// Without a file, reachable from this machine only: the old defaults let everybody in.
fn load_flags(arguments: &[&str]) -> Result<Loaded, LoadError> {
    let arguments: Vec<&str> = ["--address=127.0.0.1"].iter().chain(arguments).copied().collect();
    load_all(&command_line(&arguments), None, &[])
}
