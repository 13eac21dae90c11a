//! Datagrams at a paced rate: who sent what, what came, what did not, and where it was lost.
//!
//! All times are nanoseconds of the CLOCK_MONOTONIC_RAW of the host that read them: no clock that is set enters
//! a difference, and [`super::clock_offset`] relates two hosts' clocks.

pub mod drops;
pub mod endpoint;
pub mod receiver;
pub mod sender;
pub mod sequence_tracker;
pub mod transit;
