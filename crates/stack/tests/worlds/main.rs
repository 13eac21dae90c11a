//! Whole hosts in worlds of virtual time: over links that lose, double, break and delay, and under
//! strangers who lie.
//!
//! Left out: real devices and real peers.
#![expect(clippy::unwrap_used, reason = "what a world is made of is there, or the test fails")]

mod echo;
mod fuzz;
mod lan;
mod strangers;
