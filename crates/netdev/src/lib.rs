//! Network devices, namespaces, link emulation in real time and the gateway behind it, and the stack on a device.
#![forbid(unsafe_code)]

pub mod device;
pub mod emulator;
pub mod gateway;
pub mod host;
pub mod lab;
