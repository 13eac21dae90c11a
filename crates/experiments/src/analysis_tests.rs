//! The analysis of runs whose truth is known, with the experiments of this crate.

mod claims;
mod distributed_claims;
mod document;
mod gigabit_claims;
mod ipc_claims;
mod scaling_claims;
mod stack_claims;
mod verdict_pairs;
