//! A service manager for the node's judge, which knows one service: the kubelet of the node.
//!
//! ```text
//! a test ──► sudo systemctl restart kubelet-judged ──► a file with the verb ──► Services::serve: the node is stopped or started
//!                          └─ goes on when the file is gone ◄──────────────────────────────┘
//! ```
//!
//! Tests that restart the kubelet or give it another configuration do so with `sudo` and
//! `systemctl`, and neither is here. Two scripts stand in for them in the judge's PATH. Nobody else
//! sees them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferrolet_lab::Node;

const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// `UNIT` and `HERE` are replaced.
const SYSTEMCTL: &str = r#"#!/bin/sh
case "$1" in
list-units)
    case "$*" in *--state=running*) [ -e HERE/running ] || exit 0 ;; esac
    echo "UNIT.service loaded active running the node's kubelet"
    ;;
reset-failed) ;;
start | stop | restart | kill)
    request=HERE/request.$$
    printf %s "$1" > "$request.draft" && mv "$request.draft" "$request"
    while [ -e "$request" ]; do sleep 0.05; done
    ;;
*)
    echo "systemctl $*: there is no service manager here" >&2
    exit 1
    ;;
esac
"#;

/// What a test asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Start,
    Stop,
    Restart,
}

impl Verb {
    fn parse(word: &str) -> Option<Verb> {
        match word {
            "start" => Some(Verb::Start),
            // Without a signal, and without anybody who starts the service again, they are the
            // same.
            "stop" | "kill" => Some(Verb::Stop),
            "restart" => Some(Verb::Restart),
            _ => None,
        }
    }
}

/// The service manager. The node is expected to run until a test stops it.
pub(super) struct Services {
    directory: PathBuf,
}

impl Services {
    /// Puts the scripts below `directory`; the unit is called `kubelet-NODE`.
    pub(super) fn install(directory: &Path, node: &str) -> Result<Services> {
        let directory = directory.join("services");
        let programs = directory.join("bin");
        fs::create_dir_all(&programs)?;
        let systemctl = SYSTEMCTL
            .replace("UNIT", &format!("kubelet-{node}"))
            .replace("HERE", &directory.display().to_string());
        for (name, text) in [("sudo", SUDO), ("systemctl", &systemctl)] {
            let path = programs.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        let services = Services { directory };
        services.note(true)?;
        Ok(services)
    }

    /// Lets `command` and its children find the scripts.
    pub(super) fn offer(&self, command: &mut Command) -> Result<()> {
        let path = std::env::var("PATH").context("PATH is not set")?;
        let programs = self.directory.join("bin");
        command.env("PATH", format!("{}:{path}", programs.display()));
        Ok(())
    }

    /// Whether no test has stopped the node.
    pub(super) fn is_running_wanted(&self) -> bool {
        self.sign().exists()
    }

    /// Does what tests have asked for since the last call.
    pub(super) fn serve(&self, node: &mut Node) -> Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with("request.") || name.ends_with(".draft") {
                continue;
            }
            let word = fs::read_to_string(&path)?;
            let Some(verb) = Verb::parse(&word) else {
                bail!("a test asked the service manager to {word:?}");
            };
            if verb != Verb::Start && node.pid().is_ok() {
                // It may have ended by itself meanwhile, which is as good.
                let _ = node.stop();
            }
            if verb != Verb::Stop && node.pid().is_err() {
                node.launch()?;
            }
            self.note(verb != Verb::Stop)?;
            fs::remove_file(&path)?;
        }
        Ok(())
    }

    fn note(&self, is_running: bool) -> Result<()> {
        match (is_running, self.sign().exists()) {
            (true, false) => fs::write(self.sign(), "")?,
            (false, true) => fs::remove_file(self.sign())?,
            (true, true) | (false, false) => {}
        }
        Ok(())
    }

    fn sign(&self) -> PathBuf {
        self.directory.join("running")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_those_of_the_script() {
        let cases = [
            ("start", Some(Verb::Start)),
            ("stop", Some(Verb::Stop)),
            ("kill", Some(Verb::Stop)),
            ("restart", Some(Verb::Restart)),
            ("enable", None),
        ];
        for (word, verb) in cases {
            assert_eq!(Verb::parse(word), verb, "{word}");
        }
    }
}
