//! One side of a test from its sockets to its report: all parts at once, and a reading of everything at every
//! interval.
//!
//! The thread that reads is none of those that measure. Left out: what is said to the other side meanwhile.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ScopedJoinHandle};

use super::bind::Bind;
use super::carry;
use super::control::Control;
use super::datagram::half::Half;
use super::exchange::half::{Requester, Responder};
use super::latency::{Answerer, Asker, Schedule};
use super::limits;
use super::live::Progress;
use super::mtu;
use super::report::{
    DatagramsReport, Ended, Moment, PartReport, ProbesReport, StreamSample, StreamsReport,
    TestReport,
};
use super::spec::{PartSpec, StreamsSpec, TestSpec};
use super::stream::{self, ConnectError, Lane, Plan};
use crate::clock::{real_ahead_ns, steady_ns};
use crate::crew;
use crate::evidence::counters::{self, Counters};
use crate::evidence::host::{HostFacts, HostReading};
use crate::protocol::message::{Ready, Refusal};
use crate::protocol::token::Token;
use crate::secure::Fingerprint;

/// How long the agent waits for all connections and the start of a test.
const BEGIN_NS: u64 = 30_000_000_000;
/// How much longer senders go on than what counts: the other side's beginning is later by the way of a message.
pub(super) const OVERRUN_NS: u64 = 250_000_000;

#[derive(Debug)]
enum Part {
    /// The agent's half, before anybody has connected.
    Listener(TcpListener, StreamsSpec),
    Lanes(Vec<Arc<Lane>>, StreamsSpec),
    Asker(Asker),
    Answerer(Answerer),
    Requester(Box<Requester>),
    Responder(Box<Responder>),
    Datagrams(Half),
    Mtu(mtu::half::Half),
}

/// One side of a test that is ready.
#[derive(Debug)]
pub struct Course {
    spec: TestSpec,
    token: Token,
    control: Arc<Control>,
    rate_max: Option<u64>,
    is_agent: bool,
    parts: Vec<Part>,
    /// What was read of the host before the test: of the client's side, as its test begins at once.
    before: Option<(HostFacts, Counters)>,
}

/// Whether a test can be done at all.
///
/// # Errors
/// [`Refusal::Nonsense`], with what cannot.
pub fn check(spec: &TestSpec) -> Result<(), Refusal> {
    limits::check(spec).map_err(|error| Refusal::Nonsense(error.to_string()))
}

impl Course {
    /// The agent's side: sockets that wait, and the port of each part. Parts that need a UDP port each take the port of
    /// `at` and those after it, if it names one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn offer(
        spec: &TestSpec,
        token: Token,
        rate_max: Option<u64>,
        at: Bind,
        control: Arc<Control>,
    ) -> io::Result<(Self, Vec<u16>)> {
        let mut ports = Vec::new();
        let mut parts = Vec::new();
        let mut udp_parts = 0_u16;
        let mut udp_at = || {
            let next = at.after(udp_parts);
            udp_parts += 1;
            next
        };
        for part in &spec.parts {
            let (part, port) = match part {
                PartSpec::Streams(streams) => {
                    let mut streams = streams.clone();
                    let asked = streams.rate_bytes_per_second;
                    streams.rate_bytes_per_second = smaller(asked, rate_max);
                    let listener = stream::listen(&streams, at)?;
                    let port = listener.local_addr()?.port();
                    (Part::Listener(listener, streams), port)
                }
                PartSpec::Probes(probes) => {
                    let (schedule, bytes) = (Schedule::of(spec, probes), probes.datagram_bytes);
                    let answerer = Answerer::bind(token, schedule, bytes, udp_at())?;
                    let port = answerer.port()?;
                    (Part::Answerer(answerer), port)
                }
                PartSpec::Exchange(part) => {
                    let responder = Responder::bind(part, spec, token, rate_max, at)?;
                    let port = responder.port()?;
                    (Part::Responder(Box::new(responder)), port)
                }
                PartSpec::Datagrams(datagrams) => {
                    let half = Half::offer(token, spec, datagrams, udp_at())?;
                    let port = half.port()?;
                    (Part::Datagrams(half), port)
                }
                PartSpec::Mtu(mtu) => {
                    let half = mtu::half::Half::offer(token, mtu, udp_at())?;
                    let port = half.port()?;
                    (Part::Mtu(half), port)
                }
            };
            parts.push(part);
            ports.push(port);
        }
        let spec = spec.clone();
        let course = Self { spec, token, control, rate_max, is_agent: true, parts, before: None };
        Ok((course, ports))
    }

    /// The client's side: everything connected to the agent's ports.
    ///
    /// # Errors
    /// [`ConnectError`], at the first that cannot be.
    pub fn connect(
        spec: &TestSpec,
        ready: &Ready,
        agent: SocketAddr,
        control: Arc<Control>,
    ) -> Result<Self, ConnectError> {
        let (token, rate_max) = (ready.token, ready.rate_max);
        let mut parts = Vec::new();
        for (index, (part, port)) in spec.parts.iter().zip(&ready.ports).enumerate() {
            let address = stream::with_port(agent, *port);
            parts.push(match part {
                PartSpec::Streams(streams) => {
                    let mut streams = streams.clone();
                    let asked = streams.rate_bytes_per_second;
                    streams.rate_bytes_per_second = smaller(asked, rate_max);
                    Part::Lanes(stream::connect(address, &streams, token)?, streams)
                }
                PartSpec::Probes(probes) => {
                    let schedule = Schedule::of(spec, probes);
                    let asker = Asker::connect(address, token, schedule, probes.datagram_bytes)
                        .map_err(|source| ConnectError::of(address, source))?;
                    Part::Asker(asker)
                }
                PartSpec::Exchange(part) => {
                    let pinned = ready.certificates.get(index).copied().flatten();
                    let requester = Requester::connect(address, token, part, spec, pinned)?;
                    Part::Requester(Box::new(requester))
                }
                PartSpec::Datagrams(datagrams) => {
                    Part::Datagrams(Half::connect(address, token, spec, datagrams, &control)?)
                }
                PartSpec::Mtu(mtu) => {
                    let half = mtu::half::Half::connect(address, token, mtu, rate_max)
                        .map_err(|source| ConnectError::of(address, source))?;
                    Part::Mtu(half)
                }
            });
        }
        let spec = spec.clone();
        // Reading takes milliseconds, by which the first of what counts would be late.
        let before = Some((HostFacts::read(), counters::read()));
        Ok(Self { spec, token, control, rate_max: None, is_agent: false, parts, before })
    }

    /// What this side's certificates are known by, one for each part that has one.
    pub fn certificates(&self) -> Vec<Option<Fingerprint>> {
        let of = |part: &Part| match part {
            Part::Responder(responder) => responder.fingerprint(),
            _ => None,
        };
        self.parts.iter().map(of).collect()
    }

    /// Ends what waits in a socket without a time of its own.
    fn cut(&self) {
        for part in &self.parts {
            match part {
                Part::Requester(requester) => requester.cut(),
                Part::Responder(responder) => responder.cut(),
                _ => {}
            }
        }
    }

    /// Measures from the beginning, for which it waits, to the end; `watch` is told at every interval.
    pub fn run(mut self, watch: &mut dyn FnMut(Progress)) -> TestReport {
        let early = self.before.take();
        let (host, before) = early.map_or_else(|| (HostFacts::read(), None), |(h, c)| (h, Some(c)));
        let until_ns = steady_ns() + BEGIN_NS;
        if let Err(error) = self.take_connections(until_ns) {
            let halted = error.kind() == io::ErrorKind::Interrupted;
            let why = format!("not all connections of the test came: {error}");
            let ended = if halted { Ended::Stopped } else { Ended::Broken(why) };
            return TestReport { host, ended, ..TestReport::default() };
        }
        let before = before.unwrap_or_else(counters::read);
        let course = &self;
        let mut report = thread::scope(|scope| {
            // Answers do not wait for the beginning: a probe may overtake it.
            let (left, lack) = (AtomicUsize::new(0), OnceLock::new());
            let working = Working { course, left, lack };
            working.answer_and_measure(scope, until_ns, watch)
        });
        report.host = host;
        report.counters = counters::growth(&counters::read(), &before);
        report
    }

    fn take_connections(&mut self, until_ns: u64) -> io::Result<()> {
        // In the order in which the client makes them.
        for part in &mut self.parts {
            match part {
                Part::Listener(listener, streams) => {
                    let token = self.token;
                    let lanes = stream::accept(listener, streams, token, until_ns, &self.control)?;
                    *part = Part::Lanes(lanes, streams.clone());
                }
                Part::Datagrams(half) if self.is_agent => half.admit(until_ns, &self.control)?,
                Part::Responder(responder) => responder.meet(until_ns, &self.control)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn deadline_ns(&self, began_ns: u64) -> u64 {
        began_ns + self.spec.planned_ns() + OVERRUN_NS + self.spec.drain_ns
    }

    fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.parts.iter().flat_map(|part| match part {
            Part::Lanes(lanes, _) => lanes.as_slice(),
            _ => &[],
        })
    }

    fn halves(&self) -> impl Iterator<Item = &Half> {
        self.parts.iter().filter_map(|part| match part {
            Part::Datagrams(half) => Some(half),
            _ => None,
        })
    }

    /// Tells those that do not look at the test's own flag that it is set.
    fn pass_on_halt(&self) {
        if self.control.is_halted() {
            self.halves().for_each(Half::stop);
        }
    }

    fn progress(&self, at_ns: u64) -> Progress {
        let planned_ns = self.spec.planned_ns();
        let mut progress = Progress { at_ns, planned_ns, ..Progress::default() };
        for (bytes, is_up) in self.lanes().map(|lane| lane.progress()) {
            *if is_up { &mut progress.up_bytes } else { &mut progress.down_bytes } += bytes;
        }
        let mut only_sent = 0;
        for half in self.halves() {
            let bytes = half.count().bytes;
            *if half.is_up() { &mut progress.up_bytes } else { &mut progress.down_bytes } += bytes;
            only_sent += if half.is_up() == self.is_agent { 0 } else { bytes };
        }
        for part in &self.parts {
            progress.answered += match part {
                Part::Asker(asker) => {
                    progress.round_trips = asker.round_trips();
                    progress.round_trips.total()
                }
                Part::Requester(requester) => requester.answered(),
                Part::Answerer(answerer) => answerer.answered(),
                _ => 0,
            };
        }
        let all = progress.up_bytes + progress.down_bytes + progress.answered;
        progress.shown = all - only_sent;
        progress
    }
}

fn smaller(asked: Option<u64>, allowed: Option<u64>) -> Option<u64> {
    [asked, allowed].into_iter().flatten().min()
}

/// A course whose threads work.
struct Working<'a> {
    course: &'a Course,
    /// Threads that have not come to their end.
    left: AtomicUsize,
    /// Why a thread could not be started.
    lack: OnceLock<io::Error>,
}

/// The thread of one part that gives a report of its own.
type Answering<'scope> = Option<ScopedJoinHandle<'scope, PartReport>>;

impl<'scope> Working<'scope> {
    fn answer_and_measure<'env: 'scope>(
        self,
        scope: &'scope thread::Scope<'scope, 'env>,
        until_ns: u64,
        watch: &mut dyn FnMut(Progress),
    ) -> TestReport {
        let course = self.course;
        let control = &course.control;
        let working = Arc::new(self);
        let mut own: Vec<Answering<'scope>> = Vec::new();
        for part in &course.parts {
            own.push(match part {
                Part::Answerer(answerer) => Working::spawn(&working, scope, move || {
                    let from_begin = |after: fn(&Course, u64) -> u64| {
                        control.began_ns().map_or(u64::MAX, |began| after(course, began))
                    };
                    let planned = || from_begin(|course, began| began + course.spec.planned_ns());
                    let deadline = || from_begin(Course::deadline_ns);
                    PartReport::Answers(answerer.work(planned, deadline, control))
                }),
                Part::Responder(responder) => Working::spawn(&working, scope, move || {
                    let deadline =
                        || control.began_ns().map_or(u64::MAX, |began| course.deadline_ns(began));
                    PartReport::Responses(responder.work(deadline, control))
                }),
                Part::Datagrams(half) => Working::spawn(&working, scope, move || {
                    PartReport::Datagrams(Box::new(half.work(control)))
                }),
                Part::Mtu(half) => Working::spawn(&working, scope, move || {
                    let deadline =
                        || control.began_ns().map_or(u64::MAX, |began| course.deadline_ns(began));
                    PartReport::Mtu(half.work(deadline, control))
                }),
                _ => None,
            });
        }
        let Some(began_ns) = control.wait_for_begin(until_ns) else {
            control.halt();
            course.cut();
            course.pass_on_halt();
            return TestReport { ended: Ended::Stopped, ..TestReport::default() };
        };
        let deadline_ns = course.deadline_ns(began_ns);
        for (part, own) in course.parts.iter().zip(&mut own) {
            match part {
                Part::Asker(asker) => {
                    *own = Working::spawn(&working, scope, move || {
                        let report = asker.work(began_ns, deadline_ns, control);
                        PartReport::Probes(Box::new(report))
                    });
                }
                Part::Lanes(lanes, streams) => {
                    let plan = course.plan(streams, began_ns, deadline_ns);
                    let senders = lanes.iter().filter(|lane| lane.sends());
                    let receivers = lanes.iter().filter(|lane| !lane.sends());
                    let crews = [crew::deal(senders.collect()), crew::deal(receivers.collect())];
                    for crew in crews.into_iter().flatten() {
                        let plan = plan.clone();
                        Working::spawn(&working, scope, move || {
                            let lanes: Vec<&Lane> = crew.into_iter().map(Arc::as_ref).collect();
                            carry::carry(&lanes, &plan);
                            PartReport::Streams(StreamsReport::default())
                        });
                    }
                }
                Part::Requester(requester) => {
                    *own = Working::spawn(&working, scope, move || {
                        PartReport::Exchange(Box::new(requester.work(control)))
                    });
                }
                Part::Listener(..)
                | Part::Answerer(_)
                | Part::Responder(_)
                | Part::Datagrams(_)
                | Part::Mtu(_) => {}
            }
        }
        let (moments, samples) = working.sample(began_ns, watch);
        // Told to end after all that counts, it is complete: the other side has no more to come.
        let at_ns = moments.last().map_or(0, |moment| moment.at_ns);
        // A search is over when it has found what it looks for; whatever else ends early, the client knows why.
        let is_told = course.is_agent && course.parts.iter().any(|p| !matches!(p, Part::Mtu(_)));
        let is_stopped = at_ns < course.spec.planned_ns() && control.is_ended_on_purpose(is_told);
        let mut report = course.conclude(moments, samples, own, is_stopped);
        if let Some(error) = working.lack.get() {
            // That it was stopped then is what came of it.
            report.ended = Ended::Broken(format!(
                "a thread of the test could not be started: {error}; see 'ulimit -u' and pids.max of the control group"
            ));
        }
        report
    }

    fn spawn(
        working: &Arc<Self>,
        scope: &'scope thread::Scope<'scope, '_>,
        work: impl FnOnce() -> PartReport + Send + 'scope,
    ) -> Answering<'scope> {
        working.left.fetch_add(1, Ordering::AcqRel);
        let ending = Arc::clone(working);
        let control = &working.course.control;
        let all = move || {
            let report = work();
            ending.left.fetch_sub(1, Ordering::AcqRel);
            ending.course.control.ring();
            report
        };
        let spawned = thread::Builder::new().name("measure".to_owned()).spawn_scoped(scope, all);
        if let Err(error) = &spawned {
            working.lack.set(io::Error::new(error.kind(), error.to_string())).ok();
            // A test with a thread too few measures something else than was asked for.
            working.left.fetch_sub(1, Ordering::AcqRel);
            control.halt();
        }
        spawned.ok()
    }

    /// Reads everything at every interval until all threads are done.
    fn sample(
        &self,
        began_ns: u64,
        watch: &mut dyn FnMut(Progress),
    ) -> (Vec<Moment>, Vec<Vec<StreamSample>>) {
        let course = self.course;
        let planned_ns = course.spec.planned_ns();
        let mut samples: Vec<Vec<StreamSample>> = course.lanes().map(|_| Vec::new()).collect();
        let mut moments = Vec::new();
        let (mut due_ns, deadline_ns) = (began_ns, course.deadline_ns(began_ns));
        // One reading each at the beginning and at the end of what counts, whatever the interval.
        loop {
            let is_done = self.left.load(Ordering::Acquire) == 0;
            course.pass_on_halt();
            if is_done || steady_ns() >= due_ns {
                let at_ns = steady_ns().saturating_sub(began_ns);
                let mut progress = course.progress(at_ns);
                for (lane, samples) in course.lanes().zip(&mut samples) {
                    let sample = lane.sample();
                    if lane.sends() {
                        progress.waits.add(&sample);
                    }
                    samples.push(sample);
                }
                course.halves().for_each(Half::sample);
                let host = HostReading::now();
                moments.push(Moment { at_ns, host, real_ahead_ns: real_ahead_ns() });
                watch(progress);
                let next = (at_ns / course.spec.interval_ns + 1) * course.spec.interval_ns;
                let edges = [course.spec.warm_up_ns, planned_ns].into_iter();
                let edge = edges.filter(|&edge| edge > at_ns).min().unwrap_or(u64::MAX);
                due_ns = began_ns + next.min(edge);
            }
            if is_done {
                return (moments, samples);
            }
            if course.control.is_halted() || steady_ns() >= deadline_ns {
                course.cut();
                course.control.wait_until(due_ns);
            } else {
                course.control.wait_until(due_ns.min(deadline_ns));
            }
        }
    }
}

impl Course {
    fn plan(&self, streams: &StreamsSpec, began_ns: u64, deadline_ns: u64) -> Plan {
        Plan {
            began_ns,
            end_ns: began_ns + self.spec.planned_ns() + OVERRUN_NS,
            deadline_ns,
            block_bytes: usize::try_from(streams.block_bytes).unwrap_or(1 << 17),
            take_max: self.rate_max.map(|rate| (rate / u64::from(streams.streams.max(1))).max(1)),
            seating: streams.seating,
            control: Arc::clone(&self.control),
        }
    }

    fn conclude(
        &self,
        moments: Vec<Moment>,
        samples: Vec<Vec<StreamSample>>,
        own: Vec<Answering<'_>>,
        is_stopped: bool,
    ) -> TestReport {
        let mut samples = samples.into_iter();
        let mut broken = None;
        let mut parts = Vec::new();
        for (part, own) in self.parts.iter().zip(own) {
            let joined = own.map(ScopedJoinHandle::join);
            parts.push(match (part, joined) {
                (Part::Lanes(lanes, _), _) => {
                    let streams: Vec<_> =
                        lanes.iter().zip(&mut samples).map(|(lane, s)| lane.report(s)).collect();
                    let error = streams.iter().find_map(|stream| {
                        let error = stream.error.as_ref()?;
                        Some(format!("stream {} broke: {error}", stream.index))
                    });
                    broken = broken.or(error);
                    PartReport::Streams(StreamsReport { streams })
                }
                (Part::Datagrams(half), Some(Ok(PartReport::Datagrams(report)))) => {
                    let report = DatagramsReport { samples: half.samples(), ..*report };
                    broken = broken.or_else(|| report.error.clone());
                    PartReport::Datagrams(Box::new(report))
                }
                (_, Some(Ok(report))) => {
                    let error = match &report {
                        PartReport::Exchange(asked) => asked.error.as_ref(),
                        PartReport::Responses(answered) => answered.error.as_ref(),
                        _ => None,
                    };
                    broken = broken.or_else(|| error.cloned());
                    report
                }
                _ => {
                    broken.get_or_insert_with(|| "a thread of the test could not run".to_owned());
                    PartReport::Probes(Box::<ProbesReport>::default())
                }
            });
        }
        let ended = match (is_stopped, broken) {
            (true, _) => Ended::Stopped,
            (false, Some(why)) => Ended::Broken(why),
            (false, None) => Ended::Complete,
        };
        TestReport { moments, parts, ended, ..TestReport::default() }
    }
}
