//! Measurements between two hosts: the engines of both sides, and the agent's service that runs them.
//!
//! The engines in `measure` use blocking sockets and threads, so that nothing but the kernel stands between two clock
//! reads.

#![forbid(unsafe_code)]

pub mod connection_pool;
pub mod evidence;
pub mod measure;
pub mod service;
pub mod test_client;
