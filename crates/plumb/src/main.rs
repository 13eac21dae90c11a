//! The `plumb` binary: everything is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // Best effort: otherwise a write beyond the limit ends the process, the default.
    drop(plumb_harness::stop_signals::handle_file_size_limit());
    plumb::cli::main()
}
