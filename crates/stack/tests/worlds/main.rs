//! Whole hosts in virtual time: over links that lose, duplicate, corrupt and delay, and beside attackers.
#![expect(clippy::unwrap_used, reason = "what a world is made of is there, or the test fails")]

mod attack;
mod echo;
mod lan;
mod pair;
mod tcp;
mod virtual_link;
