//! Any frames to a whole host.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| plumb_stack::fuzz::host_fed(bytes));
