//! TCP (RFC 9293) by role: a [`Connection`] takes segments and time and gives segments and a deadline.

mod ack;
mod close;
pub mod config;
pub mod congestion;
mod connection;
mod delayed_ack;
pub mod delivery_rate;
pub mod handshake;
mod info;
mod isn;
mod listen;
mod mtu;
mod output;
pub mod pacing;
mod rack;
mod reassembly;
mod receive;
mod receiver;
mod recovery;
mod ring;
mod rtt;
pub mod segment;
mod sender;
mod sent;
pub mod seq;
mod slab;
mod socket;
mod stream;
mod table;
pub mod time_wait;
mod timers;
mod tuple;
mod window;

pub use connection::{Connection, PathLimits, TcpEnds, TcpSocketError};
pub use info::{SegmentRecord, TcpInfo, TracedKind};
pub use receive::{SegmentDrop, SegmentFate, reset_for};
pub use receiver::ReceiverCounts;
pub use recovery::RecoveryPhase;
pub use sender::SenderCounts;
pub use socket::TcpState;
pub use socket::{ListenerId, TcpCounts, TcpEvent, TcpId, TcpOpenError};
pub use stream::Received;
pub use stream::WriteEnd;
pub use table::TcpLimits;
pub(crate) use table::{TcpEntry, TcpPath, TcpReply, TcpTable};

#[cfg(test)]
mod tests;
