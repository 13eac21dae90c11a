//! Datagrams at a paced rate: who sent what, what came, what did not, and where it was lost.
//!
//! | question | module |
//! |---|---|
//! | what a datagram carries before its padding | `header` |
//! | which are lost, late, or there twice | `account` |
//! | how evenly they come | [`jitter`] |
//! | how long each took, by two clocks | [`transit`] |
//! | who may be sent to | `udp_handshake` |
//! | sending; receiving | [`sender`]; [`receiver`] |
//! | when refusals mean that nobody is there | `refusals` |
//! | where the lost ones were lost | `drops`, `qdisc`, `loss` |
//! | all of that as one side of a test | [`endpoint`] |
//!
//! All times are nanoseconds of the CLOCK_MONOTONIC_RAW of the host that read them: no clock that is set enters
//! a difference, and [`super::clock_offset`] relates two hosts' clocks. Left out: who asks for a test, and its limits.

pub mod endpoint;
pub mod jitter;
pub mod kernel_drops;
pub mod loss_by_location;
mod qdisc;
pub mod receiver;
pub mod sender;
pub mod sequence_tracker;
pub mod transit;
mod unreachable;
