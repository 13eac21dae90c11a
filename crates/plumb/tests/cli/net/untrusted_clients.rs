//! An agent and untrusted clients: slow ones, a thousand at once, old recordings, and clients that vanish at every state.
//! Nothing crashes, nothing is left, nobody who may not is sent anything, and a proper client gets through.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_clock::{monotonic_ns, sleep_until};
use plumb_net::measure::test_spec::{
    BulkTcpSpec, PartSpec, ProbesSpec, TestSpec, TransferDirection,
};
use plumb_remote::datagram_header::{TestDatagramHeader, TestDatagramKind};
use plumb_remote::message::{Message, ProtocolHello, ReadyMessage, frame};

use super::agent_process::{
    AgentProcess, ControlSession, PairedClient, paired_home, ports, request,
};
use super::host_pair::HostPair;

const CROWD: usize = 1_000;
/// The most memory that a thousand connections may cost an agent.
const CROWD_MAX_KIB: u64 = 64 << 10;

pub(super) fn spec() -> TestSpec {
    let probes = ProbesSpec { per_second: 200, datagram_bytes: 64 };
    let streams = BulkTcpSpec { block_bytes: 1 << 16, ..BulkTcpSpec::one(TransferDirection::Up) };
    TestSpec {
        warm_up_ns: 0,
        duration_ns: 300_000_000,
        interval_ns: 50_000_000,
        drain_ns: 200_000_000,
        parts: vec![PartSpec::Streams(streams), PartSpec::Probes(probes)],
    }
}

/// What shows a test's token at its TCP port, for connection 0.
pub(super) fn preamble(ready: &ReadyMessage) -> Vec<u8> {
    [&ready.token.0[..], &[0, 0]].concat()
}

/// A connection of the test that the agent has taken.
pub(super) fn join(daemon: &AgentProcess, ready: &ReadyMessage) -> TcpStream {
    let mut stream = TcpStream::connect((daemon.address.ip(), ports(ready)[0])).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(&preamble(ready)).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [6]);
    stream
}

/// Runs a test to its end by hand, so that a session that got this far is seen to work.
fn finish(daemon: &AgentProcess, talk: &mut ControlSession, ready: &ReadyMessage) {
    let stream = join(daemon, ready);
    assert!(talk.send_message(&Message::Start { task: ready.task }));
    drop(stream);
    assert!(matches!(talk.receive_message(), Some(Message::Report { .. })));
    assert!(talk.send_message(&Message::Received { task: ready.task }));
}

/// Sends a byte on each connection now and then, until it is told to stop.
fn trickle(connections: &mut [TcpStream], is_over: &AtomicBool) {
    // The beginning of a TLS record that announces 512 bytes.
    let words = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    for byte in words.into_iter().chain(std::iter::repeat(0)) {
        for connection in &mut *connections {
            // Many have been sent away by now.
            drop(connection.write(&[byte]));
        }
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        sleep_until(monotonic_ns() + 100_000_000);
    }
}

#[test]
fn a_thousand_slow_connections_keep_no_client_out() {
    let (daemon, bench, host) = paired_home();
    let words = ["net", &host, "--only", "idle", "--idle", "300ms", "--no-store"];
    bench.stdout_of(&words);
    let before = daemon.resources();
    let mut connections: Vec<TcpStream> =
        (0..CROWD).map(|_| TcpStream::connect(daemon.address).unwrap()).collect();
    for connection in &connections {
        connection.set_nonblocking(true).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| trickle(&mut connections, &is_over));
        for _ in 0..3 {
            let output = bench.plumb(&words);
            if !output.status.success() {
                is_over.store(true, Ordering::Relaxed);
                panic!("{}", String::from_utf8_lossy(&output.stderr));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(connections);
    daemon.assert_resources_released(before);
    let after = daemon.resources();
    println!("{CROWD} slow connections: {before:?}, then {after:?}");
    assert!(after.peak_kib < before.peak_kib + CROWD_MAX_KIB);
}

#[test]
fn a_thousand_connections_without_token_get_nothing() {
    let daemon = AgentProcess::start(&[]);
    let friend = daemon.paired_client();
    let mut talk = friend.negotiated_session();
    let before = daemon.resources();
    let ready = talk.request(1, &spec());
    let place = (daemon.address.ip(), ports(&ready)[0]);
    let half = preamble(&ready);
    let connections: Vec<TcpStream> = (0..CROWD)
        .map(|n| {
            let mut connection = TcpStream::connect(place).unwrap();
            // Some say nothing, some half of what they would have to, some something wrong.
            match n % 3 {
                0 => {}
                1 => connection.write_all(&half[..9]).unwrap(),
                _ => connection.write_all(&[0xaa; 18]).unwrap(),
            }
            connection
        })
        .collect();
    finish(&daemon, &mut talk, &ready);
    for mut connection in connections {
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        assert_eq!(connection.read(&mut [0; 8]).unwrap_or(0), 0, "not a byte without a token");
    }
    // And the session goes on.
    let ready = talk.request(2, &spec());
    finish(&daemon, &mut talk, &ready);
    daemon.assert_resources_released(before);
    let after = daemon.resources();
    println!("{CROWD} silent connections: {before:?}, then {after:?}");
    assert!(after.peak_kib < before.peak_kib + CROWD_MAX_KIB);
}

#[test]
fn an_old_token_at_a_new_port_gets_no_byte_and_no_datagram() {
    let Some(hosts) = HostPair::new() else { return };
    hosts.ip(true, "addr add 10.77.0.9/24 dev plumb0");
    let daemon = hosts.start_agent(&[]);
    hosts.bed.in_near(|| replay(&hosts, &daemon)).unwrap();
}

/// In the near host, whose second address is the untrusted client's.
fn replay(hosts: &HostPair, daemon: &AgentProcess) {
    let friend = daemon.paired_client();
    let mut talk = friend.negotiated_session();
    let old = talk.request(1, &spec());
    finish(daemon, &mut talk, &old);
    let new = talk.request(2, &spec());
    assert_ne!(old.token, new.token);
    let tcp: SocketAddr = (daemon.address.ip(), ports(&new)[0]).into();
    let udp: SocketAddr = (daemon.address.ip(), ports(&new)[1]).into();
    let mut connection = TcpStream::connect(tcp).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    connection.write_all(&preamble(&old)).unwrap();
    assert_eq!(connection.read(&mut [0; 8]).unwrap_or(0), 0, "closed without a byte");
    // Datagrams are heard once the test's connections are there.
    let _stream = join(daemon, &new);
    let heard = || {
        let udp = ["InDatagrams", "NoPorts", "InErrors"].map(|name| hosts.near_count("Udp", name));
        udp.into_iter().sum::<u64>() + hosts.near_count("Icmp", "InMsgs")
    };
    let before = heard();
    let socket = UdpSocket::bind("10.77.0.9:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut datagram = [0; 64];
    datagram[..16].copy_from_slice(&old.token.0);
    // Few enough to fit the agent's receive buffer, so that the hello after them is not dropped.
    for length in [0, 15, 16, 47, 48, 64] {
        for _ in 0..40 {
            socket.send_to(&datagram[..length], udp).unwrap();
        }
    }
    assert!(socket.recv_from(&mut [0; 64]).is_err(), "no answer");
    assert_eq!(heard(), before, "the kernel of the client's host was sent nothing either");
    // A hello with the right token is answered, once, and no longer than it was: with the number of its address.
    let hello =
        |number| TestDatagramHeader::of(TestDatagramKind::Hello, 0, 0, number).to_bytes(&new.token);
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let ask = |number| {
        socket.send_to(&hello(number), udp).unwrap();
        let mut answer = [0; 9_000];
        let (len, from) = socket.recv_from(&mut answer).unwrap();
        assert!(len <= hello(number).len() && from == udp);
        TestDatagramHeader::read(&new.token, &answer[..len]).unwrap().intended_ns
    };
    let number = ask(0);
    assert_eq!(heard(), before + 1);
    assert_eq!(ask(number), number, "admitted");
    // From then on nobody else is heard, whatever they know.
    let other = UdpSocket::bind("10.77.0.1:0").unwrap();
    other.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    other.send_to(&hello(number), udp).unwrap();
    assert!(other.recv_from(&mut [0; 64]).is_err(), "one client a test");
    assert!(talk.send_message(&Message::Stop { task: 2 }));
    assert!(matches!(talk.receive_message(), Some(Message::Report { .. })));
}

/// A client brought to a state of its session, by number; it holds everything that it has opened.
pub(super) fn at_state(
    state: usize,
    daemon: &AgentProcess,
    friend: &PairedClient,
) -> (ControlSession, Vec<TcpStream>) {
    let mut talk = friend.open_session();
    let hello = frame(&ProtocolHello::of_this_program("vanishing").encode());
    let mut held = Vec::new();
    match state {
        0 => {}
        1 => assert!(talk.send(&hello[..9])),
        _ => drop(talk.negotiate()),
    }
    let request = Message::Request { task: 1, request: request(&spec()) };
    match state {
        3 => assert!(talk.send(&frame(&request.encode())[..7])),
        // It goes while the agent makes ready.
        4 => assert!(talk.send_message(&request)),
        5..=9 => {
            let ready = talk.request(1, &spec());
            if state > 5 {
                held.push(join(daemon, &ready));
            }
            if state > 6 {
                assert!(talk.send_message(&Message::Start { task: 1 }));
            }
            if state == 8 {
                // Its report waits to be received.
                held.clear();
                assert!(matches!(talk.receive_message(), Some(Message::Report { .. })));
            }
            if state == 9 {
                // Another session looks for the report of the test that runs.
                let mut other = friend.negotiated_session();
                assert!(other.send_message(&Message::Fetch { token: ready.token }));
                return (other, held);
            }
        }
        _ => {}
    }
    (talk, held)
}

pub(super) const STATES: usize = 10;

#[test]
fn clients_that_vanish_at_any_state_leave_nothing() {
    let mut daemon = AgentProcess::start(&[]);
    let friend = daemon.paired_client();
    let before = daemon.resources();
    for is_reset in [false, true] {
        for state in 0..STATES {
            let held = at_state(state, &daemon, &friend);
            if is_reset {
                // With bytes unread the kernel sends a reset, not an end.
                sleep_until(monotonic_ns() + 20_000_000);
            }
            drop(held);
            assert!(daemon.is_running(), "state {state}");
        }
        daemon.assert_resources_released(before);
    }
    assert_still_serves(&daemon, &friend);
}

#[test]
fn clients_that_fall_silent_at_any_state_leave_nothing() {
    // As many at a time as one client may have.
    let fall_silent = |states: &[usize]| {
        let mut daemon = AgentProcess::start(&[]);
        let friend = daemon.paired_client();
        let before = daemon.resources();
        // Both ends of the connection stay open; nothing is said, and nothing is read.
        let silent: Vec<_> =
            states.iter().map(|state| at_state(*state, &daemon, &friend)).collect();
        daemon.assert_resources_released(before);
        drop(silent);
        assert!(daemon.is_running(), "states {states:?}");
        assert_still_serves(&daemon, &friend);
    };
    std::thread::scope(|scope| {
        for states in (0..STATES).collect::<Vec<_>>().chunks(3) {
            let states = states.to_vec();
            scope.spawn(move || fall_silent(&states));
        }
    });
}

fn assert_still_serves(daemon: &AgentProcess, friend: &PairedClient) {
    let mut talk = friend.negotiated_session();
    let ready = talk.request(1, &spec());
    finish(daemon, &mut talk, &ready);
}
