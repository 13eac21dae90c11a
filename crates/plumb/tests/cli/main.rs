//! The built program as its users meet it: words in, pages, documents and exit codes out.
//!
//! What needs namespaces, TUN or another program says `skipped:` without, and fails for that under CI=true.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/program.rs"]
mod support;

mod display;
mod documents;
mod explanation;
mod gallery;
mod guide;
mod home;
mod interruption;
mod link;
mod machines;
mod net;
mod pages;
mod screens;
mod sim;
mod stack;
mod store_errors;
mod usage;
