//! What the tests share: a server in a thread, a client from iperf3's own words.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use plumb_base::time::Span;
use plumb_base::units::rate::Rate;
use plumb_net::iperf3::client::{self, Failure, Options};
use plumb_net::iperf3::dial::Family;
use plumb_net::iperf3::parameters::{Direction, Extent, Parameters, Protocol};
use plumb_net::iperf3::record::Test;
use plumb_net::iperf3::server::{self, Notice, Server};
use plumb_net::iperf3::session::Limits;

/// A server on loopback ports of its own, ended with this.
pub struct Served {
    pub addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Notice>>>,
}

impl Served {
    pub fn with(tests_max: usize, limits: Limits) -> Self {
        let server = Server::bind(server::Options {
            addresses: vec!["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()],
            tests_max,
            one_off: false,
            limits,
            interval: Span::from_ms(250),
        })
        .unwrap();
        let addresses = server.addresses().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut notices = Vec::new();
            let mut stop = || asked.load(Ordering::Relaxed);
            server.serve(&mut stop, &mut |notice| notices.push(notice)).unwrap();
            notices
        });
        Self { addresses, stop, thread: Some(thread) }
    }

    pub fn alone() -> Self {
        Self::with(1, Limits::default())
    }

    pub fn port(&self) -> u16 {
        self.addresses[0].port()
    }

    /// Ends it; what it told.
    pub fn end(mut self) -> Vec<Notice> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The test that a server told of last.
pub fn last_test(notices: Vec<Notice>) -> Test {
    let test = notices.into_iter().rev().find_map(|notice| match notice {
        Notice::Ended(test) => Some(*test),
        _ => None,
    });
    test.expect("a test came to its end")
}

/// A client as iperf3's options say.
pub fn client(port: u16, words: &str) -> Options {
    let mut parameters = Parameters::default();
    let (mut host, mut length, mut family) = ("127.0.0.1".to_owned(), None, Family::Any);
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        let mut number = || -> u64 {
            let text = words.next().unwrap();
            let (digits, factor) = match text.strip_suffix(['K', 'M', 'G']) {
                Some(digits) if text.ends_with('K') => (digits, 1_000),
                Some(digits) if text.ends_with('M') => (digits, 1_000_000),
                Some(digits) => (digits, 1_000_000_000),
                None => (text, 1),
            };
            digits.parse::<u64>().unwrap() * factor
        };
        let small = |number: u64| u32::try_from(number).unwrap();
        match word {
            "-t" => parameters.extent = Extent::Seconds(small(number())),
            "-n" => parameters.extent = Extent::Bytes(number()),
            "-k" => parameters.extent = Extent::Blocks(number()),
            "-R" => parameters.direction = Direction::Reverse,
            "--bidir" => parameters.direction = Direction::Both,
            "-P" => parameters.streams = small(number()),
            "-u" => parameters.protocol = Protocol::Udp,
            "-b" => parameters.bitrate = Rate::from_bits_per_second(number()),
            "-l" => length = Some(small(number())),
            "-O" => parameters.omit_seconds = small(number()),
            "-w" => parameters.window = Some(small(number())),
            "-M" => parameters.segment = Some(small(number())),
            "-C" => parameters.congestion = Some(words.next().unwrap().to_owned()),
            "-N" => parameters.no_delay = true,
            "-S" => parameters.service = u8::try_from(number()).unwrap(),
            "-Z" => parameters.zerocopy = true,
            "-6" => (host, family) = ("::1".to_owned(), Family::V6),
            "--udp-counters-64bit" => parameters.wide_counters = true,
            "--get-server-output" => parameters.server_report = true,
            "--repeating-payload" => parameters.repeating = true,
            other => panic!("{other}"),
        }
    }
    if parameters.protocol == Protocol::Udp && parameters.bitrate.is_none() {
        parameters.bitrate = Rate::from_bits_per_second(1 << 20);
    }
    Options {
        host,
        port,
        family,
        bind: None,
        patience: Span::from_secs(10),
        interval: Span::from_ms(250),
        length,
        parameters,
    }
}

/// Runs a client to its end.
pub fn run(options: &Options) -> Result<Test, Failure> {
    client::run(options, &|| false, &mut |_| {})
}
