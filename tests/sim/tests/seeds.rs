//! Many short lives of an agent, each from its own seed.
//!
//! `FERROLET_SIM_SEED=7 cargo test -p ferrolet-sim` plays one seed alone, `FERROLET_SIM_STEPS=200` makes every run longer, and
//! `FERROLET_SIM_RUNS=5000` plays more of them.

use ferrolet_sim::{plan, run, smallest};

const N_RUNS: u64 = 200;
const N_STEPS: u64 = 25;

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
fn play_half(remainder: u64) {
    if std::env::var_os("FERROLET_SIM_SEED").is_some() {
        let seed = number("FERROLET_SIM_SEED", 0);
        if seed % 2 == remainder {
            play(seed);
        }
        return;
    }
    let seeds = 0..number("FERROLET_SIM_RUNS", N_RUNS);
    seeds.filter(|seed| seed % 2 == remainder).for_each(play);
}

#[test]
fn every_even_seed_keeps_the_invariants() {
    play_half(0);
}

#[test]
fn every_odd_seed_keeps_the_invariants() {
    play_half(1);
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
