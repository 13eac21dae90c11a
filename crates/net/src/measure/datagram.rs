//! Datagrams at a paced rate: who sent what, what came, what did not, and where it was lost.
//!
//! | question | module |
//! |---|---|
//! | what a datagram carries before its padding | [`header`] |
//! | when each is to leave, and how many at once | [`pace`] |
//! | which are lost, late, or there twice | [`account`] |
//! | how evenly they come | [`jitter`] |
//! | how long each took, by two clocks | [`trace`] |
//! | who may be sent to | [`meeting`] |
//! | sending; receiving | [`sender`]; [`receiver`] |
//! | when refusals mean that nobody is there | `refusals` |
//! | where the lost ones were lost | [`drops`], `qdisc`, [`loss`] |
//! | all of that as one side of a test | [`half`] |
//!
//! All times are nanoseconds of the CLOCK_MONOTONIC_RAW of the host that read them: no clock that is set enters
//! a difference, and [`super::delay`] relates two hosts' clocks. Left out: who asks for a test, and its limits.

pub mod account;
pub mod drops;
pub mod half;
pub mod header;
pub mod jitter;
pub mod loss;
pub mod meeting;
pub mod pace;
mod qdisc;
pub mod receiver;
mod refusals;
pub mod sender;
pub mod trace;
