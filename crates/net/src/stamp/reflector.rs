//! The session-reflector: answers each question by one datagram of the same length, to where it came from, or not
//! at all.
//!
//! [`Reflector`] is pure: what to answer, and whether, at a rate that is limited for each sender and for all
//! of them; its table of senders is bounded, and the one unheard for longest gives way. A stateful one numbers
//! its answers for each session, which tells the sender in which direction a datagram was lost. [`serve`] drives it
//! over a socket with the kernel's times of reception. Left out: whom to listen to, which is the caller's socket.

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
use crate::measure::datagram::meeting::is_passing;

/// Sessions that are told apart at once.
const SESSIONS_MAX: usize = 1024;
/// A session that was silent for so long begins anew.
const IDLE: Span = Span::from_secs(60);
/// Datagrams of one call.
const SLOTS: usize = 32;
const SLOT_BYTES: usize = 65_536;
/// How long one call waits at most, so that a stop is seen.
const WAIT: Duration = Duration::from_millis(50);
/// How old what the kernel says about its clock may be.
const ESTIMATE_AGE_NS: u64 = 1_000_000_000;

/// How a reflector answers.
#[derive(Clone, Debug)]
pub struct Conduct {
    /// Whether answers have numbers of their own.
    pub stateful: bool,
    /// The key of the authenticated mode; without one, the open mode.
    pub key: Option<Key>,
    /// How its times are written.
    pub format: Format,
    /// Answers a second for each sender.
    pub rate_each: u32,
    /// Answers a second in all.
    pub rate_all: u32,
}

impl Default for Conduct {
    fn default() -> Self {
        Self { stateful: true, key: None, format: Format::Ntp, rate_each: 10_000, rate_all: 50_000 }
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
    /// Above the rate.
    pub limited: u64,
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
    answered: u32,
    heard: Instant,
    bucket: Bucket,
}

/// Decides what is answered.
#[derive(Debug)]
pub struct Reflector {
    conduct: Conduct,
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
    /// One that has answered nothing.
    pub fn new(conduct: Conduct) -> Self {
        Self {
            conduct,
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
        let place = (from, session);
        if !self.sessions.contains_key(&place) && self.sessions.len() >= SESSIONS_MAX {
            let oldest = self.sessions.iter().min_by_key(|(_, session)| session.heard);
            let oldest = oldest.map(|(&place, _)| place)?;
            self.sessions.remove(&oldest);
        }
        let fresh = || Session { answered: 0, heard: now, bucket: Bucket::default() };
        let session = self.sessions.entry(place).or_insert_with(fresh);
        if now.saturating_since(session.heard) > IDLE {
            session.answered = 0;
        }
        session.heard = now;
        if !session.bucket.take(now, self.conduct.rate_each)
            || !self.all.take(now, self.conduct.rate_all)
        {
            return None;
        }
        let number = session.answered;
        session.answered = session.answered.wrapping_add(1);
        Some(number)
    }
}

/// Answers what comes to a socket until told to stop.
///
/// # Errors
/// The kernel's, but for those that say what became of an answer.
pub fn serve(socket: &UdpSocket, conduct: Conduct, stop: Stop<'_>) -> io::Result<Counts> {
    let fd = socket.as_fd();
    let v6 = socket.local_addr()?.is_ipv6();
    for kind in [Notice::Time, Notice::Ttl, Notice::Destination] {
        notice(fd, v6, kind)?;
    }
    if v6 {
        // Of IPv4 senders, where the socket takes both.
        let _ = notice(fd, false, Notice::Ttl);
    }
    set_ttl(fd, v6, u8::MAX)?;
    socket.set_read_timeout(Some(WAIT))?;
    let mut estimate = ErrorEstimate::here(conduct.format);
    let mut estimated_ns = read_ns(Clock::MonotonicRaw);
    let mut reflector = Reflector::new(conduct);
    let mut batch = ReceiveBatch::new(SLOTS, SLOT_BYTES);
    while !stop() {
        let came = match batch.receive(fd, true) {
            Ok(came) => came,
            Err(error) if is_passing(&error) => 0,
            Err(error) => return Err(error),
        };
        let now_ns = read_ns(Clock::MonotonicRaw);
        let now = Instant::after_origin(Span::from_ns(now_ns));
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
        if now_ns.saturating_sub(estimated_ns) > ESTIMATE_AGE_NS {
            estimate = ErrorEstimate::here(reflector.conduct.format);
            estimated_ns = now_ns;
        }
    }
    Ok(reflector.counts)
}

/// Nothing is sent from a group's address, nor from one of IPv4 in a socket of IPv6.
fn answers_from(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !(v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified()),
        IpAddr::V6(v6) => !v6.is_multicast() && v6.to_ipv4_mapped().is_none(),
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

    fn from(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn ask(reflector: &mut Reflector, bytes: &[u8], port: u16, ms: u64) -> Option<Vec<u8>> {
        let arrived = Arrived { bytes, from: from(port), at_unix_ns: 7_000_000_000, ttl: 61 };
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
        let mut reflector = Reflector::new(Conduct::default());
        let bytes = ask(&mut reflector, &question(40, 3), 1000, 0).unwrap();
        let answer = answer(&bytes);
        assert_eq!(answer.question, Question { sequence: 40, time: 99, error: 5, session: 3 });
        assert_eq!((answer.ttl, answer.sequence), (61, 0));
        let read = |bits| Format::Ntp.read(bits);
        assert_eq!((read(answer.received), read(answer.time)), (7_000_000_000, 8_000_000_000));
        assert_eq!(answer.error, HERE.write());
    }

    #[test]
    fn a_stateful_one_numbers_each_session_and_a_stateless_one_copies() {
        let mut stateful = Reflector::new(Conduct::default());
        let numbers = [(40, 3), (42, 3), (40, 4), (43, 3)].map(|(sequence, session)| {
            answer(&ask(&mut stateful, &question(sequence, session), 1, 0).unwrap()).sequence
        });
        assert_eq!(numbers, [0, 1, 0, 2]);
        let silent = answer(&ask(&mut stateful, &question(44, 3), 1, 61_000).unwrap());
        assert_eq!(silent.sequence, 0, "after a minute of silence it begins anew");
        let mut stateless = Reflector::new(Conduct { stateful: false, ..Conduct::default() });
        let copied = answer(&ask(&mut stateless, &question(40, 3), 1, 0).unwrap());
        assert_eq!(copied.sequence, 40);
    }

    #[test]
    fn nobody_is_answered_faster_than_the_rate_nor_all_together() {
        let conduct = Conduct { rate_each: 100, rate_all: 250, ..Conduct::default() };
        let mut reflector = Reflector::new(conduct);
        let mut answered = [0; 4];
        for ms in 0..10_000 {
            for port in 0..4_u16 {
                let reply = ask(&mut reflector, &question(0, 0), port, ms);
                answered[usize::from(port)] += u32::from(reply.is_some());
            }
        }
        assert!(answered.iter().all(|&count| count <= 1011), "{answered:?}");
        let all: u32 = answered.iter().sum();
        assert!((2490..=2530).contains(&all), "{all}");
        assert_eq!(reflector.counts().answered + reflector.counts().limited, 40_000);
    }

    #[test]
    fn memory_stays_bounded_however_many_ask() {
        let conduct = Conduct { rate_all: u32::MAX, ..Conduct::default() };
        let mut reflector = Reflector::new(conduct);
        for port in 0..5000 {
            ask(&mut reflector, &question(0, 0), port, u64::from(port)).unwrap();
        }
        assert_eq!(reflector.sessions.len(), SESSIONS_MAX);
        assert!(reflector.sessions.keys().all(|(from, _)| from.port() >= 3976));
    }

    #[test]
    fn a_wrong_key_or_the_other_mode_is_not_answered() {
        let key = Key::new(b"right");
        let conduct = Conduct { key: Some(key.clone()), ..Conduct::default() };
        let mut reflector = Reflector::new(conduct);
        let mut sealed = [0; packet::SEALED_LEN];
        Question::default().write(Some(&Key::new(b"wrong")), &mut sealed);
        assert_eq!(ask(&mut reflector, &sealed, 1, 0), None);
        assert_eq!(ask(&mut reflector, &question(0, 0), 1, 0), None);
        Question::default().write(Some(&key), &mut sealed);
        let bytes = ask(&mut reflector, &sealed, 1, 0).unwrap();
        assert!(Answer::read(Some(&key), &bytes).is_ok());
        let counts = reflector.counts();
        assert_eq!((counts.answered, counts.short, counts.unsealed), (1, 1, 1));
    }

    /// What a fuzzer calls: any bytes are answered by as many, or not at all, and never crash.
    fn fuzz(bytes: &[u8], sealed: bool, port: u16) {
        let key = sealed.then(|| Key::new(b"key"));
        let mut reflector = Reflector::new(Conduct { key: key.clone(), ..Conduct::default() });
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
