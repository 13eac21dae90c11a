//! Packets and their formats: pooled memory, views and headers, parse and emit, capture files.
//!
//! Pure: bytes in, values out. Left out: devices, sockets, and what a host does with a packet.
#![forbid(unsafe_code)]

pub mod ecn;
pub mod machine;
pub mod medium;
pub mod packet;
