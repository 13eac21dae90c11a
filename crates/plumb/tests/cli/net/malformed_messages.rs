//! Messages of every kind, changed ones and noise, at a real agent over sockets and standard streams: it stays as it is.
//!
//! `PLUMB_NOISE_MESSAGES` says how many messages each way; the seed is printed.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plumb_base::seed::{RandomStream, Seed};
use plumb_clock::monotonic_ns;
use plumb_net::measure::test_spec::{PartSpec, ProbesSpec, TestSpec};
use plumb_remote::datagram_header::TestToken;
use plumb_remote::message::{
    Message, ProtocolHello, ReadyMessage, TaskRefusal, WelcomeMessage, frame,
};
use rand::{Rng as _, RngExt as _};

use super::agent_process::{AgentProcess, ProcessResources, request};
use crate::support::{PLUMB, wait_for};

/// How many messages unless told otherwise.
const MESSAGES: u64 = 2_000;
/// Most messages of one session before the one that ends it.
const LEGAL_MAX: u64 = 40;
/// By how much the memory of an agent may grow from a tenth of the messages to the last: what threads leave behind.
const GROWTH_MAX_KIB: u64 = 8 << 10;

fn wanted() -> u64 {
    std::env::var("PLUMB_NOISE_MESSAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(MESSAGES)
}

/// A test of a moment.
fn spec() -> TestSpec {
    TestSpec {
        warm_up_ns: 0,
        duration_ns: 20_000_000,
        interval_ns: 10_000_000,
        drain_ns: 10_000_000,
        parts: vec![PartSpec::Probes(ProbesSpec { per_second: 100, datagram_bytes: 64 })],
    }
}

/// Frames of every kind of message, with and without sense.
fn frames() -> Vec<Vec<u8>> {
    let token = TestToken([7; 16]);
    let ready = ReadyMessage { task: 1, token, payload: vec![9] };
    let messages = [
        Message::Welcome(WelcomeMessage::default()),
        Message::Request { task: 1, request: request(&spec()) },
        Message::Request { task: 2, request: request(&TestSpec { duration_ns: 0, ..spec() }) },
        Message::Request {
            task: 3,
            request: request(&TestSpec { duration_ns: u64::MAX, ..spec() }),
        },
        Message::Ready(ready),
        Message::Start { task: 1 },
        Message::Stop { task: 1 },
        Message::Report { task: 1, payload: Vec::new() },
        Message::Received { task: 1 },
        Message::Fetch { token },
        Message::Refused(TaskRefusal::NoReport),
        Message::Ping(3),
        Message::Pong(3),
        Message::Bye,
        Message::Data { task: 1, payload: vec![3] },
    ];
    let hello = frame(&ProtocolHello::of_this_program("noise").encode());
    messages.iter().map(|message| frame(&message.encode())).chain([hello]).collect()
}

/// Something that comes wrong: a frame at the wrong time, a changed or a cut one, or noise.
fn wrong(frames: &[Vec<u8>], random: &mut RandomStream) -> Vec<u8> {
    let mut bytes = frames[random.random_range(0..frames.len())].clone();
    let place = random.random_range(0..bytes.len());
    match random.random_range(0..7_u8) {
        0 => bytes[place] ^= 1 << random.random_range(0..8_u8),
        1 => bytes.truncate(place + 1),
        2 => bytes.insert(place, random.random()),
        3 => drop(bytes.splice(..4, random.next_u32().to_le_bytes())),
        4 => {
            bytes = vec![0; random.random_range(1..600)];
            random.fill_bytes(&mut bytes);
        }
        _ => {}
    }
    bytes
}

/// What one session sends, and how many messages that is.
fn session(frames: &[Vec<u8>], random: &mut RandomStream) -> (Vec<u8>, u64) {
    let mut bytes = Vec::new();
    let mut messages = 1;
    if random.random_range(0..8_u8) > 0 {
        bytes.extend(frame(&ProtocolHello::of_this_program("noise").encode()));
        for _ in 0..random.random_range(0..LEGAL_MAX) {
            let number = random.random();
            let legal = if random.random() { Message::Ping(number) } else { Message::Pong(number) };
            bytes.extend(frame(&legal.encode()));
            messages += 1;
        }
    }
    for _ in 0..random.random_range(1..4_u8) {
        bytes.extend(wrong(frames, random));
        messages += 1;
    }
    (bytes, messages)
}

#[test]
fn noise_leaves_a_listening_agent_as_it_was() {
    let mut daemon = AgentProcess::start(&[]);
    let friend = daemon.paired_client();
    let seed = Seed(0x7361_6e64);
    let (mut random, frames, began_ns) = (seed.stream("sessions"), frames(), monotonic_ns());
    let before = daemon.resources();
    let (mut said, mut sessions, mut early) = (0, 0_u64, None);
    while said < wanted() {
        let mut talk = friend.open_session();
        if random.random_range(0..4_u8) == 0 {
            // Deep in a test, at one of its states.
            talk.negotiate();
            talk.request(1, &spec());
            if random.random() {
                assert!(talk.send_message(&Message::Start { task: 1 }));
                said += 1;
                if random.random() {
                    assert!(matches!(talk.receive_message(), Some(Message::Report { .. })));
                }
            }
            said += 2;
            talk.send(&wrong(&frames, &mut random));
            said += 1;
        } else {
            let (bytes, messages) = session(&frames, &mut random);
            talk.send(&bytes);
            said += messages;
        }
        if random.random() {
            // Reads all of the answer; without the end of input the agent may wait for more.
            talk.stream.socket().shutdown(Shutdown::Write).ok();
            while talk.receive_message().is_some() {}
        }
        sessions += 1;
        if said > wanted() / 10 {
            early.get_or_insert_with(|| daemon.resources());
        }
        drop(talk);
        assert!(daemon.is_running());
    }
    let mut raw = 0;
    while raw < wanted() / 10 {
        let mut stream = TcpStream::connect(daemon.address).unwrap();
        let mut bytes = vec![0; random.random_range(1..600)];
        random.fill_bytes(&mut bytes);
        if random.random() {
            // Looks like the record of a handshake.
            bytes.splice(0..0, [0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3]);
        }
        stream.write_all(&bytes).ok();
        stream.shutdown(Shutdown::Write).ok();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut answer = Vec::new();
        stream.take(10_000).read_to_end(&mut answer).ok();
        assert!(answer.len() < 100, "an alert at most, not {} bytes", answer.len());
        raw += 1;
    }
    daemon.assert_resources_released(before);
    let (early, late) = (early.unwrap_or(before), daemon.resources());
    println!(
        "{said} messages in {sessions} sessions and {raw} connections without a handshake of {seed:?} took {} ms: \
         {before:?}, after a tenth {early:?}, at the end {late:?}",
        (monotonic_ns() - began_ns) / 1_000_000
    );
    assert!(late.peak_kib <= early.peak_kib + GROWTH_MAX_KIB, "{early:?} {late:?}");
    let mut talk = friend.negotiated_session();
    talk.request(1, &spec());
    assert!(talk.send_message(&Message::Start { task: 1 }));
    assert!(matches!(talk.receive_message(), Some(Message::Report { task: 1, .. })));
}

fn stdio() -> Child {
    let mut command = Command::new(PLUMB);
    command.args(["agent", "--stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn noise_ends_an_agent_of_standard_streams() {
    let seed = Seed(0x7374_6469);
    let (mut random, frames, began_ns) = (seed.stream("sessions"), frames(), monotonic_ns());
    let (mut said, mut sessions) = (0, 0_u64);
    let (mut least, mut most) = (u64::MAX, 0);
    while said < wanted() {
        let (bytes, messages) = session(&frames, &mut random);
        let mut child = stdio();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes).ok();
        // Its first word, or its end: it is all there by then.
        let mut stdout = child.stdout.take().unwrap();
        drop(stdout.read(&mut [0; 64]));
        if let Some(held) = ProcessResources::of(child.id()) {
            (least, most) = (least.min(held.peak_kib), most.max(held.peak_kib));
        }
        drop(stdin);
        let mut status = None;
        wait_for("the agent has ended", || {
            drop(stdout.read(&mut [0; 4096]));
            status = child.try_wait().unwrap();
            status.is_some()
        });
        let code = status.and_then(|status| status.code());
        assert!(matches!(code, Some(0 | 4)), "{status:?} after {bytes:?}");
        said += messages;
        sessions += 1;
    }
    println!(
        "{said} messages to {sessions} agents of {seed:?} took {} ms; each held {least} to {most} KiB",
        (monotonic_ns() - began_ns) / 1_000_000
    );
    assert!(most <= least + GROWTH_MAX_KIB, "{least} {most}");
}
