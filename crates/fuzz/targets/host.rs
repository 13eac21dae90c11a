//! Any frames to a whole host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plumb_fuzz::host::HostInput;

fuzz_target!(|input: HostInput| input.feed());
