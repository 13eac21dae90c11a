//! plumb: experiments, plans, the run loop and the command line.
//!
//! The binary is a few lines; everything is here so that tests can reach it.
#![forbid(unsafe_code)]

pub mod experiment;
pub mod plan;
pub mod problem;
