//! Networks in virtual time: plumb's hosts and links, driven by a clock of their own.
//!
//! A [`scenario::Scenario`] says which hosts, links and traffic there are; a [`simulation::Simulation`] runs it and reports. One
//! scenario and one seed give one trace, whatever machine runs it, in however many threads.
#![forbid(unsafe_code)]

pub mod cc_report;
pub mod directed_link;
pub mod event_queue;
pub mod flow;
pub mod host;
pub mod network;
pub mod processor;
pub mod report;
pub mod route;
pub mod scenario;
pub mod simulation;
pub mod source;
