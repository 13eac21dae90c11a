//! Network devices, namespaces, link emulation in real time, and the gateway behind an emulated link.
#![forbid(unsafe_code)]

pub mod device;
pub mod emulator;
pub mod gateway;
pub mod lab;
