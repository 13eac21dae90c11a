//! Measurements between two hosts: reaching an agent or a supervisor, the phases of a measurement, and the document
//! and the stored run that are made of their reports.

pub mod address;
pub mod agent_connection;
mod counted_time;
mod datagrams;
pub mod document;
pub mod host_target;
pub mod other_host;
mod outage;
pub mod paired_agent;
mod phase;
mod round_trips;
pub mod stored_run;
pub mod summary;
mod tcp_flow;
pub mod test_run;
pub mod web;
