//! The differential judge: the same cases on this agent and on upstream's kubelet, and every
//! difference shown.
//!
//! ```text
//! cases/*.yaml ──► perform ── on a Stage each ──► Answer (ours)   ┐
//!                          └─ or answers/*.json ─► Answers (theirs)┴─► compare (pure) ──► known.yaml ──► report, exit code
//! ```
//!
//! A program of its own, started by `cargo xtask differential`, because it runs in a private world
//! ([`ferrolet_lab::isolation`]) that takes everything away at the end, on failure and on Ctrl-C.
//! The last line is always `N passed, N failed, N skipped`, counted in cases.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the report of a test program goes to standard output")]

mod answer;
mod case;
mod compare;
mod evidence;
mod history;
mod judge;
mod known;
mod normalise;
mod perform;
mod quality;
mod report;
mod stage;
mod times;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use ferrolet_lab::{Network, Part, isolation, parts};

const USAGE: &str = "\
usage: ferrolet-differential --agent PATH [OPTION…] [NAME…]

  --agent PATH   our executable
  --recorded     compare with the recorded answers only; upstream's kubelet is not started
  --record       start upstream's kubelet only, play each case twice, and write its answers: to the named cases,
                 or without names to those that have none
  --quick        only the cases marked quick, all at the same time
  --at-once N    cases at a time (default 12)
  --write        write docs/differences.md from the list of known differences and end
  --list         print the cases and end
  NAME…          only the cases whose name or group contains one of these words";

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Both kubelets in turn.
    Live,
    /// Ours against the recordings.
    Recorded,
    /// Upstream's, for new recordings.
    Record,
}

/// What the command line asks for.
pub(crate) struct Options {
    pub(crate) agent: PathBuf,
    pub(crate) mode: Mode,
    pub(crate) n_at_once: usize,
    is_quick: bool,
    wants_list: bool,
    wants_page: bool,
    filters: Vec<String>,
}

impl Options {
    /// Whether every case is played.
    pub(crate) fn is_whole(&self) -> bool {
        self.filters.is_empty() && !self.is_quick
    }
}

/// Where cases, answers and the list lie.
pub(crate) fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn main() -> ExitCode {
    match drive() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("ferrolet-differential: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn drive() -> Result<u8> {
    let mut options = parse(std::env::args().skip(1))?;
    let all = case::read_all(&home().join("cases"))?;
    let mut cases: Vec<case::Case> =
        all.iter().filter(|it| is_wanted(it, &options)).cloned().collect();
    if options.wants_list {
        for case in &cases {
            let remark = if case.is_quick { " (quick)" } else { "" };
            println!("{} {} {}s{remark}", case.group, case.name, case.watch.as_secs_f64());
        }
        return Ok(0);
    }
    let known = known::read(&home().join("known.yaml"))?;
    if options.wants_page {
        let path = home().join("../../docs/differences.md");
        std::fs::write(&path, known::page(&known, all.len()))?;
        println!("wrote {}", path.canonicalize()?.display());
        return Ok(0);
    }
    if options.mode == Mode::Record && options.filters.is_empty() {
        let answers = home().join("answers");
        cases.retain(|it| !answers.join(format!("{}.json", it.name)).exists());
    }
    ensure!(!cases.is_empty(), "no case to play");
    if options.is_quick {
        options.n_at_once = options.n_at_once.max(cases.len());
    }
    let (tools, binaries) = match (parts::toolbox(), parts::control_plane()) {
        (Part::Available(tools), Part::Available(binaries)) => (tools, binaries),
        (Part::Missing(reason), _) | (_, Part::Missing(reason)) => {
            println!("skipped: {reason}");
            println!("0 passed, 0 failed, {} skipped", cases.len());
            return Ok(0);
        }
    };
    let given = options.agent.clone();
    if options.mode != Mode::Record {
        options.agent =
            given.canonicalize().with_context(|| format!("agent {}", given.display()))?;
    }
    isolation::run(Network::Private, |bench| {
        let set = judge::Set {
            bench,
            tools: &tools,
            binaries: &binaries,
            options: &options,
            known: &known,
        };
        set.run(&cases)
    })
}

fn is_wanted(case: &case::Case, options: &Options) -> bool {
    let is_named = options.filters.is_empty()
        || options.filters.iter().any(|it| case.name.contains(it) || case.group.contains(it));
    is_named && (case.is_quick || !options.is_quick)
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options {
        agent: PathBuf::new(),
        mode: Mode::Live,
        n_at_once: 12,
        is_quick: false,
        wants_list: false,
        wants_page: false,
        filters: Vec::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value\n{USAGE}"));
        match arg.as_str() {
            "--agent" => options.agent = PathBuf::from(value()?),
            "--recorded" => options.mode = Mode::Recorded,
            "--record" => options.mode = Mode::Record,
            "--quick" => options.is_quick = true,
            "--at-once" => {
                options.n_at_once = value()?.parse().context("--at-once wants a number")?
            }
            "--write" => options.wants_page = true,
            "--list" => options.wants_list = true,
            "--help" | "-h" => bail!(USAGE),
            flag if flag.starts_with('-') => bail!("unknown option {flag}\n{USAGE}"),
            name => options.filters.push(name.to_owned()),
        }
    }
    ensure!(options.n_at_once > 0, "--at-once wants more than nothing");
    Ok(options)
}
