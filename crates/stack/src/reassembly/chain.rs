//! Whether a first IPv6 fragment holds the whole header chain, as RFC 7112 §5 demands.
//!
//! What filters cannot see they cannot judge. Left out: acting on the headers.

use plumb_wire::ipv6::EXTENSIONS_MAX;
use plumb_wire::protocol::Protocol;

/// Whether `data`, which begins with a header of protocol `first`, holds every extension header and
/// the transport's header. What nobody here knows counts as a transport without a header.
pub fn is_whole(first: Protocol, data: &[u8]) -> bool {
    let (mut next, mut rest) = (first, data);
    for _ in 0..=EXTENSIONS_MAX {
        let needed = match next {
            Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DESTINATION => {
                rest.get(1).map(|units| (usize::from(*units) + 1) * 8)
            }
            Protocol::AUTHENTICATION => rest.get(1).map(|units| (usize::from(*units) + 2) * 4),
            Protocol::FRAGMENT => Some(8),
            transport => return rest.len() >= header_len(transport),
        };
        let Some((header, behind)) = needed.and_then(|len| rest.split_at_checked(len)) else {
            return false;
        };
        (next, rest) = (Protocol(header[0]), behind);
    }
    false
}

fn header_len(transport: Protocol) -> usize {
    match transport {
        Protocol::TCP | Protocol::IPV4 => 20,
        Protocol::UDP | Protocol::ESP | Protocol::ICMPV6 => 8,
        Protocol::IPV6 => 40,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_whole_only_with_its_transport_header() {
        let mut chain = vec![Protocol::DESTINATION.0, 1];
        chain.resize(16, 0);
        chain.extend([Protocol::UDP.0, 0, 1, 4, 0, 0, 0, 0]);
        chain.extend([0x30, 0x39, 0, 7, 0, 8, 0, 0]);
        assert!(is_whole(Protocol::ROUTING, &chain));
        for cut in 0..chain.len() {
            assert!(!is_whole(Protocol::ROUTING, &chain[..cut]), "cut at {cut}");
        }
        assert!(is_whole(Protocol::NO_NEXT, &[]));
        assert!(!is_whole(Protocol::TCP, &[0; 19]));
    }

    #[test]
    fn a_chain_without_end_is_not_whole() {
        let endless = [Protocol::DESTINATION.0, 0, 1, 4, 0, 0, 0, 0].repeat(100);
        assert!(!is_whole(Protocol::DESTINATION, &endless));
    }
}
