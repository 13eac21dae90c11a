//! A display's page: what its clients draw, and a client in the browser that draws over a WebSocket.
//!
//! The WebSocket carries the protocol of `docs/display-protocol.md`, so that the page is one more client of a display. Pictures of all
//! clients are fetched beside it, and only made while somebody looks.
#![forbid(unsafe_code)]

pub mod clients;
pub mod server;
mod socket;
