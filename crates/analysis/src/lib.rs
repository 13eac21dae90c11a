//! From records to findings; no input or output here.
#![forbid(unsafe_code)]

pub mod document;
pub mod ladder;
pub mod rank;
