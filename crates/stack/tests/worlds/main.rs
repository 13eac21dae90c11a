//! Whole hosts in worlds of virtual time: over links that lose, double, break and delay, and under
//! strangers who lie.
//!
//! Left out: real devices and real peers.

mod echo;
mod fuzz;
mod lan;
mod strangers;
