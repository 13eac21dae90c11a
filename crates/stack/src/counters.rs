//! What happened to every packet: totals, what was accepted, and drops under a named reason each.
//!
//! Every packet handed to a host, and every datagram that one was split into, ends in exactly one
//! counter of kind [`CounterKind::Accepted`] or [`CounterKind::RxDrop`], and every packet that a host makes is queued, sent, or in a [`CounterKind::TxDrop`]:
//! [`HostCounters::check`] adds up. Left out: rates, and counters of devices.

use plumb_wire::malformed::FormatError;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Packets that came in, were made, or went out.
    Total,
    /// Received packets that served their purpose.
    Accepted,
    /// Received packets that were dropped.
    RxDrop,
    /// Packets to be sent that were dropped.
    TxDrop,
    /// Events that are not a packet's fate.
    Event,
}

macro_rules! counts {
    ($($kind:ident { $($(#[doc = $doc:literal])+ $count:ident = $name:literal,)+ })+) => {
        /// One counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum CounterId { $($($(#[doc = $doc])+ $count,)+)+ }

        impl CounterId {
            /// Every counter, in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$($(Self::$count,)+)+];

            /// Its name in output: lower case, words joined by `_`.
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$count => $name,)+)+ }
            }

            /// The quantity that it counts.
            pub const fn kind(self) -> CounterKind {
                match self { $($(Self::$count => CounterKind::$kind,)+)+ }
            }
        }
    };
}

counts! {
    Total {
        /// Packets that devices handed in.
        Received = "received",
        /// Datagrams put together from fragments.
        Reassembled = "reassembled",
        /// Datagrams that super-segments were split into, beyond the first of each.
        Split = "split",
        /// Packets made here, for whichever reason.
        Originated = "originated",
        /// Packets handed to devices.
        Sent = "sent",
    }
    Accepted {
        /// UDP datagrams put into a socket's queue.
        UdpDelivered = "udp_delivered",
        /// TCP segments that served their purpose: at a connection, a listener, or in TIME-WAIT.
        TcpAccepted = "tcp_accepted",
        /// UDP datagrams that a swapping mirror turned round.
        UdpSwapped = "udp_swapped",
        /// Echo requests answered.
        EchoAnswered = "echo_answered",
        /// Echo replies to requests of this host.
        EchoReplies = "echo_replies",
        /// ARP packets acted upon.
        ArpAccepted = "arp_accepted",
        /// Neighbor discovery messages acted upon.
        NdpAccepted = "ndp_accepted",
        /// ICMP errors about packets that this host sent.
        IcmpErrorAccepted = "icmp_error_accepted",
        /// Fragments kept for reassembly, or that completed one.
        FragmentAccepted = "fragment_accepted",
    }
    RxDrop {
        /// Received for an interface that the host does not have.
        RxNoInterface = "rx_no_interface",
        /// An Ethernet frame for another station.
        RxOtherMac = "rx_other_mac",
        /// An Ethernet frame whose source is a group, or none.
        RxSourceMac = "rx_source_mac",
        /// A frame with a VLAN tag.
        RxVlan = "rx_vlan",
        /// A protocol other than ARP, IPv4 and IPv6.
        RxEtherType = "rx_ether_type",
        /// An IP source that no packet from a link may have: own, loopback, group, broadcast.
        RxMartianSource = "rx_martian_source",
        /// An IP destination that no packet on a link may have: loopback, unspecified.
        RxMartianDestination = "rx_martian_destination",
        /// Neither for this host nor for a group it is in.
        RxNotForUs = "rx_not_for_us",
        /// Sent to all stations of the link, but to one IP address (RFC 1122 §3.3.6).
        RxLinkBroadcast = "rx_link_broadcast",
        /// An IPv4 source route, or an IPv6 routing header with segments left.
        RxSourceRoute = "rx_source_route",
        /// An IPv4 option whose length is impossible.
        RxIpOption = "rx_ip_option",
        /// An IPv6 option that is unknown and whose bits say to discard the packet.
        RxUnknownOption = "rx_unknown_option",
        /// An extension header that is unknown or in the wrong place.
        RxExtension = "rx_extension",
        /// A transport protocol that this host does not speak.
        RxProtocol = "rx_protocol",
        /// IPv6's "no next header": nothing to deliver.
        RxNoNextHeader = "rx_no_next_header",
        /// ARP about an address that is on no network of the interface.
        ArpOffLink = "arp_off_link",
        /// ARP with a hardware address that no station has.
        ArpMac = "arp_mac",
        /// ARP that is neither request nor reply.
        ArpOperation = "arp_operation",
        /// ARP for somebody else, about somebody unknown.
        ArpNotForUs = "arp_not_for_us",
        /// An ARP reply that nobody asked for, which would have changed an entry.
        ArpUnsolicited = "arp_unsolicited",
        /// ARP or an advertisement of this host itself, which the link brought back.
        RxOwn = "rx_own",
        /// A claim to an address of this host.
        AddressConflict = "address_conflict",
        /// Neighbor discovery from beyond the link: a hop limit that is not 255.
        NdpHopLimit = "ndp_hop_limit",
        /// Neighbor discovery in fragments (RFC 6980).
        NdpFragmented = "ndp_fragmented",
        /// Neighbor discovery with addresses that the message may not have (RFC 4861 §7.1).
        NdpAddress = "ndp_address",
        /// A solicitation for an address that is not ours.
        NdpNotForUs = "ndp_not_for_us",
        /// An advertisement about a neighbor that this host does not know.
        NdpUnknown = "ndp_unknown",
        /// An advertisement that nobody asked for, which would have changed a confirmed entry.
        NdpUnsolicited = "ndp_unsolicited",
        /// Router solicitations, advertisements and redirects, which this host does not act upon.
        NdpIgnored = "ndp_ignored",
        /// An echo request to a group or broadcast address.
        EchoBroadcast = "echo_broadcast",
        /// An echo reply that nobody waits for.
        EchoUnexpected = "echo_unexpected",
        /// An ICMP type or code that means nothing here.
        IcmpKind = "icmp_kind",
        /// An ICMP source quench (RFC 6633).
        IcmpSourceQuench = "icmp_source_quench",
        /// An ICMP redirect.
        IcmpRedirect = "icmp_redirect",
        /// An ICMP error about a packet that this host did not send.
        IcmpErrorUnmatched = "icmp_error_unmatched",
        /// A packet-too-big with a size below the least that a link may have.
        IcmpTooSmall = "icmp_too_small",
        /// No UDP socket for the destination.
        UdpNoSocket = "udp_no_socket",
        /// The UDP socket's queue was full.
        UdpQueueFull = "udp_queue_full",
        /// A datagram of a super-segment for which no frame was free.
        UdpNoMemory = "udp_no_memory",
        /// A UDP port of zero.
        UdpPort = "udp_port",
        /// No TCP connection for a segment, nor a listener that could open one with it.
        TcpNoSocket = "tcp_no_socket",
        /// A TCP port of zero.
        TcpPort = "tcp_port",
        /// A TCP segment to or from a group or broadcast address, or from nowhere (RFC 1122 §4.2.3.10).
        TcpGroup = "tcp_group",
        /// A SYN, or the end of a handshake, for a listener whose accept queue was full.
        TcpAcceptQueueFull = "tcp_accept_queue_full",
        /// A SYN for a listener with too many half-open connections, which sends no SYN cookies.
        TcpSynQueueFull = "tcp_syn_queue_full",
        /// A TCP segment with a timestamp older than one received before (PAWS, RFC 7323 §5).
        TcpOldTimestamp = "tcp_old_timestamp",
        /// A TCP segment without a timestamp where both ends agreed to send them.
        TcpNoTimestamp = "tcp_no_timestamp",
        /// A TCP segment outside of the receive window: mostly what came twice.
        TcpOutOfWindow = "tcp_out_of_window",
        /// A TCP segment that acknowledges what was never sent, or long ago.
        TcpBadAck = "tcp_bad_ack",
        /// A TCP segment that acknowledges nothing, where every one must.
        TcpNoAck = "tcp_no_ack",
        /// A RST or SYN that may be forged (RFC 5961), or a RST in TIME-WAIT (RFC 1337).
        TcpSuspicious = "tcp_suspicious",
        /// A fragment that overlaps another, and those it was to be put together with.
        FragmentOverlap = "fragment_overlap",
        /// A fragment that came twice.
        FragmentDuplicate = "fragment_duplicate",
        /// A fragment for which there was no memory.
        FragmentMemory = "fragment_memory",
        /// A fragment that makes its datagram impossible: too long, too many holes, two ends.
        FragmentImpossible = "fragment_impossible",
        /// A fragment that is ECN-capable, of a datagram that is not, or the other way round.
        FragmentEcn = "fragment_ecn",
        /// A first fragment without the whole header chain (RFC 7112).
        FragmentHeaderChain = "fragment_header_chain",
    }
    TxDrop {
        /// No route to the destination.
        TxNoRoute = "tx_no_route",
        /// The interface's queue was full.
        TxQueueFull = "tx_queue_full",
        /// Too many packets waited for one neighbor's address.
        TxNeighborQueueFull = "tx_neighbor_queue_full",
        /// The neighbor did not answer, or had to make room.
        TxNeighborUnreachable = "tx_neighbor_unreachable",
        /// Longer than the path allows, and not to be cut.
        TxTooBig = "tx_too_big",
        /// No free frame to cut a packet into.
        TxNoMemory = "tx_no_memory",
    }
    Event {
        /// Something could not be answered for want of a free frame.
        NoMemory = "no_memory",
        /// ICMP errors that the rate limit held back.
        IcmpErrorLimited = "icmp_error_limited",
        /// ICMP errors sent.
        IcmpErrorSent = "icmp_error_sent",
        /// Answers to others' probes for addresses of this host.
        AddressDefended = "address_defended",
        /// Neighbors forgotten to make room for others.
        NeighborEvicted = "neighbor_evicted",
        /// Neighbors that did not answer.
        NeighborFailed = "neighbor_failed",
        /// Path MTUs learned.
        PathMtuLearned = "path_mtu_learned",
        /// Incomplete datagrams given up after their time.
        ReassemblyTimeout = "reassembly_timeout",
        /// Incomplete datagrams given up to make room.
        ReassemblyEvicted = "reassembly_evicted",
        /// TCP connections that listeners opened.
        TcpOpened = "tcp_opened",
        /// RSTs sent to segments without a connection.
        TcpResetSent = "tcp_reset_sent",
        /// RSTs that the rate limit held back.
        TcpResetLimited = "tcp_reset_limited",
        /// Challenge acknowledgements sent (RFC 5961).
        TcpChallengeSent = "tcp_challenge_sent",
        /// Challenge acknowledgements that the rate limit held back.
        TcpChallengeLimited = "tcp_challenge_limited",
        /// SYN cookies sent, as the SYN queue was full.
        TcpCookieSent = "tcp_cookie_sent",
        /// SYN cookies that came back, each a connection opened.
        TcpCookieAccepted = "tcp_cookie_accepted",
        /// SYN-ACKs sent again, as nothing was heard.
        TcpSynAckRepeated = "tcp_syn_ack_repeated",
        /// Half-open connections given up, as nothing was heard.
        TcpHalfOpenTimeout = "tcp_half_open_timeout",
        /// Records in TIME-WAIT given up to make room.
        TcpTimeWaitEvicted = "tcp_time_wait_evicted",
        /// Events that nobody collected in time.
        EventsLost = "events_lost",
    }
}

macro_rules! layers {
    ([$($(#[doc = $doc:literal])+ $layer:ident = $name:literal),+ $(,)?] $reasons:tt) => {
        /// Whose format a packet broke.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ProtocolLayer { $($(#[doc = $doc])+ $layer,)+ }

        impl ProtocolLayer {
            /// Every layer.
            pub const ALL: &'static [Self] = &[$(Self::$layer,)+];
        }

        const MALFORMED: &[[&str; FormatError::ALL.len()]] = &[$(layers!(@names $name $reasons),)+];
    };
    (@names $layer:literal [$($reason:literal),+ $(,)?]) => {
        [$(concat!("malformed_", $layer, "_", $reason),)+]
    };
}

layers! {
    [
        /// Ethernet.
        Ethernet = "ethernet",
        /// ARP.
        Arp = "arp",
        /// IPv4.
        Ipv4 = "ipv4",
        /// IPv6 and its extension headers.
        Ipv6 = "ipv6",
        /// ICMP for IPv4.
        Icmpv4 = "icmpv4",
        /// ICMPv6.
        Icmpv6 = "icmpv6",
        /// Neighbor discovery.
        Ndp = "ndp",
        /// UDP.
        Udp = "udp",
        /// TCP.
        Tcp = "tcp",
    ]
    [
        "truncated",
        "version",
        "header_length",
        "length",
        "checksum",
        "checksum_absent",
        "option_length",
        "extensions",
        "address_kind",
        "code",
        "kind",
        "fragment",
    ]
}

/// What a host counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCounters {
    counts: [u64; CounterId::ALL.len()],
    malformed: [[u64; FormatError::ALL.len()]; ProtocolLayer::ALL.len()],
}

impl Default for HostCounters {
    fn default() -> Self {
        Self {
            counts: [0; CounterId::ALL.len()],
            malformed: [[0; FormatError::ALL.len()]; ProtocolLayer::ALL.len()],
        }
    }
}

impl HostCounters {
    /// Counts one.
    #[inline]
    pub fn add(&mut self, count: CounterId) {
        self.counts[count as usize] += 1;
    }

    /// Counts several.
    #[inline]
    pub fn add_many(&mut self, count: CounterId, more: usize) {
        self.counts[count as usize] += more as u64;
    }

    /// Counts a received packet that broke a format.
    #[inline]
    pub fn add_malformed(&mut self, layer: ProtocolLayer, malformed: FormatError) {
        self.malformed[layer as usize][malformed.index()] += 1;
    }

    /// How many of these.
    #[inline]
    pub fn value(&self, count: CounterId) -> u64 {
        self.counts[count as usize]
    }

    /// How many broke this format in this way.
    pub fn malformed_value(&self, layer: ProtocolLayer, malformed: FormatError) -> u64 {
        self.malformed[layer as usize][malformed.index()]
    }

    /// How many broke a format in any way.
    pub fn malformed(&self) -> u64 {
        self.malformed.iter().flatten().sum()
    }

    /// Everything counted of one kind; malformed packets are among [`CounterKind::RxDrop`].
    pub fn sum(&self, kind: CounterKind) -> u64 {
        let counts = CounterId::ALL.iter().filter(|count| count.kind() == kind);
        let malformed = if kind == CounterKind::RxDrop { self.malformed() } else { 0 };
        counts.map(|&count| self.value(count)).sum::<u64>() + malformed
    }

    /// Every counter under its name, zeros too.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = CounterId::ALL.iter().map(|&count| (count.name(), self.value(count)));
        let malformed = MALFORMED.iter().zip(&self.malformed);
        counts.chain(
            malformed.flat_map(|(names, counts)| names.iter().copied().zip(counts.iter().copied())),
        )
    }

    /// Whether every packet is accounted for, while `queued` of the packets made here wait.
    ///
    /// # Errors
    /// Which side does not add up, and by how much.
    pub fn check(&self, queued: u64) -> Result<(), UnbalancedCountersError> {
        let taken = self.value(CounterId::Received)
            + self.value(CounterId::Reassembled)
            + self.value(CounterId::Split);
        let ended = self.sum(CounterKind::Accepted) + self.sum(CounterKind::RxDrop);
        if taken != ended {
            return Err(UnbalancedCountersError::Received { taken, ended });
        }
        let made = self.value(CounterId::Originated);
        let ended = self.value(CounterId::Sent) + self.sum(CounterKind::TxDrop) + queued;
        if made != ended {
            return Err(UnbalancedCountersError::Originated { made, ended });
        }
        Ok(())
    }
}

/// Packets that no counter accounts for: a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnbalancedCountersError {
    /// Among those received.
    #[error("{taken} packets were taken in, {ended} are accounted for")]
    Received {
        /// Received, reassembled, or split off a super-segment.
        taken: u64,
        /// Accepted or dropped.
        ended: u64,
    },
    /// Among those made here.
    #[error("{made} packets were made, {ended} are accounted for")]
    Originated {
        /// Made.
        made: u64,
        /// Sent, dropped or waiting.
        ended: u64,
    },
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_counter_has_a_name_of_its_own_and_stands_at_its_index() {
        for (index, &count) in CounterId::ALL.iter().enumerate() {
            assert_eq!(count as usize, index);
        }
        for (index, &layer) in ProtocolLayer::ALL.iter().enumerate() {
            assert_eq!(layer as usize, index);
        }
        let counters = HostCounters::default();
        let names: BTreeSet<_> = counters.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), counters.iter().count());
    }

    #[test]
    fn malformed_packets_are_counted_under_the_names_that_the_format_gives_them() {
        let mut counters = HostCounters::default();
        for malformed in FormatError::ALL {
            counters.add_malformed(ProtocolLayer::Udp, malformed);
            let name = format!("malformed_udp_{}", malformed.name());
            assert!(counters.iter().any(|counted| counted == (name.as_str(), 1)), "{name}");
        }
        assert_eq!(counters.malformed(), 12);
    }

    #[test]
    fn a_packet_that_ends_nowhere_is_noticed() {
        let mut counters = HostCounters::default();
        counters.add(CounterId::Received);
        assert_eq!(
            counters.check(0),
            Err(UnbalancedCountersError::Received { taken: 1, ended: 0 })
        );
        counters.add(CounterId::RxNotForUs);
        assert_eq!(counters.check(0), Ok(()));
        counters.add(CounterId::Originated);
        assert_eq!(counters.check(1), Ok(()));
        assert_eq!(
            counters.check(0),
            Err(UnbalancedCountersError::Originated { made: 1, ended: 0 })
        );
    }
}
