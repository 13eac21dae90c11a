//! The session-reflector: answers each question by one datagram of the same length, to where it came from, or not
//! at all.
//!
//! [`Reflector`] is pure: what to answer, and whether. The rate is limited for each sender, known by its address
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
use plumb_sys::clock::{Clock, read_ns};
use plumb_sys::datagram::{Notice, ReceiveBatch, notice, send_from, set_ttl};
use serde::{Deserialize, Serialize};

use super::packet::{self, Answer, Malformed, Question};
use super::seal::Key;
use super::sender::Stop;
use super::timestamp::{ErrorEstimate, Format};
use super::tlv;
use crate::clock;
use crate::measure::datagram::meeting::is_passing;
use crate::origin::origin;

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
pub struct Conduct {
    /// Whether answers have numbers of their own.
    pub stateful: bool,
    /// The key of the authenticated mode; without one, the open mode.
    pub key: Option<Key>,
    /// How its times are written.
    pub format: Format,
    /// Answers a second for each sender: an address of IPv4, or 64 bits of one of IPv6.
    pub rate_each: u32,
    /// Answers a second in all.
    pub rate_all: u32,
    /// Answers of a session that is never silent for a minute.
    pub session_max: u64,
}

impl Default for Conduct {
    fn default() -> Self {
        Self {
            stateful: true,
            key: None,
            format: Format::Ntp,
            rate_each: 10_000,
            rate_all: 50_000,
            session_max: 100_000_000,
        }
    }
}

/// What became of the questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Answered.
    pub answered: u64,
    /// Too short to be of this mode.
    pub short: u64,
    /// Not sealed with this key.
    pub unsealed: u64,
    /// Above the rate, or what a session may have.
    pub limited: u64,
    /// Answers of another reflector, or from a port where one is.
    pub looped: u64,
    /// Answers that the kernel did not take.
    pub unsent: u64,
}

/// A question as it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
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
struct Bucket {
    full_at: Instant,
}

impl Bucket {
    /// Takes one answer of a tenth of a second's worth, if there is one.
    fn take(&mut self, now: Instant, rate: u32) -> bool {
        let each = Span::from_secs(1) / u64::from(rate.max(1));
        let depth = Span::from_ms(100) + each;
        let full_at = self.full_at.max(now) + each;
        if full_at.saturating_since(now) > depth {
            return false;
        }
        self.full_at = full_at;
        true
    }
}

#[derive(Debug)]
struct Session {
    answered: u64,
    heard: Instant,
}

#[derive(Debug)]
struct Sender {
    heard: Instant,
    bucket: Bucket,
}

/// The entry of a bounded table, if need be in the place of the one that was not heard for longest.
fn entry<K: Ord + Copy, V>(
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
pub struct Reflector {
    conduct: Conduct,
    /// Its own port.
    port: u16,
    senders: BTreeMap<IpAddr, Sender>,
    sessions: BTreeMap<(SocketAddr, u16), Session>,
    all: Bucket,
    counts: Counts,
    buffer: Vec<u8>,
}

/// An answer that wants but the time at which it leaves.
#[derive(Debug)]
pub struct Draft<'a> {
    answer: Answer,
    asked: [u8; 4],
    key: Option<&'a Key>,
    format: Format,
    synchronised: bool,
    bytes: &'a mut [u8],
}

impl<'a> Draft<'a> {
    /// The answer as it leaves now.
    pub fn finish(mut self, unix_ns: u64) -> &'a [u8] {
        self.answer.time = self.format.write(unix_ns);
        self.answer.write(self.key, self.bytes);
        let tlvs = &mut self.bytes[packet::len(self.key)..];
        if !tlvs.is_empty() {
            let answered = self.answer.sequence.to_be_bytes();
            tlv::answer(tlvs, self.key, self.asked, answered, self.synchronised);
        }
        self.bytes
    }
}

impl Reflector {
    /// One at a port, that has answered nothing.
    pub fn new(conduct: Conduct, port: u16) -> Self {
        Self {
            conduct,
            port,
            senders: BTreeMap::new(),
            sessions: BTreeMap::new(),
            all: Bucket::default(),
            counts: Counts::default(),
            buffer: Vec::with_capacity(SLOT_BYTES),
        }
    }

    /// What became of the questions so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The answer to a question, if it is answered.
    pub fn handle(
        &mut self,
        arrived: &Arrived<'_>,
        estimate: ErrorEstimate,
        now: Instant,
    ) -> Option<Draft<'_>> {
        let key = self.conduct.key.as_ref();
        let question = match Question::read(key, arrived.bytes) {
            Ok((question, _)) => question,
            Err(Malformed::Short { .. }) => {
                self.counts.short += 1;
                return None;
            }
            Err(Malformed::Unsealed) => {
                self.counts.unsealed += 1;
                return None;
            }
        };
        let port = arrived.from.port();
        if port == self.port || port < PORT_MIN || packet::is_answer(key, arrived.bytes) {
            self.counts.looped += 1;
            return None;
        }
        let Some(number) = self.admit(arrived.from, question.session, now) else {
            self.counts.limited += 1;
            return None;
        };
        self.counts.answered += 1;
        let answer = Answer {
            sequence: if self.conduct.stateful { number } else { question.sequence },
            time: 0,
            error: estimate.write(),
            received: self.conduct.format.write(arrived.at_unix_ns),
            question,
            ttl: arrived.ttl,
        };
        self.buffer.clear();
        self.buffer.extend_from_slice(arrived.bytes);
        Some(Draft {
            answer,
            asked: question.sequence.to_be_bytes(),
            key: self.conduct.key.as_ref(),
            format: self.conduct.format,
            synchronised: estimate.synchronised,
            bytes: &mut self.buffer,
        })
    }

    /// The number of the next answer of a session, if it may have one.
    fn admit(&mut self, from: SocketAddr, session: u16, now: Instant) -> Option<u32> {
        let Self { conduct, senders, sessions, .. } = self;
        let fresh = || Sender { heard: now, bucket: Bucket::default() };
        let sender =
            entry(senders, SENDERS_MAX, origin(from.ip()), |sender: &Sender| sender.heard, fresh);
        sender.heard = now;
        if !sender.bucket.take(now, conduct.rate_each) || !self.all.take(now, conduct.rate_all) {
            return None;
        }
        let fresh = || Session { answered: 0, heard: now };
        let heard = |session: &Session| session.heard;
        let session = entry(sessions, SESSIONS_MAX, (from, session), heard, fresh);
        if now.saturating_since(session.heard) > IDLE {
            session.answered = 0;
        }
        session.heard = now;
        if session.answered >= conduct.session_max {
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
/// The kernel's, but for those that say what became of an answer.
pub fn serve(socket: &UdpSocket, conduct: Conduct, stop: Stop<'_>) -> io::Result<Counts> {
    let fd = socket.as_fd();
    let local = socket.local_addr()?;
    let v6 = local.is_ipv6();
    for kind in [Notice::Time, Notice::Ttl, Notice::Destination] {
        notice(fd, v6, kind)?;
    }
    if v6 {
        // Of IPv4 senders, where the socket takes both.
        let _ = notice(fd, false, Notice::Ttl);
        let _ = set_ttl(fd, false, u8::MAX);
    }
    set_ttl(fd, v6, u8::MAX)?;
    socket.set_read_timeout(Some(WAIT))?;
    let mut estimate = ErrorEstimate::here(conduct.format);
    let mut estimated = clock::now();
    let mut reflector = Reflector::new(conduct, local.port());
    let mut batch = ReceiveBatch::new(SLOTS, SLOT_BYTES);
    while !stop() {
        let came = match batch.receive(fd, true) {
            Ok(came) => came,
            Err(error) if is_passing(&error) => 0,
            Err(error) => return Err(error),
        };
        let now = clock::now();
        for index in 0..came {
            let arrival = batch.arrival(index);
            let Some(from) = arrival.from.filter(|_| !arrival.cut_off) else { continue };
            let arrived = Arrived {
                bytes: arrival.bytes,
                from,
                at_unix_ns: arrival.at_ns.unwrap_or_else(|| read_ns(Clock::Realtime)),
                ttl: arrival.ttl.unwrap_or(0),
            };
            let to = arrival.to.filter(|(ip, _)| answers_from(*ip));
            let Some(draft) = reflector.handle(&arrived, estimate, now) else { continue };
            let answer = draft.finish(read_ns(Clock::Realtime));
            if send_from(fd, answer, from, to).is_err() {
                reflector.counts.unsent += 1;
            }
        }
        if now.saturating_since(estimated) > ESTIMATE_AGE {
            estimate = ErrorEstimate::here(reflector.conduct.format);
            estimated = now;
        }
    }
    Ok(reflector.counts)
}

/// Nothing is sent from a group's address.
fn answers_from(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !(v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified()),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => answers_from(v4.into()),
            None => !v6.is_multicast(),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HERE: ErrorEstimate =
        ErrorEstimate { synchronised: true, format: Format::Ntp, scale: 0, multiplier: 1 };

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Span::from_secs(100) + Span::from_ms(ms)
    }

    /// Where the reflector is.
    const PORT: u16 = 8620;

    fn from(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn reflector(conduct: Conduct) -> Reflector {
        Reflector::new(conduct, PORT)
    }

    fn ask(reflector: &mut Reflector, bytes: &[u8], port: u16, ms: u64) -> Option<Vec<u8>> {
        ask_from(reflector, bytes, from(port), ms)
    }

    fn ask_from(
        reflector: &mut Reflector,
        bytes: &[u8],
        from: SocketAddr,
        ms: u64,
    ) -> Option<Vec<u8>> {
        let arrived = Arrived { bytes, from, at_unix_ns: 7_000_000_000, ttl: 61 };
        let draft = reflector.handle(&arrived, HERE, at(ms))?;
        Some(draft.finish(8_000_000_000).to_vec())
    }

    fn question(sequence: u32, session: u16) -> [u8; packet::OPEN_LEN] {
        let mut bytes = [0; packet::OPEN_LEN];
        Question { sequence, time: 99, error: 5, session }.write(None, &mut bytes);
        bytes
    }

    fn answer(bytes: &[u8]) -> Answer {
        Answer::read(None, bytes).unwrap().0
    }

    #[test]
    fn an_answer_carries_the_question_its_time_to_live_and_both_times() {
        let mut reflector = reflector(Conduct::default());
        let bytes = ask(&mut reflector, &question(40, 3), 5000, 0).unwrap();
        let answer = answer(&bytes);
        assert_eq!(answer.question, Question { sequence: 40, time: 99, error: 5, session: 3 });
        assert_eq!((answer.ttl, answer.sequence), (61, 0));
        let read = |bits| Format::Ntp.read(bits);
        assert_eq!((read(answer.received), read(answer.time)), (7_000_000_000, 8_000_000_000));
        assert_eq!(answer.error, HERE.write());
    }

    #[test]
    fn a_stateful_one_numbers_each_session_and_a_stateless_one_copies() {
        let mut stateful = reflector(Conduct::default());
        let numbers = [(40, 3), (42, 3), (40, 4), (43, 3)].map(|(sequence, session)| {
            answer(&ask(&mut stateful, &question(sequence, session), 5000, 0).unwrap()).sequence
        });
        assert_eq!(numbers, [0, 1, 0, 2]);
        let silent = answer(&ask(&mut stateful, &question(44, 3), 5000, 61_000).unwrap());
        assert_eq!(silent.sequence, 0, "after a minute of silence it begins anew");
        let mut stateless = reflector(Conduct { stateful: false, ..Conduct::default() });
        let copied = answer(&ask(&mut stateless, &question(40, 3), 5000, 0).unwrap());
        assert_eq!(copied.sequence, 40);
    }

    #[test]
    fn nobody_is_answered_faster_than_the_rate_nor_all_together() {
        let conduct = Conduct { rate_each: 100, rate_all: 250, ..Conduct::default() };
        let mut reflector = reflector(conduct);
        let mut answered = [0; 4];
        for ms in 0..10_000_u16 {
            for host in 0..4_u8 {
                // Whoever changes port and session is the same for all that.
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
        let mut reflector = reflector(Conduct { rate_each: 10, ..Conduct::default() });
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
        for key in [None, Some(Key::new(b"key"))] {
            let conduct = Conduct { key: key.clone(), ..Conduct::default() };
            let (mut one, mut other) = (reflector(conduct.clone()), Reflector::new(conduct, 8621));
            let mut forged = vec![0; packet::len(key.as_ref())];
            Question { sequence: 1, ..Question::default() }.write(key.as_ref(), &mut forged);
            tlv::append(&mut forged, tlv::PADDING, &[0; 8]);
            let said = ask(&mut one, &forged, 8621, 0).expect("it is a question");
            assert_eq!(ask(&mut other, &said, PORT, 0), None);
            assert_eq!(other.counts(), Counts { looped: 1, ..Counts::default() });
        }
    }

    #[test]
    fn nothing_from_a_port_where_something_answers_is_answered() {
        let mut reflector = reflector(Conduct::default());
        for port in [PORT, super::super::PORT, 7, 19, 1023] {
            assert_eq!(ask(&mut reflector, &question(0, 0), port, 0), None, "{port}");
        }
        assert!(ask(&mut reflector, &question(0, 0), 1024, 0).is_some());
        assert_eq!((reflector.counts().looped, reflector.counts().answered), (5, 1));
    }

    #[test]
    fn a_sender_that_pads_as_twamp_light_does_is_answered() {
        let mut reflector = reflector(Conduct::default());
        let mut bytes = question(7, 0);
        bytes[14..].fill(0xa5);
        assert!(ask(&mut reflector, &bytes, 5000, 0).is_some());
    }

    #[test]
    fn a_session_without_a_pause_ends_after_its_answers() {
        let mut reflector = reflector(Conduct { session_max: 3, ..Conduct::default() });
        let mut ask = |session, ms| ask(&mut reflector, &question(0, session), 5000, ms).is_some();
        let answered: Vec<_> = (0..5).map(|second| ask(1, second * 30_000)).collect();
        assert_eq!(answered, [true, true, true, false, false]);
        assert!(ask(2, 121_000), "another session of the same host is not meant");
        assert!(ask(1, 181_000), "after a minute of silence it begins anew");
    }

    #[test]
    fn memory_stays_bounded_however_many_ask() {
        let conduct = Conduct { rate_all: u32::MAX, ..Conduct::default() };
        let mut reflector = reflector(conduct);
        for host in 0..5000_u16 {
            let [high, low] = host.to_be_bytes();
            let from = SocketAddr::from(([10, 0, high, low], 10_000 + host));
            ask_from(&mut reflector, &question(0, 0), from, u64::from(host)).unwrap();
        }
        assert_eq!(
            (reflector.sessions.len(), reflector.senders.len()),
            (SESSIONS_MAX, SENDERS_MAX)
        );
        assert!(reflector.sessions.keys().all(|(from, _)| from.port() >= 13_976));
    }

    #[test]
    fn a_wrong_key_or_the_other_mode_is_not_answered() {
        let key = Key::new(b"right");
        let conduct = Conduct { key: Some(key.clone()), ..Conduct::default() };
        let mut reflector = reflector(conduct);
        let mut sealed = [0; packet::SEALED_LEN];
        Question::default().write(Some(&Key::new(b"wrong")), &mut sealed);
        assert_eq!(ask(&mut reflector, &sealed, 5000, 0), None);
        assert_eq!(ask(&mut reflector, &question(0, 0), 5000, 0), None);
        Question::default().write(Some(&key), &mut sealed);
        let bytes = ask(&mut reflector, &sealed, 5000, 0).unwrap();
        assert!(Answer::read(Some(&key), &bytes).is_ok());
        let counts = reflector.counts();
        assert_eq!((counts.answered, counts.short, counts.unsealed), (1, 1, 1));
    }

    /// What a fuzzer calls: any bytes are answered by as many, or not at all, and never crash.
    fn fuzz(bytes: &[u8], sealed: bool, port: u16) {
        let key = sealed.then(|| Key::new(b"key"));
        let mut reflector = reflector(Conduct { key: key.clone(), ..Conduct::default() });
        let port = port.max(PORT_MIN);
        let port = if port == PORT { port + 1 } else { port };
        let reply = ask(&mut reflector, bytes, port, 0);
        assert!(reply.is_none_or(|reply| reply.len() == bytes.len()));
        // The same as a packet of the mode, with whatever follows.
        let mut whole = vec![0; packet::len(key.as_ref())];
        Question::default().write(key.as_ref(), &mut whole);
        whole.extend(bytes);
        let reply = ask(&mut reflector, &whole, port, 0).expect("a right packet is answered");
        assert_eq!(reply.len(), whole.len());
        Answer::read(key.as_ref(), &reply).expect("an answer is a right packet");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_are_answered_by_more(
            bytes in prop::collection::vec(any::<u8>(), 0..300), sealed: bool, port: u16,
        ) {
            fuzz(&bytes, sealed, port);
        }
    }
}
