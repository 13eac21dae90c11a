//! Any bytes as a packetdrill script.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    plumb_fuzz::parsers::check_script(bytes);
});
