//! The stack of the calling thread, as addresses.
//!
//! Walks with the unwinder that panics use anyway, which takes no lock and allocates nothing on the
//! C libraries we run on, so that it may be called in a signal handler and inside the allocator.

use libc::{c_int, c_void, uintptr_t};

/// As deep as stacks are looked at.
pub(super) const DEPTH: usize = 48;

/// Addresses, innermost first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stack {
    frames: [u64; DEPTH],
    depth: usize,
}

impl Stack {
    pub const EMPTY: Self = Self { frames: [0; DEPTH], depth: 0 };

    pub fn frames(&self) -> &[u64] {
        &self.frames[..self.depth]
    }

    fn push(&mut self, address: u64) -> bool {
        match self.frames.get_mut(self.depth) {
            Some(frame) => {
                *frame = address;
                self.depth += 1;
                true
            }
            None => false,
        }
    }
}

#[repr(C)]
struct Context {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        trace: unsafe extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut Context, before: *mut c_int) -> uintptr_t;
}

const GO_ON: c_int = 0;
const ENOUGH: c_int = 5;

struct Walk {
    stack: Stack,
    /// Frames before this address are not of interest; zero takes all.
    from: u64,
}

unsafe extern "C" fn visit(context: *mut Context, argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the `Walk` that `walk` lent to the unwinder for the time of this call.
    let walk = unsafe { &mut *argument.cast::<Walk>() };
    let mut before = 0;
    // SAFETY: the unwinder hands in a context that is valid during this call; `before` is ours.
    let address = unsafe { _Unwind_GetIPInfo(context, &raw mut before) } as u64;
    if walk.from != 0 {
        if address != walk.from {
            return GO_ON;
        }
        walk.from = 0;
    }
    if address == 0 {
        return ENOUGH;
    }
    // A return address belongs to the instruction before it; an interrupted one to itself.
    let address = if before == 0 { address - 1 } else { address };
    if walk.stack.push(address) { GO_ON } else { ENOUGH }
}

/// The stack from the frame that is at `from`, or from here when that is zero.
#[inline(never)]
pub(super) fn walk(from: u64) -> Stack {
    let mut walk = Walk { stack: Stack::EMPTY, from };
    // SAFETY: `visit` has the type that the unwinder wants, and `walk` outlives the call.
    unsafe {
        _Unwind_Backtrace(visit, (&raw mut walk).cast());
    }
    if walk.stack.depth == 0 && from != 0 {
        walk.stack.push(from);
    }
    walk.stack
}
