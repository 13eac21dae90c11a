//! Any bytes to a structured display.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| plumb_fuzz::display::check_display(bytes));
