//! Many short lives of an agent, each from its own seed.
//!
//! `FERROLET_SIM_SEED=7 cargo test -p ferrolet-sim` plays one seed alone, `FERROLET_SIM_STEPS=200`
//! makes every run longer, and `FERROLET_SIM_RUNS=5000` plays more of them.

use std::{
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use ferrolet_sim::{plan, run, smallest};

const N_RUNS: u64 = 200;
const N_STEPS: u64 = 25;
/// A story takes milliseconds. One that takes this long spins without any of its own time passing.
const ENDLESS: Duration = Duration::from_secs(120);

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

fn n_steps() -> usize {
    let n_steps = number("FERROLET_SIM_STEPS", N_STEPS);
    usize::try_from(n_steps).expect("a small number")
}

/// Plays one seed, and says how to play it again when it fails.
fn play(seed: u64) {
    let events = plan(seed, n_steps());
    let Err(failure) = run(&events) else { return };
    let small = smallest(&events);
    let steps: Vec<String> = small.iter().map(|event| format!("  {event:?}")).collect();
    let again = run(&small).err().map(|failure| failure.to_string());
    panic!(
        "FERROLET_SIM_SEED={seed} FERROLET_SIM_STEPS={}: {failure}\nthe smallest plan that fails:\n{}\n{}",
        n_steps(),
        steps.join("\n"),
        again.unwrap_or_default(),
    );
}

/// Every second seed, so that two tests share the work.
fn play_half(remainder: u64, began: impl Fn(u64)) {
    let seeds = match std::env::var_os("FERROLET_SIM_SEED") {
        Some(_) => {
            let seed = number("FERROLET_SIM_SEED", 0);
            seed..seed + 1
        }
        None => 0..number("FERROLET_SIM_RUNS", N_RUNS),
    };
    for seed in seeds.filter(|seed| seed % 2 == remainder) {
        began(seed);
        play(seed);
    }
}

/// Plays half of the seeds where somebody watches that each of them ends.
fn play_watched(remainder: u64) {
    let (began, seeds) = channel();
    let playing = thread::spawn(move || {
        play_half(remainder, |seed| began.send(seed).expect("somebody watches"));
    });
    let mut last = None;
    loop {
        match seeds.recv_timeout(ENDLESS) {
            Ok(seed) => last = Some(seed),
            Err(RecvTimeoutError::Timeout) => panic!("FERROLET_SIM_SEED={last:?} does not end"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Err(panic) = playing.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn every_even_seed_keeps_the_invariants() {
    play_watched(0);
}

#[test]
fn every_odd_seed_keeps_the_invariants() {
    play_watched(1);
}

#[test]
fn the_same_seed_gives_the_same_journal() {
    let mut n_entries = 0;
    for seed in [3, 14, 15, 92] {
        let story = || run(&plan(seed, n_steps())).expect("it keeps the invariants");
        let (first, second) = (story().journal, story().journal);
        let differs = first.iter().zip(&second).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
        n_entries += first.len();
    }
    assert!(n_entries > 200, "{n_entries} are no stories worth telling");
}
