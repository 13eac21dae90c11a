//! A structured display, after the virtual graphics terminal of Lantz, Nowicki & Theimer (1985): a server keeps *symbols*, made of
//! vectors, rectangles, text, polygons and calls to other symbols; clients define, add to, edit and display them.
//!
//! Everything here is pure: bytes in, bytes out. The protocol is documented byte by byte in `docs/display-protocol.md`; frames are made by
//! integer arithmetic alone, so that one scene has one checksum everywhere.
#![forbid(unsafe_code)]

pub mod agent;
pub mod client;
pub mod codec;
pub mod frame;
pub mod geometry;
pub mod item;
pub mod message;
pub mod render;
pub mod scene;
pub mod server;
pub mod text_page;
pub mod transport;
mod view;
pub mod workload;
