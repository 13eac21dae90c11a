//! Any bytes as a capture file of either format.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    plumb_fuzz::parsers::check_capture(bytes);
});
