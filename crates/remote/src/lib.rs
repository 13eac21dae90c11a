//! The far side of a measurement: an agent's control session, who may use it, and who may send it data.
//!
//! Sessions ([`session`]) are state machines without a socket or a clock; [`agent`] and [`client`] drive them over
//! a [`control_stream`]. What a task measures is opaque here: a [`service::TaskService`] reads and writes its payloads.

#![forbid(unsafe_code)]

pub mod address;
pub mod agent;
pub mod client;
pub mod control_stream;
pub mod datagram_header;
pub mod log_limit;
pub mod message;
pub mod overlap;
pub mod secure;
pub mod service;
pub mod session;
pub mod task_control;
pub mod token_listener;
pub mod udp_handshake;
