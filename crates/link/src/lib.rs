//! Links as pure machines: frames and time in, frames and the next deadline out.
//!
//! What happens to a frame in one direction of one hop, in this order: policer, queue, rate, the
//! wire's faults, delay, and, where the hop ends at a router, its time to live and the next hop's
//! MTU. A link is hops in a row, both ways. Left out: any clock and any device; the same link runs
//! in real time and in virtual time.
#![forbid(unsafe_code)]

#[cfg(test)]
mod bench;
mod chance;
pub mod context;
pub mod delay;
pub mod fault;
pub mod flow;
pub mod frame;
mod header;
mod hop;
mod line;
pub mod link;
pub mod memory;
pub mod network;
pub mod preset;
pub mod queue;
pub mod rate;
pub mod report;
mod router;
pub mod schedule;
pub mod spec;
pub mod steered;
pub mod switch;
pub mod text;
pub mod trace;
