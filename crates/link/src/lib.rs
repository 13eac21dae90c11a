//! Links as pure machines: frames and time in, frames and the next deadline out.
//!
//! What happens to a frame in one direction of one hop, in this order: policer, queue, rate, the
//! wire's faults, delay, and, where the hop ends at a router, its time to live and the next hop's
//! MTU. A link is hops in a row, both ways.
#![forbid(unsafe_code)]

mod chance;
pub mod delay;
pub mod fault;
#[cfg(test)]
mod fixture;
pub mod frame;
mod hop;
pub mod link;
pub mod memory;
pub mod one_way;
pub mod preset;
pub mod queue;
pub mod rate;
pub mod report;
mod router;
pub mod schedule;
pub mod spec;
pub mod switch;
pub mod text;
pub mod trace;
