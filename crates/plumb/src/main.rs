//! The `plumb` binary: everything is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // Where this is refused, such a write ends the process, as it does by default.
    drop(plumb_harness::stop_signals::handle_file_size_limit());
    plumb::cli::main()
}
