//! plumb's own stack in this process: on which device, with which application, and its results.

pub mod attached_host;
pub mod device;
pub mod echo_test;
pub mod ping;
pub mod replay;
