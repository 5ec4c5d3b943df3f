//! Runs the cases, several at a time, and reports one line each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use ferrolet_lab::parts::cache_directory;
use ferrolet_lab::process::find_program;
use ferrolet_lab::wait::{self, usual};
use ferrolet_lab::{Bench, Machine, Part, Toolbox};

use crate::Options;
use crate::cases::{self, Case, Kind, Place};
use crate::context::{Context, Shared};
use crate::guest::{self, Told};

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
    /// Failed beside others and passed alone, with the first failure's first line.
    flaky: Vec<(String, String)>,
}

impl Totals {
    /// The last lines. A run in which nothing ran is no success.
    fn print(&self) -> u8 {
        for (name, failure) in &self.flaky {
            println!("flaky   {name}: {failure}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        u8::from(self.failed > 0 || self.passed == 0)
    }
}

/// A case that failed, and the first line of why.
struct Failure {
    case: Case,
    text: String,
}

/// Runs what the options select; the exit code says whether all went well.
pub(crate) fn run(bench: &Bench, tools: &Toolbox, options: &Options) -> Result<u8> {
    let selected = select(options);
    ensure!(!selected.is_empty(), "no test is called like {}", options.filters.join(" or "));
    let shared = Shared::new(bench, tools, options);
    println!("{} end-to-end tests on containerd {}", selected.len(), tools.containerd.version);
    let (selected, away): (Vec<Case>, Vec<Case>) =
        selected.into_iter().partition(|case| case.place == Place::Here);
    let (with_systemd, guests): (Vec<Case>, Vec<Case>) =
        away.into_iter().partition(Case::needs_systemd);
    let next = AtomicUsize::new(0);
    let totals = Mutex::new(Totals::default());
    let failed: Mutex<Vec<Failure>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        // One after the other: each guest takes the processors of this machine.
        scope.spawn(|| {
            for (machine, cases) in
                [(&options.machine, &guests), (&options.machine_with_systemd, &with_systemd)]
            {
                if !cases.is_empty() && !bench.is_interrupted() {
                    run_in_guest(&shared, machine, cases, &totals);
                }
            }
        });
        for _ in 0..options.n_jobs.max(1) {
            scope.spawn(|| {
                while let Some(case) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if bench.is_interrupted() {
                        return;
                    }
                    if let Err(text) = run_one(&shared, case, &totals) {
                        let mut failed = failed.lock().expect("no panic while the lock is held");
                        failed.push(Failure { case: *case, text });
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().map_err(|_| anyhow!("a test thread broke off"))?;
    // Whoever runs in a guest has neighbours outside of it.
    let has_neighbours = options.n_jobs > 1 || guest::is_inside();
    if has_neighbours && failed.len() <= MOST_SECOND_TRIES && !bench.is_interrupted() {
        try_alone(&shared, &failed, &totals);
    }
    if let Err(error) = tell_slow_waits() {
        println!("how long waits took is not remembered: {error:#}");
    }
    let totals = totals.into_inner().map_err(|_| anyhow!("a test thread broke off"))?;
    Ok(totals.print())
}

/// A test may fail because its neighbours left it no processor. Alone it has no such excuse, and
/// what it does then counts; but a test that passes only alone is told.
fn try_alone(shared: &Shared<'_>, failed: &[Failure], totals: &Mutex<Totals>) {
    for Failure { case, text } in failed {
        println!("again   {}, alone: it failed beside others", case.name);
        totals.lock().expect("the report is printed without panicking").failed -= 1;
        if run_one(shared, case, totals).is_ok() {
            let mut totals = totals.lock().expect("the report is printed without panicking");
            totals.flaky.push((case.name.to_owned(), text.clone()));
        }
    }
}

/// Runs the guest's tests in it and reports them as if they had run here. The guest itself gives a
/// failed one its second try.
fn run_in_guest(
    shared: &Shared<'_>,
    machine: &Part<Machine>,
    cases: &[Case],
    totals: &Mutex<Totals>,
) {
    let machine = match machine {
        Part::Available(machine) => machine,
        Part::Missing(reason) => {
            let mut totals = totals.lock().expect("the report is printed without panicking");
            for case in cases {
                println!("skipped {} (guest): {reason}", case.name);
                totals.skipped += 1;
            }
            return;
        }
    };
    let told = guest::run(shared, machine, cases, &mut |line| println!("guest   | {line}"));
    let mut totals = totals.lock().expect("the report is printed without panicking");
    let told = told.unwrap_or_else(|error| {
        let failed = Told::Failed(format!("    {error:#}\n"));
        cases.iter().map(|case| (case.name, failed.clone())).collect()
    });
    for (name, told) in told {
        match told {
            Told::Passed => totals.passed += 1,
            Told::Flaky(reason) => {
                totals.passed += 1;
                totals.flaky.push((format!("{name} (guest)"), reason));
            }
            Told::Skipped(reason) => {
                println!("skipped {name} (guest): {reason}");
                totals.skipped += 1;
            }
            Told::Failed(why) => {
                println!("FAILED  {name} (guest)\n{why}");
                totals.failed += 1;
            }
        }
    }
}

/// Names the waits that took much longer than usual, and remembers all of them.
fn tell_slow_waits() -> Result<()> {
    let path = cache_directory()?.join("waits.json");
    let mut history = usual::read(&path);
    for slow in usual::compare(&mut history, &wait::take_noted()) {
        let (took, usual) = (slow.took.as_secs_f32(), slow.usual.as_secs_f32());
        println!("slow    {}: {took:.1} s, usually {usual:.1} s", slow.wait);
    }
    usual::write(&path, &history)
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

/// The tests that the command line asks for, and where each runs.
pub(crate) fn select(options: &Options) -> Vec<Case> {
    let words = &options.filters;
    if guest::is_inside() {
        let here = |case: Case| Case { place: Place::Here, ..case };
        let is_named = |case: &Case| words.iter().any(|word| word == case.name);
        return cases::all().into_iter().filter(is_named).map(here).collect();
    }
    let wanted = |case: &Case| {
        let is_named =
            |word: &String| case.name.contains(word.as_str()) || case.group.contains(word.as_str());
        (words.is_empty() || words.iter().any(is_named))
            && (case.kind != Kind::Long
                || options.wants_long
                || words.iter().any(|word| word == case.name))
    };
    let places = |case: Case| {
        let there = Case { place: Place::Guest, ..case };
        [Some(case), (case.kind == Kind::Both).then_some(there)]
    };
    cases::all().into_iter().filter(wanted).flat_map(places).flatten().collect()
}

/// Runs one case and reports it; the first line of its failure when it failed.
fn run_one(shared: &Shared<'_>, case: &Case, totals: &Mutex<Totals>) -> Result<(), String> {
    let began = Instant::now();
    wait::in_test(case.name);
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
            Ok(())
        }
        Ok(Outcome::Skipped(reason)) => {
            totals.skipped += 1;
            println!("skipped {}: {reason}", case.name);
            Ok(())
        }
        Err(error) => {
            totals.failed += 1;
            println!("FAILED  {:<70} {took:6.1} s\n    {error:#}", case.name);
            if let Some(kept) = kept {
                println!("{kept}");
            }
            Err(format!("{error:#}").lines().next().unwrap_or_default().to_owned())
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
