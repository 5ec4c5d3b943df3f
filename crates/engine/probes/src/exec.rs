//! A command in the container: exit code 0 is well, everything else is not, and its output says
//! why.

use std::time::Duration;

use ferrolet_ports::{ExecOutput, Runtime, RuntimeErrorKind};
use ferrolet_types::{ContainerId, format_go_duration};
use k8s_openapi::api::core::v1::Container;

use crate::MAX_OUTPUT;
use crate::prober::Outcome;

/// A command with references to the container's literal variables replaced; others stay as they
/// are.
pub(crate) fn expanded(command: &[String], container: &Container) -> Vec<String> {
    let env = container.env.as_deref().unwrap_or_default();
    let lookup = |name: &str| {
        // The last one of a name wins; a variable without a literal value counts as empty.
        let variable = env.iter().rev().find(|it| it.name == name)?;
        Some(variable.value.as_deref().unwrap_or_default())
    };
    let words = command.iter();
    words.map(|it| ferrolet_spec::expand::expand(it, lookup)).collect()
}

pub(crate) async fn probe(
    runtime: &dyn Runtime,
    id: &ContainerId,
    command: &[String],
    timeout: Duration,
) -> Outcome {
    match runtime.exec(id, command, timeout).await {
        Ok(output) if output.code == 0 => Outcome::Success,
        Ok(output) => Outcome::Failure(written(output)),
        Err(error) if error.kind == RuntimeErrorKind::DeadlineExceeded => {
            let timeout = format_go_duration(timeout);
            let command = command.join(" ");
            let text = format!("command timed out: {command:?} timed out after {timeout}");
            Outcome::Failure(text)
        }
        Err(error) => Outcome::unknown(error.to_string()),
    }
}

/// What a command wrote: standard output, then standard error, the beginning of it.
pub(crate) fn written(output: ExecOutput) -> String {
    let mut bytes = output.stdout;
    bytes.extend(output.stderr);
    bytes.truncate(MAX_OUTPUT);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::EnvVar;

    use super::*;

    /// Exec: only literal values are expanded.
    #[test]
    fn only_literal_variables_are_expanded() {
        let variable = |name: &str, value: Option<&str>| EnvVar {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            ..Default::default()
        };
        let container = Container {
            env: Some(vec![
                variable("PORT", Some("1")),
                variable("PORT", Some("80")),
                variable("SECRET", None),
            ]),
            ..Default::default()
        };
        let command = ["nc", "$(PORT)", "x$(SECRET)x", "$(OTHER)"].map(str::to_owned);
        let expected = ["nc", "80", "xx", "$(OTHER)"].map(str::to_owned);
        assert_eq!(expanded(&command, &container), expected);
    }

    /// Exec: 10 KiB of output.
    #[test]
    fn a_flood_of_output_is_cut() {
        let output =
            ExecOutput { code: 1, stdout: vec![b'a'; 6 << 10], stderr: vec![b'b'; 6 << 10] };
        let text = written(output);
        assert_eq!(text.len(), 10 << 10);
        assert!(text.starts_with('a') && text.ends_with('b'));
    }
}
