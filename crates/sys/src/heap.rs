//! The system's allocator with a count of what each thread asks it for.
//!
//! For programs that prove what does not allocate: `#[global_allocator] static HEAP: Counted = Counted;`. Left out: what is
//! given back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Neither is made with memory of the heap nor torn down.
    static ASKED: Cell<Asked> = const { Cell::new(Asked { times: 0, bytes: 0 }) };
}

/// What a thread has asked for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// How often.
    pub times: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl Asked {
    /// What this thread has asked for so far; nothing where another allocator serves the program.
    pub fn by_this_thread() -> Self {
        ASKED.get()
    }
}

/// The system's allocator, which counts.
#[derive(Clone, Copy, Debug)]
pub struct Counted;

fn count(bytes: usize) {
    // A thread that is being torn down is not counted any more.
    ASKED
        .try_with(|asked| {
            let Asked { times, bytes: before } = asked.get();
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            asked.set(Asked { times: times + 1, bytes: before.saturating_add(bytes) });
        })
        .ok();
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the heap.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps to the contract of the same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps to the contract of the same function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller keeps to the contract of the same function.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the contract of the same function.
        unsafe { System.dealloc(block, layout) }
    }
}
