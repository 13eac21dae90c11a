//! One side of a test from its sockets to its report: all parts at once, and a reading of everything at every
//! interval.
//!
//! The thread that reads is none of those that measure. Left out: what is said to the other side meanwhile.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ScopedJoinHandle};

use super::bulk_connection::{self, BulkConnection, TransferPlan};
use super::connect::{DataConnectError, in_parallel};
use super::datagram::endpoint::DatagramEndpoint;
use super::mtu::MtuEndpoint;
use super::probe::{ProbeReflector, ProbeSender};
use super::progress::TestProgress;
use super::report::{
    HostSample, ProbesReport, StreamSample, StreamsReport, TestEnding, TestPartReport, TestReport,
};
use super::request_response::endpoint::{Requester, Responder};
use super::test_spec::{BulkTcpSpec, PartSpec, TestSpec};
use crate::connection_pool::assign_to_threads;
use crate::evidence::{self, HostFacts, KernelCounters, counter_growth, read_counters};
use crate::measure::reading_schedule::{ReadingSchedule, cut_after_ns};
use plumb_clock::{monotonic_ns, realtime_offset_ns};
use plumb_remote::address::{BindAddress, with_port};
use plumb_remote::datagram_header::TestToken;
use plumb_remote::secure::Fingerprint;
use plumb_remote::task_control::TestControl;
use serde::{Deserialize, Serialize};

/// How long the agent waits for all connections and the start of a test.
pub(crate) const START_TIMEOUT_NS: u64 = 30_000_000_000;

#[derive(Debug)]
enum PartEndpoint {
    /// The agent's side, before anybody has connected.
    Listener(TcpListener, BulkTcpSpec),
    Connections(Vec<Arc<BulkConnection>>, BulkTcpSpec),
    ProbeSender(ProbeSender),
    ProbeReflector(ProbeReflector),
    Requester(Box<Requester>),
    Responder(Box<Responder>),
    Datagrams(DatagramEndpoint),
    Mtu(MtuEndpoint),
}

impl PartEndpoint {
    /// Where the agent's side listens; 0 where it does not.
    fn port(&self) -> io::Result<u16> {
        match self {
            Self::Listener(listener, _) => listener.local_addr().map(|address| address.port()),
            Self::ProbeReflector(reflector) => reflector.port(),
            Self::Responder(responder) => responder.port(),
            Self::Datagrams(endpoint) => endpoint.port(),
            Self::Mtu(endpoint) => endpoint.port(),
            Self::Connections(..) | Self::ProbeSender(_) | Self::Requester(_) => Ok(0),
        }
    }
}

/// What a client needs to connect to an agent's half of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestPorts {
    /// The port of each part; 0 for one that needs none.
    pub ports: Vec<u16>,
    /// The most that the agent takes or sends in each part that has no rate of its thread, in bytes a second.
    pub rate_max: Option<u64>,
    /// Fingerprints of the agent's certificates, one for each part, where it encrypts.
    pub certificates: Vec<Option<Fingerprint>>,
}

/// One side of a test that is ready.
#[derive(Debug)]
pub struct TestRun {
    spec: TestSpec,
    token: TestToken,
    control: Arc<TestControl>,
    rate_max: Option<u64>,
    is_agent: bool,
    parts: Vec<PartEndpoint>,
    /// What was read of the host before the test: of the client's side, as its test begins at once.
    before: Option<(HostFacts, KernelCounters)>,
    /// Threads that have not come to their end.
    threads_left: AtomicUsize,
    /// Why a thread could not be started.
    spawn_error: OnceLock<io::Error>,
}

impl TestRun {
    /// The agent's side: sockets that wait, and the port of each part. Parts that need a UDP port each take the port of
    /// `at` and those after it, if it names one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listen(
        spec: &TestSpec,
        token: TestToken,
        rate_max: Option<u64>,
        at: BindAddress,
        control: Arc<TestControl>,
    ) -> io::Result<(Self, Vec<u16>)> {
        let mut udp_parts = 0_u16;
        let mut udp_at = || {
            let next = at.with_port_offset(udp_parts);
            udp_parts += 1;
            next
        };
        let listen = |part: &PartSpec| -> io::Result<PartEndpoint> {
            Ok(match part {
                PartSpec::Streams(streams) => {
                    let streams = limited(streams, rate_max);
                    PartEndpoint::Listener(bulk_connection::listen(&streams, at)?, streams)
                }
                PartSpec::Probes(probes) => PartEndpoint::ProbeReflector(ProbeReflector::bind(
                    token,
                    spec,
                    probes,
                    udp_at(),
                )?),
                PartSpec::Exchange(part) => PartEndpoint::Responder(Box::new(Responder::bind(
                    part, spec, token, rate_max, at,
                )?)),
                PartSpec::Datagrams(datagrams) => PartEndpoint::Datagrams(
                    DatagramEndpoint::listen(token, spec, datagrams, udp_at())?,
                ),
                PartSpec::Mtu(mtu) => PartEndpoint::Mtu(MtuEndpoint::listen(token, mtu, udp_at())?),
            })
        };
        let parts = spec.parts.iter().map(listen).collect::<io::Result<Vec<_>>>()?;
        let ports = parts.iter().map(PartEndpoint::port).collect::<io::Result<_>>()?;
        let run = Self::new(spec, token, control, parts, None);
        Ok((Self { rate_max, ..run }, ports))
    }

    /// Of the client where something was read `before`, of the agent where not.
    fn new(
        spec: &TestSpec,
        token: TestToken,
        control: Arc<TestControl>,
        parts: Vec<PartEndpoint>,
        before: Option<(HostFacts, KernelCounters)>,
    ) -> Self {
        Self {
            spec: spec.clone(),
            token,
            control,
            rate_max: None,
            is_agent: before.is_none(),
            parts,
            before,
            threads_left: AtomicUsize::new(0),
            spawn_error: OnceLock::new(),
        }
    }

    /// The client's side: everything connected to the agent's ports.
    ///
    /// # Errors
    /// [`DataConnectError`], at the first that cannot be.
    pub fn connect(
        spec: &TestSpec,
        token: TestToken,
        ready: &TestPorts,
        agent: SocketAddr,
        control: Arc<TestControl>,
    ) -> Result<Self, DataConnectError> {
        let connect = |(index, part): (usize, &PartSpec)| {
            let port = ready.ports.get(index).copied().unwrap_or_default();
            let address = with_port(agent, port);
            Ok::<_, DataConnectError>(match part {
                PartSpec::Streams(streams) => {
                    let streams = limited(streams, ready.rate_max);
                    let connections = bulk_connection::connect(address, &streams, token)?;
                    PartEndpoint::Connections(connections, streams)
                }
                PartSpec::Probes(probes) => {
                    let sender = ProbeSender::connect(address, token, spec, probes);
                    let sender = sender.map_err(|source| DataConnectError::of(address, &source))?;
                    sender.announce(&control)?;
                    PartEndpoint::ProbeSender(sender)
                }
                PartSpec::Exchange(part) => {
                    let pinned = ready.certificates.get(index).copied().flatten();
                    let requester = Requester::connect(address, token, part, spec, pinned)?;
                    PartEndpoint::Requester(Box::new(requester))
                }
                PartSpec::Datagrams(datagrams) => PartEndpoint::Datagrams(
                    DatagramEndpoint::connect(address, token, spec, datagrams, &control)?,
                ),
                PartSpec::Mtu(mtu) => {
                    let endpoint = MtuEndpoint::connect(address, token, mtu, ready.rate_max)
                        .map_err(|source| DataConnectError::of(address, &source))?;
                    PartEndpoint::Mtu(endpoint)
                }
            })
        };
        let connected = in_parallel(spec.parts.iter().enumerate(), &connect);
        let flatten = |part: io::Result<Result<PartEndpoint, DataConnectError>>| {
            part.map_err(|error| DataConnectError::of(agent, &error))?
        };
        let parts = connected.into_iter().map(flatten).collect::<Result<Vec<_>, _>>()?;
        // Reading takes milliseconds, by which the first of what counts would be late.
        let before = Some((HostFacts::read(), read_counters()));
        Ok(Self::new(spec, token, control, parts, before))
    }

    /// The fingerprints of this side's certificates, one for each part that has one.
    pub fn certificates(&self) -> Vec<Option<Fingerprint>> {
        let of = |part: &PartEndpoint| match part {
            PartEndpoint::Responder(responder) => responder.fingerprint(),
            _ => None,
        };
        self.parts.iter().map(of).collect()
    }

    /// Ends what waits in a socket without a time of its own.
    fn shut_down_sockets(&self) {
        for part in &self.parts {
            match part {
                PartEndpoint::Requester(requester) => requester.shut_down(),
                PartEndpoint::Responder(responder) => responder.shut_down(),
                _ => {}
            }
        }
    }

    /// Measures from the beginning, for which it waits, to the end; `watch` is told at every reading, and some times a
    /// second of what shows that the other side is there.
    pub fn run(mut self, watch: &mut dyn FnMut(TestProgress)) -> TestReport {
        let early = self.before.take();
        let (host, before) = early.map_or_else(|| (HostFacts::read(), None), |(h, c)| (h, Some(c)));
        let until_ns = monotonic_ns() + START_TIMEOUT_NS;
        if let Err(error) = self.accept_connections(until_ns) {
            let halted = error.kind() == io::ErrorKind::Interrupted;
            let why = format!("not all connections of the test came: {error}");
            let ended = if halted { TestEnding::Stopped } else { TestEnding::Broken(why) };
            return TestReport { host, ended, ..TestReport::default() };
        }
        let before = before.unwrap_or_else(read_counters);
        let run = &self;
        let mut report = thread::scope(|scope| run.run_threads(scope, until_ns, watch));
        report.host = host;
        report.counters = counter_growth(&read_counters(), &before);
        report
    }

    fn accept_connections(&mut self, until_ns: u64) -> io::Result<()> {
        let (token, is_agent, control) = (self.token, self.is_agent, &self.control);
        let accept = |part: &mut PartEndpoint| {
            match part {
                PartEndpoint::Listener(listener, streams) => {
                    let connections =
                        bulk_connection::accept(listener, streams, token, until_ns, control)?;
                    *part = PartEndpoint::Connections(connections, streams.clone());
                }
                PartEndpoint::ProbeReflector(reflector) => reflector.accept_peer(until_ns, control),
                PartEndpoint::Datagrams(endpoint) if is_agent => {
                    endpoint.accept_peer(until_ns, control)?;
                }
                PartEndpoint::Responder(responder) => responder.accept(until_ns, control)?,
                _ => {}
            }
            Ok(())
        };
        // The others have no more to wait for.
        let accept = |part| accept(part).inspect_err(|_| control.halt());
        let accepted = in_parallel(self.parts.iter_mut(), &accept).into_iter();
        let mut failed = accepted.filter_map(|part| part.and_then(|part| part).err());
        let Some(first) = failed.next() else { return Ok(()) };
        let is_cause = |error: &io::Error| error.kind() != io::ErrorKind::Interrupted;
        Err(if is_cause(&first) { first } else { failed.find(is_cause).unwrap_or(first) })
    }

    fn connections(&self) -> impl Iterator<Item = &Arc<BulkConnection>> {
        self.parts.iter().flat_map(|part| match part {
            PartEndpoint::Connections(connections, _) => connections.as_slice(),
            _ => &[],
        })
    }

    fn datagram_endpoints(&self) -> impl Iterator<Item = &DatagramEndpoint> {
        self.parts.iter().filter_map(|part| match part {
            PartEndpoint::Datagrams(endpoint) => Some(endpoint),
            _ => None,
        })
    }

    /// Tells those that do not look at the test's own flag that it is set.
    fn propagate_stop(&self) {
        if self.control.is_halted() {
            self.datagram_endpoints().for_each(DatagramEndpoint::stop);
        }
    }

    fn progress(&self, at_ns: u64) -> TestProgress {
        let planned_ns = self.spec.planned_ns();
        let mut progress = TestProgress { at_ns, planned_ns, ..TestProgress::default() };
        for (bytes, is_up) in
            self.connections().map(|connection| (connection.bytes.get(), connection.is_up))
        {
            *if is_up { &mut progress.up_bytes } else { &mut progress.down_bytes } += bytes;
        }
        let (mut only_sent, mut presence) = (0, 0);
        for endpoint in self.datagram_endpoints() {
            let bytes = endpoint.count().bytes;
            *if endpoint.is_up() { &mut progress.up_bytes } else { &mut progress.down_bytes } +=
                bytes;
            only_sent += if endpoint.is_up() == self.is_agent { 0 } else { bytes };
            presence += endpoint.presence();
            progress.sends_datagrams |= endpoint.is_sending();
        }
        for part in &self.parts {
            progress.answered += match part {
                PartEndpoint::ProbeSender(sender) => {
                    progress.round_trips = sender.round_trips();
                    progress.round_trips.total()
                }
                PartEndpoint::Requester(requester) => requester.answered(),
                PartEndpoint::ProbeReflector(reflector) => reflector.answered(),
                _ => 0,
            };
        }
        let all = progress.up_bytes + progress.down_bytes + progress.answered;
        progress.peer_activity = all - only_sent + presence;
        progress
    }
}

/// At no more than the rate that the agent allows.
fn limited(streams: &BulkTcpSpec, rate_max: Option<u64>) -> BulkTcpSpec {
    let rate = [streams.rate_bytes_per_second, rate_max].into_iter().flatten().min();
    BulkTcpSpec { rate_bytes_per_second: rate, ..streams.clone() }
}

/// The thread of one part that gives a report of its own.
type PartThread<'scope> = Option<ScopedJoinHandle<'scope, TestPartReport>>;

impl TestRun {
    /// Starts the threads of a part that answers before the test begins, as a probe may overtake the beginning, and of
    /// any other once it has begun.
    fn start_part<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        part: &'scope PartEndpoint,
        began_ns: Option<u64>,
    ) -> PartThread<'scope> {
        let control = &*self.control;
        let after_begin = |ns| move || control.began_ns().map_or(u64::MAX, |began| began + ns);
        let planned = after_begin(self.spec.planned_ns());
        let deadline = after_begin(cut_after_ns(&self.spec));
        match (part, began_ns) {
            (PartEndpoint::ProbeReflector(reflector), None) => self.spawn(scope, move || {
                TestPartReport::Answers(reflector.run(planned, deadline, control))
            }),
            (PartEndpoint::Responder(responder), None) => self
                .spawn(scope, move || TestPartReport::Responses(responder.run(deadline, control))),
            (PartEndpoint::Datagrams(endpoint), None) => self
                .spawn(scope, move || TestPartReport::Datagrams(Box::new(endpoint.run(control)))),
            (PartEndpoint::Mtu(endpoint), None) => {
                self.spawn(scope, move || TestPartReport::Mtu(endpoint.run(deadline, control)))
            }
            (PartEndpoint::ProbeSender(sender), Some(began_ns)) => self.spawn(scope, move || {
                let report = sender.run(began_ns, began_ns + cut_after_ns(&self.spec), control);
                TestPartReport::Probes(Box::new(report))
            }),
            (PartEndpoint::Requester(requester), Some(_)) => self
                .spawn(scope, move || TestPartReport::Exchange(Box::new(requester.run(control)))),
            (PartEndpoint::Connections(connections, streams), Some(began_ns)) => {
                let plan = self.plan(streams, began_ns);
                let (senders, receivers): (Vec<_>, Vec<_>) =
                    connections.iter().map(Arc::as_ref).partition(|connection| connection.sends);
                for group in [senders, receivers].into_iter().flat_map(assign_to_threads) {
                    let plan = plan.clone();
                    self.spawn(scope, move || {
                        bulk_connection::run_transfers(&group, &plan);
                        TestPartReport::Streams(StreamsReport::default())
                    });
                }
                None
            }
            _ => None,
        }
    }

    fn run_threads<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        until_ns: u64,
        watch: &mut dyn FnMut(TestProgress),
    ) -> TestReport {
        let control = &self.control;
        let mut threads: Vec<PartThread<'scope>> =
            self.parts.iter().map(|part| self.start_part(scope, part, None)).collect();
        let Some(began_ns) = control.wait_for_begin(until_ns) else {
            control.halt();
            self.shut_down_sockets();
            self.propagate_stop();
            return TestReport { ended: TestEnding::Stopped, ..TestReport::default() };
        };
        for (part, thread) in self.parts.iter().zip(&mut threads) {
            *thread = thread.take().or_else(|| self.start_part(scope, part, Some(began_ns)));
        }
        let (moments, samples) = self.sample(began_ns, watch);
        // Told to end after all that counts, it is complete: the other side has no more to come.
        let at_ns = moments.last().map_or(0, |moment| moment.at_ns);
        // A search is over when it has found what it looks for; whatever else ends early, the client knows why.
        let is_told =
            self.is_agent && self.parts.iter().any(|p| !matches!(p, PartEndpoint::Mtu(_)));
        let is_stopped = at_ns < self.spec.planned_ns() && control.is_stop_requested(is_told);
        let mut report = self.assemble_report(moments, samples, threads, is_stopped);
        if let Some(error) = self.spawn_error.get() {
            // Then its result is that it was stopped.
            report.ended = TestEnding::Broken(format!(
                "a thread of the test could not be started: {error}; see 'ulimit -u' and pids.max of the control group"
            ));
        }
        report
    }

    fn spawn<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        work: impl FnOnce() -> TestPartReport + Send + 'scope,
    ) -> PartThread<'scope> {
        self.threads_left.fetch_add(1, Ordering::AcqRel);
        let all = move || {
            let report = work();
            self.threads_left.fetch_sub(1, Ordering::AcqRel);
            self.control.notify();
            report
        };
        let spawned = thread::Builder::new().name("measure".to_owned()).spawn_scoped(scope, all);
        spawned
            .inspect_err(|error| {
                self.spawn_error.set(io::Error::new(error.kind(), error.to_string())).ok();
                // A test with a thread too few measures something else than was asked for.
                self.threads_left.fetch_sub(1, Ordering::AcqRel);
                self.control.halt();
            })
            .ok()
    }

    /// Reads everything when it is due, until all threads are done.
    fn sample(
        &self,
        began_ns: u64,
        watch: &mut dyn FnMut(TestProgress),
    ) -> (Vec<HostSample>, Vec<Vec<StreamSample>>) {
        let mut samples: Vec<Vec<StreamSample>> = self.connections().map(|_| Vec::new()).collect();
        let mut moments = Vec::new();
        let mut schedule = ReadingSchedule::new(&self.spec, began_ns);
        loop {
            let is_done = self.threads_left.load(Ordering::Acquire) == 0;
            self.propagate_stop();
            let now_ns = monotonic_ns();
            let at_ns = now_ns.saturating_sub(began_ns);
            let mut progress = self.progress(at_ns);
            progress.is_reading = is_done || schedule.is_due(now_ns);
            if progress.is_reading {
                for (connection, samples) in self.connections().zip(&mut samples) {
                    let sample = connection.sample();
                    if connection.sends {
                        progress.waits.add(&sample);
                    }
                    samples.push(sample);
                }
                self.datagram_endpoints().for_each(DatagramEndpoint::sample);
                let host = evidence::read_host();
                moments.push(HostSample { at_ns, host, real_ahead_ns: realtime_offset_ns() });
                schedule.on_reading(now_ns);
            }
            watch(progress);
            if is_done {
                return (moments, samples);
            }
            // Again every time: what was accepted late is cut as well.
            if self.control.is_halted() || schedule.is_over(monotonic_ns()) {
                self.shut_down_sockets();
            }
            self.control.wait_until(schedule.wake_ns(monotonic_ns()));
        }
    }

    fn plan(&self, streams: &BulkTcpSpec, began_ns: u64) -> TransferPlan {
        TransferPlan {
            began_ns,
            end_ns: began_ns + self.spec.sending_ns(),
            deadline_ns: began_ns + cut_after_ns(&self.spec),
            block_bytes: usize::try_from(streams.block_bytes).unwrap_or(1 << 17),
            receive_rate_max: self
                .rate_max
                .map(|rate| (rate / u64::from(streams.streams.max(1))).max(1)),
            placement: streams.seating,
            control: Arc::clone(&self.control),
        }
    }

    fn assemble_report(
        &self,
        moments: Vec<HostSample>,
        samples: Vec<Vec<StreamSample>>,
        threads: Vec<PartThread<'_>>,
        is_stopped: bool,
    ) -> TestReport {
        let mut samples = samples.into_iter();
        let mut broken = None;
        let mut parts = Vec::new();
        for (part, thread) in self.parts.iter().zip(threads) {
            let joined = thread.map(ScopedJoinHandle::join);
            parts.push(match (part, joined) {
                (PartEndpoint::Connections(connections, _), _) => {
                    let streams: Vec<_> = connections
                        .iter()
                        .zip(&mut samples)
                        .map(|(connection, s)| connection.report(s))
                        .collect();
                    let error = streams.iter().find_map(|stream| {
                        let error = stream.error.as_ref()?;
                        Some(format!("stream {} broke: {error}", stream.index))
                    });
                    broken = broken.or(error);
                    TestPartReport::Streams(StreamsReport { streams })
                }
                (part, Some(Ok(mut report))) => {
                    if let (PartEndpoint::Datagrams(endpoint), TestPartReport::Datagrams(report)) =
                        (part, &mut report)
                    {
                        report.samples = endpoint.take_samples();
                    }
                    let error = match &report {
                        TestPartReport::Datagrams(datagrams) => datagrams.error.as_ref(),
                        TestPartReport::Exchange(asked) => asked.error.as_ref(),
                        TestPartReport::Responses(answered) => answered.error.as_ref(),
                        _ => None,
                    };
                    broken = broken.or_else(|| error.cloned());
                    report
                }
                _ => {
                    broken.get_or_insert_with(|| "a thread of the test could not run".to_owned());
                    TestPartReport::Probes(Box::<ProbesReport>::default())
                }
            });
        }
        let ended = match (is_stopped, broken) {
            (true, _) => TestEnding::Stopped,
            (false, Some(why)) => TestEnding::Broken(why),
            (false, None) => TestEnding::Complete,
        };
        TestReport { moments, parts, ended, ..TestReport::default() }
    }
}
