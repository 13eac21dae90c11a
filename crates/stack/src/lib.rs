//! A user-level IP stack: pure, batched, the same over every device.
//!
//! A [`host::IpHost`] takes packets and the time and gives packets and its next deadline; it is a
//! [`plumb_wire::machine::Machine`].
#![forbid(unsafe_code)]

mod context;
pub mod counters;
mod demux;
mod fragmentation;
pub mod host;
pub mod icmp;
pub mod interface;
mod ip;
pub mod neighbor;
mod prediction;
pub mod reassembly;
pub mod route;
pub mod routing;
pub mod service;
pub mod tcp;
mod timers;
pub mod udp;
