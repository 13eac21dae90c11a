//! The experiments, their plans, and the run that carries them out.
//!
//! What lies outside a measurement, the link that plumb runs behind and another host, is passed in
//! as [`surroundings::Surroundings`].
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "claims and pages use the words of their study")
)]

/// Declares the experiments of a study: each is a module with a static `EXPERIMENT`.
macro_rules! experiments {
    ($($name:ident),* $(,)?) => {
        $(pub mod $name;)*

        /// Every experiment of this study.
        pub static EXPERIMENTS: &[&crate::definition::Experiment] = &[$(&$name::EXPERIMENT),*];
    };
}

#[cfg(test)]
mod analysis_tests;
mod claims;
pub mod definition;
pub mod error;
pub mod factor;
pub mod factors;
pub mod gigabit;
pub mod ipc;
pub mod list;
pub mod mirror;
mod pages;
pub mod plan;
pub mod preset;
pub mod run;
pub mod scaling;
pub mod selftest;
pub mod stack;
pub mod studies;
pub mod surroundings;
