//! Measurements between two hosts: reaching an agent or a steward (`far`), the phases of a measurement, pages (`page`,
//! `web`), and what is made of them.
//!
//! Left out: the agent, its protocol and the engines (`plumb_net`), and words for people (`plumb_report`).

pub mod clocks;
pub mod course;
pub mod datagrams;
pub mod digest;
pub mod evidence;
pub mod exchange;
pub mod far;
mod flow;
pub mod install;
pub mod page;
pub mod paired;
pub mod place;
pub mod reach;
pub mod record;
pub mod web;
