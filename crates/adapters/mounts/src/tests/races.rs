//! Somebody in the container swaps entries as fast as they can while we work. Bounded, so that it
//! runs with every commit; the long version is an end-to-end test.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use ferrolet_linux::rooted::Rooted;
use ferrolet_types::Timestamp;

use super::{NOON, payload_of};
use crate::{payload, sub_path};

const ROUNDS: usize = 4000;

/// Swaps a directory and a link of the same name until told to stop.
fn attack(volume: &Path, outside: &Path, stop: &AtomicBool) {
    let (target, aside) = (volume.join("target"), volume.join("aside"));
    symlink(outside, &aside).unwrap();
    fs::create_dir_all(target.join("inner")).unwrap();
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    while !stop.load(Ordering::Relaxed) {
        rustix::fs::renameat_with(rustix::fs::CWD, &target, rustix::fs::CWD, &aside, flags).ok();
    }
}

#[test]
fn a_link_swapped_in_while_a_sub_path_is_opened_never_leads_out() {
    let volume = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("inner")).unwrap();
    let forbidden = fs::metadata(outside.path()).unwrap().ino();
    let forbidden_inner = fs::metadata(outside.path().join("inner")).unwrap().ino();
    let stop = AtomicBool::new(false);
    let (mut n_found, mut n_refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| attack(volume.path(), outside.path(), &stop));
        for n in 0..ROUNDS {
            let made = format!("target/made-{n}");
            for path in ["target", "target/inner", &made] {
                match sub_path::open_part(volume.path(), Path::new(path)) {
                    Ok(found) => {
                        let found = rustix::fs::fstat(&found).unwrap().st_ino;
                        assert!(found != forbidden && found != forbidden_inner);
                        n_found += 1;
                    }
                    Err(_refused) => n_refused += 1,
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(n_found > 0, "{n_refused} refused");
}

#[test]
fn a_link_swapped_in_while_files_are_written_never_leads_out() {
    let volume = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    let stop = AtomicBool::new(false);
    let root = Rooted::open(volume.path()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Versions, the pointer and what is shown become links to the outside, over and over.
            while !stop.load(Ordering::Relaxed) {
                let Ok(entries) = fs::read_dir(volume.path()) else {
                    continue;
                };
                for entry in entries.flatten() {
                    let aside = volume.path().join("stolen");
                    if fs::rename(entry.path(), &aside).is_ok() {
                        symlink(outside.path(), entry.path()).ok();
                        fs::remove_dir_all(&aside).or_else(|_| fs::remove_file(&aside)).ok();
                    }
                }
            }
        });
        for n in 0..400 {
            let content = n.to_string();
            let files = payload_of(&[("k", &content), ("d/e", &content), ("precious", &content)]);
            // Refusals are fine; leaving is not.
            payload::write(&root, &files, Timestamp::from_second(NOON + n)).ok();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let left: Vec<_> = fs::read_dir(outside.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
    let precious = fs::read_to_string(outside.path().join("precious")).unwrap();
    assert_eq!(precious, "x");
}
