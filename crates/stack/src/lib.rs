//! A user-level IP stack: pure, batched, the same over every device.
//!
//! A [`host::Host`] takes packets and the time and gives packets and its next deadline; it is a
//! [`plumb_wire::machine::Machine`]. Left out: devices, clocks and the driving loop.
#![forbid(unsafe_code)]

pub mod counters;
pub mod fragment;
pub mod fuzz;
pub mod host;
pub mod icmp;
pub mod interface;
pub mod ip;
pub mod limiter;
pub mod neighbour;
pub mod node;
pub mod path;
pub mod path_mtu;
pub mod reassembly;
pub mod route;
pub mod service;
pub mod timers;
pub mod udp;
pub mod world;
