//! The real world in safe code: clock, environment, harness, local mechanisms, devices, test beds, emulation, gateway and
//! traces.
//!
//! Of all crates only this one and plumb-net read clocks. Left out: plans, stores and findings.
#![forbid(unsafe_code)]

pub mod clock;
pub mod device;
pub mod doctor;
pub mod emulate;
pub mod environment;
pub mod gateway;
pub mod harness;
pub mod lab;
pub mod local;
pub mod said;
pub mod stop;
pub mod topology;
pub mod trace;
