//! Any bytes through every parser, whatever they are.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| plumb_wire::fuzz::every_parser(bytes));
