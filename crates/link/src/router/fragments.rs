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

/// Cuts a packet that may be cut into fragments of at most `mtu` bytes, and appends them to `out`.
///
/// # Errors
/// Gives the packet back when there is no memory, or it is none that can be cut.
pub(crate) fn cut(
    mut packet: Packet,
    mtu: usize,
    medium: Medium,
    pool: &mut Pool,
    out: &mut Vec<Packet>,
) -> Result<(), Packet> {
    if let ChecksumState::Partial { start, offset } = packet.meta.checksum {
        // Only the whole has a transport's checksum.
        complete(pool.bytes_mut(&mut packet), start.into(), offset.into());
        packet.meta.checksum = ChecksumState::Plain;
    }
    let Some(plan) = Plan::of(pool.bytes(&packet), medium) else { return Err(packet) };
    let before = out.len();
    let mut done = 0;
    while done < plan.len {
        let Some((fragment, len)) = plan.fragment(done, mtu, &packet, pool) else {
            for fragment in out.drain(before..) {
                pool.free(fragment);
            }
            return Err(packet);
        };
        out.push(fragment);
        done += len;
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
    ) -> Option<(Packet, usize)> {
        let options =
            if done == 0 { self.header.options } else { copied(self.header.options.as_bytes()) };
        let header_len = ipv4::HEADER_LEN + options.len();
        let most = mtu.checked_sub(header_len)? & !7;
        let len = most.min(self.len - done);
        if len == 0 {
            return None;
        }
        let fragment = Fragment {
            identification: self.header.identification.into(),
            offset: self.header.fragment.offset() + u16::try_from(done).ok()?,
            more: done + len < self.len || self.header.fragment.more(),
        };
        let header = ipv4::Header {
            payload_len: u16::try_from(len).ok()?,
            fragment: FragmentField::of(&fragment),
            options,
            ..self.header
        };
        let mut piece = pool.allocate_for(self.ip + header_len + len)?;
        piece.meta = Meta { segments: None, checksum: ChecksumState::Plain, ..packet.meta };
        let copy = |source: &[u8], target: &mut [u8]| target.copy_from_slice(source);
        pool.append_from(&mut piece, packet, 0..self.ip, copy);
        header.emit(pool.append(&mut piece, header_len)?);
        let from = self.payload + done;
        pool.append_from(&mut piece, packet, from..from + len, copy);
        Some((piece, len))
    }
}
