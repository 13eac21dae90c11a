//! Two connections, and a link between them that loses, delays, repeats and damages segments by a seed.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::{Instant, Span};
use plumb_copy::Sum16;
use plumb_wire::checksum::PseudoHeader;
use plumb_wire::ip::{Ecn, IpProtocol};
use plumb_wire::tcp::{TcpFlags, TcpHeader, TcpSegment};
use rand::RngExt;

use crate::tcp::config::TcpConfig;
use crate::tcp::connection::{Connection, PathLimits, TcpEnds};
use crate::tcp::handshake::{Handshake, SynOffer, TimestampClock, accepts_ecn};
use crate::tcp::segment::{InboundSegment, OutboundSegment};
use crate::tcp::seq::SeqNum;
use crate::tcp::socket::TcpState;

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

/// What a link does to segments of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Time from end to end.
    pub delay: Span,
    /// Bytes a second; 0: no limit.
    pub rate: u64,
    /// Bytes of queue before it; the newest is lost beyond.
    pub queue: u64,
    pub loss: f64,
    /// One of so many segments with payload is lost, in turn; 0: none.
    pub loss_every: u64,
    pub reorder: f64,
    pub duplicate: f64,
    pub replay: f64,
    pub corrupt: f64,
    pub truncate: f64,
    pub mark: f64,
    /// Largest packet that passes, silently; others vanish.
    pub mtu: usize,
    /// Nothing passes.
    pub is_cut: bool,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            delay: Span::from_ms(10),
            rate: 0,
            queue: u64::MAX,
            loss: 0.0,
            loss_every: 0,
            reorder: 0.0,
            duplicate: 0.0,
            replay: 0.0,
            corrupt: 0.0,
            truncate: 0.0,
            mark: 0.0,
            mtu: 65_535,
            is_cut: false,
        }
    }
}

#[derive(Clone, Debug)]
struct Flying {
    bytes: Vec<u8>,
    ecn: Ecn,
}

/// A half-open connection of the fixture's listener.
#[derive(Clone, Copy, Debug)]
struct HalfOpen {
    handshake: Handshake,
    syn_ack: OutboundSegment,
}

/// The pair.
pub struct Pair {
    pub now: Instant,
    pub ends: [Option<Connection>; 2],
    pub weather: [Weather; 2],
    pub sent: [u64; 2],
    half_open: Option<HalfOpen>,
    configs: [Arc<TcpConfig>; 2],
    paths: [PathLimits; 2],
    addresses: [SocketAddr; 2],
    flying: BTreeMap<(Instant, u64), (usize, Flying)>,
    busy_until: [Instant; 2],
    payloads: [u64; 2],
    old: Vec<(usize, Flying)>,
    count: u64,
    random: RandomStream,
    /// Right edges that each end has offered, by the wire.
    edges: [Option<SeqNum>; 2],
    /// When the application acts next.
    pub wake: Option<Instant>,
    pub log: Option<Vec<String>>,
}

impl Pair {
    pub fn new(client: TcpConfig, server: TcpConfig, seed: u64) -> Self {
        let addresses = [1, 2].map(|host| {
            SocketAddr::from((Ipv4Addr::new(192, 0, 2, host), 1_000 + u16::from(host)))
        });
        let random = Seed(seed).stream("pair");
        let mut pair = Self {
            now: Instant::after_origin(Span::from_secs(1)),
            ends: [None, None],
            weather: [Weather::default(); 2],
            sent: [0; 2],
            half_open: None,
            configs: [Arc::new(client), Arc::new(server)],
            paths: [path(); 2],
            addresses,
            flying: BTreeMap::new(),
            busy_until: [Instant::ORIGIN; 2],
            payloads: [0; 2],
            old: Vec::new(),
            count: 0,
            random,
            edges: [None; 2],
            wake: None,
            log: None,
        };
        let iss = pair.random.random();
        let clock = TimestampClock::new(pair.random.random());
        pair.paths = [CLIENT, SERVER].map(|_| PathLimits {
            super_segment: if pair.random.random() { 0 } else { 65_000 },
            ..path()
        });
        let ends = pair.ends_of(CLIENT);
        let client = Connection::connect(
            pair.now,
            ends,
            iss,
            clock,
            Arc::clone(&pair.configs[CLIENT]),
            path(),
        );
        pair.ends[CLIENT] = Some(client);
        pair
    }

    pub fn ends_of(&self, end: usize) -> TcpEnds {
        TcpEnds { local: self.addresses[end], remote: self.addresses[1 - end] }
    }

    pub fn end(&mut self, end: usize) -> &mut Connection {
        self.ends[end].as_mut().expect("it exists")
    }

    fn pseudo(&self, from: usize) -> PseudoHeader {
        let [from, to] = [self.addresses[from], self.addresses[1 - from]];
        PseudoHeader::between(from.ip(), to.ip(), IpProtocol::TCP).expect("one family")
    }

    fn wire(&self, from: usize, segment: &OutboundSegment) -> Vec<u8> {
        let header = TcpHeader {
            source_port: self.addresses[from].port(),
            destination_port: self.addresses[1 - from].port(),
            seq: segment.seq.wire(),
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            checksum: 0,
            urgent: 0,
            options: segment.option_area(),
        };
        let mut payload = vec![0; segment.len];
        let sum = match &self.ends[from] {
            Some(end) if segment.len > 0 => end.copy_payload(segment.seq, &mut payload, true),
            _ => Sum16::ZERO,
        };
        let header = header.with_checksum(self.pseudo(from), segment.len, sum);
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        bytes.extend(&payload);
        bytes
    }

    /// Sends a segment, a super-segment as the segments that a device would cut it into.
    fn transmit(&mut self, from: usize, segment: &OutboundSegment) {
        self.check_edge(from, segment);
        self.check_window(from, segment);
        let size = usize::from(segment.size);
        for at in (0..segment.len.max(1)).step_by(size) {
            let len = size.min(segment.len - at);
            let mut flags = segment.flags.bits();
            if at + len < segment.len {
                flags &= !(TcpFlags::FIN.bits() | TcpFlags::PSH.bits());
            }
            if at > 0 {
                flags &= !TcpFlags::CWR.bits();
            }
            let flags = TcpFlags::from_bits(flags);
            self.transmit_one(
                from,
                &OutboundSegment { seq: segment.seq + at as u64, len, flags, ..*segment },
            );
        }
    }

    /// Nothing lies beyond the window that the peer has offered.
    fn check_window(&self, from: usize, segment: &OutboundSegment) {
        if segment.len > 0
            && let Some(edge) = self.edges[1 - from]
        {
            let end = edge.nearest(segment.seq.wire()) + segment.len as u64;
            assert!(end <= edge, "{end:?} lies beyond the window, which ends at {edge:?}");
        }
    }

    fn transmit_one(&mut self, from: usize, segment: &OutboundSegment) {
        let bytes = self.wire(from, segment);
        if let Some(log) = &mut self.log {
            log.push(format!("{:?} {from} {segment:?}", self.now));
        }
        self.sent[from] += 1;
        self.launch(from, Flying { bytes, ecn: segment.ecn });
    }

    /// The right edge of the window never retracts (RFC 9293 §3.8.6).
    fn check_edge(&mut self, from: usize, segment: &OutboundSegment) {
        let Some(end) = &self.ends[from] else { return };
        if segment.flags.contains(TcpFlags::RST) || segment.flags.contains(TcpFlags::SYN) {
            return;
        }
        let shift = end.info().window_scale.map_or(0, |(_, ours)| ours);
        let size = u64::from(segment.window) << shift;
        let base = self.edges[from].unwrap_or_else(|| SeqNum::initial(segment.ack));
        let edge = base.nearest(segment.ack) + size;
        if let Some(before) = self.edges[from] {
            assert!(edge >= before, "the right edge retracts from {before:?} to {edge:?}");
        }
        self.edges[from] = Some(edge);
    }

    /// Whether it is a segment's turn to be lost.
    fn is_turn(&mut self, from: usize, segment: &Flying) -> bool {
        let every = self.weather[from].loss_every;
        if every == 0 || segment.bytes.len() < 200 {
            return false;
        }
        self.payloads[from] += 1;
        self.payloads[from].is_multiple_of(every)
    }

    fn launch(&mut self, from: usize, mut segment: Flying) {
        let weather = self.weather[from];
        let turn = self.is_turn(from, &segment);
        let mut chance = |p: f64| p > 0.0 && self.random.random_bool(p);
        let lost = turn
            || weather.is_cut
            || chance(weather.loss)
            || segment.bytes.len() + 20 > weather.mtu;
        let (late, twice) = (chance(weather.reorder), chance(weather.duplicate));
        let (corrupt, truncate, replay) =
            (chance(weather.corrupt), chance(weather.truncate), chance(weather.replay));
        let marked = chance(weather.mark);
        if self.old.len() < 50 {
            self.old.push((from, segment.clone()));
        } else {
            let slot = self.random.random_range(0..50);
            self.old[slot] = (from, segment.clone());
        }
        if replay {
            let old = self.random.random_range(0..self.old.len());
            let (way, old) = self.old[old].clone();
            let after = Span::from_ms(self.random.random_range(0..2_000));
            self.arrive(way, self.now + after, old);
        }
        if lost {
            return;
        }
        if corrupt {
            let (at, bit) =
                (self.random.random_range(0..segment.bytes.len()), self.random.random_range(0..8));
            segment.bytes[at] ^= 1 << bit;
        }
        if truncate {
            segment.bytes.truncate(self.random.random_range(0..segment.bytes.len()));
        }
        if marked && segment.ecn != Ecn::NotCapable {
            segment.ecn = Ecn::Congestion;
        }
        let mut at = self.now;
        if weather.rate > 0 {
            let bytes = segment.bytes.len() as u64 + 34;
            let waiting = self.busy_until[from].saturating_since(self.now);
            let queued = u128::from(waiting.as_ps()) * u128::from(weather.rate) / 1_000_000_000_000;
            if queued + u128::from(bytes) > u128::from(weather.queue) {
                return;
            }
            let time = Span::from_ps(
                u64::try_from(u128::from(bytes) * 1_000_000_000_000 / u128::from(weather.rate))
                    .unwrap(),
            );
            at = self.busy_until[from].max(self.now) + time;
            self.busy_until[from] = at;
        }
        let extra = if late { weather.delay * self.random.random_range(1..4) } else { Span::ZERO };
        if twice {
            self.arrive(from, at + weather.delay, segment.clone());
        }
        self.arrive(from, at + weather.delay + extra, segment);
    }

    fn arrive(&mut self, from: usize, at: Instant, segment: Flying) {
        self.count += 1;
        self.flying.insert((at, self.count), (from, segment));
    }

    fn deliver(&mut self, from: usize, segment: &Flying) {
        let to = 1 - from;
        let Ok(parsed) = TcpSegment::parse(&segment.bytes) else { return };
        let arrival = (self.now, segment.ecn, 1);
        let mut inbound = InboundSegment::new(parsed, Some(self.pseudo(from)), arrival);
        if let Some(log) = &mut self.log {
            log.push(format!("{:?} {to} got {inbound:?}", self.now));
        }
        if let Some(end) = self.ends[to].as_mut() {
            if end.state() == TcpState::Closed {
                // As a host answers for a connection that it does not know.
                if inbound.verify() && !inbound.flags.contains(TcpFlags::RST) {
                    self.transmit(to, &crate::tcp::reset_for(&inbound));
                }
                return;
            }
            match end.handle_segment(self.now, &mut inbound) {
                crate::tcp::receive::SegmentFate::Reset(reset) => self.transmit(to, &reset),
                crate::tcp::receive::SegmentFate::Challenge(_) => end.challenge(),
                _ => {}
            }
            return;
        }
        if inbound.verify() {
            self.listen(&mut inbound);
        }
    }

    /// A listener for one connection.
    fn listen(&mut self, segment: &mut InboundSegment<'_>) {
        let config = Arc::clone(&self.configs[SERVER]);
        if segment.flags.contains(TcpFlags::SYN) && !segment.flags.contains(TcpFlags::ACK) {
            if self.half_open.is_none() {
                let clock = TimestampClock::new(self.random.random());
                let offer =
                    SynOffer::passive(&config, 1_460, clock.value(self.now), &segment.options);
                let mut handshake = Handshake::agreed(&offer, segment, self.random.random(), false);
                handshake.clock = clock;
                handshake.advertised =
                    u16::try_from(config.receive_buffer.initial).unwrap_or(u16::MAX);
                handshake.ecn = accepts_ecn(config.ecn, segment.flags);
                let flags = TcpFlags::SYN
                    | TcpFlags::ACK
                    | if handshake.ecn { TcpFlags::ECE } else { TcpFlags::NONE };
                let syn_ack = OutboundSegment {
                    window: handshake.advertised,
                    options: offer.options(config.personality.syn_options),
                    ..OutboundSegment::bare(
                        SeqNum::initial(handshake.iss),
                        segment.seq.wrapping_add(1),
                        flags,
                    )
                };
                self.half_open = Some(HalfOpen { handshake, syn_ack });
            }
            let half = self.half_open.expect("just made");
            if segment.seq == half.handshake.irs {
                self.transmit(SERVER, &half.syn_ack);
            }
            return;
        }
        let Some(half) = self.half_open else { return };
        let completes = segment.flags.contains(TcpFlags::ACK)
            && !segment.flags.contains(TcpFlags::RST)
            && segment.ack == half.handshake.iss.wrapping_add(1);
        if completes {
            let mut end = Connection::accepted(
                self.now,
                self.ends_of(SERVER),
                &half.handshake,
                config,
                self.paths[SERVER],
            );
            end.handle_segment(self.now, segment);
            self.ends[SERVER] = Some(end);
        }
    }

    fn flush(&mut self) {
        for end in [CLIENT, SERVER] {
            let mut segments = 0;
            while let Some(segment) =
                self.ends[end].as_mut().and_then(|connection| connection.poll_segment(self.now))
            {
                self.transmit(end, &segment);
                segments += 1;
                assert!(segments < 100_000, "a connection that never has enough");
            }
            if let Some(connection) = &self.ends[end] {
                check(connection);
            }
        }
    }

    /// One step: the next arrival or deadline. `false` when nothing is left to happen.
    pub fn step(&mut self) -> bool {
        self.flush();
        let arrival = self.flying.keys().next().map(|(at, _)| *at);
        let deadline = self.ends.iter().flatten().filter_map(Connection::deadline).min();
        let wake = self.wake.filter(|wake| *wake > self.now);
        let Some(next) = [arrival, deadline, wake].into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now)
        {
            let (from, segment) = entry.remove();
            self.deliver(from, &segment);
        }
        for end in self.ends.iter_mut().flatten() {
            if end.deadline().is_some_and(|deadline| deadline <= self.now) {
                end.handle_deadline(self.now);
            }
        }
        self.flush();
        for end in self.ends.iter().flatten() {
            assert!(
                end.deadline().is_none_or(|deadline| deadline > self.now),
                "a deadline in the past: {end:?}"
            );
        }
        true
    }

    /// Steps until `done` holds; `false` if that took longer than `limit`, or nothing was left to happen.
    pub fn run_until(&mut self, limit: Span, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            if !self.step() || self.now > end {
                return done(self);
            }
        }
    }
}

pub const fn path() -> PathLimits {
    PathLimits { mtu: 1_500, super_segment: 0 }
}

/// What always holds for a connection that has nothing to send at once.
fn check(connection: &Connection) {
    let tx = &connection.tx;
    tx.queue.check();
    assert!(tx.una <= tx.nxt);
    assert!(tx.queue.front().is_none_or(|front| front.seq == tx.una), "the queue begins at una");
    assert!(tx.queue.back().is_none_or(|back| back.end == tx.nxt), "the queue ends at nxt");
    let waits = !tx.queue.is_empty() || tx.stream_end() > tx.nxt;
    let is_over = matches!(connection.state, TcpState::Closed | TcpState::TimeWait);
    assert!(
        !waits || is_over || connection.deadline().is_some(),
        "what is unacknowledged or held back has a timer: {connection:#?}"
    );
    assert!(connection.rx.nxt <= connection.rx.buffer.limit() + 1, "what was received fits");
}
