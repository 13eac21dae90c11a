//! Any bytes as an Ethernet frame, and what it carries.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| plumb_wire::fuzz::any_frame(bytes));
