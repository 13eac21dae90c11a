//! Which flow a frame belongs to, as a keyed hash: nobody outside can choose flows that collide.
//!
//! Left out: what queues make of it.

use plumb_wire::flow::FiveTuple;
use plumb_wire::medium::Medium;
use plumb_wire::siphash::SipKey;

/// Tells flows apart by the five-tuple of either family.
///
/// All fragments of a datagram share a hash (they have no ports, RFC 8290 §5.5 leaves it open), and so does
/// everything that is no IP or is malformed: [`Classifier::NO_FLOW`].
#[derive(Clone, Copy, Debug)]
pub struct Classifier {
    key: SipKey,
    medium: Medium,
}

impl Classifier {
    /// The hash of what belongs to no flow.
    pub const NO_FLOW: u64 = 0;

    /// A classifier of frames of this medium.
    pub fn new(key: SipKey, medium: Medium) -> Self {
        Self { key, medium }
    }

    /// The hash of a frame's flow.
    #[inline]
    pub fn flow(&self, bytes: &[u8]) -> u64 {
        let tuple = match self.medium {
            Medium::Ethernet => FiveTuple::of_frame(bytes),
            Medium::Ip => FiveTuple::of_packet(bytes),
        };
        tuple.map_or(Self::NO_FLOW, |tuple| self.key.hash(tuple.words()))
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use plumb_wire::traffic_class::TrafficClass;

    use super::*;
    use crate::bench;

    #[test]
    fn a_flow_has_one_hash_and_others_have_others_in_both_families() {
        let class = TrafficClass::default();
        let ethernet = Classifier::new(SipKey::new(Seed(1), "flow"), Medium::Ethernet);
        let other = Classifier::new(SipKey::new(Seed(2), "flow"), Medium::Ethernet);
        let bare = Classifier::new(SipKey::new(Seed(1), "flow"), Medium::Ip);
        for v6 in [false, true] {
            let frame = bench::udp(v6, class, (1_000, 2_000), 64);
            let hash = ethernet.flow(&frame);
            assert_eq!(hash, ethernet.flow(&bench::udp(v6, class, (1_000, 2_000), 900)));
            assert_eq!(hash, bare.flow(&frame[14..]));
            assert_ne!(hash, ethernet.flow(&bench::udp(v6, class, (1_001, 2_000), 64)));
            assert_ne!(hash, ethernet.flow(&bench::udp(!v6, class, (1_000, 2_000), 64)));
            assert_ne!(hash, other.flow(&frame));
        }
    }

    #[test]
    fn what_is_no_ip_shares_one_hash() {
        let classifier = Classifier::new(SipKey::new(Seed(1), "flow"), Medium::Ethernet);
        for bytes in [&[][..], &[0xff; 60], &[8; 14]] {
            assert_eq!(classifier.flow(bytes), Classifier::NO_FLOW);
        }
    }
}
