//! From records to findings; no input or output here.
#![forbid(unsafe_code)]

pub mod breakdown;
pub mod claim;
pub mod compare;
pub mod contrast;
pub mod document;
pub mod ladder;
pub mod pipe;
pub mod rank;
pub mod ratio;
pub mod summary;

#[cfg(test)]
mod fixture;
