//! What the two sides say to each other, and when it is too late: without a socket, without a clock.
//!
//! Left out: reading and writing (`crate::agent`, `crate::client`).

pub mod frame;
pub mod hello;
pub mod message;
pub mod session;
pub mod shelf;
pub mod token;

#[cfg(test)]
mod fuzz;
