//! What the pages of each study share: figures and sentences.

pub(crate) mod bars;
pub(crate) mod dots;
pub(crate) mod gigabit;
pub(crate) mod ipc;
pub(crate) mod scaling;
pub(crate) mod stack;
pub(crate) mod streams;
