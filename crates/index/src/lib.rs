//! `plumb-index/1`: six integer kernels that rate a processor, each of which checks its own result.
//!
//! The kernels do what communicating programs do besides communicating: compress, sort and look up, parse, digest,
//! interpret, search a graph. They use no system call, no vector intrinsic and no collection of the standard library
//! whose algorithm may change, and their inputs come from a generator of their own, so that one version is the same
//! work everywhere. A change of work is a new version. Left out: clocks; who calls a kernel times it.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "kernels work modulo the width of their words, and indices are below 2^32"
)]

mod kernel;

pub use kernel::{IndexKernel, KernelError, PreparedKernel};

/// The name of this set of kernels, which results carry.
pub const VERSION: &str = "plumb-index/1";

/// The machine whose index is 1, by [`IndexKernel::reference_ns`].
pub const REFERENCE: &str =
    "one virtual CPU of an AMD EPYC (Zen), Linux 6.18, Rust 1.95, November 2026";
