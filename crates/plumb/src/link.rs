//! Links that run: their drivers, what they are told while they run, and their accounts.
//!
//! Left out: the models (`plumb_link`), the driver itself (`plumb_host::emulate`), and the command
//! line (`crate::cli::link`).

pub mod account;
pub mod control;
pub mod course;
pub mod live;
pub mod names;
pub mod outer;
pub mod room;
pub mod timetable;
pub mod trouble;
