//! The `plumb` binary: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    plumb::cli::main()
}
