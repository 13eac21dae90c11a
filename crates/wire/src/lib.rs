//! Packets and their formats: pooled memory, views and headers, parse and emit, capture files.
//!
//! Pure: bytes in, values out.
#![forbid(unsafe_code)]
#![expect(clippy::many_single_char_names, reason = "octets of a field, in their order")]

pub mod arp;
pub mod capture;
pub mod checksum;
pub mod coalesce;
pub mod compose;
pub mod ethernet;
pub mod flow;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod machine;
pub mod malformed;
pub mod ndp;
pub mod option;
pub mod packet;
pub mod segmentation;
pub mod tcp;
pub mod udp;

pub use capture::{pcap, pcapng};
