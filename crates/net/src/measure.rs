//! What is measured between two hosts: one engine a file, and what is asked of it and comes of it.
//!
//! An engine runs on both sides at once, each with its own half. Left out: agreeing on a test
//! (`crate::protocol`), and what the numbers mean together.

pub mod bind;
mod carry;
pub mod control;
pub mod datagram;
pub mod delay;
pub mod exchange;
mod hall;
pub mod latency;
pub mod limits;
pub mod live;
pub mod mtu;
pub mod quic;
pub mod report;
pub mod run;
pub mod seat;
pub mod spec;
pub mod standstill;
pub mod stream;
pub mod tls;
pub mod transport;
mod worker;
