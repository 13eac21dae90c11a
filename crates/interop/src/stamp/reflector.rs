//! The session-reflector: answers each question by one datagram of the same length, to where it came from, or not
//! at all.
//!
//! [`SessionReflector`] is pure: what to answer, and whether. The rate is limited for each sender, known by its address
//! because it chooses its ports and sessions, and for all of them. Both tables are bounded, and the one unheard for
//! longest gives way. A stateful one numbers its answers for each session, which tells the sender in which
//! direction a datagram was lost.
//!
//! What another reflector answered is not answered, or one forged datagram would go between the two for ever: not
//! what is written as an answer, and nothing that comes from a port where something answers. A session ends after
//! very many answers without a pause as well; it has no greatest age, since one that asks once a second may watch a
//! path for years.
//!
//! [`serve`] drives it over a socket with the kernel's times of reception. Left out: whom to listen to, which is the
//! caller's socket.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_result::stamp::{ReflectorCounts, TimestampFormat};
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::datagram::{DatagramOption, ReceiveBatch, enable_option, send_from, set_ttl};
use plumb_sys::errno::is_transient_datagram;

use super::packet::{self, ErrorEstimate, StampAnswer, StampKey, StampPacketError, StampQuestion};
use super::sender::SyncStopCheck;
use super::tlv;
use plumb_remote::address::source_prefix;

/// Sessions that are told apart at once.
const SESSIONS_MAX: usize = 1024;
/// Senders whose rates are kept at once.
const SENDERS_MAX: usize = 1024;
/// Below are the system's ports (RFC 6335 §6), where services answer and no sender asks from.
const PORT_MIN: u16 = 1024;
/// A session that was silent for so long begins anew.
const IDLE: Span = Span::from_secs(60);
/// Datagrams of one call.
const SLOTS: usize = 32;
const SLOT_BYTES: usize = 65_536;
/// How long one call waits at most, so that a stop is seen.
const WAIT: Duration = Duration::from_millis(50);
/// How old what the kernel says about its clock may be.
const ESTIMATE_AGE: Span = Span::from_secs(1);

/// How a reflector answers.
#[derive(Clone, Debug)]
pub struct ReflectorOptions {
    /// Whether answers have numbers of their own.
    pub stateful: bool,
    /// The key of the authenticated mode; without one, the open mode.
    pub key: Option<StampKey>,
    /// How its times are written.
    pub format: TimestampFormat,
    /// Answers a second for each sender: an address of IPv4, or 64 bits of one of IPv6.
    pub rate_per_sender: u32,
    /// Answers a second in all.
    pub rate_total: u32,
    /// Answers of a session that is never silent for a minute.
    pub replies_per_session: u64,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            stateful: true,
            key: None,
            format: TimestampFormat::Ntp,
            rate_per_sender: 10_000,
            rate_total: 50_000,
            replies_per_session: 100_000_000,
        }
    }
}

/// A question as it came.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedTestPacket<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Who asked.
    pub from: SocketAddr,
    /// When, by the real-time clock.
    pub at_unix_ns: u64,
    /// Its time to live or hop limit.
    pub ttl: u8,
}

/// A budget of answers that fills at a rate: by the time at which it will be full again (the generic cell rate
/// algorithm, ITU-T I.371).
#[derive(Clone, Copy, Debug, Default)]
struct ReplyRateLimiter {
    refilled_at: Instant,
}

impl ReplyRateLimiter {
    /// Takes one answer of a tenth of a second's worth, if there is one.
    fn admit(&mut self, now: Instant, rate: u32) -> bool {
        let each = Span::from_secs(1) / u64::from(rate.max(1));
        let depth = Span::from_ms(100) + each;
        let full_at = self.refilled_at.max(now) + each;
        if full_at.saturating_since(now) > depth {
            return false;
        }
        self.refilled_at = full_at;
        true
    }
}

#[derive(Debug)]
struct ReflectorSession {
    answered: u64,
    last_seen: Instant,
}

#[derive(Debug)]
struct ReflectorSender {
    last_seen: Instant,
    bucket: ReplyRateLimiter,
}

/// The entry of a bounded table, if need be in the place of the one that was not heard for longest.
fn entry_evicting_oldest<K: Ord + Copy, V>(
    table: &mut BTreeMap<K, V>,
    max: usize,
    key: K,
    heard: impl Fn(&V) -> Instant,
    fresh: impl FnOnce() -> V,
) -> &mut V {
    if !table.contains_key(&key) && table.len() >= max {
        let oldest = table.iter().min_by_key(|(_, value)| heard(value)).map(|(&key, _)| key);
        oldest.map(|oldest| table.remove(&oldest));
    }
    table.entry(key).or_insert_with(fresh)
}

/// Decides what is answered.
#[derive(Debug)]
pub struct SessionReflector {
    options: ReflectorOptions,
    /// Its own port.
    port: u16,
    senders: BTreeMap<IpAddr, ReflectorSender>,
    sessions: BTreeMap<(SocketAddr, u16), ReflectorSession>,
    all: ReplyRateLimiter,
    counts: ReflectorCounts,
    buffer: Vec<u8>,
}

/// An answer that wants but the time at which it leaves.
#[derive(Debug)]
pub struct PendingReply<'a> {
    answer: StampAnswer,
    sender_sequence: [u8; 4],
    key: Option<&'a StampKey>,
    format: TimestampFormat,
    synchronised: bool,
    bytes: &'a mut [u8],
}

impl<'a> PendingReply<'a> {
    /// The answer as it leaves now.
    pub fn finish(mut self, unix_ns: u64) -> &'a [u8] {
        self.answer.time = self.format.write(unix_ns);
        self.answer.write(self.key, self.bytes);
        let tlvs = &mut self.bytes[packet::len(self.key)..];
        if !tlvs.is_empty() {
            let answered = self.answer.sequence.to_be_bytes();
            tlv::reflect(tlvs, self.key, self.sender_sequence, answered, self.synchronised);
        }
        self.bytes
    }
}

impl SessionReflector {
    /// One at a port, that has answered nothing.
    pub fn new(conduct: ReflectorOptions, port: u16) -> Self {
        Self {
            options: conduct,
            port,
            senders: BTreeMap::new(),
            sessions: BTreeMap::new(),
            all: ReplyRateLimiter::default(),
            counts: ReflectorCounts::default(),
            buffer: Vec::with_capacity(SLOT_BYTES),
        }
    }

    /// What happened to the questions so far.
    pub const fn counts(&self) -> ReflectorCounts {
        self.counts
    }

    /// The answer to a question, if it is answered.
    pub fn handle(
        &mut self,
        arrived: &ReceivedTestPacket<'_>,
        estimate: ErrorEstimate,
        now: Instant,
    ) -> Option<PendingReply<'_>> {
        let key = self.options.key.as_ref();
        let question = match StampQuestion::read(key, arrived.bytes) {
            Ok((question, _)) => question,
            Err(StampPacketError::Short { .. }) => {
                self.counts.short += 1;
                return None;
            }
            Err(StampPacketError::BadHmac) => {
                self.counts.unsealed += 1;
                return None;
            }
        };
        let port = arrived.from.port();
        if port == self.port || port < PORT_MIN || packet::is_reflected(key, arrived.bytes) {
            self.counts.looped += 1;
            return None;
        }
        let Some(number) = self.admit(arrived.from, question.session, now) else {
            self.counts.limited += 1;
            return None;
        };
        self.counts.answered += 1;
        let answer = StampAnswer {
            sequence: if self.options.stateful { number } else { question.sequence },
            time: 0,
            error: estimate.write(),
            received: self.options.format.write(arrived.at_unix_ns),
            sender: question,
            ttl: arrived.ttl,
        };
        self.buffer.clear();
        self.buffer.extend_from_slice(arrived.bytes);
        Some(PendingReply {
            answer,
            sender_sequence: question.sequence.to_be_bytes(),
            key: self.options.key.as_ref(),
            format: self.options.format,
            synchronised: estimate.synchronised,
            bytes: &mut self.buffer,
        })
    }

    /// The number of the next answer of a session, if it may have one.
    fn admit(&mut self, from: SocketAddr, session: u16, now: Instant) -> Option<u32> {
        let Self { options: conduct, senders, sessions, .. } = self;
        let fresh = || ReflectorSender { last_seen: now, bucket: ReplyRateLimiter::default() };
        let sender = entry_evicting_oldest(
            senders,
            SENDERS_MAX,
            source_prefix(from.ip()),
            |sender: &ReflectorSender| sender.last_seen,
            fresh,
        );
        sender.last_seen = now;
        if !sender.bucket.admit(now, conduct.rate_per_sender)
            || !self.all.admit(now, conduct.rate_total)
        {
            return None;
        }
        let fresh = || ReflectorSession { answered: 0, last_seen: now };
        let heard = |session: &ReflectorSession| session.last_seen;
        let session = entry_evicting_oldest(sessions, SESSIONS_MAX, (from, session), heard, fresh);
        if now.saturating_since(session.last_seen) > IDLE {
            session.answered = 0;
        }
        session.last_seen = now;
        if session.answered >= conduct.replies_per_session {
            return None;
        }
        let number = session.answered;
        session.answered += 1;
        // A number begins anew after the greatest.
        u32::try_from(number & u64::from(u32::MAX)).ok()
    }
}

/// Answers what comes to a socket until told to stop.
///
/// # Errors
/// The kernel's, but for those that say what happened to an answer.
pub fn serve(
    socket: &UdpSocket,
    conduct: ReflectorOptions,
    stop: SyncStopCheck<'_>,
) -> io::Result<ReflectorCounts> {
    let fd = socket.as_fd();
    let local = socket.local_addr()?;
    let v6 = local.is_ipv6();
    for kind in [DatagramOption::ReceiveTimestamp, DatagramOption::Ttl, DatagramOption::PacketInfo]
    {
        enable_option(fd, v6, kind)?;
    }
    if v6 {
        // Of IPv4 senders, where the socket takes both.
        let _ = enable_option(fd, false, DatagramOption::Ttl);
        let _ = set_ttl(fd, false, u8::MAX);
    }
    set_ttl(fd, v6, u8::MAX)?;
    socket.set_read_timeout(Some(WAIT))?;
    let mut estimate = ErrorEstimate::here(conduct.format);
    let mut estimated = plumb_clock::now();
    let mut reflector = SessionReflector::new(conduct, local.port());
    let mut batch = ReceiveBatch::new(SLOTS, SLOT_BYTES);
    while !stop() {
        let came = match batch.receive(fd, true) {
            Ok(came) => came,
            Err(error) if is_transient_datagram(&error) => 0,
            Err(error) => return Err(error),
        };
        let now = plumb_clock::now();
        for index in 0..came {
            let arrival = batch.datagram(index);
            let Some(from) = arrival.from.filter(|_| !arrival.is_truncated) else { continue };
            let arrived = ReceivedTestPacket {
                bytes: arrival.bytes,
                from,
                at_unix_ns: arrival.received_ns.unwrap_or_else(|| read_ns(ClockId::Realtime)),
                ttl: arrival.ttl.unwrap_or(0),
            };
            let to = arrival.to.filter(|(ip, _)| is_unicast(*ip));
            let Some(draft) = reflector.handle(&arrived, estimate, now) else { continue };
            let answer = draft.finish(read_ns(ClockId::Realtime));
            if send_from(fd, answer, from, to).is_err() {
                reflector.counts.unsent += 1;
            }
        }
        if now.saturating_since(estimated) > ESTIMATE_AGE {
            estimate = ErrorEstimate::here(reflector.options.format);
            estimated = now;
        }
    }
    Ok(reflector.counts)
}

/// Nothing is sent from a group's address.
fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !(v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified()),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_unicast(v4.into()),
            None => !v6.is_multicast(),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HERE: ErrorEstimate =
        ErrorEstimate { synchronised: true, format: TimestampFormat::Ntp, scale: 0, multiplier: 1 };

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Span::from_secs(100) + Span::from_ms(ms)
    }

    /// Where the reflector is.
    const PORT: u16 = 8620;

    fn from(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn reflector(conduct: ReflectorOptions) -> SessionReflector {
        SessionReflector::new(conduct, PORT)
    }

    fn ask(reflector: &mut SessionReflector, bytes: &[u8], port: u16, ms: u64) -> Option<Vec<u8>> {
        ask_from(reflector, bytes, from(port), ms)
    }

    fn ask_from(
        reflector: &mut SessionReflector,
        bytes: &[u8],
        from: SocketAddr,
        ms: u64,
    ) -> Option<Vec<u8>> {
        let arrived = ReceivedTestPacket { bytes, from, at_unix_ns: 7_000_000_000, ttl: 61 };
        let draft = reflector.handle(&arrived, HERE, at(ms))?;
        Some(draft.finish(8_000_000_000).to_vec())
    }

    fn question(sequence: u32, session: u16) -> [u8; packet::UNAUTHENTICATED_LEN] {
        let mut bytes = [0; packet::UNAUTHENTICATED_LEN];
        StampQuestion { sequence, time: 99, error: 5, session }.write(None, &mut bytes);
        bytes
    }

    fn answer(bytes: &[u8]) -> StampAnswer {
        StampAnswer::read(None, bytes).unwrap().0
    }

    #[test]
    fn an_answer_carries_the_question_its_time_to_live_and_both_times() {
        let mut reflector = reflector(ReflectorOptions::default());
        let bytes = ask(&mut reflector, &question(40, 3), 5000, 0).unwrap();
        let answer = answer(&bytes);
        let asked = StampQuestion { sequence: 40, time: 99, error: 5, session: 3 };
        assert_eq!(answer.sender, asked);
        assert_eq!((answer.ttl, answer.sequence), (61, 0));
        let read = |bits| TimestampFormat::Ntp.read(bits);
        assert_eq!((read(answer.received), read(answer.time)), (7_000_000_000, 8_000_000_000));
        assert_eq!(answer.error, HERE.write());
        // TWAMP Light pads by any bytes.
        let mut padded = question(7, 0);
        padded[14..].fill(0xa5);
        assert!(ask(&mut reflector, &padded, 5000, 0).is_some());
    }

    #[test]
    fn a_stateful_one_numbers_each_session_and_a_stateless_one_copies() {
        let mut stateful = reflector(ReflectorOptions::default());
        let numbers = [(40, 3), (42, 3), (40, 4), (43, 3)].map(|(sequence, session)| {
            answer(&ask(&mut stateful, &question(sequence, session), 5000, 0).unwrap()).sequence
        });
        assert_eq!(numbers, [0, 1, 0, 2]);
        let silent = answer(&ask(&mut stateful, &question(44, 3), 5000, 61_000).unwrap());
        assert_eq!(silent.sequence, 0, "after a minute of silence it begins anew");
        let mut stateless =
            reflector(ReflectorOptions { stateful: false, ..ReflectorOptions::default() });
        let copied = answer(&ask(&mut stateless, &question(40, 3), 5000, 0).unwrap());
        assert_eq!(copied.sequence, 40);
    }

    #[test]
    fn nobody_is_answered_faster_than_the_rate_nor_all_together() {
        let (rate_per_sender, rate_total) = (100, 250);
        let mut reflector =
            reflector(ReflectorOptions { rate_per_sender, rate_total, ..Default::default() });
        let mut answered = [0; 4];
        for ms in 0..10_000_u16 {
            for host in 0..4_u8 {
                // Another port or session is still the same client.
                let from = SocketAddr::from(([192, 0, 2, host], 10_000 + ms));
                let reply = ask_from(&mut reflector, &question(0, ms), from, u64::from(ms));
                answered[usize::from(host)] += u32::from(reply.is_some());
            }
        }
        assert!(answered.iter().all(|&count| count <= 1011), "{answered:?}");
        let all: u32 = answered.iter().sum();
        assert!((2490..=2530).contains(&all), "{all}");
        assert_eq!(reflector.counts().answered + reflector.counts().limited, 40_000);
    }

    #[test]
    fn a_host_of_ipv6_has_one_rate_for_all_of_its_network() {
        let mut reflector =
            reflector(ReflectorOptions { rate_per_sender: 10, ..ReflectorOptions::default() });
        let mut answered = 0;
        for host in 1..1000_u16 {
            let ip = [0x2001, 0xdb8, 0, 7, 0, 0, 0, host];
            let reply = ask_from(&mut reflector, &question(0, 0), (ip, 5000).into(), 0);
            answered += u32::from(reply.is_some());
        }
        assert_eq!(answered, 2, "a tenth of a second's worth, and one");
        let next = SocketAddr::from(([0x2001, 0xdb8, 0, 8, 0, 0, 0, 1], 5000));
        assert!(ask_from(&mut reflector, &question(0, 0), next, 0).is_some());
        let (v4, mapped) = ("192.0.2.9:5000", "[::ffff:192.0.2.9]:5000");
        for from in [v4, mapped, mapped, v4] {
            ask_from(&mut reflector, &question(0, 0), from.parse().unwrap(), 0);
        }
        assert_eq!(reflector.counts().answered, 2 + 1 + 2);
    }

    #[test]
    fn what_a_reflector_answered_is_not_answered_in_either_mode() {
        for key in [None, Some(StampKey::new(b"key"))] {
            let conduct = ReflectorOptions { key: key.clone(), ..ReflectorOptions::default() };
            let (mut one, mut other) =
                (reflector(conduct.clone()), SessionReflector::new(conduct, 8621));
            let mut forged = vec![0; packet::len(key.as_ref())];
            StampQuestion { sequence: 1, ..StampQuestion::default() }
                .write(key.as_ref(), &mut forged);
            tlv::append(&mut forged, tlv::PADDING, &[0; 8]);
            let said = ask(&mut one, &forged, 8621, 0).expect("it is a question");
            assert_eq!(ask(&mut other, &said, PORT, 0), None);
            assert_eq!(other.counts(), ReflectorCounts { looped: 1, ..ReflectorCounts::default() });
        }
    }

    #[test]
    fn nothing_from_a_port_where_something_answers_is_answered() {
        let mut reflector = reflector(ReflectorOptions::default());
        for port in [PORT, super::super::PORT, 7, 19, 1023] {
            assert_eq!(ask(&mut reflector, &question(0, 0), port, 0), None, "{port}");
        }
        assert!(ask(&mut reflector, &question(0, 0), 1024, 0).is_some());
        assert_eq!((reflector.counts().looped, reflector.counts().answered), (5, 1));
    }

    #[test]
    fn a_session_without_a_pause_ends_after_its_answers() {
        let mut reflector =
            reflector(ReflectorOptions { replies_per_session: 3, ..ReflectorOptions::default() });
        let mut ask = |session, ms| ask(&mut reflector, &question(0, session), 5000, ms).is_some();
        let answered: Vec<_> = (0..5).map(|second| ask(1, second * 30_000)).collect();
        assert_eq!(answered, [true, true, true, false, false]);
        assert!(ask(2, 121_000), "another session of the same host is not meant");
        assert!(ask(1, 181_000), "after a minute of silence it begins anew");
    }

    #[test]
    fn memory_stays_bounded_however_many_ask() {
        let conduct = ReflectorOptions { rate_total: u32::MAX, ..ReflectorOptions::default() };
        let mut reflector = reflector(conduct);
        for host in 0..5000_u16 {
            let [high, low] = host.to_be_bytes();
            let from = SocketAddr::from(([10, 0, high, low], 10_000 + host));
            ask_from(&mut reflector, &question(0, 0), from, u64::from(host)).unwrap();
        }
        let kept = (reflector.sessions.len(), reflector.senders.len());
        assert_eq!(kept, (SESSIONS_MAX, SENDERS_MAX));
        assert!(reflector.sessions.keys().all(|(from, _)| from.port() >= 13_976));
    }

    #[test]
    fn a_wrong_key_or_the_other_mode_is_not_answered() {
        let key = StampKey::new(b"right");
        let conduct = ReflectorOptions { key: Some(key.clone()), ..ReflectorOptions::default() };
        let mut reflector = reflector(conduct);
        let mut sealed = [0; packet::AUTHENTICATED_LEN];
        StampQuestion::default().write(Some(&StampKey::new(b"wrong")), &mut sealed);
        assert_eq!(ask(&mut reflector, &sealed, 5000, 0), None);
        assert_eq!(ask(&mut reflector, &question(0, 0), 5000, 0), None);
        StampQuestion::default().write(Some(&key), &mut sealed);
        let bytes = ask(&mut reflector, &sealed, 5000, 0).unwrap();
        assert!(StampAnswer::read(Some(&key), &bytes).is_ok());
        let counts = reflector.counts();
        assert_eq!((counts.answered, counts.short, counts.unsealed), (1, 1, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_are_answered_by_more(
            bytes in prop::collection::vec(any::<u8>(), 0..300), sealed: bool, port: u16,
        ) {
            let key = sealed.then(|| StampKey::new(b"key"));
            let mut reflector =
                reflector(ReflectorOptions { key: key.clone(), ..ReflectorOptions::default() });
            let port = port.max(PORT_MIN);
            let port = if port == PORT { port + 1 } else { port };
            let reply = ask(&mut reflector, &bytes, port, 0);
            prop_assert!(reply.is_none_or(|reply| reply.len() == bytes.len()));
            // The same as a packet of the mode, with whatever follows.
            let mut whole = vec![0; packet::len(key.as_ref())];
            StampQuestion::default().write(key.as_ref(), &mut whole);
            whole.extend(&bytes);
            let reply = ask(&mut reflector, &whole, port, 0).expect("a right packet is answered");
            prop_assert_eq!(reply.len(), whole.len());
            prop_assert!(StampAnswer::read(key.as_ref(), &reply).is_ok());
        }
    }
}
