//! From records to findings; no input or output here.
#![forbid(unsafe_code)]

pub mod advice;
pub mod breakdown;
pub mod build;
pub mod claim;
pub mod claim_table;
pub mod compare;
pub mod cost_model;
pub mod cost_ratio;
pub mod dialogue;
pub mod document;
pub mod index;
pub mod ladder;
pub mod rank;
pub mod ratio;
pub mod registry;
pub mod scale;
pub mod sensitivity;
pub mod summary;

#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
