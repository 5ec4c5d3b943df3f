//! Runs the cases, several at a time, and reports one line each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use ferrolet_lab::process::find_program;
use ferrolet_lab::{Bench, Part, Toolbox};

use crate::Options;
use crate::cases::{self, Case};
use crate::context::{Context, Shared};

/// More failures than this are no accident.
const MOST_SECOND_TRIES: usize = 5;

/// How a case ended when it did not fail.
pub(crate) enum Outcome {
    Passed,
    Skipped(String),
}

/// Skips a test where a program that it needs is not installed.
pub(crate) fn without(program: &str) -> Option<Outcome> {
    let reason = || Outcome::Skipped(format!("{program} is not installed"));
    find_program(program).is_none().then(reason)
}

#[derive(Default)]
struct Totals {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Totals {
    fn print(&self) -> u8 {
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        u8::from(self.failed > 0)
    }
}

/// Runs what the options select; the exit code says whether all went well.
pub(crate) fn run(bench: &Bench, tools: &Toolbox, options: &Options) -> Result<u8> {
    let selected = select(options);
    let shared = Shared::new(bench, tools, options);
    println!("{} end-to-end tests on containerd {}", selected.len(), tools.containerd.version);
    let next = AtomicUsize::new(0);
    let totals = Mutex::new(Totals::default());
    let failed: Mutex<Vec<Case>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..options.n_jobs.max(1) {
            scope.spawn(|| {
                while let Some(case) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if bench.is_interrupted() {
                        return;
                    }
                    if !run_one(&shared, case, &totals) {
                        failed.lock().expect("no panic while the lock is held").push(*case);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().map_err(|_| anyhow!("a test thread broke off"))?;
    if options.n_jobs > 1 && failed.len() <= MOST_SECOND_TRIES && !bench.is_interrupted() {
        try_alone(&shared, &failed, &totals);
    }
    let totals = totals.into_inner().map_err(|_| anyhow!("a test thread broke off"))?;
    Ok(totals.print())
}

/// A test may fail because its neighbours left it no processor. Alone it has no such excuse, and what it does then counts.
fn try_alone(shared: &Shared<'_>, failed: &[Case], totals: &Mutex<Totals>) {
    for case in failed {
        println!("again   {}, alone: it failed beside others", case.name);
        totals.lock().expect("the report is printed without panicking").failed -= 1;
        run_one(shared, case, totals);
    }
}

/// Nothing can run here: says why, once per case.
pub(crate) fn skip_all(options: &Options, reason: &str) -> u8 {
    let mut totals = Totals::default();
    for case in select(options) {
        println!("skipped {}: {reason}", case.name);
        totals.skipped += 1;
    }
    totals.print()
}

/// The tests that the command line asks for.
pub(crate) fn select(options: &Options) -> Vec<Case> {
    let words = &options.filters;
    let wanted = |case: &Case| {
        let is_named =
            |word: &String| case.name.contains(word.as_str()) || case.group.contains(word.as_str());
        (words.is_empty() || words.iter().any(is_named))
            && (!case.is_long || options.wants_long || words.iter().any(|word| word == case.name))
    };
    cases::all().into_iter().filter(wanted).collect()
}

/// Runs one case and reports it; false when it failed.
fn run_one(shared: &Shared<'_>, case: &Case, totals: &Mutex<Totals>) -> bool {
    let began = Instant::now();
    let mut context = Context::new(shared, case.name);
    let result = match missing(case, shared.options) {
        Some(reason) => Ok(Ok(Outcome::Skipped(reason))),
        None => catch_unwind(AssertUnwindSafe(|| (case.run)(&mut context))),
    };
    let result =
        result.unwrap_or_else(|cause| Err(anyhow!("panicked: {}", panic_text(cause.as_ref()))));
    let kept = result.is_err().then(|| context.keep());
    let cleaned = context.clean();
    let took = began.elapsed().as_secs_f32();
    let mut totals = totals.lock().expect("the report is printed without panicking");
    match result.and_then(|outcome| cleaned.map(|()| outcome)) {
        Ok(Outcome::Passed) => {
            totals.passed += 1;
            println!("ok      {:<70} {took:6.1} s", case.name);
            true
        }
        Ok(Outcome::Skipped(reason)) => {
            totals.skipped += 1;
            println!("skipped {}: {reason}", case.name);
            true
        }
        Err(error) => {
            totals.failed += 1;
            println!("FAILED  {:<70} {took:6.1} s\n    {error:#}", case.name);
            if let Some(kept) = kept {
                println!("{kept}");
            }
            false
        }
    }
}

/// Why a case cannot run here.
fn missing(case: &Case, options: &Options) -> Option<String> {
    match (&options.control_plane, &options.machine) {
        (Part::Missing(reason), _) if case.needs_control_plane() => Some(reason.clone()),
        (_, Part::Missing(reason)) if case.needs_machine() => Some(reason.clone()),
        _ => match &options.browser {
            Part::Missing(reason) if case.needs_browser() => Some(reason.clone()),
            _ => None,
        },
    }
}

fn panic_text(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().cloned();
    text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
