//! plumb: the command line, measurements between hosts, links and the user-level stack.
//!
//! The binary is a few lines around [`cli::main`]; everything is here so that tests can reach it.
#![forbid(unsafe_code)]

pub mod cli;
pub mod link;
pub mod net;
pub mod problem;
pub mod recording;
pub mod stack;

/// Version and commit of this program.
pub const VERSION: &str = env!("PLUMB_CODE_VERSION");
