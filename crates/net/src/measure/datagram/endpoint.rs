//! One side of a stream of datagrams as a part of a test: meets the other side, then sends or receives.
//!
//! The receiver is ready before the sender is told to begin, and the sender's side answers who missed its welcome
//! until then. All of the test counts: a datagram that is lost in the warm-up is lost.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use plumb_base::time::Span;
use plumb_base::units::Rate;

use super::receiver::{self, DatagramProgress, PreparedReceiver, ReceiverConfig, ReceiverReport};
use super::sender::{self, DatagramSendPlan, SenderReport};
use crate::measure::connect::connect_udp;
use crate::measure::test_spec::{DatagramsSpec, TestSpec};
use crate::measure::thread::ThreadCpuClock;
use plumb_clock::monotonic_ns;
use plumb_remote::address::BindAddress;
use plumb_remote::datagram_header::TestToken;
use plumb_remote::task_control::TestControl;
use plumb_remote::udp_handshake::{self, UdpHandshakeError};
use plumb_result::net::DatagramSample;
use serde::{Deserialize, Serialize};

/// How long the client announces itself.
const PATIENCE: Span = Span::from_secs(5);
/// The only stream of its socket.
const STREAM: u16 = 0;
/// A receiver waits for the end for so many periods of its datagrams, if that is longer than its usual time.
const PERIODS: u64 = 4;

/// Paced datagrams, as one side saw them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramsReport {
    /// Whether the client's side is the one that sent.
    pub is_up: bool,
    /// What the sender did, where this side sent.
    pub sender: Option<SenderReport>,
    /// What the receiver saw, where this side received.
    pub receiver: Option<ReceiverReport>,
    /// Datagrams sent or received and their bytes, one entry for each of the report's moments.
    pub samples: Vec<DatagramSample>,
    /// What went wrong.
    pub error: Option<String>,
}

/// One side of a stream.
#[derive(Debug)]
pub struct DatagramEndpoint {
    socket: UdpSocket,
    token: TestToken,
    spec: DatagramsSpec,
    /// How long the stream is sent.
    planned: Span,
    expectation: ReceiverConfig,
    /// What the socket had counted before, where this side receives.
    prepared: Option<PreparedReceiver>,
    progress: DatagramProgress,
    worker: ThreadCpuClock,
    samples: Mutex<Vec<DatagramSample>>,
}

impl DatagramEndpoint {
    /// The agent's side, for whoever shows the token.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listen(
        token: TestToken,
        test: &TestSpec,
        spec: &DatagramsSpec,
        at: BindAddress,
    ) -> io::Result<Self> {
        let socket = at.open(UdpSocket::bind)?;
        Self::new(socket, token, test, spec, true)
    }

    /// The client's side, once the agent has answered it.
    ///
    /// # Errors
    /// It does not answer, or the kernel refuses.
    pub fn connect(
        address: SocketAddr,
        token: TestToken,
        test: &TestSpec,
        spec: &DatagramsSpec,
        control: &TestControl,
    ) -> Result<Self, UdpHandshakeError> {
        let socket = connect_udp(address)?;
        let endpoint = Self::new(socket, token, test, spec, false)?;
        udp_handshake::connect(
            &endpoint.socket,
            &endpoint.token,
            STREAM,
            PATIENCE,
            control.stop_flag(),
        )?;
        Ok(endpoint)
    }

    fn new(
        socket: UdpSocket,
        token: TestToken,
        test: &TestSpec,
        spec: &DatagramsSpec,
        is_agent: bool,
    ) -> io::Result<Self> {
        let receives = spec.is_up == is_agent;
        let rate = Rate::from_bits_per_second(spec.rate_bits_per_second);
        let longest = Span::from_ns(test.longest_ns());
        let usual = ReceiverConfig::new(token, STREAM, rate, longest);
        let periods = Span::from_ns(spec.period_ns().saturating_mul(PERIODS));
        let expectation =
            ReceiverConfig { idle: usual.idle.max(periods), shows_presence: !is_agent, ..usual };
        let prepared =
            if receives { Some(receiver::prepare(&socket, &expectation)?) } else { None };
        Ok(Self {
            socket,
            token,
            spec: spec.clone(),
            planned: Span::from_ns(test.planned_ns()),
            expectation,
            prepared,
            progress: DatagramProgress::default(),
            worker: ThreadCpuClock::default(),
            samples: Mutex::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// The agent's side waits for the client until the steady clock shows `until_ns`.
    ///
    /// # Errors
    /// It did not come, or the kernel refuses; of the kind `Interrupted` when the test was halted meanwhile.
    pub fn accept_peer(&self, until_ns: u64, control: &TestControl) -> io::Result<()> {
        let patience = Span::from_ns(until_ns.saturating_sub(monotonic_ns()));
        let is_stopped = || control.is_halted();
        let met = udp_handshake::accept(&self.socket, &self.token, patience, &is_stopped);
        met.map(drop).map_err(|error| match error {
            UdpHandshakeError::Canceled => io::Error::new(io::ErrorKind::Interrupted, error),
            UdpHandshakeError::Kernel(error) => error,
            error => io::Error::other(error),
        })
    }

    /// Whether the client's side sends.
    pub const fn is_up(&self) -> bool {
        self.spec.is_up
    }

    /// Datagrams so far, sent or received by this side, and the time of its thread.
    pub fn count(&self) -> DatagramSample {
        DatagramSample {
            datagrams: self.progress.datagrams.load(Ordering::Relaxed),
            bytes: self.progress.bytes.load(Ordering::Relaxed),
            cpu_ns: self.worker.cpu_ns(),
        }
    }

    /// Times that the receiver of what this side sends has shown that it is there.
    pub fn presence(&self) -> u64 {
        self.progress.presence.load(Ordering::Relaxed)
    }

    /// Whether this side sends now.
    pub fn is_sending(&self) -> bool {
        self.progress.is_sending.load(Ordering::Relaxed)
    }

    /// Notes how far it is.
    pub fn sample(&self) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(self.count());
    }

    /// Ends the stream soon.
    pub fn stop(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    /// Sends from the beginning of the test, or receives until all have come; until halted.
    pub fn run(&self, control: &TestControl) -> DatagramsReport {
        self.worker.begin(1);
        let mut report = DatagramsReport { is_up: self.spec.is_up, ..DatagramsReport::default() };
        match self.prepared {
            Some(prepared) => match self.receive(prepared, control) {
                Ok(came) => report.receiver = Some(came),
                Err(error) => report.error = Some(format!("receiving datagrams failed: {error}")),
            },
            None => report.error = self.send(control, &mut report.sender).err(),
        }
        self.worker.end();
        report
    }

    /// What it noted.
    pub fn take_samples(&self) -> Vec<DatagramSample> {
        std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn receive(
        &self,
        prepared: PreparedReceiver,
        control: &TestControl,
    ) -> io::Result<ReceiverReport> {
        let due_ns = || control.began_ns().map(|began| began.saturating_add(self.planned.as_ns()));
        receiver::receive(&self.socket, prepared, &self.expectation, &self.progress, &due_ns)
    }

    fn send(&self, control: &TestControl, sent: &mut Option<SenderReport>) -> Result<(), String> {
        let waits = || control.began_ns().is_none() && !control.is_halted();
        udp_handshake::answer_repeated_hellos(&self.socket, &self.token, &waits)
            .map_err(|error| format!("waiting for the beginning failed: {error}"))?;
        let plan = DatagramSendPlan {
            token: self.token,
            stream: STREAM,
            datagram_bytes: usize::from(self.spec.datagram_bytes),
            rate: Rate::from_bits_per_second(self.spec.rate_bits_per_second),
            duration: self.planned,
            segmentation: true,
        };
        let outcome = sender::send(&self.socket, &plan, &self.progress);
        let outcome = outcome.map_err(|error| error.to_string())?;
        *sent = Some(outcome.report);
        outcome.error.map_or(Ok(()), |error| Err(error.to_string()))
    }
}
