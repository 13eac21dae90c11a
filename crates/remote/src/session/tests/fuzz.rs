//! Millions of messages, whole and broken, into sessions in every state, in virtual time.
//!
//! A walk is an agent's and a client's session, each brought to a state, and then troubled: with messages of every
//! kind in any order, changed ones, cut ones, noise, and what the other one really says. Their drivers answer as it
//! comes. What is random comes from a seed, which a failure prints; `PLUMB_FUZZ_MESSAGES` says how many. Left out: sockets.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::seed::{RandomStream, Seed};
use plumb_clock::monotonic_ns;
use rand::{Rng as _, RngExt as _};

use super::*;
use crate::message::{HEADER_BYTES, MESSAGE_MAX};

/// How many messages unless told otherwise.
const MESSAGES: u64 = 1_000_000;
/// Most messages of one walk.
const WALK_MAX: u64 = 200;
/// Longest noise.
const NOISE_MAX: usize = 600;
/// Most bytes of one input: some messages with their copies.
const INPUT_MAX: usize = 8 << 10;
/// How long a session may go on when nothing more comes: the longest wait for a hello or for a word.
const SILENCE_MAX: Span = Span::from_secs(20);
/// All that a session can be doing.
const AGENT_STATE_COUNT: usize = 8;
const CLIENT_STATE_COUNT: usize = 9;
/// Kinds of messages, with the hello.
const KINDS: usize = 14;

/// A session with a driver that does one thing or another.
trait FuzzedSession: AnySession {
    /// Does what the session asks for; what it sends, and how often it closed.
    fn drive(&mut self, now: Instant, random: &mut RandomStream, sent: &mut Vec<Vec<u8>>) -> u32;
    /// What a driver may do at any time.
    fn disturb(&mut self, now: Instant, random: &mut RandomStream);
}

impl FuzzedSession for AgentSession {
    fn drive(&mut self, now: Instant, random: &mut RandomStream, sent: &mut Vec<Vec<u8>>) -> u32 {
        let mut closed = 0;
        while let Some(action) = self.poll_action() {
            match action {
                AgentAction::Send(bytes) => sent.push(bytes),
                AgentAction::Prepare { task, .. } => match random.random_range(0..4_u8) {
                    0 => {}
                    1 => self
                        .on_prepared(now, Err(TaskRefusal::TestLimit { running: 1, allowed: 1 })),
                    _ => self.on_prepared(now, Ok((ready(task), TIMES))),
                },
                AgentAction::Begin | AgentAction::Halt => {
                    if random.random() {
                        self.on_finished(now, Vec::new());
                    }
                }
                AgentAction::Fetch(_) => match random.random_range(0..3_u8) {
                    0 => self.on_report_lookup(now, ReportLookup::Missing),
                    1 => self.on_report_lookup(now, ReportLookup::Running),
                    _ => self.on_report_lookup(now, ReportLookup::Report(Vec::new())),
                },
                AgentAction::Forget | AgentAction::Abandon | AgentAction::Data(_) => {}
                AgentAction::Close(_) => closed += 1,
            }
        }
        closed
    }

    fn disturb(&mut self, now: Instant, random: &mut RandomStream) {
        match random.random_range(0..3_u8) {
            0 => self.on_finished(now, Vec::new()),
            1 => self.on_prepared(now, Ok((ready(1), TIMES))),
            _ => self.on_report_lookup(now, ReportLookup::Report(Vec::new())),
        }
    }
}

impl FuzzedSession for ClientSession {
    fn drive(&mut self, now: Instant, random: &mut RandomStream, sent: &mut Vec<Vec<u8>>) -> u32 {
        let mut closed = 0;
        while let Some(action) = self.poll_action() {
            match action {
                ClientAction::Send(bytes) => sent.push(bytes),
                ClientAction::Welcomed(_)
                | ClientAction::Reported(_)
                | ClientAction::Refused(_) => match random.random_range(0..8_u8) {
                    0 => self.disconnect(now),
                    1 | 2 => drop(self.fetch(now, TOKEN, Span::from_secs(5))),
                    3 => {}
                    _ => drop(self.request(now, request(), TIMES)),
                },
                ClientAction::Ready(_) => match random.random_range(0..4_u8) {
                    0 => {}
                    1 => drop(self.stop(now)),
                    _ => drop(self.start(now)),
                },
                ClientAction::Data(_) => {}
                ClientAction::Close(_) => closed += 1,
            }
        }
        closed
    }

    fn disturb(&mut self, now: Instant, random: &mut RandomStream) {
        match random.random_range(0..4_u8) {
            0 => drop(self.stop(now)),
            1 => drop(self.start(now)),
            2 => drop(self.fetch(now, TOKEN, Span::from_secs(5))),
            _ => drop(self.request(now, request(), TIMES)),
        }
    }
}

/// What was reached, by what a session was doing.
#[derive(Default)]
struct FuzzCoverage {
    doings: BTreeMap<&'static str, u64>,
    /// Whole messages by kind that came then.
    heard: BTreeSet<(&'static str, &'static str)>,
    ended: u64,
}

/// The kind of a frame that is whole and alone.
fn kind(bytes: &[u8]) -> Option<&'static str> {
    let (header, payload) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    if usize::try_from(u32::from_le_bytes(*header)).ok()? != payload.len() {
        return None;
    }
    if ProtocolHello::decode(payload).is_ok() {
        return Some("hello");
    }
    Message::decode(payload).map(|message| message.name())
}

/// Breaks a frame in one of the ways in which things break.
fn mutate(bytes: &mut Vec<u8>, random: &mut RandomStream) {
    let place = random.random_range(0..bytes.len());
    match random.random_range(0..7_u8) {
        0 => bytes[place] ^= 1 << random.random_range(0..8_u8),
        1 => bytes[place] = 0xff,
        2 => bytes.truncate(place + 1),
        3 => bytes.insert(place, random.random_range(0..=255_u8)),
        4 => {
            let again = bytes[place..].to_vec();
            bytes.extend_from_slice(&again);
        }
        5 => drop(bytes.drain(..place)),
        _ => {
            // A length that does not fit what follows.
            let len = random.next_u32() >> random.random_range(0..32_u8);
            bytes.splice(..HEADER_BYTES.min(bytes.len()), len.to_le_bytes());
        }
    }
}

/// The next input: whole, changed, cut, joined, or nothing that means anything.
fn input(frames: &[Vec<u8>], said: &mut Vec<Vec<u8>>, random: &mut RandomStream) -> Vec<u8> {
    let any = |random: &mut RandomStream| frames[random.random_range(0..frames.len())].clone();
    match random.random_range(0..16_u8) {
        0..=5 => said.pop().unwrap_or_else(|| any(random)),
        6..=9 => any(random),
        10..=12 => {
            let mut bytes = any(random);
            mutate(&mut bytes, random);
            bytes
        }
        13 => {
            let whole = any(random);
            whole[..random.random_range(1..=whole.len())].to_vec()
        }
        14 => [any(random), any(random)].concat(),
        _ => {
            let mut noise = vec![0; random.random_range(1..NOISE_MAX)];
            random.fill_bytes(&mut noise);
            noise
        }
    }
}

/// One side of a walk.
struct FuzzWalk<S> {
    side: S,
    closed: u32,
    heard_at: Instant,
    /// What it says, the last first.
    says: Vec<Vec<u8>>,
}

impl<S: FuzzedSession> FuzzWalk<S> {
    fn new(side: S) -> Self {
        Self { side, closed: 0, heard_at: at(0), says: Vec::new() }
    }

    fn take(
        &mut self,
        now: Instant,
        bytes: &[u8],
        random: &mut RandomStream,
        reached: &mut FuzzCoverage,
    ) {
        if self.side.is_over() {
            return;
        }
        let doing = self.side.activity();
        if self.side.pending_bytes() == 0
            && let Some(kind) = kind(bytes)
        {
            reached.heard.insert((doing, kind));
        }
        *reached.doings.entry(doing).or_default() += 1;
        self.heard_at = now;
        self.side.handle_bytes(now, bytes);
        self.settle(now, random);
        if random.random_range(0..16_u8) == 0 {
            self.side.disturb(now, random);
            self.settle(now, random);
        }
        if random.random_range(0..4_u8) == 0 {
            // Too early, mostly, which must not matter.
            self.side.handle_timeout(now);
            self.settle(now, random);
        }
        reached.ended += u64::from(self.side.is_over());
    }

    fn settle(&mut self, now: Instant, random: &mut RandomStream) {
        self.says.clear();
        self.closed += self.side.drive(now, random, &mut self.says);
        self.says.reverse();
        self.check();
    }

    fn check(&self) {
        let is_over = self.side.is_over();
        assert_eq!(self.closed, u32::from(is_over), "closed once, at the end");
        assert!(is_over || self.side.deadline() < Instant::NEVER, "{}", self.side.activity());
    }

    /// Nothing more comes: the session ends by itself, and soon.
    fn fall_silent(&mut self, random: &mut RandomStream) {
        let mut steps = 0;
        while !self.side.is_over() {
            let now = self.side.deadline();
            assert!(now <= self.heard_at + SILENCE_MAX, "{} at {now:?}", self.side.activity());
            self.side.handle_timeout(now);
            self.settle(now, random);
            steps += 1;
            assert!(steps < 1_000, "{} without an end", self.side.activity());
        }
    }
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn no_message_in_any_order_breaks_either_side() {
    let wanted = std::env::var("PLUMB_FUZZ_MESSAGES").ok().and_then(|n| n.parse().ok());
    let wanted: u64 = wanted.unwrap_or(MESSAGES);
    let seed = Seed(0x6e65_7473);
    let (mut random, began_ns) = (seed.stream("messages"), monotonic_ns());
    let mut frames: Vec<Vec<u8>> =
        messages().iter().map(|message| frame(&message.encode())).collect();
    frames.push(frame(&ProtocolHello::of_this_program("another").encode()));
    let agents: Vec<_> = (0..AGENT_STATES).map(agent_in).collect();
    let clients: Vec<_> = (0..CLIENT_STATES).map(client_in).collect();
    let (mut by_agent, mut by_client) = (FuzzCoverage::default(), FuzzCoverage::default());
    let (mut said, mut walks) = (0, 0_u64);
    while said < wanted {
        let agent = agents[random.random_range(0..agents.len())].clone();
        let client = clients[random.random_range(0..clients.len())].clone();
        let (mut agent, mut client) = (FuzzWalk::new(agent), FuzzWalk::new(client));
        walks += 1;
        let mut ms = 1;
        for _ in 0..WALK_MAX {
            if said >= wanted || (agent.side.is_over() && client.side.is_over()) {
                break;
            }
            ms += u64::from(random.random_range(0..50_u8));
            let now = at(ms);
            let to_agent = input(&frames, &mut client.says, &mut random);
            let to_client = input(&frames, &mut agent.says, &mut random);
            assert!(to_agent.len().max(to_client.len()) < INPUT_MAX);
            said += u64::from(!agent.side.is_over()) + u64::from(!client.side.is_over());
            agent.take(now, &to_agent, &mut random, &mut by_agent);
            client.take(now, &to_client, &mut random, &mut by_client);
            // However much was announced, no more is held than one message and what came with it.
            let held = agent.side.pending_bytes();
            assert!(held <= HEADER_BYTES + MESSAGE_MAX + INPUT_MAX, "{held}");
        }
        agent.fall_silent(&mut random);
        client.fall_silent(&mut random);
    }
    let seconds = Span::from_ns(monotonic_ns() - began_ns).as_secs_f64();
    println!(
        "{said} messages of {seed:?} in {walks} walks took {seconds:.1} s; they ended {} agent's and {} client's \
         sessions; the process held {} KiB at most",
        by_agent.ended,
        by_client.ended,
        peak_kib()
    );
    for (side, reached, doings) in
        [("agent", &by_agent, AGENT_STATE_COUNT), ("client", &by_client, CLIENT_STATE_COUNT)]
    {
        println!("{side}: {:?}", reached.doings);
        // All but the last, in which nothing is heard any more.
        assert_eq!(reached.doings.len(), doings - 1, "states of {seed:?}");
        assert_eq!(reached.heard.len(), (doings - 1) * KINDS, "{:?}", reached.heard);
        assert!(reached.ended > wanted / 100, "{said} messages of {seed:?}: {}", reached.ended);
    }
}
