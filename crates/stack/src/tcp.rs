//! TCP (RFC 9293) by role: a [`Connection`] takes segments and time and gives segments and a deadline.
#![allow(dead_code, missing_docs)]

pub mod config;
pub mod congestion;
pub mod delivery_rate;
pub mod handshake;
pub mod pacing;
pub mod segment;
pub mod seq;
