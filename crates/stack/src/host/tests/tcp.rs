//! TCP of a host, segment by segment: listeners, half-open connections, TIME-WAIT, and answers without a connection.

use plumb_wire::icmp::{IcmpMessage, unreachable_v4, unreachable_v6};
use plumb_wire::option::OptionArea;
use plumb_wire::segmentation::SegmentLayout;
use plumb_wire::tcp::{TcpFlags, TcpHeader, TcpSegment};

use super::*;
use crate::tcp::config::{Personality, TcpConfig};
use crate::tcp::segment::SegmentOptions;
use crate::tcp::{
    ListenerId, Received, TcpCounts, TcpEvent, TcpId, TcpOpenError, TcpSocketError, TcpState,
};

mod clauses;
mod half_open;
mod output;
mod prediction;
mod time_wait;

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const RST: TcpFlags = TcpFlags::RST;
const FIN: TcpFlags = TcpFlags::FIN;

/// Where the peer's numbers begin.
const IRS: u32 = 1_000;

/// A peer made of frames that talks to port 80 of the bench.
#[derive(Clone, Copy, Debug)]
struct RawPeer {
    family: Family,
    port: u16,
    /// Its next sequence number.
    seq: u32,
    /// The next of ours that it expects.
    ack: u32,
    /// Its timestamp, and the last of ours that it saw.
    timestamps: Option<(u32, u32)>,
}

impl RawPeer {
    fn new(family: Family, port: u16) -> Self {
        Self { family, port, seq: IRS, ack: 0, timestamps: None }
    }

    /// The same with timestamps, its own beginning at 5,000.
    fn stamped(self) -> Self {
        Self { timestamps: Some((5_000, 0)), ..self }
    }

    fn frame(&self, flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
        self.frame_with(flags, &[], payload)
    }

    fn frame_with(&self, flags: TcpFlags, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut options = options.to_vec();
        if let Some((value, echo)) = self.timestamps {
            options.extend([1, 1, 8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        let header = TcpHeader {
            source_port: self.port,
            destination_port: 80,
            seq: self.seq,
            ack: self.ack,
            flags,
            window: 60_000,
            options: OptionArea::new(&options).unwrap(),
            ..TcpHeader::default()
        };
        self.family.inward().tcp(header, payload)
    }

    fn syn(&self) -> Vec<u8> {
        self.frame_with(SYN, &[2, 4, 5, 180], &[])
    }

    /// Takes note of a segment of ours.
    fn hear(&mut self, heard: &Heard) {
        let controls = [SYN, FIN].into_iter().filter(|flag| heard.header.flags.contains(*flag));
        let len = u32::try_from(heard.payload.len() + controls.count()).unwrap();
        self.ack = heard.header.seq.wrapping_add(len);
        if let (Some(own), Some(theirs)) = (&mut self.timestamps, heard.options().timestamps) {
            own.1 = theirs.0;
        }
    }

    /// Opens a connection, up to the acknowledgement of the SYN-ACK.
    fn open(&mut self, bench: &mut HostFixture) {
        let syn_ack = only(&bench.exchange(&self.syn()));
        assert_eq!(syn_ack.header.flags, SYN | ACK);
        self.hear(&syn_ack);
        self.seq += 1;
        bench.give(&self.frame(ACK, &[]));
    }
}

/// A segment that the bench sent; its checksum was right.
#[derive(Clone, Debug)]
struct Heard {
    header: TcpHeader,
    payload: Vec<u8>,
}

impl Heard {
    fn of(frame: &[u8]) -> Self {
        Self::read(frame).expect("a segment")
    }

    /// `None` for what is no segment: the bench asks for its neighbor now and then.
    fn read(frame: &[u8]) -> Option<Self> {
        let layout = SegmentLayout::of(frame, Medium::Ethernet)?;
        let pseudo = layout.pseudo(frame).unwrap();
        let segment = TcpSegment::parse(&frame[layout.transport..]).unwrap();
        let segment = segment.verify(pseudo).expect("the right checksum");
        Some(Self { header: segment.header(), payload: segment.payload().to_vec() })
    }

    fn options(&self) -> SegmentOptions<'_> {
        let mut options = SegmentOptions::default();
        options.read(self.header.options.as_bytes());
        options
    }
}

fn heard(frames: &[Vec<u8>]) -> Vec<Heard> {
    frames.iter().filter_map(|frame| Heard::read(frame)).collect()
}

fn only(frames: &[Vec<u8>]) -> Heard {
    let [heard] = heard(frames).try_into().expect("one segment");
    heard
}

/// A bench that knows its peer and listens at port 80.
fn listening(family: Family, backlog: usize) -> (HostFixture, ListenerId) {
    listening_with(family, backlog, TcpConfig::default())
}

fn listening_with(family: Family, backlog: usize, config: TcpConfig) -> (HostFixture, ListenerId) {
    let mut bench = HostFixture::new();
    bench.introduce(family.peer, PEER_MAC);
    let local = SocketAddr::new(family.ours, 80);
    let listener = bench.host.tcp_listen(local, backlog, config).unwrap();
    (bench, listener)
}

/// The same with a connection that was accepted.
fn connected(family: Family) -> (HostFixture, RawPeer, TcpId) {
    let (mut bench, listener) = listening(family, 8);
    let mut peer = RawPeer::new(family, 9_000).stamped();
    peer.open(&mut bench);
    let id = bench.host.tcp_accept(listener).unwrap();
    assert!(bench.take().is_empty());
    (bench, peer, id)
}

fn connect(bench: &mut HostFixture, family: Family, port: u16) -> Result<TcpId, TcpOpenError> {
    let (local, remote) = (SocketAddr::new(family.ours, 0), SocketAddr::new(family.peer, port));
    bench.host.tcp_connect(bench.now, local, remote, TcpConfig::default(), &bench.pool)
}

/// Lets time pass and the peer be known afterwards still.
fn pass(bench: &mut HostFixture, family: Family, span: Span) {
    bench.pass(span);
    bench.take();
    bench.introduce(family.peer, PEER_MAC);
}

fn counts(bench: &HostFixture) -> TcpCounts {
    bench.host.tcp_counts()
}

/// RFC 9293 §3.10.7.1.
#[test]
fn closed_port_answers_with_a_reset_that_the_peer_believes() {
    for family in Family::both() {
        let mut bench = HostFixture::new();
        bench.introduce(family.peer, PEER_MAC);
        let peer = RawPeer { ack: 77, ..RawPeer::new(family, 9_000) };
        for (flags, payload, seq, ack, answer) in [
            (SYN, &b""[..], 0, IRS + 1, RST | ACK),
            (SYN | FIN, b"abc", 0, IRS + 5, RST | ACK),
            (TcpFlags::NONE, b"abc", 0, IRS + 3, RST | ACK),
            (ACK, b"abc", 77, 0, RST),
            (SYN | ACK, b"", 77, 0, RST),
        ] {
            let reset = only(&bench.exchange(&peer.frame(flags, payload))).header;
            assert_eq!((reset.seq, reset.ack, reset.flags), (seq, ack, answer), "{flags:?}");
            assert_eq!((reset.source_port, reset.destination_port), (80, 9_000));
        }
        bench.drops(&peer.frame(RST, b""), CounterId::TcpNoSocket);
        bench.drops(&peer.frame(RST | ACK, b""), CounterId::TcpNoSocket);
        assert_eq!(bench.count(CounterId::TcpResetSent), 5);
        bench.finish();
    }
}

#[test]
fn resets_a_second_are_limited() {
    let [family, _] = Family::both();
    let mut bench = HostFixture::new();
    bench.introduce(family.peer, PEER_MAC);
    let TcpLimits { resets, reset_burst, .. } = TcpLimits::default();
    let mut sent = 0;
    for _ in 0..5_000 {
        sent += bench.exchange(&RawPeer::new(family, 9_000).syn()).len();
        bench.pass(Span::from_us(200));
    }
    let most = usize::try_from(resets + reset_burst).unwrap();
    assert!((most - 5..=most).contains(&sent), "{sent}");
    assert_eq!(bench.count(CounterId::TcpResetLimited) + sent as u64, 5_000);
    bench.finish();
}

/// RFC 1122 §4.2.3.10.
// MUST-57.
#[test]
fn segments_to_groups_and_from_port_zero_are_dropped() {
    for family in Family::both() {
        let (mut bench, _) = listening(family, 8);
        let groups: &[&str] =
            if family.ours.is_ipv4() { &["192.0.2.255", "224.0.0.1"] } else { &["ff02::1"] };
        for group in groups {
            let header = TcpHeader {
                source_port: 9,
                destination_port: 80,
                flags: SYN,
                ..TcpHeader::default()
            };
            let link = LinkTemplate::new(PEER_MAC, MacAddr::BROADCAST);
            let to: IpAddr = group.parse().unwrap();
            let frame = PacketTemplate::new(family.peer, to).over(link).tcp(header, b"");
            bench.drops(&frame, CounterId::TcpGroup);
        }
        bench.drops(&RawPeer::new(family, 0).syn(), CounterId::TcpPort);
        bench.finish();
    }
}

// MUST-3.
#[test]
fn wrong_checksum_is_counted_and_changes_nothing() {
    for family in Family::both() {
        let (mut bench, peer, id) = connected(family);
        let other = RawPeer::new(family, 9_001);
        let mut counted = 0;
        for frame in [
            // To a listener, to a closed port by way of its flags, to a connection.
            other.syn(),
            other.frame(ACK, b"x"),
            peer.frame(ACK, b"data"),
            peer.frame(ACK | FIN, b""),
            peer.frame(RST, b""),
        ] {
            let mut bad = frame;
            *bad.last_mut().unwrap() ^= 0x40;
            assert!(bench.exchange(&bad).is_empty());
            counted += 1;
            let checksum = FormatError::Checksum;
            assert_eq!(bench.malformed(ProtocolLayer::Tcp, checksum), counted);
        }
        assert_eq!(counts(&bench).half_open, 0);
        bench.give(&peer.frame(ACK, b"data"));
        let mut out = [0; 10];
        let received = bench.host.tcp_receive(bench.now, id, &mut out);
        assert_eq!((received, &out[..4]), (Ok(Received::Data(4)), &b"data"[..]));
        bench.take();
        bench.account();
    }
}

#[test]
fn truncated_segment_is_malformed() {
    for family in Family::both() {
        let (mut bench, _) = listening(family, 8);
        let frame = family.inward().packet(plumb_wire::ip::IpProtocol::TCP, &[0; 19]);
        assert!(bench.exchange(&frame).is_empty());
        assert_eq!(bench.malformed(ProtocolLayer::Tcp, FormatError::Truncated), 1);
        bench.finish();
    }
}

// MUST-46, MUST-44, MUST-45.
#[test]
fn connections_without_a_free_port_or_a_valid_peer_are_refused() {
    for family in Family::both() {
        let mut bench = HostFixture::new();
        bench.introduce(family.peer, PEER_MAC);
        let ids: Vec<TcpId> =
            (0..16_384).map(|_| connect(&mut bench, family, 80).unwrap()).collect();
        assert_eq!(connect(&mut bench, family, 80), Err(TcpOpenError::NoPort(family.ours)));
        let other = connect(&mut bench, family, 81).expect("other peers are not concerned");
        let freed = bench.host.tcp_local(ids[7_000]).unwrap();
        bench.host.tcp_close(bench.now, ids[7_000]);
        let again = connect(&mut bench, family, 80).unwrap();
        assert_eq!(bench.host.tcp_local(again), Some(freed));
        let remote = SocketAddr::new(family.peer, 80);
        let config = TcpConfig::default();
        let taken = bench.host.tcp_connect(bench.now, freed, remote, config.clone(), &bench.pool);
        assert_eq!(taken, Err(TcpOpenError::InUse { local: freed, remote }));
        let any = SocketAddr::new(unspecified_like(family.ours), 0);
        for (remote, expected) in [
            (SocketAddr::new(family.peer, 0), None),
            (SocketAddr::new(family.ours, 80), Some(PathError::OwnAddress(family.ours))),
            (SocketAddr::new(family.foreign, 80), Some(PathError::NoRoute(family.foreign))),
        ] {
            let opened =
                bench.host.tcp_connect(bench.now, any, remote, config.clone(), &bench.pool);
            let expected = expected.map_or(TcpOpenError::InvalidRemote(remote), TcpOpenError::Path);
            assert_eq!(opened, Err(expected));
        }
        for id in ids.into_iter().chain([again, other]) {
            bench.host.tcp_abort(bench.now, id);
        }
        assert_eq!(counts(&bench), TcpCounts::default());
        bench.take();
        bench.finish();
    }
}

// MUST-41.
#[test]
fn two_listeners_at_one_port_are_refused() {
    for family in Family::both() {
        let (mut bench, listener) = listening(family, 8);
        let local = SocketAddr::new(family.ours, 80);
        let again = bench.host.tcp_listen(local, 8, TcpConfig::default());
        assert_eq!(again, Err(TcpOpenError::ListenerInUse(local)));
        let foreign = SocketAddr::new(family.foreign, 80);
        let elsewhere = bench.host.tcp_listen(foreign, 8, TcpConfig::default());
        assert_eq!(elsewhere, Err(TcpOpenError::NotLocal(family.foreign)));
        bench.host.tcp_close_listener(bench.now, listener);
        assert_eq!(bench.host.tcp_listening_at(listener), None);
        let second = bench.host.tcp_listen(local, 8, TcpConfig::default()).unwrap();
        assert_eq!(bench.host.tcp_listening_at(second), Some(local));
        assert_eq!(bench.host.tcp_accept(listener), None);
    }
}

/// An error of a router about `quoted`, a frame of ours.
fn error(family: Family, say: IcmpMessage, quoted: &[u8]) -> Vec<u8> {
    let router = family.absent;
    let link = LinkTemplate::new(PEER_MAC, OUR_MAC);
    PacketTemplate::new(router, family.ours).over(link).icmp(say, &quoted[14..])
}

fn port_unreachable(family: Family) -> IcmpMessage {
    let is_v4 = family.ours.is_ipv4();
    let code = if is_v4 { unreachable_v4::PORT } else { unreachable_v6::PORT };
    IcmpMessage::Unreachable { code }
}

/// The frame with the sequence number of its segment moved.
fn shifted(frame: &[u8], by: u32) -> Vec<u8> {
    let at = SegmentLayout::of(frame, Medium::Ethernet).unwrap().transport + 4;
    let mut bytes = frame.to_vec();
    let seq: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
    let seq = u32::from_be_bytes(seq).wrapping_add(by);
    bytes[at..at + 4].copy_from_slice(&seq.to_be_bytes());
    bytes
}

/// RFC 5927 §4.1 and RFC 9293 §3.9.2.2.
// MUST-54.
#[test]
fn icmp_error_ends_an_attempt_only_when_it_quotes_what_is_in_flight() {
    for family in Family::both() {
        let mut bench = HostFixture::new();
        bench.introduce(family.peer, PEER_MAC);
        let id = connect(&mut bench, family, 80).unwrap();
        let [syn] = bench.take().try_into().unwrap();
        let say = port_unreachable(family);
        for by in [1, u32::MAX, 1_000, 0x8000_0000] {
            let blind = error(family, say, &shifted(&syn, by));
            bench.drops(&blind, CounterId::IcmpErrorUnmatched);
            assert_eq!(bench.host.tcp_state(id), Some(TcpState::SynSent));
        }
        bench.give(&error(family, say, &syn));
        assert_eq!(bench.count(CounterId::IcmpErrorAccepted), 1);
        assert_eq!(bench.host.tcp_error(id), Some(TcpSocketError::Refused));
        let events: Vec<_> = std::iter::from_fn(|| bench.host.poll_tcp_event()).collect();
        assert!(events.contains(&TcpEvent::Closed(id)), "{events:?}");
        bench.host.tcp_close(bench.now, id);
        assert_eq!(counts(&bench), TcpCounts::default());
        bench.account();
    }
}

/// RFC 5927 §4.1 of a connection that opens to a listener.
#[test]
fn icmp_error_ends_a_half_open_record_only_when_it_quotes_the_syn_ack() {
    for family in Family::both() {
        let (mut bench, _) = listening(family, 8);
        let [syn_ack] = bench.exchange(&RawPeer::new(family, 9_000).syn()).try_into().unwrap();
        let say = port_unreachable(family);
        bench.drops(&error(family, say, &shifted(&syn_ack, 1)), CounterId::IcmpErrorUnmatched);
        let soft = IcmpMessage::TimeExceeded { code: 0 };
        bench.give(&error(family, soft, &syn_ack));
        assert_eq!(counts(&bench).half_open, 1);
        bench.give(&error(family, say, &syn_ack));
        assert_eq!(bench.count(CounterId::IcmpErrorAccepted), 2);
        assert_eq!(counts(&bench).half_open, 0);
        bench.account();
    }
}

/// RFC 4861 §7.3.1: acknowledgements of the peer confirm that it is reached, and no solicitation is sent.
#[test]
fn acknowledged_data_confirm_the_neighbor() {
    for family in Family::both() {
        for is_acknowledged in [true, false] {
            let (mut bench, mut peer, id) = connected(family);
            let mut solicitations = 0;
            for _ in 0..60 {
                bench.pass(Span::from_secs(2));
                bench.host.tcp_send(bench.now, id, b"data").unwrap();
                let frames = bench.take();
                let segments = heard(&frames);
                solicitations += frames.len() - segments.len();
                for segment in segments.iter().filter(|_| is_acknowledged) {
                    peer.ack = segment.header.seq.wrapping_add(4);
                    bench.give(&peer.frame(ACK, b""));
                }
            }
            assert_eq!(solicitations == 0, is_acknowledged, "{solicitations} solicitations");
        }
    }
}

// MUST-20.
#[test]
fn third_retransmission_has_a_confirmed_neighbor_probed() {
    for family in Family::both() {
        let (mut bench, mut peer, id) = connected(family);
        bench.host.tcp_send(bench.now, id, b"data").unwrap();
        let [first] = heard(&bench.take()).try_into().unwrap();
        peer.ack = first.header.seq.wrapping_add(4);
        bench.give(&peer.frame(ACK, b""));
        bench.host.tcp_send(bench.now, id, b"more").unwrap();
        let (mut segments, mut probed_after) = (0, None);
        for _ in 0..40 {
            let frames = bench.take();
            let count = heard(&frames).len();
            if count < frames.len() && probed_after.is_none() {
                probed_after = Some(segments);
            }
            segments += count;
            bench.pass(Span::from_ms(100));
        }
        assert_eq!(probed_after, Some(1 + 3), "{segments} segments");
        bench.account();
    }
}

// MUST-56.
#[test]
fn icmp_error_does_not_end_an_open_connection() {
    for family in Family::both() {
        let (mut bench, _, id) = connected(family);
        bench.host.tcp_send(bench.now, id, b"data").unwrap();
        let [data] = bench.take().try_into().unwrap();
        bench.give(&error(family, port_unreachable(family), &data));
        assert_eq!(bench.count(CounterId::IcmpErrorAccepted), 1);
        assert_eq!(bench.host.tcp_state(id), Some(TcpState::Established));
        bench.account();
    }
}

/// RFC 1191, RFC 8201 and RFC 5927 §7.
#[test]
fn too_big_makes_segments_smaller_and_sends_them_again_unless_it_is_blind() {
    for family in Family::both() {
        let (mut bench, _, id) = connected(family);
        bench.host.tcp_send(bench.now, id, &[7; 1_428]).unwrap();
        let [data] = bench.take().try_into().unwrap();
        let say = IcmpMessage::PacketTooBig { mtu: 1_300 };
        for by in [u32::MAX, 100_000] {
            let blind = error(family, say, &shifted(&data, by));
            bench.drops(&blind, CounterId::IcmpErrorUnmatched);
        }
        assert_eq!(bench.count(CounterId::PathMtuLearned), 0);
        let again = heard(&bench.exchange(&error(family, say, &data)));
        assert_eq!(bench.count(CounterId::PathMtuLearned), 1);
        let lens: Vec<usize> = again.iter().map(|heard| heard.payload.len()).collect();
        let most = if family.ours.is_ipv4() { 1_300 - 52 } else { 1_300 - 72 };
        assert_eq!(lens, [most, 1_428 - most]);
        bench.account();
    }
}

#[test]
fn memory_returns_to_its_start() {
    for family in Family::both() {
        let (mut bench, listener) = listening(family, 8);
        let timers = bench.host.core.timers.len();
        for port in 9_000..9_100 {
            let mut peer = RawPeer::new(family, port);
            peer.open(&mut bench);
            let id = bench.host.tcp_accept(listener).unwrap();
            match port % 3 {
                // By the peer, by us, and by a reset.
                0 => {
                    bench.give(&peer.frame(ACK | FIN, b""));
                    peer.seq += 1;
                    bench.host.tcp_close(bench.now, id);
                    bench.take().iter().for_each(|frame| peer.hear(&Heard::of(frame)));
                    bench.give(&peer.frame(ACK, b""));
                }
                1 => {
                    bench.host.tcp_close(bench.now, id);
                    bench.take().iter().for_each(|frame| peer.hear(&Heard::of(frame)));
                    bench.give(&peer.frame(ACK | FIN, b""));
                    assert_eq!(bench.take().len(), 1);
                }
                _ => {
                    bench.give(&peer.frame(RST, b""));
                    bench.host.tcp_close(bench.now, id);
                }
            }
            assert_eq!(counts(&bench).connections, 0, "port {port}");
        }
        assert_eq!(counts(&bench).time_wait, 33);
        pass(&mut bench, family, Span::from_secs(61));
        let expected = TcpCounts { listeners: 1, ..TcpCounts::default() };
        assert_eq!(counts(&bench), expected);
        assert_eq!(bench.host.core.timers.len(), timers);
        while bench.host.poll_tcp_event().is_some() {}
        bench.finish();
    }
}
