//! An agent and clients in one process, over loopback: whole tests, and every way in which one may break off.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use plumb_clock::monotonic_ns;
use plumb_remote::address::BindAddress;
use plumb_remote::agent::MeasurementAgent;
use plumb_remote::control_stream::ControlStream;
use plumb_remote::datagram_header::TestToken;
use plumb_remote::message::{ProtocolHello, ReadyMessage, TaskRequest, decode, encode, frame};
use plumb_remote::overlap::TestOverlap;
use plumb_remote::session::{ControlSessionError, SessionFault, SessionTiming};
use plumb_remote::{client, token_listener, udp_handshake};

use super::*;
use crate::measure::datagram::endpoint::DatagramsReport;
use crate::measure::report::{TestEnding, TestPartReport, TestReport};
use crate::measure::request_response::RequestPacing;
use crate::measure::test_spec::{
    BulkTcpSpec, DatagramsSpec, MtuSearchSpec, ProbesSpec, RequestResponsePart, TransferDirection,
};
use crate::test_client::{AgentClient, AgentClientError};
use plumb_result::net::{ReceiveEnding, RequestTransport};

mod fuzz;

const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn timing() -> SessionTiming {
    SessionTiming {
        hello: Span::from_secs(20),
        answer: Span::from_secs(10),
        start: Span::from_secs(10),
        idle: Span::from_secs(20),
        ping: Span::from_ms(100),
        silence: Span::from_secs(20),
    }
}

/// A pair of connected streams: the client's and the agent's end.
fn wires() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn agent_with(limits: AgentLimits) -> Arc<MeasurementAgent> {
    MeasurementAgent::new("test", limits, timing(), vec![Box::new(LoadService)])
}

type Served = JoinHandle<Result<(), ControlSessionError>>;

fn serve(agent: &Arc<MeasurementAgent>, wire: TcpStream) -> Served {
    let agent = Arc::clone(agent);
    thread::spawn(move || agent.serve(ControlStream::from_tcp(wire).unwrap()))
}

fn join(agent: &Arc<MeasurementAgent>) -> (AgentClient, Served) {
    let (client, served, _) = join_with_cut(agent);
    (client, served)
}

/// And a way to cut its session.
fn join_with_cut(agent: &Arc<MeasurementAgent>) -> (AgentClient, Served, TcpStream) {
    let (ours, theirs) = wires();
    let (served, cut) = (serve(agent, theirs), ours.try_clone().unwrap());
    let stream = ControlStream::from_tcp(ours).unwrap();
    (AgentClient::connect(stream, "test", timing()).unwrap(), served, cut)
}

/// What both sides saw of a test.
fn both(client: &mut AgentClient, spec: &TestSpec) -> (TestReport, TestReport) {
    let outcome = client.run(HERE, spec, &mut |_| {}, &|| false).unwrap();
    (outcome.here, outcome.there.unwrap())
}

/// Why a test is refused.
fn refusal(client: &mut AgentClient, spec: &TestSpec) -> String {
    match client.run(HERE, spec, &mut |_| {}, &|| false) {
        Err(AgentClientError::Refused(refusal)) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A test that an agent has prepared, and its client's session with a way to cut it.
fn prepare(
    agent: &Arc<MeasurementAgent>,
    spec: &TestSpec,
) -> (client::TaskClient<()>, TcpStream, ReadyMessage, Vec<u16>) {
    let (ours, theirs) = wires();
    drop(serve(agent, theirs));
    let cut = ours.try_clone().unwrap();
    let stream = ControlStream::from_tcp(ours).unwrap();
    let mut client = client::TaskClient::connect(stream, "test", timing()).unwrap();
    let request =
        TaskRequest { service: ServiceId::LOAD, payload: encode(spec), to: Some(HERE.ip()) };
    let ready = client.request(request, times(spec)).unwrap();
    let TestPorts { ports, .. } = decode(&ready.payload).unwrap();
    (client, cut, ready, ports)
}

fn streams(direction: TransferDirection, streams: u16) -> PartSpec {
    PartSpec::Streams(BulkTcpSpec { streams, ..BulkTcpSpec::one(direction) })
}

fn probes() -> PartSpec {
    PartSpec::Probes(ProbesSpec { per_second: 500, datagram_bytes: 64 })
}

fn datagrams(is_up: bool, rate_bits_per_second: u64) -> PartSpec {
    PartSpec::Datagrams(DatagramsSpec { is_up, rate_bits_per_second, datagram_bytes: 1_000 })
}

fn stream_of(report: &TestReport, index: usize) -> &DatagramsReport {
    let TestPartReport::Datagrams(datagrams) = &report.parts[index] else { panic!("{report:?}") };
    datagrams
}

fn spec(parts: Vec<PartSpec>) -> TestSpec {
    TestSpec {
        warm_up_ns: 40_000_000,
        duration_ns: 200_000_000,
        interval_ns: 20_000_000,
        drain_ns: 5_000_000_000,
        parts,
    }
}

fn total(report: &TestReport, is_up: bool) -> u64 {
    let TestPartReport::Streams(streams) = &report.parts[0] else { panic!("{report:?}") };
    streams.streams.iter().filter(|s| s.is_up == is_up).map(|s| s.bytes_total).sum()
}

#[test]
fn what_one_side_sent_the_other_received_to_the_last_byte_in_every_direction() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, served) = join(&agent);
    for direction in [TransferDirection::Up, TransferDirection::Down, TransferDirection::Both] {
        let spec = spec(vec![streams(direction, 2), probes()]);
        let (here, there) = both(&mut client, &spec);
        assert_eq!((&here.ended, &there.ended), (&TestEnding::Complete, &TestEnding::Complete));
        for is_up in [true, false] {
            let expected = direction == TransferDirection::Both
                || is_up == (direction == TransferDirection::Up);
            assert_eq!(total(&here, is_up), total(&there, is_up), "{direction:?}");
            assert_eq!(total(&there, is_up) > 0, expected, "{direction:?}");
        }
        let TestPartReport::Streams(ours) = &here.parts[0] else { panic!() };
        assert!(ours.streams.iter().all(|stream| stream.is_drained), "{ours:?}");
        assert!(!here.moments.is_empty() && !there.moments.is_empty());
        assert!(ours.streams[0].samples.last().unwrap().tcp.mss_bytes > 0);
    }
    client.disconnect();
    assert_eq!(served.join().unwrap(), Ok(()));
    assert_eq!(agent.active_counts(), (0, 0));
}

#[test]
fn every_probe_that_left_was_answered_and_both_sides_count_the_same() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, _served) = join(&agent);
    let (here, there) = both(&mut client, &spec(vec![probes()]));
    let TestPartReport::Probes(asked) = &here.parts[0] else { panic!() };
    let TestPartReport::Answers(answered) = &there.parts[0] else { panic!("{there:?}") };
    assert_eq!((asked.due, asked.sent, asked.answered), (100, 100, 100));
    assert_eq!((answered.received, answered.answered, answered.duplicated), (100, 100, 0));
    assert_eq!(asked.exchanges.len(), 100);
    for exchange in &asked.exchanges {
        // One machine, one clock: the stamps are in the order of what happened.
        assert!(exchange.sent_ns <= exchange.received_ns, "{exchange:?}");
        assert!(exchange.received_there_ns <= exchange.sent_there_ns, "{exchange:?}");
        assert!(exchange.path_ns() <= exchange.received_ns - exchange.sent_ns, "{exchange:?}");
    }
}

fn exchange(transport: RequestTransport, pacing: RequestPacing) -> PartSpec {
    PartSpec::Exchange(RequestResponsePart {
        transport,
        request_bytes: 64,
        response_bytes: 48,
        pacing,
    })
}

const TRANSPORTS: [RequestTransport; 4] =
    [RequestTransport::Tcp, RequestTransport::Udp, RequestTransport::Tls, RequestTransport::Quic];

/// All transports at all paces but UDP, which has no connections to make.
fn transports_and_paces() -> impl Iterator<Item = (RequestTransport, RequestPacing)> {
    let paces = |transport| {
        let with = move |pacing| (transport, pacing);
        let open = RequestPacing::Open { per_second: 500 };
        [RequestPacing::Closed, open, RequestPacing::Connect].map(with)
    };
    let all = TRANSPORTS.into_iter().flat_map(paces);
    all.filter(|pair| *pair != (RequestTransport::Udp, RequestPacing::Connect))
}

/// Requests of a test's first part that were answered.
fn requests_answered(report: &TestReport) -> u64 {
    let TestPartReport::Exchange(asked) = &report.parts[0] else { panic!("{report:?}") };
    asked.answered
}

#[test]
fn every_transport_carries_requests_and_responses_at_every_pace() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, served) = join(&agent);
    for (transport, pacing) in transports_and_paces() {
        // With other parts before and after it, as they are met in their order.
        let parts = vec![exchange(transport, pacing), streams(TransferDirection::Up, 1)];
        let spec = spec(parts);
        let what = format!("{transport:?} {pacing:?}");
        // A machine that is held up may carry nothing in a test that is so short.
        let mut tests = std::iter::repeat_with(|| both(&mut client, &spec)).take(10);
        let (here, there) = tests
            .find(|(here, _)| requests_answered(here) > 0)
            .unwrap_or_else(|| panic!("{what} carried nothing"));
        let TestPartReport::Exchange(asked) = &here.parts[0] else { panic!("{what}") };
        let TestPartReport::Responses(answered) = &there.parts[0] else { panic!("{what}") };
        assert_eq!(
            (here.ended, there.ended),
            (TestEnding::Complete, TestEnding::Complete),
            "{what}"
        );
        assert!(asked.answered > 0 && asked.answered == asked.due, "{what}: {asked:?}");
        assert!(answered.answered >= asked.answered && answered.cpu_ns > 0, "{what}");
        assert_eq!(answered.strange, 0, "{what}");
        assert!(!asked.latency.is_empty() && asked.cpu_ns > 0, "{what}");
        assert_eq!(asked.connect.is_empty(), transport == RequestTransport::Udp, "{what}");
        let is_open = matches!(pacing, RequestPacing::Open { .. });
        assert_eq!(asked.lateness.is_empty(), !is_open, "{what}");
    }
    client.disconnect();
    assert_eq!(served.join().unwrap(), Ok(()));
    assert_eq!(agent.active_counts(), (0, 0));
}

#[test]
fn an_exchange_that_is_stopped_ends_at_once_on_both_sides() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, _served) = join(&agent);
    let kept = transports_and_paces().filter(|(_, pacing)| *pacing != RequestPacing::Connect);
    for (transport, pacing) in kept {
        let mut long = spec(vec![exchange(transport, pacing)]);
        long.duration_ns = 60_000_000_000;
        let answered = std::cell::Cell::new(0);
        let mut watch = |progress: TestProgress| answered.set(progress.answered);
        let began = now();
        let outcome = client.run(HERE, &long, &mut watch, &|| answered.get() > 10).unwrap();
        assert_eq!(outcome.here.ended, TestEnding::Stopped, "{transport:?}");
        assert_eq!(outcome.there.unwrap().ended, TestEnding::Stopped, "{transport:?}");
        assert!(now().saturating_since(began) < Span::from_secs(50), "{transport:?}");
        let TestPartReport::Exchange(asked) = &outcome.here.parts[0] else { panic!() };
        assert!(asked.error.is_none(), "{asked:?}");
    }
}

#[test]
fn an_agent_that_is_held_back_by_its_rate_ends_with_the_test_all_the_same() {
    // After one request, the next is due in minutes.
    let limits = AgentLimits { rate_max: Some(400), ..AgentLimits::default() };
    let agent = agent_with(limits);
    let (mut client, served) = join(&agent);
    for (transport, pacing) in transports_and_paces() {
        let (request_bytes, response_bytes) =
            if transport == RequestTransport::Udp { (50_000, 50_000) } else { (1 << 18, 64) };
        let part = RequestResponsePart { transport, request_bytes, response_bytes, pacing };
        let spec = TestSpec { drain_ns: 0, ..spec(vec![PartSpec::Exchange(part)]) };
        let began = now();
        let (_, there) = both(&mut client, &spec);
        let what = format!("{transport:?} {pacing:?}");
        let TestPartReport::Responses(answered) = &there.parts[0] else { panic!("{what}") };
        assert!(answered.answered <= 2, "{what}: {answered:?}");
        assert!(now().saturating_since(began) < Span::from_secs(100), "{what}");
    }
    client.disconnect();
    assert_eq!(served.join().unwrap(), Ok(()));
    assert_eq!(agent.active_counts(), (0, 0));
}

#[test]
fn nothing_is_asked_of_whom_the_agents_certificate_does_not_name() {
    use plumb_remote::secure::Fingerprint;
    for transport in [RequestTransport::Tls, RequestTransport::Quic] {
        for forged in [None, Some(Fingerprint::of(b"another"))] {
            let spec = spec(vec![exchange(transport, RequestPacing::Closed)]);
            let (token, control) = (TestToken([5; 16]), Arc::<TestControl>::default());
            let theirs = Arc::clone(&control);
            let (agent, ports) =
                TestRun::listen(&spec, token, None, BindAddress::default(), theirs).unwrap();
            let ready = TestPorts { ports, rate_max: None, certificates: vec![forged] };
            let report = thread::scope(|scope| {
                let serving = scope.spawn(|| agent.run(&mut |_| {}));
                let run =
                    TestRun::connect(&spec, token, &ready, HERE, Arc::clone(&control)).unwrap();
                control.begin();
                let report = run.run(&mut |_| {});
                control.halt();
                serving.join().unwrap();
                report
            });
            let TestPartReport::Exchange(asked) = &report.parts[0] else { panic!() };
            assert_eq!(asked.answered, 0, "{transport:?} {forged:?}");
            assert!(asked.error.is_some(), "{transport:?} {forged:?}");
        }
    }
}

#[test]
fn requests_beyond_the_limits_are_refused_by_name_and_the_session_goes_on() {
    let limits = AgentLimits {
        duration_max: Span::from_secs(1),
        streams_max: 2,
        probes_max: 600,
        ..AgentLimits::default()
    };
    let agent = agent_with(limits);
    let (mut client, _served) = join(&agent);
    let mut refused = |spec: &TestSpec| refusal(&mut client, spec);
    assert!(refused(&spec(vec![streams(TransferDirection::Up, 3)])).contains("streams"));
    let mut long = spec(vec![probes()]);
    long.duration_ns = 3_000_000_000;
    assert!(refused(&long).contains("length in seconds"));
    assert!(refused(&spec(Vec::new())).contains("1 to 8 parts"));
    both(&mut client, &spec(vec![probes()]));
}

#[test]
fn every_paced_datagram_is_accounted_for_by_both_sides_in_both_directions_at_once() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, _served) = join(&agent);
    for here in ["127.0.0.1:0", "[::1]:0"] {
        let spec = spec(vec![datagrams(true, 8_000_000), datagrams(false, 4_000_000), probes()]);
        let outcome = client.run(here.parse().unwrap(), &spec, &mut |_| {}, &|| false).unwrap();
        let there = outcome.there.unwrap();
        let ended = (&outcome.here.ended, &there.ended);
        assert_eq!(ended, (&TestEnding::Complete, &TestEnding::Complete));
        for (index, planned) in [(0, 240), (1, 120)] {
            let (ours, theirs) = (stream_of(&outcome.here, index), stream_of(&there, index));
            let (from, to) = if ours.is_up { (ours, theirs) } else { (theirs, ours) };
            let (sent, came) = (from.sender.as_ref().unwrap(), to.receiver.as_ref().unwrap());
            assert!(from.receiver.is_none() && to.sender.is_none());
            // A busy machine may be half a second late with 240 ms of them, of which the rest is cut.
            let is_late = sent.end_ns - sent.start_ns > 700_000_000;
            assert_eq!(sent.planned, Some(planned), "{sent:?}");
            assert!(sent.count == planned || sent.cut_short && is_late, "{sent:?}");
            let all = (sent.count, ReceiveEnding::Complete);
            assert_eq!((came.tally.unique, came.ending), all, "{came:?}");
            assert_eq!(came.bytes, sent.count * 1_000);
            for side in [from, to] {
                let last = side.samples.last().unwrap().datagrams;
                assert_eq!(last, sent.count, "{:?}", side.samples);
            }
        }
    }
    assert_eq!(agent.active_counts().1, 0);
}

#[test]
fn the_mtu_is_found_in_a_test_that_ends_when_it_is() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, _served) = join(&agent);
    let mut spec = spec(vec![PartSpec::Mtu(MtuSearchSpec { patience_ns: 30_000_000_000 })]);
    spec.duration_ns = 30_000_000_000;
    let began_ns = monotonic_ns();
    let (here, there) = both(&mut client, &spec);
    assert!(monotonic_ns() - began_ns < spec.duration_ns, "it does not last its longest");
    let TestPartReport::Mtu(ours) = &here.parts[0] else { panic!("{here:?}") };
    let TestPartReport::Mtu(theirs) = &there.parts[0] else { panic!("{there:?}") };
    let found = ours.found.as_ref().unwrap_or_else(|| panic!("{ours:?}"));
    assert!(found.path_bytes > Some(1_000) && found.kernel_bytes.is_some(), "{found:?}");
    assert!(theirs.confirmed > 1 && ours.error.is_none(), "{theirs:?} {ours:?}");
    assert_eq!((here.ended, there.ended), (TestEnding::Complete, TestEnding::Complete));
}

#[test]
fn a_stopped_stream_of_datagrams_gives_what_there_is_on_both_sides() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, _served) = join(&agent);
    let mut long = spec(vec![datagrams(true, 8_000_000), datagrams(false, 8_000_000)]);
    long.duration_ns = 60_000_000_000;
    let stop = std::cell::Cell::new(false);
    let watch = &mut |progress: TestProgress| stop.set(progress.at_ns > 100_000_000);
    let outcome = client.run(HERE, &long, watch, &|| stop.get()).unwrap();
    let there = outcome.there.unwrap();
    let ended = (&outcome.here.ended, &there.ended);
    assert_eq!(ended, (&TestEnding::Stopped, &TestEnding::Stopped));
    let sent = stream_of(&there, 1).sender.as_ref().unwrap();
    assert!(sent.cut_short && sent.count > 0, "{sent:?}");
    let came = stream_of(&there, 0).receiver.as_ref().unwrap();
    assert!(came.tally.unique > 0, "{came:?}");
}

#[test]
fn a_rate_that_the_agent_allows_holds_in_both_directions() {
    let limits = AgentLimits { rate_max: Some(2_000_000), ..AgentLimits::default() };
    let agent = agent_with(limits);
    let (mut client, _served) = join(&agent);
    for direction in [TransferDirection::Up, TransferDirection::Down] {
        let mut spec = spec(vec![streams(direction, 1)]);
        spec.duration_ns = 600_000_000;
        let outcome = client.run(HERE, &spec, &mut |_| {}, &|| false).unwrap();
        let there = outcome.there.unwrap();
        // In the 0.64 s of the test and the quarter of a second that a sender may go on; what a sender's kernel
        // took from it counts as well.
        let is_up = direction == TransferDirection::Up;
        for bytes in [total(&outcome.here, is_up), total(&there, is_up)] {
            assert!((1..2_000_000).contains(&bytes), "{direction:?}: {bytes}");
        }
        assert_eq!(outcome.rate_max, Some(2_000_000));
    }
}

#[test]
fn clients_and_tests_beyond_the_limit_are_told_so() {
    let limits = AgentLimits { clients_max: 2, tests_max: 1, ..AgentLimits::default() };
    let agent = agent_with(limits);
    let (mut first, _one) = join(&agent);
    let (mut second, _two) = join(&agent);
    let (ours, theirs) = wires();
    let _three = serve(&agent, theirs);
    match AgentClient::connect(ControlStream::from_tcp(ours).unwrap(), "test", timing()) {
        Err(AgentClientError::Session(ControlSessionError {
            fault: SessionFault::Refused(refusal),
            ..
        })) => {
            assert_eq!(refusal, TaskRefusal::ClientLimit { clients: 2 });
        }
        other => panic!("{other:?}"),
    }
    let running = thread::spawn(move || {
        first.run(HERE, &spec(vec![streams(TransferDirection::Up, 1)]), &mut |_| {}, &|| false)
    });
    while agent.active_counts().1 == 0 {
        thread::yield_now();
    }
    match second.run(HERE, &spec(vec![probes()]), &mut |_| {}, &|| false) {
        Err(AgentClientError::Refused(TaskRefusal::TestLimit { running: 1, allowed: 1 })) => {}
        other => panic!("{other:?}"),
    }
    assert!(running.join().unwrap().unwrap().there.is_ok());
}

#[test]
fn tests_of_two_clients_at_once_know_of_each_other() {
    let agent = agent_with(AgentLimits::default());
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let (mut client, _) = join(&agent);
            let mut spec = spec(vec![probes()]);
            spec.duration_ns = 1_500_000_000;
            thread::spawn(move || client.run(HERE, &spec, &mut |_| {}, &|| false))
        })
        .collect();
    let overlaps: Vec<TestOverlap> = clients
        .into_iter()
        .map(|client| client.join().unwrap().unwrap().there.unwrap().overlap)
        .collect();
    assert!(overlaps.iter().all(|overlap| overlap.tests == 1), "{overlaps:?}");
    assert!(overlaps.iter().all(|overlap| overlap.during_ns > 0), "{overlaps:?}");
}

#[test]
fn a_report_survives_the_loss_of_its_connection_until_it_is_fetched() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, served, cut) = join_with_cut(&agent);
    let spec = spec(vec![streams(TransferDirection::Up, 1)]);
    let watch = &mut |progress: TestProgress| {
        if progress.at_ns > 50_000_000 {
            drop(cut.shutdown(std::net::Shutdown::Both));
        }
    };
    let outcome = client.run(HERE, &spec, watch, &|| false).unwrap();
    let error = outcome.there.unwrap_err();
    assert_eq!((error.activity, &error.fault), ("running a test", &SessionFault::Closed));
    assert_eq!(served.join().unwrap().unwrap_err().activity, "running a test");
    assert_eq!(outcome.here.ended, TestEnding::Complete, "the data connection went on");
    let (mut again, _served) = join(&agent);
    let there = again.fetch(outcome.token, Span::from_secs(5)).unwrap();
    assert_eq!(total(&outcome.here, true), total(&there, true));
    // The second time it is gone.
    match again.fetch(outcome.token, Span::from_secs(5)) {
        Err(AgentClientError::Refused(TaskRefusal::NoReport)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_has_vanished_is_not_sent_datagrams_for_long_and_its_report_is_kept() {
    let (limits, timing) = (AgentLimits::default(), SessionTiming::default());
    let agent = MeasurementAgent::new("test", limits, timing, vec![Box::new(LoadService)]);
    let mut long = spec(vec![datagrams(false, 8_000_000)]);
    (long.duration_ns, long.interval_ns) = (300_000_000_000, 3_600_000_000_000);
    for is_half_open in [false, true] {
        let (mut client, cut, ready, ports) = prepare(&agent, &long);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect((Ipv4Addr::LOCALHOST, ports[0])).unwrap();
        let (patience, stop) = (Span::from_secs(20), AtomicBool::new(false));
        udp_handshake::connect(&socket, &ready.token, 0, patience, &stop).unwrap();
        client.start();
        client.send_data(Vec::new());
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket.recv(&mut [0; 2_000]).unwrap();
        // From now on it is silent, and nothing refuses what is sent to it.
        if !is_half_open {
            cut.shutdown(std::net::Shutdown::Both).unwrap();
        }
        wait_until_free(&agent);
        // The session of one that says nothing at all is still open.
        assert_eq!(agent.active_counts().0, u32::from(is_half_open));
        let (mut again, _served) = join(&agent);
        let report = again.fetch(ready.token, Span::from_secs(5)).unwrap();
        let sent = stream_of(&report, 0).sender.as_ref().unwrap();
        assert!(sent.cut_short && sent.count > 0, "{sent:?}");
        let TestEnding::Broken(why) = &report.ended else { panic!("{:?}", report.ended) };
        assert!(why.contains("no sign of the client"), "{why}");
        drop(client);
    }
}

#[test]
fn datagrams_outlive_the_control_connection_while_their_receiver_is_there() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, _served, cut) = join_with_cut(&agent);
    let mut spec = spec(vec![datagrams(false, 8_000_000)]);
    // Longer than either side waits for a sign of the other.
    spec.duration_ns = 5_000_000_000;
    // Only then has the agent been told to begin.
    let watch = &mut |progress: TestProgress| {
        if progress.peer_activity > 0 {
            cut.shutdown(std::net::Shutdown::Both).ok();
        }
    };
    let outcome = client.run(HERE, &spec, watch, &|| false).unwrap();
    assert!(outcome.there.is_err());
    let (mut again, _served) = join(&agent);
    let there = again.fetch(outcome.token, Span::from_secs(5)).unwrap();
    assert_eq!((outcome.here.ended, &there.ended), (TestEnding::Complete, &TestEnding::Complete));
    let sent = stream_of(&there, 0).sender.as_ref().unwrap();
    // Not that all were sent: a suspension near the end may cut the schedule short.
    assert!(sent.end_ns - sent.start_ns > 4_000_000_000, "{sent:?}");
}

#[test]
fn an_agent_that_keeps_nothing_ends_the_test_with_its_connection() {
    let agent = agent_with(AgentLimits { report_retention: Span::ZERO, ..AgentLimits::default() });
    let (mut client, served, cut) = join_with_cut(&agent);
    let mut long = spec(vec![streams(TransferDirection::Up, 1)]);
    long.duration_ns = 30_000_000_000;
    let began_ns = monotonic_ns();
    let watch = &mut |_| drop(cut.shutdown(std::net::Shutdown::Both));
    let outcome = client.run(HERE, &long, watch, &|| false).unwrap();
    assert!(matches!(outcome.here.ended, TestEnding::Broken(_)), "{:?}", outcome.here.ended);
    assert!(outcome.there.is_err() && served.join().unwrap().is_err());
    assert!(monotonic_ns() - began_ns < 20_000_000_000, "nobody waits for a test that is over");
    while agent.active_counts() != (0, 0) {
        thread::yield_now();
    }
}

/// Waits until the agent has no test any more.
fn wait_until_free(agent: &MeasurementAgent) {
    let began = now();
    while agent.active_counts().1 > 0 {
        assert!(now().saturating_since(began) < Span::from_secs(25), "the test goes on");
        plumb_clock::sleep_until(monotonic_ns() + 10_000_000);
    }
}

#[test]
fn the_longest_interval_gives_few_readings_and_ends_in_time() {
    let agent = agent_with(AgentLimits::default());
    let mut spec = spec(vec![streams(TransferDirection::Up, 1)]);
    (spec.interval_ns, spec.drain_ns) = (u64::MAX, 500_000_000);
    let (mut client, _cut, ready, ports) = prepare(&agent, &spec);
    let silent = TcpStream::connect((Ipv4Addr::LOCALHOST, ports[0])).unwrap();
    token_listener::send_preamble(&silent, 0, ready.token).unwrap();
    client.start();
    let report = loop {
        match client.next_event(Instant::NEVER) {
            Some(client::ClientEvent::Reported(report)) => break report,
            _ => assert!(!client.is_over(), "{}", client.end_reason()),
        }
    };
    let report: TestReport = decode(&report).unwrap();
    // At the beginning, after the warm-up, at the end of what counts, and when all is over.
    assert_eq!(report.moments.len(), 4, "{:?}", report.moments);
}

#[test]
fn an_exchange_that_nobody_joins_is_over_by_its_deadline() {
    let agent = agent_with(AgentLimits::default());
    for transport in [RequestTransport::Udp, RequestTransport::Quic] {
        let mut spec = spec(vec![exchange(transport, RequestPacing::Closed)]);
        spec.drain_ns = 0;
        let (mut client, ..) = prepare(&agent, &spec);
        client.start();
        client.send_data(Vec::new());
        wait_until_free(&agent);
    }
}

#[test]
fn a_connection_that_trickles_ends_with_its_test() {
    let agent = agent_with(AgentLimits::default());
    let part = RequestResponsePart {
        transport: RequestTransport::Tcp,
        request_bytes: 100_000,
        response_bytes: 1,
        pacing: RequestPacing::Connect,
    };
    let mut spec = spec(vec![PartSpec::Exchange(part)]);
    spec.drain_ns = 0;
    let (mut client, _cut, ready, ports) = prepare(&agent, &spec);
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, ports[0])).unwrap();
    let first = connect();
    token_listener::send_preamble(&first, 0, ready.token).unwrap();
    client.start();
    client.send_data(Vec::new());
    let mut slow = connect();
    slow.write_all(&ready.token.0).unwrap();
    let trickle = thread::spawn(move || {
        while slow.write_all(&[0]).is_ok() {
            plumb_clock::sleep_until(monotonic_ns() + 1_000_000);
        }
    });
    wait_until_free(&agent);
    trickle.join().unwrap();
}

#[test]
fn a_stopped_test_gives_what_there_is() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, _served) = join(&agent);
    let mut long = spec(vec![streams(TransferDirection::Down, 1), probes()]);
    long.duration_ns = 60_000_000_000;
    let stop = std::cell::Cell::new(false);
    let watch = &mut |progress: TestProgress| stop.set(progress.at_ns > 200_000_000);
    let outcome = client.run(HERE, &long, watch, &|| stop.get()).unwrap();
    assert_eq!(outcome.here.ended, TestEnding::Stopped);
    assert_eq!(outcome.there.unwrap().ended, TestEnding::Stopped);
    assert!(total(&outcome.here, false) > 0);
    // And the next test runs as if nothing had been.
    assert_eq!(both(&mut client, &spec(vec![probes()])).1.ended, TestEnding::Complete);
}

#[test]
fn a_silent_peer_is_noticed_and_a_slow_one_does_not_outlast_its_deadline() {
    let silence = Span::from_ms(900);
    let impatient = SessionTiming { hello: Span::from_ms(500), silence, ..timing() };
    let (limits, service) = (AgentLimits::default(), Box::new(LoadService));
    let agent = MeasurementAgent::new("test", limits, impatient, vec![service]);
    let (_silent, theirs) = wires();
    let error = serve(&agent, theirs).join().unwrap().unwrap_err();
    assert_eq!(error.activity, "waiting for the client's hello");
    // One byte of the hello now and then keeps the line busy, and the deadline where it is.
    let (mut slow, theirs) = wires();
    let served = serve(&agent, theirs);
    slow.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let hello = frame(&ProtocolHello::of_this_program("slow").encode());
    let mut answer = [0; 4096];
    for byte in hello.iter().cycle() {
        let gone = slow.write_all(&[*byte]).is_err() || matches!(slow.read(&mut answer), Ok(0));
        if gone || served.is_finished() {
            break;
        }
    }
    assert!(served.join().unwrap().is_err());
    // One that greets and then falls silent is half-open.
    let (mut half, theirs) = wires();
    let served = serve(&agent, theirs);
    half.write_all(&hello).unwrap();
    let error = served.join().unwrap().unwrap_err();
    assert_eq!(error.fault, SessionFault::Silent(silence));
    assert_eq!(agent.active_counts(), (0, 0));
}

#[test]
fn what_does_not_show_the_token_gets_nothing_and_changes_nothing() {
    let agent = agent_with(AgentLimits::default());
    let spec = spec(vec![streams(TransferDirection::Up, 1), probes()]);
    let (_client, cut, _ready, ports) = prepare(&agent, &spec);
    let wrong = [0xaa; 64];
    let mut unknown_client = TcpStream::connect((Ipv4Addr::LOCALHOST, ports[0])).unwrap();
    unknown_client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    unknown_client.write_all(&wrong[..18]).unwrap();
    assert_eq!(unknown_client.read(&mut [0; 8]).unwrap_or(0), 0, "closed without a word");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket.send_to(&wrong, (Ipv4Addr::LOCALHOST, ports[1])).unwrap();
    assert!(socket.recv_from(&mut [0; 64]).is_err(), "no datagram without the token is answered");
    cut.shutdown(std::net::Shutdown::Both).unwrap();
    while agent.active_counts().1 > 0 {
        thread::yield_now();
    }
}

#[test]
fn a_data_port_that_nobody_listens_at_is_a_named_error_and_the_session_goes_on() {
    let agent = agent_with(AgentLimits::default());
    let (mut client, _served) = join(&agent);
    // Another address of this host, at which only an agent of all addresses would listen: none refuses.
    let elsewhere: SocketAddr = "[::1]:0".parse().unwrap();
    let outcome = client.run(elsewhere, &spec(vec![probes()]), &mut |_| {}, &|| false);
    assert!(outcome.is_ok() || matches!(outcome, Err(AgentClientError::Connect(_))), "{outcome:?}");
    let unroutable: SocketAddr = "240.0.0.1:0".parse().unwrap();
    match client.run(
        unroutable,
        &spec(vec![streams(TransferDirection::Up, 1)]),
        &mut |_| {},
        &|| false,
    ) {
        Err(AgentClientError::Connect(error)) => assert!(error.to_string().contains("240.0.0.1")),
        other => panic!("{other:?}"),
    }
    assert!(client.run(HERE, &spec(vec![probes()]), &mut |_| {}, &|| false).is_ok());
}
