//! Any bytes as an Ethernet frame; a mutated frame often gets its checksums repaired, so that it passes them.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use plumb_fuzz::{mutator, parsers};

fuzz_target!(|bytes: &[u8]| parsers::check_frame(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = fuzzer_mutate(data, size, max_size);
    if seed % 2 == 0 {
        mutator::repair_checksums(&mut data[..size]);
    }
    size
});
