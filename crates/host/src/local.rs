//! Local mechanisms: ways for one process to talk to another on this machine, one a file.

pub mod mechanism;
