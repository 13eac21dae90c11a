//! iperf3 against plumb's TCP: the program is the client, its protocol's server an application on the stack over a TAP.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_interop::iperf3::results::{Iperf3Results, Iperf3Totals};
use plumb_interop::iperf3::session::{Iperf3Action, Iperf3Limits, Iperf3Session};
use plumb_interop::iperf3::{PORT, stream_id};
use plumb_netdev::device::Device as _;
use plumb_netdev::device::driver::{Driver, DriverOptions};
use plumb_netdev::device::tap::{TapDevice, TapOffload, TapOptions};
use plumb_netdev::host::{calibrated_clock, pool_for};
use plumb_netdev::lab::{TestBed, TestBedOptions};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::service::{HostApplication, HostNode};
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{ListenerId, Received, TcpId};
use plumb_wire::packet::Pool;
use serde_json::Value;

use super::test_bed::allowed;
use crate::home::installed;

/// Bytes of the cookie with which every connection begins.
const COOKIE: usize = 37;
/// How often the application looks whether it is to end.
const LOOK: Span = Span::from_ms(10);

/// A stream of a test.
struct ServedStream {
    id: TcpId,
    /// Whether this side sends on it.
    sends: bool,
    bytes: u64,
}

/// The server's side of one test after the other.
struct Iperf3Application {
    listener: ListenerId,
    /// Connections whose cookie is not complete.
    new: VecDeque<(TcpId, Vec<u8>)>,
    control: Option<(TcpId, Iperf3Session)>,
    /// For each stream that is expected, whether this side sends.
    expected: Vec<bool>,
    streams: Vec<ServedStream>,
    is_running: bool,
    began: Instant,
    look: Instant,
}

impl Iperf3Application {
    fn accept(&mut self, now: Instant, host: &mut IpHost) {
        while let Some(id) = host.tcp_accept(self.listener) {
            self.new.push_back((id, Vec::new()));
        }
        for _ in 0..self.new.len() {
            let Some((id, mut cookie)) = self.new.pop_front() else { break };
            let mut rest = [0; COOKIE];
            if let Ok(Received::Data(len)) =
                host.tcp_receive(now, id, &mut rest[..COOKIE - cookie.len()])
            {
                cookie.extend(&rest[..len]);
            }
            if cookie.len() < COOKIE {
                self.new.push_back((id, cookie));
            } else if let Some((_, session)) = &mut self.control {
                let sends = self.expected[self.streams.len()];
                self.streams.push(ServedStream { id, sends, bytes: 0 });
                if self.streams.len() == self.expected.len() {
                    session.streams_ready(now);
                }
            } else {
                self.control = Some((id, Iperf3Session::begin(now, Iperf3Limits::default())));
            }
        }
    }

    fn talk(&mut self, now: Instant, host: &mut IpHost) {
        let Some((id, mut session)) = self.control.take() else { return };
        let mut bytes = [0; 4_096];
        loop {
            match host.tcp_receive(now, id, &mut bytes) {
                Ok(Received::Data(len)) => session.receive(now, &bytes[..len]),
                Ok(Received::Empty) => break,
                Ok(Received::End) | Err(_) => {
                    session.close(now);
                    break;
                }
            }
        }
        let mut is_over = false;
        while let Some(action) = session.poll_action() {
            match action {
                Iperf3Action::Send(bytes) => {
                    assert_eq!(host.tcp_send(now, id, &bytes), Ok(bytes.len()));
                }
                Iperf3Action::AcceptStreams(parameters) => {
                    self.expected = parameters.client_sends().iter().map(|sends| !sends).collect();
                    session.accepting_streams();
                }
                Iperf3Action::Start => (self.is_running, self.began) = (true, now),
                Iperf3Action::Stop => {
                    self.is_running = false;
                    // iperf3 reads whole blocks: without an end of stream it waits for the rest of the last one.
                    for stream in self.streams.iter().filter(|stream| stream.sends) {
                        host.tcp_shutdown(now, stream.id).ok();
                    }
                }
                Iperf3Action::Drain(_) => session.finished(now, &self.results(now)),
                Iperf3Action::End(outcome) => {
                    assert_eq!(outcome, Ok(()));
                    is_over = true;
                }
            }
        }
        if is_over {
            for stream in self.streams.drain(..) {
                host.tcp_close(now, stream.id);
            }
            host.tcp_close(now, id);
        } else {
            self.control = Some((id, session));
        }
    }

    fn results(&self, now: Instant) -> Iperf3Results {
        let seconds = now.saturating_since(self.began).as_secs_f64();
        let totals = self.streams.iter().enumerate().map(|(index, stream)| Iperf3Totals {
            id: stream_id(index),
            bytes: stream.bytes,
            seconds,
            ..Iperf3Totals::default()
        });
        Iperf3Results {
            has_retransmits: Some(false),
            streams: totals.collect(),
            ..Iperf3Results::default()
        }
    }

    fn stream(&mut self, now: Instant, host: &mut IpHost) {
        for stream in &mut self.streams {
            while let Ok(Received::Data(len)) = host.tcp_receive_with(now, stream.id, <[u8]>::len) {
                stream.bytes += len as u64;
            }
            while self.is_running && stream.sends {
                let Ok(len @ 1..) = host.tcp_send_with(now, stream.id, 1 << 16, |room| room.len())
                else {
                    break;
                };
                stream.bytes += len as u64;
            }
        }
    }
}

impl HostApplication for Iperf3Application {
    fn handle(&mut self, now: Instant, host: &mut IpHost, _pool: &mut Pool) {
        self.look = now + LOOK;
        while host.poll_tcp_event().is_some() {}
        self.accept(now, host);
        self.stream(now, host);
        self.talk(now, host);
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.look)
    }
}

/// Runs the server over a TAP until it is stopped.
fn run_server(tap: TapDevice, stop: &AtomicBool) {
    let mut host = IpHost::new(HostConfig::default(), Seed(16));
    let interface = InterfaceConfig {
        capabilities: tap.info().capabilities,
        ..InterfaceConfig::ethernet(TestBed::FAR_MAC, 1_500)
    };
    host.add_interface(&interface.with_address(TestBed::FAR_V4, TestBed::PREFIX_LEN.0)).unwrap();
    let listener =
        host.tcp_listen((TestBed::FAR_V4, PORT).into(), 16, TcpConfig::default()).unwrap();
    let application = Iperf3Application {
        listener,
        new: VecDeque::new(),
        control: None,
        expected: Vec::new(),
        streams: Vec::new(),
        is_running: false,
        began: Instant::ORIGIN,
        look: Instant::ORIGIN,
    };
    let mut driver =
        Driver::new(vec![tap], pool_for(1_500), calibrated_clock(), DriverOptions::default());
    let mut node = HostNode { host, application };
    driver.run(&mut node, |_, _, _| stop.load(Ordering::Relaxed)).unwrap();
}

#[test]
fn iperf3_sends_to_and_receives_from_plumbs_tcp() {
    if !installed("iperf3") {
        return;
    }
    let Some(bed) = allowed(TestBed::tap(TestBedOptions::default())) else { return };
    let options = TapOptions { offload: TapOffload::Segments, ..TapOptions::default() };
    let tap = bed.in_near(|| TapDevice::open(TestBed::NEAR_DEVICE, options)).unwrap().unwrap();
    bed.bring_up_near().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let server = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || run_server(tap, &stop)
    });
    let far = TestBed::FAR_V4.to_string();
    for more in [&["-P", "1"][..], &["-R"], &["-P", "4"], &["-P", "4", "-R"]] {
        let words =
            [&["-c", &far, "-t", "1", "--json", "--connect-timeout", "10000"][..], more].concat();
        let output = bed.in_near(|| Command::new("iperf3").args(&words).output()).unwrap().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success(), "{more:?}: {report}");
        let [sent, received] = ["sum_sent", "sum_received"].map(|sum| {
            report["end"][sum]["bytes"].as_f64().unwrap_or_else(|| panic!("{more:?}: {report}"))
        });
        println!("{more:?}: {sent} bytes sent, {received} received");
        assert!(received > 1e6 && received <= sent && received > 0.5 * sent, "{more:?}: {report}");
    }
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap();
}
