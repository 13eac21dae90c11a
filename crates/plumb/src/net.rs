//! Measurements between two hosts: reaching an agent or a supervisor (`far`), the phases of a measurement, pages (`page`,
//! `web`), and what is made of them.
//!
//! Left out: the agent, its protocol and the engines (`plumb_net`), and words for people (`plumb_report`).

pub mod address;
pub mod agent_connection;
pub mod clocks;
pub mod datagrams;
pub mod evidence;
pub mod exchange;
pub mod host_target;
pub mod install;
pub mod other_host;
pub mod paired_agent;
pub mod pairing_hint;
pub mod phase_summary;
pub mod stored_page;
pub mod stored_run;
mod tcp_flow;
pub mod test_run;
pub mod web;
