//! The machine and its settings, as they are.

pub mod cpu_list;
#[cfg(test)]
pub(crate) mod fixture;
pub mod tree;
