//! What is measured between two hosts: one engine a file, and what is asked of it and comes of it.
//!
//! An engine runs on both sides at once, each with its own half.

pub mod bulk;
mod bulk_connection;
pub mod clock_offset;
pub mod connect;
pub mod datagram;
pub mod mtu;
pub mod pacer;
pub mod probe;
pub mod progress;
pub mod quic;
pub(crate) mod reading_schedule;
pub mod report;
pub mod request_response;
pub mod spec_limits;
pub mod test_run;
pub mod test_spec;
pub mod thread;
pub mod tls;
