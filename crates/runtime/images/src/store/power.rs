//! Power cuts: a process that changes a store all the time is killed at random moments, what it had not brought to disk
//! is lost, and whatever the store then calls an image has to be whole.
//!
//! The writer is this test's own executable, started again with the store's directory in its environment. What is lost is
//! what a journal loses that keeps the order of names: contents of files since the last sync, and the newest marks.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::*;

/// The writer's store and boot.
const STORE: &str = "FERROLET_POWER_STORE";
const BOOT: &str = "FERROLET_POWER_BOOT";
const SEED: &str = "FERROLET_POWER_SEED";
const N_CUTS: u64 = 40;
/// The longest time that a writer has, in milliseconds.
const LONGEST: u64 = 120;

/// What the file of an image says, by its tag.
fn content(tag: &str) -> String {
    format!("{tag}\n").repeat(500)
}

/// Adds, keeps, names and removes images for ever.
fn write(path: &Path, boot: &str, mut dice: fastrand::Rng) {
    let store = Store::open(path, BootId(boot.to_owned()), &LIMITS).unwrap();
    for n in 0.. {
        let tag = format!("example.com/{boot}:{n}");
        let added = add_image(&store, &tag, &content(&tag));
        match dice.u8(..8) {
            0..=2 => drop(store.keep().unwrap()),
            3 => drop(store.remove_image(&added.id).unwrap()),
            4 => drop(store.collect().unwrap()),
            5 => drop(store.empty_trash().unwrap()),
            6 => {
                if let Some(old) = store.images().first() {
                    store.remove_image(&old.id).unwrap();
                }
            }
            _ => {}
        }
    }
}

/// Loses what was not on disk; how many files.
fn lose(path: &Path, dice: &mut fastrand::Rng) -> usize {
    let mut n_lost = 0;
    for part in ["layers", "staging"] {
        for entry in fs::read_dir(path.join(part)).into_iter().flatten().flatten() {
            let kept = entry.path().join("kept");
            if kept.exists() {
                // The mark itself is not waited for.
                if dice.u8(..8) == 0 {
                    fs::remove_file(&kept).unwrap();
                }
                continue;
            }
            let file = entry.path().join("fs/d/f");
            let Ok(text) = fs::read(&file) else { continue };
            match dice.u8(..3) {
                0 => fs::write(&file, "").unwrap(),
                1 => fs::write(&file, &text[..text.len() / 2]).unwrap(),
                _ => continue,
            }
            n_lost += 1;
        }
    }
    n_lost
}

#[test]
fn a_power_cut_at_any_moment_leaves_no_image_of_empty_files() {
    if let (Ok(path), Ok(boot), Ok(seed)) = (env::var(STORE), env::var(BOOT), env::var(SEED)) {
        return write(Path::new(&path), &boot, fastrand::Rng::with_seed(seed.parse().unwrap()));
    }
    let seed = env::var(SEED).ok().map_or_else(|| fastrand::u64(..), |it| it.parse().unwrap());
    println!("{SEED}={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let node = Node::new();
    let path = node.path("");
    let (mut n_whole, mut n_lost) = (0, 0);
    for cut in 0..N_CUTS {
        let mut writer = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "store::tests::power::a_power_cut_at_any_moment_leaves_no_image_of_empty_files",
            ])
            .env(STORE, &path)
            .env(BOOT, format!("boot-{cut}"))
            .env(SEED, dice.u64(..).to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(dice.u64(10..LONGEST)));
        assert!(writer.try_wait().unwrap().is_none(), "the writer ended by itself in cut {cut}");
        writer.kill().unwrap();
        writer.wait().unwrap();
        n_lost += lose(&path, &mut dice);
        let store = node.start(&format!("check-{cut}"));
        for image in store.images() {
            for tag in &image.tags {
                assert_eq!(text(&store, &image), content(tag), "after cut {cut}");
            }
            n_whole += 1;
        }
        assert_eq!(node.count("staging"), 0);
    }
    println!("{n_whole} images seen whole, {n_lost} files lost");
    assert!(n_whole > 0 && n_lost > 0, "nothing was tried: {n_whole} whole, {n_lost} lost");
}
