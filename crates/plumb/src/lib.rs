//! plumb: the command line, measurements between hosts, links and the user-level stack.
//!
//! The binary only calls [`cli::main`]; the rest is a library so that tests can use it.
#![forbid(unsafe_code)]

pub mod cli;
pub mod net;
pub mod problem;
pub mod recording;

/// Running links, requests to them, and their documents.
pub mod link {
    pub mod control;
    pub mod document;
    pub mod running_link;
}

/// plumb's own stack in this process: devices, applications and results.
pub mod stack {
    pub mod attached_host;
    pub mod device;
    pub mod echo_test;
    pub mod ping;
    pub mod replay;
}

/// Version and commit of this program.
pub const VERSION: &str = env!("PLUMB_CODE_VERSION");
