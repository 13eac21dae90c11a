//! The system's allocator with a count of what each thread asks it for.
//!
//! For programs that prove what does not allocate: `#[global_allocator] static HEAP: CountingAllocator = CountingAllocator;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Neither is made with memory of the heap nor torn down.
    static ALLOCATIONS: Cell<AllocationCount> = const { Cell::new(AllocationCount { times: 0, bytes: 0 }) };
}

/// What a thread has asked for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationCount {
    /// How often.
    pub times: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl AllocationCount {
    /// What this thread has asked for so far; nothing where another allocator serves the program.
    pub fn by_this_thread() -> Self {
        ALLOCATIONS.get()
    }
}

/// The system's allocator, which counts.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

fn count(bytes: usize) {
    // A thread that is being torn down is not counted any more.
    ALLOCATIONS
        .try_with(|asked| {
            let AllocationCount { times, bytes: before } = asked.get();
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            asked.set(AllocationCount { times: times + 1, bytes: before.saturating_add(bytes) });
        })
        .ok();
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the heap.
unsafe impl GlobalAlloc for CountingAllocator {
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
