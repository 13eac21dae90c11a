//! The analysis of runs whose truth is known, with the experiments of this crate.

mod claims;
mod document;
mod ipc_claims;
mod network_claims;
mod stack_claims;
