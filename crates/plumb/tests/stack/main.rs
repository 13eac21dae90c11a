//! `plumb stack` as a user meets it: Linux's own `ping` and sockets as its peers, over TAP and
//! virtual Ethernet, both families; and what is said when something is in the way.
//!
//! Says `skipped:` where namespaces or a tool are missing, and fails for that under CI=true. Left out: what a
//! bed is made of (`lab`), and how fast anything is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;
mod memory;
mod peers;
mod replay;
mod trouble;
mod unprivileged;
