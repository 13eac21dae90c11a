//! Measurements between two hosts: what the agent and its client say to each other, and what
//! each side does meanwhile.
//!
//! `protocol` is pure: messages, sessions and their deadlines, without a socket. `agent` and `client` drive it
//! over anything that reads and writes. The engines (`measure`) use plain sockets and threads, so that
//! nothing is between a clock read and the kernel; `evidence` is what each side saw meanwhile. `secure` is who may
//! use an agent; `iperf3`, `stamp` and `http` are engines of their own. Left out:
//! namespaces and emulated links (`plumb-host`), storing and drawing (`plumb`).

#![forbid(unsafe_code)]

pub mod agent;
mod alignment;
pub mod client;
pub mod clock;
mod crew;
pub mod evidence;
pub mod http;
pub mod iperf3;
pub mod measure;
mod origin;
pub mod protocol;
pub mod secure;
pub mod stamp;
pub mod transport;
pub mod zone;
