//! plumb: the command line, measurements between hosts, links and the user-level stack.
//!
//! The binary only calls [`cli::main`]; the rest is a library so that tests can use it.
#![forbid(unsafe_code)]

pub mod cli;
pub mod net;
pub mod problem;
pub mod recording;

/// Version and commit of this program.
pub const VERSION: &str = env!("PLUMB_CODE_VERSION");
