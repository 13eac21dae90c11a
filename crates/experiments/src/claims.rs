//! What the claims of each study share.

pub(crate) mod gigabit;
pub(crate) mod ipc;
pub(crate) mod scaling;
pub(crate) mod stack;
