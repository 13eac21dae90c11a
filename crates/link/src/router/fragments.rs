//! IPv4 packets cut to a hop's MTU (RFC 791 §3.2).
//!
//! Left out: IPv6, whose packets only their senders cut.

use plumb_wire::checksum::complete;
use plumb_wire::fragment::Fragment;
use plumb_wire::ipv4::option::copied;
use plumb_wire::ipv4::{self, FragmentField};
use plumb_wire::medium::Medium;
use plumb_wire::packet::{ChecksumState, Meta, Packet, Pool};

use crate::header::ip_offset;

/// Why a packet stays whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncut {
    /// It is no packet, or none that can be cut so.
    Malformed,
    /// No frame of the pool is free.
    NoMemory,
}

/// Cuts a packet that may be cut into fragments of at most `mtu` bytes, and appends them to `out`.
///
/// # Errors
/// Gives the packet back, and why.
pub(crate) fn cut(
    mut packet: Packet,
    mtu: usize,
    medium: Medium,
    pool: &mut Pool,
    out: &mut Vec<Packet>,
) -> Result<(), (Packet, Uncut)> {
    if let ChecksumState::Partial { start, offset } = packet.meta.checksum {
        // Only the whole has a transport's checksum.
        complete(pool.bytes_mut(&mut packet), start.into(), offset.into());
        packet.meta.checksum = ChecksumState::Plain;
    }
    let Some(plan) = Plan::of(pool.bytes(&packet), medium) else {
        return Err((packet, Uncut::Malformed));
    };
    let before = out.len();
    let mut done = 0;
    while done < plan.len {
        match plan.fragment(done, mtu, &packet, pool) {
            Ok((fragment, len)) => {
                out.push(fragment);
                done += len;
            }
            Err(why) => {
                for fragment in out.drain(before..) {
                    pool.free(fragment);
                }
                return Err((packet, why));
            }
        }
    }
    pool.free(packet);
    Ok(())
}

struct Plan {
    header: ipv4::Header,
    /// Where the IP header is, and the payload.
    ip: usize,
    payload: usize,
    len: usize,
}

impl Plan {
    fn of(bytes: &[u8], medium: Medium) -> Option<Self> {
        let ip = ip_offset(medium, bytes)?;
        let packet = ipv4::Packet::parse(&bytes[ip..]).ok()?;
        let payload = ip + packet.header_len();
        Some(Self { header: packet.header(), ip, payload, len: packet.payload().len() })
    }

    /// The fragment that begins `done` bytes into the payload, and its bytes of it.
    fn fragment(
        &self,
        done: usize,
        mtu: usize,
        packet: &Packet,
        pool: &mut Pool,
    ) -> Result<(Packet, usize), Uncut> {
        let options =
            if done == 0 { self.header.options } else { copied(self.header.options.as_bytes()) };
        let header_len = ipv4::HEADER_LEN + options.len();
        let most = mtu.saturating_sub(header_len) & !7;
        let len = most.min(self.len - done);
        if len == 0 {
            return Err(Uncut::Malformed);
        }
        let bytes = |n: usize| u16::try_from(n).map_err(|_| Uncut::Malformed);
        let offset = self.header.fragment.offset().checked_add(bytes(done)?);
        let fragment = Fragment {
            identification: self.header.identification.into(),
            offset: offset.ok_or(Uncut::Malformed)?,
            more: done + len < self.len || self.header.fragment.more(),
        };
        let header = ipv4::Header {
            payload_len: bytes(len)?,
            fragment: FragmentField::of(&fragment),
            options,
            ..self.header
        };
        let mut piece = pool.allocate_for(self.ip + header_len + len).ok_or(Uncut::NoMemory)?;
        piece.meta = Meta { segments: None, checksum: ChecksumState::Plain, ..packet.meta };
        let copy = |source: &[u8], target: &mut [u8]| target.copy_from_slice(source);
        pool.append_from(&mut piece, packet, 0..self.ip, copy);
        header.emit(pool.append(&mut piece, header_len).expect("allocated for so many bytes"));
        let from = self.payload + done;
        pool.append_from(&mut piece, packet, from..from + len, copy);
        Ok((piece, len))
    }
}
