//! Any bytes through every parser.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| plumb_fuzz::parsers::check_every_parser(bytes));
