//! The memory of agents under each attack that docs/security.md names, by clients with a key and without.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use plumb_base::seed::Seed;
use plumb_clock::{monotonic_ns, sleep_until};
use plumb_net::measure::test_spec::{PartSpec, ProbesSpec, TestSpec};
use plumb_remote::message::{MESSAGE_MAX, Message, ProtocolHello, frame};
use plumb_remote::secure::{HostIdentity, PeerStore, connect};
use rand::Rng as _;

use super::agent_process::{AgentProcess, PairedClient, ProcessResources, ports, request};
use super::http;
use super::iperf3::Iperf3ServerProcess;
use super::untrusted_clients::{STATES, at_state, join, preamble, spec};
use crate::home::TestHome;

/// The most memory that an agent may have at any moment.
const MEMORY_MAX_KIB: u64 = 64 << 10;
const CROWD: usize = 1_000;
const DATAGRAMS: usize = 20_000;
const TRIES: usize = 100;

/// A thousand connections, or as many as there is room for; each says something of its own.
fn crowd(address: SocketAddr, words: impl Fn(usize) -> Vec<u8>) -> Vec<TcpStream> {
    let connect = |number| {
        let mut connection = TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()?;
        connection.set_nonblocking(true).unwrap();
        // Some are sent away before they have said all of it.
        drop(connection.write(&words(number)));
        Some(connection)
    };
    let connections: Vec<TcpStream> = (0..CROWD).map_while(connect).collect();
    assert!(!connections.is_empty(), "nobody listens");
    connections
}

/// Bytes without sense.
fn noise(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Seed(number as u64).stream("noise").fill_bytes(&mut bytes);
    bytes
}

/// The beginning of a TLS handshake of 16 MiB, in records of 16 KiB.
fn endless_handshake(number: usize) -> Vec<u8> {
    let record = [&[0x16, 3, 1, 0x40, 0][..], &noise(number, 16 << 10)].concat();
    let mut records = record.repeat(8);
    records[5..11].copy_from_slice(&[1, 0xff, 0xff, 0xff, 3, 3]);
    records
}

/// A crowd that has been dealt with as far as it is: a client that came after it has its session.
fn outlast(_crowd: Vec<TcpStream>, friend: &PairedClient) {
    friend.negotiated_session();
}

fn silent_connections(daemon: &AgentProcess, friend: &PairedClient) {
    outlast(crowd(daemon.address, |_| Vec::new()), friend);
}

fn trickled_handshakes(daemon: &AgentProcess, friend: &PairedClient) {
    let mut connections = crowd(daemon.address, |number| endless_handshake(number)[..6].to_vec());
    for _ in 0..5 {
        for connection in &mut connections {
            drop(connection.write(&[0]));
        }
        friend.negotiated_session();
    }
}

fn endless_handshakes(daemon: &AgentProcess, friend: &PairedClient) {
    outlast(crowd(daemon.address, endless_handshake), friend);
}

fn noise_on_the_port(daemon: &AgentProcess, friend: &PairedClient) {
    outlast(crowd(daemon.address, |number| noise(number, 64 << 10)), friend);
}

fn hosts_that_are_not_paired(_: &AgentProcess, friend: &PairedClient) {
    let place = tempfile::tempdir().unwrap();
    let identity = HostIdentity::open_or_create(place.path()).unwrap();
    for _ in 0..TRIES {
        let peers = PeerStore::in_directory(place.path());
        assert!(connect::connect(&identity, &peers, &friend.agent).is_err());
    }
}

fn tokens_that_are_used_up(daemon: &AgentProcess, friend: &PairedClient) {
    let place = tempfile::tempdir().unwrap();
    let identity = HostIdentity::open_or_create(place.path()).unwrap();
    let (peers, token) = (PeerStore::in_directory(place.path()), daemon.token.parse().unwrap());
    for _ in 0..TRIES {
        assert!(connect::pair(&identity, &peers, &friend.agent, "tester", &token).is_err());
    }
}

fn lengths_beyond_the_limits(_: &AgentProcess, friend: &PairedClient) {
    for number in 0..TRIES {
        let mut talk = friend.open_session();
        if number % 2 == 0 {
            talk.negotiate();
        }
        talk.send(&[&u32::MAX.to_le_bytes()[..], &noise(number, 1 << 20)].concat());
    }
}

fn messages_out_of_turn(_: &AgentProcess, friend: &PairedClient) {
    for number in 0..TRIES {
        let mut talk = friend.negotiated_session();
        let number = u32::try_from(number).unwrap();
        talk.send_message(&Message::Received { task: number });
        talk.send_message(&Message::Request { task: number, request: request(&spec()) });
    }
}

/// Until the agent has closed the connection, or has taken a gigabyte.
fn answers_that_nobody_reads(_: &AgentProcess, friend: &PairedClient) {
    let mut talk = friend.negotiated_session();
    let pings = frame(&Message::Ping(7).encode()).repeat(1_000);
    for _ in 0..100_000 {
        if !talk.send(&pings) {
            break;
        }
    }
}

fn more_data_than_a_test_takes(daemon: &AgentProcess, friend: &PairedClient) {
    let mut talk = friend.negotiated_session();
    let ready = talk.request(1, &spec());
    let _stream = join(daemon, &ready);
    let message = Message::Data { task: 1, payload: vec![0; MESSAGE_MAX - 64] };
    for _ in 0..100 * TRIES {
        if !talk.send_message(&message) {
            break;
        }
    }
}

/// The longest interval, and a stream whose client is silent.
fn intervals_without_end(daemon: &AgentProcess, friend: &PairedClient) {
    let spec = TestSpec { interval_ns: u64::MAX, drain_ns: 60_000_000_000, ..spec() };
    let mut talk = friend.negotiated_session();
    let ready = talk.request(1, &spec);
    let _stream = join(daemon, &ready);
    assert!(talk.send_message(&Message::Start { task: 1 }));
    sleep_until(monotonic_ns() + 3_000_000_000);
    assert!(talk.send_message(&Message::Stop { task: 1 }));
    assert!(matches!(talk.receive_message(), Some(Message::Report { .. })));
}

fn tests_beyond_the_limits(_: &AgentProcess, friend: &PairedClient) {
    let probes = PartSpec::Probes(ProbesSpec { per_second: u32::MAX, datagram_bytes: u16::MAX });
    let mut talk = friend.negotiated_session();
    for number in 0..TRIES {
        let parts = vec![probes.clone(); number];
        let spec = TestSpec { duration_ns: u64::MAX, drain_ns: u64::MAX, parts, ..spec() };
        assert!(talk.send_message(&Message::Request { task: 1, request: request(&spec) }));
        assert!(matches!(talk.receive_message(), Some(Message::Refused(_))));
    }
}

fn unauthenticated_at_data_ports(daemon: &AgentProcess, friend: &PairedClient) {
    let mut talk = friend.negotiated_session();
    let ready = talk.request(1, &spec());
    let [tcp, udp] = [0, 1].map(|part| SocketAddr::new(daemon.address.ip(), ports(&ready)[part]));
    let half = preamble(&ready);
    let words = |number| if number % 2 == 0 { half[..9].to_vec() } else { noise(number, 64 << 10) };
    let _connections = crowd(tcp, words);
    let _stream = join(daemon, &ready);
    let socket = UdpSocket::bind((daemon.address.ip(), 0)).unwrap();
    let datagram = noise(1, 1_000);
    for _ in 0..DATAGRAMS {
        socket.send_to(&datagram, udp).unwrap();
    }
    assert!(talk.send_message(&Message::Stop { task: 1 }));
    assert!(matches!(talk.receive_message(), Some(Message::Report { .. })));
}

fn clients_that_vanish(daemon: &AgentProcess, friend: &PairedClient) {
    for state in (0..STATES).cycle().take(3 * STATES) {
        drop(at_state(state, daemon, friend));
    }
}

type Attack = (&'static str, fn(&AgentProcess, &PairedClient));

const ATTACKS: [Attack; 14] = [
    ("silent connections", silent_connections),
    ("trickled handshakes", trickled_handshakes),
    ("endless handshakes", endless_handshakes),
    ("noise on the port", noise_on_the_port),
    ("hosts that are not paired", hosts_that_are_not_paired),
    ("tokens that are used up", tokens_that_are_used_up),
    ("lengths beyond the limits", lengths_beyond_the_limits),
    ("messages out of turn", messages_out_of_turn),
    ("answers that nobody reads", answers_that_nobody_reads),
    ("more data than a test takes", more_data_than_a_test_takes),
    ("intervals without end", intervals_without_end),
    ("tests beyond the limits", tests_beyond_the_limits),
    ("unauthenticated clients at data ports", unauthenticated_at_data_ports),
    ("clients that vanish", clients_that_vanish),
];

/// The most memory that a process had since this was last asked; fails where it is too much.
fn checked_peak_kib(process: u32, attack: &str) -> u64 {
    let peak_kib = ProcessResources::of(process).expect("it is running").peak_kib;
    assert!(peak_kib <= MEMORY_MAX_KIB, "{attack}: {peak_kib} KiB");
    ProcessResources::reset_peak(process);
    peak_kib
}

#[test]
fn no_attack_takes_more_than_64_mib_of_a_listening_agent() {
    let daemon = AgentProcess::start(&[]);
    let friend = daemon.paired_client();
    for (name, attack) in ATTACKS {
        attack(&daemon, &friend);
        println!("{name}: {} KiB", checked_peak_kib(daemon.id(), name));
    }
    let mut talk = friend.negotiated_session();
    talk.request(1, &spec());
}

#[test]
fn no_crowd_takes_more_than_64_mib_of_a_server_for_everybody() {
    let bench = TestHome::new();
    let (pages, address) = http::server(&bench);
    let iperf3 = Iperf3ServerProcess::start();
    let iperf3_address: SocketAddr = format!("127.0.0.1:{}", iperf3.port).parse().unwrap();
    let hello = frame(&ProtocolHello::of_this_program("unauthenticated").encode());
    // A cookie of iperf3's, and parameters of 4 GiB.
    let parameters = [&[b'a'; 37][..], &u32::MAX.to_be_bytes(), &[b'{'; 16 << 10]].concat();
    let headers = [&b"GET / HTTP/1.1\r\n"[..], &b"x: y\r\n".repeat(16 << 10)].concat();
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &noise(1, 16 << 10)].concat();
    let said = [Vec::new(), hello, endless_handshake(1), parameters, headers, preface];
    for (server, process, address) in
        [("pages", pages.0.id(), address), ("iperf3", iperf3.id(), iperf3_address)]
    {
        for (number, words) in said.iter().enumerate() {
            let mut connections = crowd(address, |_| words.clone());
            // Once the last of them has an answer or is closed, all of them have been handled.
            let last = connections.last_mut().unwrap();
            last.set_nonblocking(false).unwrap();
            last.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            drop(last.read(&mut [0; 64]));
            let name = format!("{server}, words {number}");
            println!("{name}: {} KiB", checked_peak_kib(process, &name));
        }
    }
}
