//! Datagrams too long for a link, cut into fragments: IPv4 (RFC 791 §3.2), IPv6 (RFC 8200 §4.5).
//!
//! Left out: when to cut, and what to say when a packet must not be.

use plumb_wire::ip::{FRAGMENT_HEADER_LEN, Fragment, IpProtocol};
use plumb_wire::ipv6::extension::Ipv6Extension;
use plumb_wire::packet::{Batch, ChecksumState, Packet, Pool};
use plumb_wire::{checksum, ipv4, ipv6, option};

/// Why a packet was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentError {
    /// Its header forbids it.
    DontFragment,
    /// There were not enough free frames.
    NoMemory,
    /// It is no sound IP packet, is a super-segment, or its headers alone are too long.
    Impossible,
}

/// Cuts an IP packet, whose data begin with its IP header, into fragments of at most `mtu` bytes each,
/// which are appended to `out`; its own frame is freed.
///
/// A partial checksum is completed first: no device could complete it afterwards. `identification` is
/// that of IPv6, and should be hard to guess (RFC 7739); an IPv4 packet has its own.
///
/// # Errors
/// Gives the packet back as it was, but for a completed checksum, and `out` likewise.
pub fn fragment_packet(
    mut packet: Packet,
    mtu: usize,
    identification: u32,
    pool: &mut Pool,
    out: &mut Batch,
) -> Result<(), (Packet, FragmentError)> {
    if packet.meta.segments.is_some() {
        return Err((packet, FragmentError::Impossible));
    }
    if let ChecksumState::Partial { start, offset } = packet.meta.checksum {
        let (start, offset) = (usize::from(start), usize::from(offset));
        if !checksum::complete(pool.bytes_mut(&mut packet), start, offset) {
            return Err((packet, FragmentError::Impossible));
        }
        packet.meta.checksum = ChecksumState::Plain;
    }
    let plan = match pool.bytes(&packet).first().map(|octet| octet >> 4) {
        Some(4) => FragmentPlan::v4(pool.bytes(&packet), mtu),
        _ => FragmentPlan::v6(pool.bytes(&packet), mtu, identification),
    };
    let plan = match plan {
        Ok(plan) => plan,
        Err(uncut) => return Err((packet, uncut)),
    };
    let before = out.len();
    let mut at = plan.data_at;
    while at < packet.len() {
        let headers = plan.header_len(at == plan.data_at);
        let room = (mtu - headers) / 8 * 8;
        let end = if packet.len() - at + headers <= mtu { packet.len() } else { at + room };
        let Some(fragment) = plan.fragment(at..end, &packet, pool) else {
            for fragment in out.drain(before..) {
                pool.free(fragment);
            }
            return Err((packet, FragmentError::NoMemory));
        };
        out.push(fragment);
        at = end;
    }
    pool.free(packet);
    Ok(())
}

/// How a packet is cut.
struct FragmentPlan {
    /// Where the data begin that are cut.
    data_at: usize,
    headers: FragmentHeaders,
}

enum FragmentHeaders {
    /// The first fragment's, and that of the others, which has fewer options.
    V4 { first: ipv4::Ipv4Header, other: ipv4::Ipv4Header, base: Fragment },
    /// Where the octet is that will announce the fragment header, and what it announced.
    V6 { next_at: usize, next: IpProtocol, identification: u32 },
}

impl FragmentPlan {
    fn v4(bytes: &[u8], mtu: usize) -> Result<Self, FragmentError> {
        let packet = ipv4::Ipv4Packet::parse(bytes).map_err(|_| FragmentError::Impossible)?;
        let first = packet.header();
        if first.fragment.dont_fragment() {
            return Err(FragmentError::DontFragment);
        }
        if first.header_len() + 8 > mtu {
            return Err(FragmentError::Impossible);
        }
        let options = option::copied(packet.options());
        let base = packet.fragment().unwrap_or(Fragment {
            identification: packet.identification().into(),
            offset: 0,
            more: false,
        });
        let other = ipv4::Ipv4Header { options, ..first };
        Ok(Self {
            data_at: first.header_len(),
            headers: FragmentHeaders::V4 { first, other, base },
        })
    }

    fn v6(bytes: &[u8], mtu: usize, identification: u32) -> Result<Self, FragmentError> {
        let packet = ipv6::Ipv6Packet::parse(bytes).map_err(|_| FragmentError::Impossible)?;
        let mut walk = packet.extensions();
        let (mut data_at, mut next_at) = (walk.payload_at(), walk.protocol_at());
        let mut next = walk.protocol();
        while let Some(extension) = walk.next() {
            // The per-fragment headers: all up to hop-by-hop options and the last routing header.
            match extension.map_err(|_| FragmentError::Impossible)? {
                Ipv6Extension::HopByHop(_) | Ipv6Extension::Routing { .. } => {
                    (data_at, next_at) = (walk.payload_at(), walk.protocol_at());
                    next = walk.protocol();
                }
                Ipv6Extension::Fragment(_) => return Err(FragmentError::Impossible),
                Ipv6Extension::Destination(_) | Ipv6Extension::Authentication(_) => {}
            }
        }
        if data_at + FRAGMENT_HEADER_LEN + 8 > mtu {
            return Err(FragmentError::Impossible);
        }
        Ok(Self { data_at, headers: FragmentHeaders::V6 { next_at, next, identification } })
    }

    fn header_len(&self, is_first: bool) -> usize {
        match &self.headers {
            FragmentHeaders::V4 { first, .. } if is_first => first.header_len(),
            FragmentHeaders::V4 { other, .. } => other.header_len(),
            FragmentHeaders::V6 { .. } => self.data_at + FRAGMENT_HEADER_LEN,
        }
    }

    /// The fragment with bytes `range` of the packet; `None` without a free frame.
    fn fragment(
        &self,
        range: std::ops::Range<usize>,
        packet: &Packet,
        pool: &mut Pool,
    ) -> Option<Packet> {
        let is_first = range.start == self.data_at;
        let offset = range.start - self.data_at;
        let more = range.end < packet.len();
        let len = range.len();
        let headers = self.header_len(is_first);
        let mut cut = pool.allocate_for(headers + len)?;
        cut.meta = packet.meta;
        match &self.headers {
            FragmentHeaders::V4 { first, other, base } => {
                let fragment = Fragment {
                    offset: base.offset + u16::try_from(offset).ok()?,
                    more: more || base.more,
                    ..*base
                };
                let header = ipv4::Ipv4Header {
                    payload_len: u16::try_from(len).ok()?,
                    fragment: ipv4::FragmentField::of(&fragment),
                    ..if is_first { *first } else { *other }
                };
                header.emit(pool.append(&mut cut, headers)?);
            }
            FragmentHeaders::V6 { next_at, next, identification } => {
                pool.append_from(&mut cut, packet, 0..self.data_at, copy);
                let payload = u16::try_from(headers - ipv6::HEADER_LEN + len).ok()?;
                let offset = u16::try_from(offset).ok()?;
                let bytes = pool.bytes_mut(&mut cut);
                bytes[4..6].copy_from_slice(&payload.to_be_bytes());
                bytes[*next_at] = IpProtocol::FRAGMENT.0;
                let fragment = Fragment { identification: *identification, offset, more };
                fragment.emit_v6(*next, pool.append(&mut cut, FRAGMENT_HEADER_LEN)?);
            }
        }
        pool.append_from(&mut cut, packet, range, copy);
        Some(cut)
    }
}

fn copy(source: &[u8], target: &mut [u8]) {
    target.copy_from_slice(source);
}

#[cfg(test)]
mod tests {
    use plumb_wire::option::OptionArea;
    use plumb_wire::packet::PoolConfig;

    use super::*;

    fn pool() -> Pool {
        Pool::new(PoolConfig { count: 64, size: 2_048, large: 2 })
    }

    fn packet_v4(fragment: ipv4::FragmentField, len: u16, pool: &mut Pool) -> Packet {
        // Record route and router alert.
        let options = OptionArea::new(&[7, 7, 4, 192, 0, 2, 7, 148, 4, 0, 0]);
        let header = ipv4::Ipv4Header {
            fragment,
            identification: 77,
            options: options.unwrap(),
            ..ipv4::Ipv4Header::new(
                [192, 0, 2, 1].into(),
                [192, 0, 2, 2].into(),
                IpProtocol::UDP,
                len,
            )
        };
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        bytes.extend((0..len).map(|i| i.to_le_bytes()[0]));
        pool.packet_of(&bytes).unwrap()
    }

    #[test]
    fn fragments_of_ipv4_are_sound_fit_and_carry_every_byte_once() {
        let mut pool = pool();
        let packet = packet_v4(ipv4::FragmentField::WHOLE, 3_001, &mut pool);
        let mut out = Vec::new();
        fragment_packet(packet, 577, 0, &mut pool, &mut out).unwrap();
        let mut next = 0;
        for (i, fragment) in out.iter().enumerate() {
            let view = ipv4::Ipv4Packet::parse(pool.bytes(fragment)).unwrap().verify().unwrap();
            assert!(fragment.len() <= 577);
            let place = view.fragment().unwrap();
            assert_eq!((place.identification, usize::from(place.offset)), (77, next));
            assert_eq!(place.more, i + 1 < out.len());
            // RFC 791 §3.1: record route is in the first only, router alert in each.
            let kinds: Vec<u8> = option::items(view.options()).map(|it| it.unwrap()[0]).collect();
            assert_eq!(kinds.contains(&7), i == 0);
            assert!(kinds.contains(&148));
            for byte in view.payload() {
                assert_eq!(*byte, next.to_le_bytes()[0]);
                next += 1;
            }
        }
        assert_eq!(next, 3_001);
        pool.free_all(&mut out);
        assert_eq!(pool.available(), (64, 2));
    }

    #[test]
    fn a_fragment_is_cut_into_fragments_of_the_same_datagram() {
        let mut pool = pool();
        let field =
            ipv4::FragmentField::of(&Fragment { identification: 77, offset: 800, more: true });
        let packet = packet_v4(field, 1_600, &mut pool);
        let mut out = Vec::new();
        fragment_packet(packet, 900, 0, &mut pool, &mut out).unwrap();
        let places: Vec<_> = out
            .iter()
            .map(|f| ipv4::Ipv4Packet::parse(pool.bytes(f)).unwrap().fragment().unwrap())
            .map(|place| (place.offset, place.more))
            .collect();
        assert_eq!(places[0], (800, true));
        assert!(places.iter().all(|(_, more)| *more));
        pool.free_all(&mut out);
    }

    #[test]
    fn what_must_not_or_cannot_be_cut_is_given_back() {
        let mut pool = pool();
        let mut out = Vec::new();
        let packet = packet_v4(ipv4::FragmentField::DONT_FRAGMENT, 1_500, &mut pool);
        let (packet, uncut) = fragment_packet(packet, 1_000, 0, &mut pool, &mut out).unwrap_err();
        assert_eq!(uncut, FragmentError::DontFragment);
        pool.free(packet);
        let packet = packet_v4(ipv4::FragmentField::WHOLE, 1_500, &mut pool);
        let (packet, uncut) = fragment_packet(packet, 32, 0, &mut pool, &mut out).unwrap_err();
        assert_eq!(uncut, FragmentError::Impossible);
        let held: Vec<_> = (0..60).map(|_| pool.allocate().unwrap()).collect();
        let (packet, uncut) = fragment_packet(packet, 300, 0, &mut pool, &mut out).unwrap_err();
        assert_eq!(uncut, FragmentError::NoMemory);
        pool.free(packet);
        for packet in held {
            pool.free(packet);
        }
        assert!(out.is_empty());
        assert_eq!(pool.available(), (64, 2));
    }
}
