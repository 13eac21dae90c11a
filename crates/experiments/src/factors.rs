//! Factors, responses and settings that several experiments share.

pub(crate) mod channel;
pub mod link;
pub(crate) mod mirror;
pub(crate) mod page_load;
pub(crate) mod remote;
pub(crate) mod streams;
