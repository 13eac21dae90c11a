//! The `plumb` binary: everything is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    plumb::cli::main()
}
