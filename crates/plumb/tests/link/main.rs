//! `plumb link` as a user gets it: commands behind a link, the way out, labs that stay, trouble, and what is
//! left behind, which is nothing.
//!
//! Says `skipped:` where namespaces or TUN are not allowed, and fails for that under CI=true.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod bench;

mod behind;
mod check;
mod gateway;
mod kept;
mod kills;
mod punctual;
mod trouble;
mod unprivileged;
