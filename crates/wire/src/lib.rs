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
pub mod ecn;
pub mod ethernet;
pub mod flow;
pub mod fragment;
pub mod icmp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mac;
pub mod machine;
pub mod malformed;
pub mod medium;
pub mod ndp;
pub mod option_area;
pub mod packet;
pub mod protocol;
pub mod segmentation;
pub mod siphash;
pub mod tcp;
pub mod traffic_class;
pub mod udp;

pub use capture::{pcap, pcapng};
