//! STAMP, the Simple Two-way Active Measurement Protocol: RFC 8762, with session ids and TLVs of RFC 8972.
//!
//! One datagram asks, one of the same length answers, with the four times of the exchange in it; there is no
//! connection and no agreement but the port and, in the authenticated mode, a key. So it measures against
//! routers and against other implementations.
//!
//! | question | module |
//! |---|---|
//! | what is where in a packet, how times and their errors are written, how it is sealed | [`packet`] |
//! | what follows the packet | [`tlv`] |
//! | who answers what, and how often | [`reflector`] |
//! | asking, and the result of it | [`sender`], [`report`] |
//!
//! Left out: the YANG model, TLVs about the path's service class and location (answered as not recognised), and
//! hardware time stamps.

pub mod packet;
pub mod reflector;
pub mod report;
pub mod sender;
pub mod tlv;

/// The port that reflectors listen on unless told otherwise (RFC 8762 §4.1).
pub const PORT: u16 = 862;
