//! A datagram on its way out: payload copied or in place, header before it, checksum as wished.
//!
//! How the payload is copied and summed is a [`CopyPolicy`], because what that costs is one of the
//! things to be measured. Left out: IP.

use std::net::{IpAddr, SocketAddr};

use plumb_copy::{Sum, copy_and_sum, sum};
use plumb_wire::checksum::Pseudo;
use plumb_wire::ipv4;
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::udp::{self, CHECKSUM_OFFSET, HEADER_LEN};

/// The largest payload over IPv4; over IPv6 it is [`plumb_wire::udp::PAYLOAD_LEN_MAX`].
pub const PAYLOAD_MAX_V4: usize = ipv4::PACKET_LEN_MAX - ipv4::HEADER_LEN - HEADER_LEN;

/// How a payload gets into a packet and its checksum into the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyPolicy {
    /// Copied and summed in one pass.
    #[default]
    Fused,
    /// Copied, then summed where it was copied to.
    Separate,
    /// Copied only, and no checksum sent; over IPv6, which demands one (RFC 8200 §8.1), it is summed
    /// all the same.
    NoChecksum,
}

/// What is known of the sum of a payload.
#[derive(Clone, Copy, Debug)]
pub enum PayloadSum {
    /// It is this.
    Known(Sum),
    /// Nobody summed it yet.
    Unknown,
    /// It shall not be summed, if the family allows that.
    Unwanted,
    /// The device sums it.
    Offloaded,
}

/// A packet with a copy of `payload`, and its sum as `policy` says.
///
/// `None` when the pool has no frame for it.
#[inline]
pub fn copied(payload: &[u8], policy: CopyPolicy, pool: &mut Pool) -> Option<(Packet, PayloadSum)> {
    let mut packet = pool.allocate_for(payload.len())?;
    let Some(room) = pool.append(&mut packet, payload.len()) else {
        pool.free(packet);
        return None;
    };
    let known = match policy {
        CopyPolicy::Fused => PayloadSum::Known(copy_and_sum(payload, room)),
        CopyPolicy::Separate => {
            room.copy_from_slice(payload);
            PayloadSum::Known(sum(room))
        }
        CopyPolicy::NoChecksum => {
            room.copy_from_slice(payload);
            PayloadSum::Unwanted
        }
    };
    Some((packet, known))
}

/// Puts a UDP header before a payload, and its checksum into it.
///
/// A partial checksum's `start` is 0 here: who prepends further headers moves it on. The caller has
/// made sure of one family, of headroom, and of a payload that fits ([`PAYLOAD_MAX_V4`]): anything
/// else is a bug, and panics.
#[inline]
pub fn prepend_header(
    source: SocketAddr,
    destination: SocketAddr,
    payload: PayloadSum,
    packet: &mut Packet,
    pool: &mut Pool,
) {
    let pseudo = Pseudo::between(source.ip(), destination.ip(), Protocol::UDP)
        .expect("both ends are of one family");
    let header = udp::Header::new(source.port(), destination.port(), packet.len());
    packet.meta.checksum = ChecksumState::Plain;
    let header = match payload {
        PayloadSum::Known(sum) => header.with_checksum(pseudo, sum),
        PayloadSum::Unwanted if matches!(source.ip(), IpAddr::V4(_)) => header,
        PayloadSum::Unknown | PayloadSum::Unwanted => {
            header.with_checksum(pseudo, sum(pool.bytes(packet)))
        }
        PayloadSum::Offloaded => {
            packet.meta.checksum = ChecksumState::Partial { start: 0, offset: CHECKSUM_OFFSET };
            header.with_partial(pseudo)
        }
    };
    header.emit(pool.prepend(packet, HEADER_LEN));
}
