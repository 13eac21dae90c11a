//! Any bytes as an IP packet, and what it carries.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| plumb_fuzz::parsers::check_packet(bytes));
