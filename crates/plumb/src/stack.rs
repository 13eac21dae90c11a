//! plumb's own stack in this process: on which device, with which application, and what came of it.
//!
//! Left out: the stack (`plumb_stack`), devices (`plumb_host`), and words and pages (`crate::cli`).

pub mod course;
pub mod device;
pub mod faults;
pub mod kernel;
pub mod ping;
pub mod replay;
pub mod sender;
pub mod service;
pub mod station;
