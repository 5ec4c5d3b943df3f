//! Where processor time goes: the kernel's profiling timer interrupts whoever is running, and the
//! handler notes its stack.
//!
//! ```text
//!  begin ─► handler, buffer, timer ──(SIGPROF)──► note: a slot, a walk ──► end: timer off, wait for handlers, slots out
//! ```
//!
//! Nothing exists between profiles but a few words. The handler touches only atomics, its own slot
//! and the stack.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

use super::unwind::{Stack, walk};

/// Samples per second of processor time.
pub const RATE: u32 = 100;

struct Slots {
    slots: Vec<UnsafeCell<Stack>>,
    n_taken: AtomicUsize,
}

/// A profile is being taken.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// Where handlers write; null when they must not.
static SLOTS: AtomicPtr<Slots> = AtomicPtr::new(std::ptr::null_mut());
/// Handlers under way.
static N_INSIDE: AtomicUsize = AtomicUsize::new(0);

/// A profile under way. Dropping it stops the timer.
pub struct CpuSamples {
    slots: *mut Slots,
}

// SAFETY: the pointer is owned by this value alone; handlers borrow what it points to only while
// `SLOTS` names it.
unsafe impl Send for CpuSamples {}

impl CpuSamples {
    /// Starts the timer; none when a profile is being taken already or the kernel refuses.
    pub fn begin(n_most: usize) -> Option<Self> {
        if IS_BUSY.swap(true, Ordering::AcqRel) {
            return None;
        }
        let slots = (0..n_most).map(|_| UnsafeCell::new(Stack::EMPTY)).collect();
        let slots = Box::into_raw(Box::new(Slots { slots, n_taken: AtomicUsize::new(0) }));
        // From here on dropping `samples` undoes everything.
        let samples = Self { slots };
        // The first walk may load what later ones need; it had better not be in a handler.
        let _ = walk(0);
        SLOTS.store(slots, Ordering::SeqCst);
        (install() && set_timer(1_000_000 / i64::from(RATE))).then_some(samples)
    }

    /// Stops the timer and gives the stacks.
    pub fn end(self) -> Vec<Stack> {
        self.stop();
        // SAFETY: `stop` made sure that no handler can reach the slots any more.
        let slots = unsafe { &*self.slots };
        let n = slots.n_taken.load(Ordering::Acquire).min(slots.slots.len());
        let taken = slots.slots[..n].iter();
        // SAFETY: as above, nobody writes to a slot now.
        taken.map(|slot| unsafe { *slot.get() }).collect()
    }

    fn stop(&self) {
        set_timer(0);
        SLOTS.store(std::ptr::null_mut(), Ordering::SeqCst);
        // A handler that saw the slots says so before it looks, and takes microseconds.
        while N_INSIDE.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }
}

impl Drop for CpuSamples {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: the box was made in `begin`, and `stop` made sure that nobody else refers to it.
        drop(unsafe { Box::from_raw(self.slots) });
        IS_BUSY.store(false, Ordering::Release);
    }
}

/// The handler stays for good: without the timer nobody sends the signal, and a late one must not
/// end the process.
fn install() -> bool {
    // SAFETY: an all-zero sigaction is a valid one; every field that matters is set below.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = note as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: both pointers are to a valid sigaction or null, and `note` is safe to run in a signal
    // handler.
    unsafe { libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()) == 0 }
}

fn set_timer(micros: i64) -> bool {
    let value = libc::timeval { tv_sec: 0, tv_usec: micros };
    let timer = libc::itimerval { it_interval: value, it_value: value };
    // SAFETY: setitimer reads the value it is given and writes nowhere.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) == 0 }
}

/// Runs in the middle of anything: atomics, one slot, and the unwinder only.
extern "C" fn note(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: errno is the thread's own, and is put back below.
    let errno = unsafe { *libc::__errno_location() };
    N_INSIDE.fetch_add(1, Ordering::SeqCst);
    let slots = SLOTS.load(Ordering::SeqCst);
    if !slots.is_null() {
        // SAFETY: `stop` waits for `N_INSIDE` to fall to zero after it hid the slots, so they live
        // until we are done.
        let slots = unsafe { &*slots };
        let mine = slots.n_taken.fetch_add(1, Ordering::AcqRel);
        if let Some(slot) = slots.slots.get(mine) {
            let stack = walk(interrupted(context));
            // SAFETY: every handler has a slot of its own, and readers wait for us.
            unsafe { *slot.get() = stack };
        }
    }
    N_INSIDE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The address that was interrupted.
#[cfg(target_arch = "x86_64")]
fn interrupted(context: *mut c_void) -> u64 {
    // SAFETY: with SA_SIGINFO the kernel passes a ucontext, valid while the handler runs.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let register = usize::try_from(libc::REG_RIP).unwrap_or_default();
    context.uc_mcontext.gregs[register].cast_unsigned()
}

/// The address that was interrupted.
#[cfg(target_arch = "aarch64")]
fn interrupted(context: *mut c_void) -> u64 {
    // SAFETY: with SA_SIGINFO the kernel passes a ucontext, valid while the handler runs.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.pc
}

/// Unknown: the whole stack is taken, the handler included.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn interrupted(_: *mut c_void) -> u64 {
    0
}
