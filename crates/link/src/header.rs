//! What queues and routers read and write in the IP header of a frame: class, ECN, where it begins.
//!
//! Left out: flows, which [`crate::flow`] tells apart; everything behind the header.

use plumb_wire::ecn::Ecn;
use plumb_wire::ethernet::{self, EtherType};
use plumb_wire::medium::Medium;
use plumb_wire::traffic_class::TrafficClass;
use plumb_wire::{ipv4, ipv6};

/// Where the IP packet begins in a frame of this medium; `None` when it holds none.
#[inline]
pub(crate) fn ip_offset(medium: Medium, bytes: &[u8]) -> Option<usize> {
    match medium {
        Medium::Ip => Some(0),
        Medium::Ethernet => {
            let frame = ethernet::Frame::parse(bytes).ok()?;
            let is_ip = matches!(frame.ether_type(), EtherType::IPV4 | EtherType::IPV6);
            is_ip.then(|| frame.header_len())
        }
    }
}

/// The octet of class and ECN; `None` when the frame holds no IP packet with a whole header.
#[inline]
pub(crate) fn traffic_class(medium: Medium, bytes: &[u8]) -> Option<TrafficClass> {
    let packet = &bytes[ip_offset(medium, bytes)?..];
    match packet.first()? >> 4 {
        4 => Some(ipv4::Packet::parse_quoted(packet).ok()?.traffic_class()),
        6 => Some(ipv6::Packet::parse_quoted(packet).ok()?.traffic_class()),
        _ => None,
    }
}

/// Marks the IP packet in a frame "congestion experienced" where its sender is capable of ECN;
/// whether it is. IPv4's checksum is kept right.
#[inline]
pub(crate) fn mark(medium: Medium, bytes: &mut [u8]) -> bool {
    let Some(class) = traffic_class(medium, bytes) else { return false };
    let class = match class.ecn() {
        Ecn::NotCapable => return false,
        Ecn::Congestion => return true,
        Ecn::Capable0 | Ecn::Capable1 => class.with_ecn(Ecn::Congestion),
    };
    let at = ip_offset(medium, bytes).expect("a class was read there");
    let packet = &mut bytes[at..];
    if packet[0] >> 4 == 4 {
        ipv4::set_traffic_class(packet, class);
    } else {
        ipv6::set_traffic_class(packet, class);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench;

    #[test]
    fn a_mark_reaches_capable_senders_of_both_families_and_keeps_the_checksum_right() {
        for v6 in [false, true] {
            for ecn in [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congestion] {
                let class = TrafficClass::new(46, ecn);
                let mut bytes = bench::udp(v6, class, (1, 2), 100);
                let before = bytes.clone();
                let capable = ecn != Ecn::NotCapable;
                assert_eq!(mark(Medium::Ethernet, &mut bytes), capable);
                let after = traffic_class(Medium::Ethernet, &bytes).unwrap();
                assert_eq!(after.dscp(), 46);
                assert_eq!(after.ecn(), if capable { Ecn::Congestion } else { ecn });
                if !v6 {
                    ipv4::Packet::parse(&bytes[14..]).unwrap().verify().unwrap();
                }
                let mut bare = before[14..].to_vec();
                assert_eq!(mark(Medium::Ip, &mut bare), capable);
                assert_eq!(bare, bytes[14..]);
            }
        }
    }

    #[test]
    fn what_is_no_ip_packet_is_not_marked() {
        let mut arp = vec![0xff; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        for mut bytes in [arp, vec![], vec![0x45; 14], vec![0x45; 33]] {
            let before = bytes.clone();
            assert!(!mark(Medium::Ethernet, &mut bytes));
            assert_eq!(bytes, before);
        }
    }
}
