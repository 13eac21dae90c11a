//! What must hold for whatever bytes come: of every parser, and of the server's session.
//!
//! Bytes are those of real conversations, changed: as likely to get deep as to be refused at once. The
//! number of rounds is `PLUMB_IPERF3_FUZZ`, some thousands where it is not set. Left out: sockets,
//! which `tests/iperf3/hostile.rs` attacks.

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::{Instant, Span};
use plumb_base::units::Rate;
use rand::{Rng, RngExt};
use serde_json::{Value, json};

use super::message::{Iperf3ErrorCode, Iperf3Message, RESULTS_MAX, decode_frame, encode_frame};
use super::parameters::{Iperf3Direction, Iperf3Parameters, Iperf3TestLength, Iperf3Transport};
use super::results::{Iperf3Results, Iperf3Totals};
use super::session::{Iperf3Action, Iperf3Limits, Iperf3Session, Iperf3State};
use super::stream::udp;

const SEED: Seed = Seed(0x1F3);

fn rounds() -> u32 {
    std::env::var("PLUMB_IPERF3_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000)
}

fn parameters(chance: &mut RandomStream) -> Iperf3Parameters {
    let directions = [Iperf3Direction::Forward, Iperf3Direction::Reverse, Iperf3Direction::Both];
    let extents = [
        Iperf3TestLength::Seconds(1),
        Iperf3TestLength::Bytes(1 << 20),
        Iperf3TestLength::Blocks(7),
    ];
    Iperf3Parameters {
        protocol: if chance.random_bool(0.5) { Iperf3Transport::Tcp } else { Iperf3Transport::Udp },
        direction: directions[chance.random_range(0..3)],
        length_limit: extents[chance.random_range(0..3)],
        streams: chance.random_range(1..=128),
        length: chance.random_range(16..=65_507),
        bitrate: Rate::from_bits_per_second(chance.random_range(0..1_000_000)),
        omit_seconds: chance.random_range(0..=600),
        window: chance.random_bool(0.3).then_some(1 << 16),
        congestion: chance.random_bool(0.3).then(|| "reno".to_owned()),
        server_report: chance.random_bool(0.3),
        wide_counters: chance.random_bool(0.5),
        ..Iperf3Parameters::default()
    }
}

fn results(chance: &mut RandomStream) -> Iperf3Results {
    let streams = (0..chance.random_range(0..5_usize)).map(|index| Iperf3Totals {
        id: super::stream_id(index),
        bytes: chance.next_u64() >> chance.random_range(12..64_u32),
        retransmits: chance.random_bool(0.5).then_some(3),
        packets: chance.random_range(0..1_000_000),
        ..Iperf3Totals::default()
    });
    Iperf3Results {
        streams: streams.collect(),
        has_retransmits: Some(true),
        ..Iperf3Results::default()
    }
}

/// Puts another value somewhere into JSON.
fn disturb(value: &mut Value, chance: &mut RandomStream) {
    let strange = [
        json!(null),
        json!(-1),
        json!(1e308),
        json!(u64::MAX),
        json!(0.5),
        json!("x"),
        json!([]),
        json!({"a": {}}),
        json!(true),
    ];
    let other = strange[chance.random_range(0..strange.len())].clone();
    match value {
        Value::Object(map) if !map.is_empty() && chance.random_bool(0.9) => {
            let index = chance.random_range(0..map.len());
            if let Some(member) = map.values_mut().nth(index) {
                disturb(member, chance);
            }
        }
        Value::Array(list) if !list.is_empty() && chance.random_bool(0.9) => {
            let index = chance.random_range(0..list.len());
            disturb(&mut list[index], chance);
        }
        place => *place = other,
    }
}

/// Changes some bytes, or drops, doubles or adds some.
fn mutate(bytes: &mut Vec<u8>, chance: &mut RandomStream) {
    for _ in 0..chance.random_range(1..4) {
        let at = chance.random_range(0..=bytes.len());
        match chance.random_range(0..4) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.random_range(0..8),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, chance.random_range(0..=255)),
            _ => bytes.extend_from_within(at..),
        }
    }
}

fn every_parser(bytes: &[u8]) {
    if let Ok(value) = decode_frame(bytes, "bytes") {
        any_value(&value);
    }
    for wide in [false, true] {
        if let Some(header) = udp::Iperf3Header::read(bytes, wide) {
            let mut copy = bytes.to_vec();
            header.write(&mut copy, wide);
            // Whole seconds may be in the microseconds, so only the number has one spelling.
            assert_eq!(udp::Iperf3Header::read(&copy, wide).map(|h| h.number), Some(header.number));
        }
    }
    udp::is_connect_reply(bytes);
    if let Some(numbers) = bytes.first_chunk() {
        let _ = Iperf3ErrorCode::from_bytes(*numbers).to_string();
    }
}

/// What is understood is written as it was understood.
fn any_value(value: &Value) {
    if let Ok(parameters) = Iperf3Parameters::of_json(value) {
        assert_eq!(parameters.check(), Ok(()));
        let again = Iperf3Parameters::of_json(&parameters.to_json()).unwrap();
        // Nobody's version is everybody's.
        assert_eq!(
            Iperf3Parameters { version: String::new(), ..again },
            Iperf3Parameters { version: String::new(), ..parameters }
        );
    }
    if let Ok(results) = Iperf3Results::of_json(value) {
        assert!(results.streams.len() <= 256);
        assert_eq!(
            Iperf3Results::of_json(&results.to_json()).unwrap().streams.len(),
            results.streams.len()
        );
    }
}

#[test]
fn no_parser_panics_and_what_is_understood_is_written_as_it_was() {
    let mut chance = SEED.stream("parsers");
    for _ in 0..rounds() {
        let mut value = if chance.random_bool(0.5) {
            parameters(&mut chance).to_json()
        } else {
            results(&mut chance).to_json()
        };
        for _ in 0..chance.random_range(0..3) {
            disturb(&mut value, &mut chance);
        }
        any_value(&value);
        let mut bytes = encode_frame(&value);
        bytes.drain(..4);
        mutate(&mut bytes, &mut chance);
        every_parser(&bytes);
    }
}

/// A driver that does what the session says, or fails at it, and watches its promises.
struct FuzzSessionDriver<'a> {
    session: Iperf3Session,
    chance: &'a mut RandomStream,
    now: Instant,
    ended: bool,
}

impl FuzzSessionDriver<'_> {
    fn settle(&mut self) {
        while let Some(action) = self.session.poll_action() {
            assert!(!self.ended, "{action:?} after the end");
            match action {
                Iperf3Action::AcceptStreams(_) => {
                    self.session.accepting_streams();
                    if self.chance.random_bool(0.8) {
                        self.session.streams_ready(self.now);
                    } else if self.chance.random_bool(0.5) {
                        self.session
                            .fail_driver("no more sockets".to_owned(), Iperf3ErrorCode::STREAM);
                    }
                }
                Iperf3Action::Drain(_) => {
                    if self.chance.random_bool(0.9) {
                        self.session.finished(self.now, &Iperf3Results::default());
                    }
                }
                Iperf3Action::End(_) => self.ended = true,
                Iperf3Action::Send(_) | Iperf3Action::Start | Iperf3Action::Stop => {}
            }
        }
        let over = self.session.stage() == Iperf3State::Ended;
        assert_eq!(over, self.ended);
        assert_eq!(self.session.deadline() == Instant::NEVER, over, "a state without a deadline");
        assert!(self.session.buffered() <= RESULTS_MAX + 4 + 4096, "{}", self.session.buffered());
    }
}

#[test]
fn no_conversation_however_disturbed_leaves_a_session_without_an_end() {
    let mut chance = SEED.stream("sessions");
    let mut deep = 0;
    for _ in 0..rounds() {
        let mut said = Vec::new();
        for message in [
            encode_frame(&parameters(&mut chance).to_json()),
            vec![Iperf3Message::TestEnd.byte()],
            encode_frame(&results(&mut chance).to_json()),
            vec![Iperf3Message::Done.byte()],
        ] {
            let mut message = message;
            if chance.random_bool(0.15) {
                mutate(&mut message, &mut chance);
            }
            said.push(message);
        }
        let session = Iperf3Session::begin(Instant::ORIGIN, Iperf3Limits::default());
        let now = Instant::ORIGIN;
        let mut driver = FuzzSessionDriver { session, chance: &mut chance, now, ended: false };
        driver.settle();
        let mut rest: &[u8] = &[];
        let mut said = said.iter();
        while !driver.ended {
            // A client waits for the answer before it goes on, however its message is cut.
            if rest.is_empty() {
                let Some(message) = said.next() else { break };
                rest = message;
            }
            let len = driver.chance.random_range(rest.len().min(1)..=rest.len().min(4096));
            let (bytes, after) = rest.split_at(len);
            rest = after;
            driver.now += Span::from_ms(driver.chance.random_range(0..2_000));
            let now = driver.now;
            match driver.chance.random_range(0..60) {
                0 => driver.session.timeout(now),
                1 => driver.session.close(now),
                2 => driver.session.terminate(),
                3 => driver.session.streams_ready(now),
                4 => driver.session.finished(now, &Iperf3Results::default()),
                _ => driver.session.receive(now, bytes),
            }
            driver.settle();
        }
        deep += u32::from(driver.ended && said.next().is_none());
        // It waits no longer than its deadline.
        let deadline = driver.session.deadline();
        driver.session.timeout(deadline);
        driver.settle();
        assert!(driver.ended, "{SEED:?}: {:?}", driver.session.stage());
    }
    assert!(deep > rounds() / 10, "{deep} conversations came to their end");
}
