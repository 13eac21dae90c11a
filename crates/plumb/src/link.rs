//! Links that run: their drivers, what they are told while they run, and their accounts.

pub mod control;
pub mod document;
pub mod running_link;
