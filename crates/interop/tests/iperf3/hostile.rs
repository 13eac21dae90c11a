//! Clients that mean no good, or are gone: slow ones, many, cut off at any state, speaking nonsense; and
//! datagrams that come twice, late, or from somebody else.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use plumb_base::seed::Seed;
use plumb_base::units::Rate;
use plumb_interop::iperf3::message::{Iperf3Cookie, Iperf3Message, encode_frame};
use plumb_interop::iperf3::parameters::{
    Iperf3Direction, Iperf3Parameters, Iperf3TestLength, Iperf3Transport,
};
use plumb_interop::iperf3::results::{Iperf3Results, Iperf3Totals};
use plumb_interop::iperf3::session::Iperf3Limits;
use rand::RngExt;

use crate::fixture::{RunningIperf3Server, client, last_test, run};

const COOKIE: [u8; 37] = *b"abcdefghijklmnopqrstuvwxyz234567abcd\0";

/// A client by hand, which says what it likes.
struct RawIperf3Client(TcpStream);

impl RawIperf3Client {
    fn connect(served: &RunningIperf3Server, cookie: [u8; 37]) -> Self {
        let stream = TcpStream::connect(served.addresses[0]).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Self(stream);
        client.say(Iperf3Cookie::received(cookie).bytes());
        client
    }

    fn say(&mut self, bytes: &[u8]) {
        // The server may have had enough.
        self.0.write_all(bytes).ok();
    }

    fn hear(&mut self) -> u8 {
        let mut byte = [0];
        self.0.read_exact(&mut byte).unwrap();
        byte[0]
    }

    fn expect(&mut self, message: Iperf3Message) {
        assert_eq!(self.hear(), message.byte(), "{message}");
    }

    /// What comes until the server closes.
    fn rest(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => {}
            // It closed before it had read everything.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}"),
        }
        bytes
    }
}

fn datagram(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Whether the kernel asks one end of a connection's other end for signs of life: its timer is 2 then
/// (proc_net_tcp.rst).
fn is_watched(near: u16, far: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let mut has_port = |port: u16| {
                let end = fields.next().unwrap_or_default();
                end.ends_with(&format!(":{port:04X}"))
            };
            has_port(near)
                && has_port(far)
                && fields.nth(2).is_some_and(|timer| timer.starts_with("02:"))
        })
    })
}

#[test]
fn a_client_that_vanishes_is_found_out_by_its_control_connection() {
    let served = RunningIperf3Server::alone();
    let mut control = RawIperf3Client::connect(&served, COOKIE);
    control.expect(Iperf3Message::ParameterExchange);
    let (server, client) = (served.addresses[0].port(), control.0.local_addr().unwrap().port());
    let found = (0..4_000).any(|_| {
        std::thread::park_timeout(Duration::from_millis(5));
        is_watched(server, client)
    });
    assert!(found, "nobody would notice that it is gone");
}

#[test]
fn duplicates_and_late_datagrams_are_counted_as_what_they_are() {
    let served = RunningIperf3Server::alone();
    let mut control = RawIperf3Client::connect(&served, COOKIE);
    control.expect(Iperf3Message::ParameterExchange);
    let parameters = Iperf3Parameters {
        protocol: Iperf3Transport::Udp,
        length: 100,
        length_limit: Iperf3TestLength::Seconds(1),
        ..Iperf3Parameters::default()
    };
    control.say(&encode_frame(&parameters.to_json()));
    control.expect(Iperf3Message::CreateStreams);
    // Somebody else's hello is not the client's: nothing is sent there.
    let unknown_client = UdpSocket::bind("127.0.0.2:0").unwrap();
    unknown_client.send_to(b"9876", served.addresses[0]).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect(served.addresses[0]).unwrap();
    socket.send(b"9876").unwrap();
    let mut answer = [0; 16];
    assert_eq!(socket.recv(&mut answer).unwrap(), 4);
    assert_eq!(answer[..4], *b"6789");
    control.expect(Iperf3Message::TestStart);
    control.expect(Iperf3Message::TestRunning);
    // The answer might have been lost: the hello comes again, is answered again, and counts for nothing.
    socket.send(b"9876").unwrap();
    assert_eq!(socket.recv(&mut answer).unwrap(), 4);
    // 4 and 9 never come, 6 is late, 3 and 7 come twice; 10, 11 and 12 are sent behind the last that comes.
    for number in [1, 2, 3, 3, 5, 7, 6, 7, 8] {
        socket.send(&datagram(number, 100)).unwrap();
    }
    control.say(&[Iperf3Message::TestEnd.byte()]);
    control.expect(Iperf3Message::ExchangeResults);
    let sent =
        Iperf3Totals { id: 1, bytes: 1_200, packets: 12, seconds: 1.0, ..Default::default() };
    let own = Iperf3Results { streams: vec![sent], ..Iperf3Results::default() };
    control.say(&encode_frame(&own.to_json()));
    let mut head = [0; 4];
    control.0.read_exact(&mut head).unwrap();
    let mut text = vec![0; u32::from_be_bytes(head) as usize];
    control.0.read_exact(&mut text).unwrap();
    control.expect(Iperf3Message::DisplayResults);
    control.say(&[Iperf3Message::Done.byte()]);
    let theirs = Iperf3Results::of_json(&serde_json::from_slice(&text).unwrap()).unwrap();
    assert_eq!((theirs.streams[0].packets, theirs.streams[0].errors), (12, 5));
    assert_eq!(theirs.streams[0].bytes, 900);
    let stream = &theirs.extra.unwrap()["streams"][0];
    assert_eq!((&stream["duplicates"], &stream["out_of_order"]), (&2.into(), &1.into()));
    unknown_client.set_nonblocking(true).unwrap();
    assert!(unknown_client.recv(&mut answer).is_err(), "an unauthenticated client was answered");
    assert_eq!(last_test(served.end()).error, None);
}

#[test]
fn a_thousand_connections_that_say_nothing_keep_nobody_out() {
    let served = RunningIperf3Server::alone();
    let mut idle = Vec::new();
    for index in 0..1_000_usize {
        // As many as this process may have.
        let Ok(mut stream) = TcpStream::connect(served.addresses[0]) else { break };
        // Some begin a cookie, and never end it.
        stream.write_all(&COOKIE[..index % 37]).ok();
        idle.push(stream);
        if idle.len() > 400 {
            idle.remove(0);
        }
    }
    run(&client(served.port(), "-n 1M -P 4")).unwrap();
    drop(idle);
}

#[test]
fn a_control_connection_cut_at_any_state_frees_the_server() {
    let served = RunningIperf3Server::alone();
    for depth in 0..4 {
        // Another test each time: with the same cookie it would be a stream of the one that is not over yet.
        let mut cookie = COOKIE;
        cookie[0] += depth;
        let mut control = RawIperf3Client::connect(&served, cookie);
        control.expect(Iperf3Message::ParameterExchange);
        let mut stream = None;
        if depth > 0 {
            let direction = Iperf3Direction::Both;
            let parameters = Iperf3Parameters { direction, ..Iperf3Parameters::default() };
            control.say(&encode_frame(&parameters.to_json()));
            control.expect(Iperf3Message::CreateStreams);
        }
        if depth > 1 {
            stream = Some([0, 1].map(|_| RawIperf3Client::connect(&served, cookie)));
            control.expect(Iperf3Message::TestStart);
            control.expect(Iperf3Message::TestRunning);
        }
        if depth > 2 {
            control.say(&[Iperf3Message::TestEnd.byte()]);
            control.expect(Iperf3Message::ExchangeResults);
        }
        drop((control, stream));
        // Free as soon as it has seen the end.
        let mut tries = 0;
        while let Err(failure) = run(&client(served.port(), "-n 10K")) {
            tries += 1;
            assert!(tries < 2_000, "cut at {depth}: {failure}");
        }
    }
}

#[test]
fn nonsense_is_refused_at_once_and_the_next_client_is_served() {
    let served = RunningIperf3Server::with(4, Iperf3Limits::default());
    let seed = Seed(5);
    let mut chance = seed.stream("nonsense");
    for round in 0..300 {
        let mut cookie = COOKIE;
        cookie[0] = b'0';
        cookie[1] = u8::try_from(round % 256).unwrap();
        let mut control = RawIperf3Client::connect(&served, cookie);
        // Where there is no room it is told so: the one before may not be gone yet.
        if control.hear() != Iperf3Message::ParameterExchange.byte() {
            continue;
        }
        let mut bytes = encode_frame(&Iperf3Parameters::default().to_json());
        let at = chance.random_range(0..bytes.len());
        match chance.random_range(0..3) {
            0 => bytes[at] = chance.random_range(0..=255),
            1 => bytes[..4].copy_from_slice(&[0xFF; 4]),
            _ => bytes.truncate(at),
        }
        control.say(&bytes);
        control.0.shutdown(std::net::Shutdown::Write).unwrap();
        // A refusal with its reason, or an invitation where the change did no harm, then the end.
        let rest = control.rest();
        assert!(
            matches!(rest.first(), None | Some(0xFE | 10)),
            "{seed:?}, round {round}: {rest:?}"
        );
    }
    let mut tries = 0;
    while let Err(failure) = run(&client(served.port(), "-n 10K")) {
        tries += 1;
        assert!(tries < 2_000, "{failure}");
    }
}

#[test]
fn a_client_that_sends_faster_than_it_said_is_ended_as_iperf3_ends_it() {
    let bitrate = Rate::from_bits_per_second(1_000_000);
    let served = RunningIperf3Server::with(1, Iperf3Limits { bitrate, ..Iperf3Limits::default() });
    let mut control = RawIperf3Client::connect(&served, COOKIE);
    control.expect(Iperf3Message::ParameterExchange);
    let parameters = Iperf3Parameters { bitrate, ..Iperf3Parameters::default() };
    control.say(&encode_frame(&parameters.to_json()));
    control.expect(Iperf3Message::CreateStreams);
    let mut stream = RawIperf3Client::connect(&served, COOKIE).0;
    control.expect(Iperf3Message::TestStart);
    control.expect(Iperf3Message::TestRunning);
    // Far more than five seconds' worth, and than any kernel has room for; the server hangs up before its end.
    let block = vec![0; 1 << 16];
    let mut sent = 0;
    while sent < 64 << 20 && stream.write_all(&block).is_ok() {
        sent += block.len();
    }
    // The protocol's error of the whole rate, which is number 27.
    assert_eq!(control.rest()[..5], [0xFE, 0, 0, 0, 27]);
    let test = last_test(served.end());
    let why = test.error.expect("it was ended");
    assert!(why.contains("which this server allows"), "{why}");
}

#[test]
fn a_stream_with_a_wrong_cookie_is_no_stream_of_the_test() {
    let served = RunningIperf3Server::alone();
    let mut control = RawIperf3Client::connect(&served, COOKIE);
    control.expect(Iperf3Message::ParameterExchange);
    control.say(&encode_frame(&Iperf3Parameters::default().to_json()));
    control.expect(Iperf3Message::CreateStreams);
    let mut wrong = COOKIE;
    wrong[5] ^= 1;
    assert_eq!(
        RawIperf3Client::connect(&served, wrong).rest(),
        [Iperf3Message::AccessDenied.byte()]
    );
    let _right = RawIperf3Client::connect(&served, COOKIE);
    control.expect(Iperf3Message::TestStart);
}
