//! SIGTERM and SIGINT: the first process of a container gets only those that it asks for.

use std::{
    io::{PipeWriter, Read as _, pipe},
    os::fd::AsRawFd as _,
    process,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    thread,
};

use crate::shell;

const INTERRUPT: i32 = 2;
const TERMINATE: i32 = 15;

/// Where the handler writes.
static DOOR: AtomicI32 = AtomicI32::new(-1);
/// Keeps the door open.
static WRITER: OnceLock<PipeWriter> = OnceLock::new();
/// What a shell was told to do about it.
static TRAP: Mutex<Option<String>> = Mutex::new(None);

unsafe extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn write(descriptor: i32, bytes: *const u8, n_bytes: usize) -> isize;
}

/// Begins to listen: a thread waits for what the handler tells.
pub(crate) fn listen() {
    let Ok((mut reader, writer)) = pipe() else { return };
    DOOR.store(writer.as_raw_fd(), Ordering::Relaxed);
    if WRITER.set(writer).is_err() {
        return;
    }
    thread::spawn(move || {
        let mut number = [0];
        if reader.read_exact(&mut number).is_ok() {
            process::exit(obey(i32::from(number[0])));
        }
    });
    for number in [INTERRUPT, TERMINATE] {
        // SAFETY: the handler does nothing but `write`, which is allowed in one.
        unsafe { signal(number, tell) };
    }
}

/// Says what is to be done instead of ending at once.
pub(crate) fn trap(script: &str) {
    *TRAP.lock().unwrap_or_else(PoisonError::into_inner) = Some(script.to_owned());
}

fn obey(number: i32) -> i32 {
    let script = TRAP.lock().unwrap_or_else(PoisonError::into_inner).take();
    match script {
        Some(script) => shell::run(&script),
        None => 128 + number,
    }
}

extern "C" fn tell(number: i32) {
    let byte = u8::try_from(number).unwrap_or_default();
    // SAFETY: the byte is alive during the call, and the descriptor is never closed.
    unsafe { write(DOOR.load(Ordering::Relaxed), &byte, 1) };
}
