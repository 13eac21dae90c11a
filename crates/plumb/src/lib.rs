//! plumb: experiments, plans, the run loop and the command line.
//!
//! The binary is a few lines around [`cli::main`]; everything is here so that tests can reach it.
#![forbid(unsafe_code)]

pub mod cli;
pub mod experiment;
pub mod link;
pub mod mirror;
pub mod net;
pub mod plan;
pub mod problem;
pub mod recording;
pub mod run;
pub mod selftest;
pub mod stack;
