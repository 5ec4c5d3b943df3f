//! What holds memory: the system's allocator with one allocation in so many bytes noted, as Go does
//! it.
//!
//! An allocation costs a subtraction, a release one look at a line of a small table. A noted
//! allocation walks the stack once. Stacks are kept in a fixed number of places, so that this never
//! grows; what does not fit is not counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::unwind::{Stack, walk};

/// One allocation is noted in this many bytes.
pub const RATE: usize = 512 * 1024;
/// Noted allocations that can be in use at once, in lines of four.
const LINES: usize = 256;
const WAYS: usize = 4;
/// Different stacks.
const PLACES: usize = 256;

/// The system's allocator, watched.
#[derive(Debug)]
pub struct WatchedHeap;

/// A stack and what was allocated there.
#[derive(Clone, Copy)]
pub struct Place {
    pub stack: Stack,
    pub n_allocated: u64,
    pub bytes_allocated: u64,
    pub n_in_use: u64,
    pub bytes_in_use: u64,
}

const NOBODY: Place =
    Place { stack: Stack::EMPTY, n_allocated: 0, bytes_allocated: 0, n_in_use: 0, bytes_in_use: 0 };

/// In pages that nobody touches until the first place is taken.
static TABLE: Mutex<(usize, [Place; PLACES])> = Mutex::new((0, [NOBODY; PLACES]));
static IN_USE: [[AtomicUsize; WAYS]; LINES] =
    [const { [const { AtomicUsize::new(0) }; WAYS] }; LINES];
/// The place and the size of what `IN_USE` names: one word, so that no half of it is seen.
static WHOSE: [[AtomicU32; WAYS]; LINES] = [const { [const { AtomicU32::new(0) }; WAYS] }; LINES];
static N_IN_USE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Bytes until the next allocation is noted.
    static LEFT: Cell<usize> = const { Cell::new(RATE) };
    static IS_NOTING: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments; what is noted
// beside it neither allocates nor panics.
unsafe impl GlobalAlloc for WatchedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        let block = unsafe { System.alloc(layout) };
        allocated(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        let block = unsafe { System.alloc_zeroed(layout) };
        allocated(block, layout.size());
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        released(block);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Before the block may be somebody else's. A refusal leaves it unnoted, which is all that
        // is lost.
        released(block);
        // SAFETY: the caller's promises are passed on.
        let moved = unsafe { System.realloc(block, layout, size) };
        allocated(moved, size);
        moved
    }
}

#[inline]
fn allocated(block: *mut u8, size: usize) {
    // A thread that is being taken down has no such cell any more; what it allocates is not noted.
    let is_due = LEFT.try_with(|left| {
        let is_due = left.get() <= size;
        left.set(if is_due { RATE } else { left.get() - size });
        is_due
    });
    if is_due.unwrap_or(false) && !block.is_null() {
        note(block, size);
    }
}

#[cold]
#[inline(never)]
fn note(block: *mut u8, size: usize) {
    let was_noting = IS_NOTING.try_with(|noting| noting.replace(true)).unwrap_or(true);
    if was_noting {
        return;
    }
    let stack = walk(0);
    // Never waits: the holder may be this very thread, in the middle of a read.
    if let Ok(mut table) = TABLE.try_lock() {
        let (n_taken, places) = &mut *table;
        let known = places[..*n_taken].iter().position(|it| it.stack == stack);
        let index = known.or_else(|| {
            let next = *n_taken;
            let place = places.get_mut(next)?;
            place.stack = stack;
            *n_taken += 1;
            Some(next)
        });
        if let Some(index) = index {
            let place = &mut places[index];
            let units = units(size);
            let (n, bytes) = weight(units);
            place.n_allocated += n;
            place.bytes_allocated += bytes;
            if hold(block, index, units) {
                place.n_in_use += n;
                place.bytes_in_use += bytes;
            }
        }
    }
    let _ = IS_NOTING.try_with(|noting| noting.set(false));
}

/// A size in units of sixteen bytes, one at least; 24 bits hold them up to 256 MB.
fn units(size: usize) -> u32 {
    let units = u32::try_from(size.div_ceil(16)).unwrap_or(u32::MAX);
    units.clamp(1, 0x00ff_ffff)
}

/// What one noted allocation stands for: objects and bytes.
fn weight(units: u32) -> (u64, u64) {
    let size = u64::from(units) * 16;
    let bytes = size.max(RATE as u64);
    (bytes / size, bytes)
}

fn line_of(block: *mut u8) -> usize {
    // Blocks are sixteen bytes apart at least; the multiplication spreads the rest.
    (block.addr() >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 8)
}

/// Remembers whose a block is; false when its line is full.
fn hold(block: *mut u8, index: usize, units: u32) -> bool {
    let line = line_of(block);
    let Ok(index) = u32::try_from(index) else {
        return false;
    };
    for way in 0..WAYS {
        // Only the holder of the table's lock adds, so a free way stays free until it is taken
        // here.
        if IN_USE[line][way].load(Ordering::Acquire) == 0 {
            WHOSE[line][way].store(units << 8 | index, Ordering::Release);
            IN_USE[line][way].store(block.addr(), Ordering::Release);
            N_IN_USE.fetch_add(1, Ordering::Relaxed);
            return true;
        }
    }
    false
}

#[inline]
fn released(block: *mut u8) {
    if N_IN_USE.load(Ordering::Relaxed) == 0 {
        return;
    }
    let line = &IN_USE[line_of(block)];
    if let Some(way) = line.iter().position(|it| it.load(Ordering::Relaxed) == block.addr()) {
        forget(block, way);
    }
}

#[cold]
#[inline(never)]
fn forget(block: *mut u8, way: usize) {
    let line = line_of(block);
    let whose = WHOSE[line][way].load(Ordering::Acquire);
    IN_USE[line][way].store(0, Ordering::Release);
    N_IN_USE.fetch_sub(1, Ordering::Relaxed);
    let (index, units) = ((whose & 0xff) as usize, whose >> 8);
    let was_noting = IS_NOTING.try_with(|noting| noting.replace(true)).unwrap_or(true);
    if was_noting {
        return;
    }
    // Short: a walk never happens under this lock.
    let mut table = TABLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (n, bytes) = weight(units);
    let place = &mut table.1[index];
    place.n_in_use = place.n_in_use.saturating_sub(n);
    place.bytes_in_use = place.bytes_in_use.saturating_sub(bytes);
    drop(table);
    let _ = IS_NOTING.try_with(|noting| noting.set(false));
}

/// Every stack that memory was noted at.
pub fn places() -> Vec<Place> {
    // Room first: allocating under the lock would be noted, and noting wants the lock.
    let mut copied = Vec::with_capacity(PLACES);
    let table = TABLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    copied.extend_from_slice(&table.1[..table.0]);
    copied
}
