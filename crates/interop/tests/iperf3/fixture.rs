//! What the tests share: a server in a thread, a client from iperf3's own words.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_interop::iperf3::client::{self, Iperf3ClientOptions, Iperf3TestError};
use plumb_interop::iperf3::parameters::{
    Iperf3Direction, Iperf3Parameters, Iperf3TestLength, Iperf3Transport,
};
use plumb_interop::iperf3::record::Iperf3Test;
use plumb_interop::iperf3::server::{self, Iperf3Server, Iperf3ServerEvent};
use plumb_interop::iperf3::session::Iperf3Limits;
use plumb_interop::iperf3::sockets::Iperf3AddressFamily;

/// A server on loopback ports of its own, ended with this.
pub struct RunningIperf3Server {
    pub addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Iperf3ServerEvent>>>,
}

impl RunningIperf3Server {
    pub fn with(tests_max: usize, limits: Iperf3Limits) -> Self {
        let server = Iperf3Server::bind(server::Iperf3ServerOptions {
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
        Self::with(1, Iperf3Limits::default())
    }

    pub fn port(&self) -> u16 {
        self.addresses[0].port()
    }

    /// Ends it; what it told.
    pub fn end(mut self) -> Vec<Iperf3ServerEvent> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for RunningIperf3Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The test that a server told about last.
pub fn last_test(notices: Vec<Iperf3ServerEvent>) -> Iperf3Test {
    let test = notices.into_iter().rev().find_map(|notice| match notice {
        Iperf3ServerEvent::Ended(test) => Some(*test),
        _ => None,
    });
    test.expect("a test came to its end")
}

/// A client as iperf3's options say.
pub fn client(port: u16, words: &str) -> Iperf3ClientOptions {
    let mut parameters = Iperf3Parameters::default();
    let (mut host, mut length, mut family) =
        ("127.0.0.1".to_owned(), None, Iperf3AddressFamily::Any);
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
            "-t" => parameters.length_limit = Iperf3TestLength::Seconds(small(number())),
            "-n" => parameters.length_limit = Iperf3TestLength::Bytes(number()),
            "-k" => parameters.length_limit = Iperf3TestLength::Blocks(number()),
            "-R" => parameters.direction = Iperf3Direction::Reverse,
            "--bidir" => parameters.direction = Iperf3Direction::Both,
            "-P" => parameters.streams = small(number()),
            "-u" => parameters.protocol = Iperf3Transport::Udp,
            "-b" => parameters.bitrate = Rate::from_bits_per_second(number()),
            "-l" => length = Some(small(number())),
            "-O" => parameters.omit_seconds = small(number()),
            "-w" => parameters.window = Some(small(number())),
            "-M" => parameters.mss = Some(small(number())),
            "-C" => parameters.congestion = Some(words.next().unwrap().to_owned()),
            "-N" => parameters.no_delay = true,
            "-S" => parameters.type_of_service = u8::try_from(number()).unwrap(),
            "-Z" => parameters.zerocopy = true,
            "-6" => (host, family) = ("::1".to_owned(), Iperf3AddressFamily::V6),
            "--udp-counters-64bit" => parameters.wide_counters = true,
            "--get-server-output" => parameters.server_report = true,
            "--repeating-payload" => parameters.repeating = true,
            other => panic!("{other}"),
        }
    }
    if parameters.protocol == Iperf3Transport::Udp && parameters.bitrate.is_none() {
        parameters.bitrate = Rate::from_bits_per_second(1 << 20);
    }
    Iperf3ClientOptions {
        host,
        port,
        family,
        bind: None,
        connect_timeout: Span::from_secs(10),
        interval: Span::from_ms(250),
        length,
        parameters,
    }
}

/// Runs a client to its end.
pub fn run(options: &Iperf3ClientOptions) -> Result<Iperf3Test, Iperf3TestError> {
    client::run(options, &|| false, &mut |_| {})
}
