//! The phases of a measurement, one test each: idle, requests and responses, then each direction under load.
//!
//! A control connection that is lost is made again, and the agent's report fetched over the new one, where the agent
//! keeps it.

use std::net::SocketAddr;

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_clock::{monotonic_ns, sleep_until};
use plumb_net::measure::mtu::MtuPartReport;
use plumb_net::measure::progress::TestProgress;
use plumb_net::measure::report::{TestPartReport, TestReport};
use plumb_net::measure::spec_limits;
use plumb_net::measure::test_spec::{
    BulkTcpSpec, DatagramsSpec, MtuSearchSpec, PartSpec, ProbesSpec, RequestResponsePart, TestSpec,
    TransferDirection,
};
use plumb_net::measure::thread::ThreadPlacementPolicy;
use plumb_net::test_client::{AgentClientError, TestOutcome};
use plumb_remote::session::ControlSessionError;
use plumb_result::net::{Direction, PhaseName, RequestTransport};

use super::agent_connection::AgentConnection;
use crate::problem::Problem;

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetTestPlan {
    /// How long the idle phase counts.
    pub idle: Span,
    /// How long each phase under load counts.
    pub time: Span,
    /// Time before that; none is chosen by the round trip.
    pub warm_up: Option<Span>,
    /// Time between two readings.
    pub interval: Span,
    /// Longest time for what is under way at the end.
    pub drain: Span,
    /// Directions under load, one phase each.
    pub directions: Vec<TransferDirection>,
    /// Requests and responses, one phase each.
    pub exchanges: Vec<RequestResponsePart>,
    /// Connections a direction.
    pub streams: u16,
    /// Congestion control of the senders.
    pub congestion: Option<String>,
    /// Socket buffers in bytes.
    pub window_bytes: Option<u32>,
    /// Bytes of one call.
    pub block_bytes: u32,
    /// The most that is sent, in bytes a second.
    pub rate_bytes_per_second: Option<u64>,
    /// Who chooses the CPUs of the connections' threads.
    pub placement: ThreadPlacementPolicy,
    /// How long finding the path's MTU may take; none does not look for it.
    pub mtu: Option<Span>,
    /// Paced datagrams in place of bulk TCP.
    pub udp: Option<DatagramLoad>,
    /// Probes a second; 0 is none.
    pub probes_per_second: u32,
    /// Bytes of a probe.
    pub probe_bytes: u16,
    /// How often all of it is done.
    pub rounds: u32,
    /// Whether a round is as short as the path allows: its times are the least, and longer with long round trips.
    pub is_brief: bool,
}

/// Datagrams at a pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramLoad {
    /// Bits of payload a second, in each direction.
    pub rate_bits_per_second: u64,
    /// Bytes of payload of each.
    pub datagram_bytes: u16,
}

/// One phase that was measured.
#[derive(Debug)]
pub struct MeasuredPhase {
    /// The kind of measurement.
    pub name: PhaseName,
    /// Which repetition.
    pub round: u32,
    /// What was asked for.
    pub spec: TestSpec,
    /// Its result.
    pub outcome: TestOutcome,
    /// How long it took, with what came before and after the time that was planned.
    pub took: Span,
    /// How the control connection was lost, where the agent's report came over another one.
    pub control_lost: Option<ControlSessionError>,
}

/// The test in which the path's MTU was looked for.
#[derive(Debug)]
pub struct MtuSearchOutcome {
    /// Its result.
    pub outcome: TestOutcome,
    /// How long it took.
    pub duration: Span,
}

/// Everything that was measured, and why it ended before its time.
#[derive(Debug, Default)]
pub struct NetMeasurement {
    /// What was found of the path's MTU.
    pub mtu: Option<MtuPartReport>,
    /// The test in which it was looked for.
    pub search: Option<MtuSearchOutcome>,
    /// The phases, in order.
    pub phases: Vec<MeasuredPhase>,
    /// What broke.
    pub error: Option<AgentClientError>,
}

impl NetMeasurement {
    /// Whether there is nothing to show: no phase, and no search that found something or was cut.
    pub fn is_empty(&self) -> bool {
        let is_cut =
            matches!(self.error, Some(AgentClientError::Session(_) | AgentClientError::Stopped));
        let has_found = |account: &MtuPartReport| {
            account.found.as_ref().is_some_and(|found| found.path_bytes.is_some()) || is_cut
        };
        self.phases.is_empty() && !self.mtu.as_ref().is_some_and(has_found)
    }

    /// Whether its user ended it before its time.
    pub fn is_stopped(&self) -> bool {
        matches!(self.error, Some(AgentClientError::Stopped))
    }

    /// What is known about a search, and why nothing comes after it, where nothing does.
    fn note_search(&mut self, search: MtuSearchOutcome, is_stopped: bool) {
        let outcome = &search.outcome;
        self.mtu = mtu_account(&outcome.here);
        self.error = if is_stopped {
            Some(AgentClientError::Stopped)
        } else {
            outcome.there.as_ref().err().map(|error| error.clone().into())
        };
        self.search = Some(search);
    }
}

/// Shortest and longest warm-up that is chosen.
const WARM_UP_MIN: Span = Span::from_secs(1);
const BRIEF_WARM_UP_MIN: Span = Span::from_ms(200);
const WARM_UP_MAX: Span = Span::from_secs(5);
/// Time until requests and responses have settled.
const EXCHANGE_WARM_UP: Span = Span::from_ms(500);
/// Round trips that slow start and its aftermath may take.
const WARM_UP_ROUND_TRIPS: u64 = 15;
const BRIEF_WARM_UP_ROUND_TRIPS: u64 = 10;
/// Round trips that are measured after that at least.
const COUNTED_ROUND_TRIPS: u64 = 20;
/// Rounds that an interval takes.
pub const ROUNDS_FOR_INTERVAL: u32 = 6;
/// What a phase takes beside its time: to begin, to end, and for its reports.
const PHASE_OVERHEAD: Span = Span::from_ms(150);

/// The search's name in progress lines.
const MTU_SEARCH_NAME: &str = "path MTU";
/// How long the two sides of a search may need to part.
const MTU_DRAIN: Span = Span::from_secs(2);

/// How long a lost agent is tried to be reached again, and the time between two tries.
const RECONNECT_TIMEOUT: Span = Span::from_secs(8);
const RECONNECT_INTERVAL: Span = Span::from_secs(1);

/// Reaches the agent once more.
pub type Reconnect<'a> = dyn FnMut() -> Result<AgentConnection, Problem> + 'a;

/// Follows a measurement while it runs.
pub trait NetWatcher {
    /// A phase is so far, and this is the time left after it.
    fn progress(&mut self, name: &'static str, progress: &TestProgress, left: Span);

    /// Something to say meanwhile.
    fn notice(&mut self, text: &str) {
        let _ = text;
    }

    /// A phase has ended.
    fn phase_ended(&mut self, phase: &MeasuredPhase) {
        let _ = phase;
    }
}

impl NetTestPlan {
    /// About how long all of it takes, with all the time that looking for the longest packet may.
    pub fn estimate(&self) -> Span {
        self.mtu.unwrap_or_default() + self.phases_estimate()
    }

    fn phases_estimate(&self) -> Span {
        self.round_estimate(Span::ZERO) * u64::from(self.rounds)
    }

    /// How long a round takes on a path with such a round trip.
    fn round_estimate(&self, round_trip: Span) -> Span {
        let steps = self.phase_kinds().into_iter();
        let took = |step| Span::from_ns(self.spec(step, round_trip).planned_ns()) + PHASE_OVERHEAD;
        steps.map(took).fold(Span::ZERO, |sum, span| sum + span)
    }

    /// What to say where such round trips make it last longer than was announced.
    fn long_path_notice(&self, round_trip: Span) -> Option<String> {
        let [announced, round] = [Span::ZERO, round_trip].map(|trip| self.round_estimate(trip));
        let rounds = u64::from(self.rounds);
        (rounds > 1 && round > announced * 3 / 2).then(|| {
            let [round, all] = [round, round * rounds].map(|span| span.as_secs_f64().ceil());
            let trip = Unit::Nanoseconds.format(round_trip.as_ns_f64(), 3);
            format!(
                "round trips take {trip}: about {all:.0} s, {round:.0} s for each of {rounds} rounds; --rounds N \
                 measures fewer, which have no interval below {ROUNDS_FOR_INTERVAL}"
            )
        })
    }

    /// Whether what is wanted can be done.
    ///
    /// # Errors
    /// What cannot, and what to ask for instead.
    pub fn check(&self) -> Result<(), String> {
        // As long as it may become behind a long path.
        let steps = self.phase_kinds().into_iter().map(|step| self.spec(step, WARM_UP_MAX));
        let search = self.mtu.map(|patience| self.mtu_spec(patience));
        let check = |spec: TestSpec| spec_limits::check(&spec).map_err(|error| error.to_string());
        search.into_iter().chain(steps).try_for_each(check)
    }

    /// Whether nothing would be measured.
    pub fn is_empty(&self) -> bool {
        self.phase_kinds().is_empty()
    }

    /// The phases of one round, in order.
    fn phase_kinds(&self) -> Vec<NetPhaseKind<'_>> {
        let mut steps = Vec::new();
        if self.probes_per_second > 0 && self.idle > Span::ZERO {
            steps.push(NetPhaseKind::Idle);
        }
        steps.extend(self.exchanges.iter().map(NetPhaseKind::Exchange));
        let load = |&direction: &TransferDirection| {
            self.udp.map_or(NetPhaseKind::Load(direction), |paced| {
                NetPhaseKind::Paced(direction, paced)
            })
        };
        steps.extend(self.directions.iter().map(load));
        steps
    }

    /// Searches for the path MTU; an error that ends the whole measurement is kept as such.
    fn search_mtu(
        &self,
        patience: Span,
        (reached, address): (&mut AgentConnection, SocketAddr),
        (watcher, left): (&mut dyn NetWatcher, Span),
        is_stopped: &dyn Fn() -> bool,
        measured: &mut NetMeasurement,
    ) {
        let began_ns = monotonic_ns();
        let mut tell = |progress| watcher.progress(MTU_SEARCH_NAME, &progress, left);
        match reached.client.run(address, &self.mtu_spec(patience), &mut tell, is_stopped) {
            Ok(outcome) => {
                let took = Span::from_ns(monotonic_ns().saturating_sub(began_ns));
                measured.note_search(MtuSearchOutcome { outcome, duration: took }, is_stopped());
            }
            Err(error @ (AgentClientError::Session(_) | AgentClientError::Stopped)) => {
                measured.error = Some(error);
            }
            // The other tests may work all the same.
            Err(error) => {
                let error = Some(error.to_string());
                measured.mtu = Some(MtuPartReport { error, ..MtuPartReport::default() });
            }
        }
    }

    /// Measures all phases with an agent whose data is reached at `address`; `again` reaches it once more.
    pub fn measure(
        &self,
        reached: &mut AgentConnection,
        address: SocketAddr,
        again: &mut Reconnect<'_>,
        watcher: &mut dyn NetWatcher,
        is_stopped: &dyn Fn() -> bool,
    ) -> NetMeasurement {
        let mut measured = NetMeasurement::default();
        let mut round_trip = Span::ZERO;
        let mut left = self.phases_estimate();
        if let Some(patience) = self.mtu {
            self.search_mtu(
                patience,
                (reached, address),
                (watcher, left),
                is_stopped,
                &mut measured,
            );
            if measured.error.is_some() {
                return measured;
            }
        }
        let planned = self.phase_kinds().len() * usize::try_from(self.rounds).unwrap_or(usize::MAX);
        for round in 0..self.rounds {
            // The first round has shown how long the round trips are.
            left = self.round_estimate(round_trip) * u64::from(self.rounds - round);
            for step in self.phase_kinds() {
                let spec = self.spec(step, round_trip);
                let name = step.name();
                left = left.saturating_sub(Span::from_ns(spec.planned_ns()));
                let mut tell = |progress| watcher.progress(name.name(), &progress, left);
                let began_ns = monotonic_ns();
                match reached.client.run(address, &spec, &mut tell, is_stopped) {
                    Ok(mut outcome) => {
                        let took = Span::from_ns(monotonic_ns().saturating_sub(began_ns));
                        let fetched =
                            fetch_lost_report(reached, &spec, &mut outcome, again, is_stopped);
                        if step == NetPhaseKind::Idle {
                            round_trip = median_round_trip(&outcome.here).unwrap_or(round_trip);
                            let notice = self.long_path_notice(round_trip);
                            notice.filter(|_| round == 0).inspect(|text| watcher.notice(text));
                        }
                        let is_lost = outcome.there.is_err() && reached.client.is_over();
                        let control_lost = fetched;
                        let phase =
                            MeasuredPhase { name, round, spec, outcome, took, control_lost };
                        watcher.phase_ended(&phase);
                        measured.phases.push(phase);
                        if is_stopped() && measured.phases.len() < planned {
                            measured.error = Some(AgentClientError::Stopped);
                        }
                        if is_lost || is_stopped() {
                            return measured;
                        }
                    }
                    Err(error) => {
                        measured.error = Some(error);
                        return measured;
                    }
                }
            }
        }
        measured
    }

    fn mtu_spec(&self, patience: Span) -> TestSpec {
        TestSpec {
            warm_up_ns: 0,
            duration_ns: patience.as_ns(),
            interval_ns: self.interval.as_ns(),
            drain_ns: MTU_DRAIN.as_ns(),
            parts: vec![PartSpec::Mtu(MtuSearchSpec { patience_ns: patience.as_ns() })],
        }
    }

    fn spec(&self, step: NetPhaseKind<'_>, round_trip: Span) -> TestSpec {
        let mut parts = Vec::new();
        match step {
            NetPhaseKind::Idle => {}
            NetPhaseKind::Paced(direction, paced) => parts.extend(paced.parts(direction)),
            NetPhaseKind::Load(direction) => parts.push(PartSpec::Streams(BulkTcpSpec {
                direction,
                streams: self.streams,
                congestion: self.congestion.clone(),
                window_bytes: self.window_bytes,
                block_bytes: self.block_bytes,
                rate_bytes_per_second: self.rate_bytes_per_second,
                seating: self.placement,
            })),
            NetPhaseKind::Exchange(part) => parts.push(PartSpec::Exchange(part.clone())),
        }
        // Probes between requests would be measured with them.
        if self.probes_per_second > 0 && !matches!(step, NetPhaseKind::Exchange(_)) {
            parts.push(PartSpec::Probes(ProbesSpec {
                per_second: self.probes_per_second,
                datagram_bytes: self.probe_bytes,
            }));
        }
        let (least, trips) = if self.is_brief {
            (BRIEF_WARM_UP_MIN, BRIEF_WARM_UP_ROUND_TRIPS)
        } else {
            (WARM_UP_MIN, WARM_UP_ROUND_TRIPS)
        };
        let chosen = (round_trip * trips).clamp(least, WARM_UP_MAX);
        let counted = round_trip * COUNTED_ROUND_TRIPS;
        let time = if self.is_brief { self.time.max(counted) } else { self.time };
        let (warm_up, duration) = match step {
            NetPhaseKind::Idle => (Span::ZERO, self.idle),
            NetPhaseKind::Load(_) => (self.warm_up.unwrap_or(chosen), time),
            NetPhaseKind::Exchange(_) => (self.warm_up.unwrap_or(EXCHANGE_WARM_UP), self.time),
            // Paced datagrams need no warm-up.
            NetPhaseKind::Paced(..) => (self.warm_up.unwrap_or(Span::ZERO), self.time),
        };
        TestSpec {
            warm_up_ns: warm_up.as_ns(),
            duration_ns: duration.as_ns(),
            interval_ns: self.interval.as_ns(),
            drain_ns: self.drain.as_ns(),
            parts,
        }
    }
}

/// What one phase measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetPhaseKind<'a> {
    Idle,
    Load(TransferDirection),
    Paced(TransferDirection, DatagramLoad),
    Exchange(&'a RequestResponsePart),
}

impl NetPhaseKind<'_> {
    const fn name(self) -> PhaseName {
        match self {
            Self::Idle => PhaseName::Idle,
            Self::Load(TransferDirection::Up) => PhaseName::Up,
            Self::Load(TransferDirection::Down) => PhaseName::Down,
            Self::Load(TransferDirection::Both) => PhaseName::Both,
            Self::Paced(TransferDirection::Up, _) => PhaseName::UdpUp,
            Self::Paced(TransferDirection::Down, _) => PhaseName::UdpDown,
            Self::Paced(TransferDirection::Both, _) => PhaseName::UdpBoth,
            Self::Exchange(part) => match part.transport {
                RequestTransport::Tcp => PhaseName::ExchangeTcp,
                RequestTransport::Udp => PhaseName::ExchangeUdp,
                RequestTransport::Tls => PhaseName::ExchangeTls,
                RequestTransport::Quic => PhaseName::ExchangeQuic,
            },
        }
    }
}

impl DatagramLoad {
    fn parts(self, direction: TransferDirection) -> impl Iterator<Item = PartSpec> {
        direction.each().iter().map(move |direction| {
            PartSpec::Datagrams(DatagramsSpec {
                is_up: *direction == Direction::Up,
                rate_bits_per_second: self.rate_bits_per_second,
                datagram_bytes: self.datagram_bytes,
            })
        })
    }
}

fn mtu_account(report: &TestReport) -> Option<MtuPartReport> {
    report.parts.iter().find_map(|part| match part {
        TestPartReport::Mtu(account) => Some(account.clone()),
        _ => None,
    })
}

/// Fetches the agent's report over a new control connection where the old one was lost and the agent keeps it; how
/// it was lost.
fn fetch_lost_report(
    reached: &mut AgentConnection,
    spec: &TestSpec,
    outcome: &mut TestOutcome,
    again: &mut Reconnect<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> Option<ControlSessionError> {
    if outcome.there.is_ok() || reached.client.welcome().report_retention_ns == 0 {
        return None;
    }
    let until_ns = monotonic_ns() + RECONNECT_TIMEOUT.as_ns();
    while monotonic_ns() < until_ns && !is_stopped() {
        let Ok(mut new) = again() else {
            sleep_until(monotonic_ns() + RECONNECT_INTERVAL.as_ns());
            continue;
        };
        let report = new.client.fetch(outcome.token, Span::from_ns(spec.longest_ns()));
        *reached = new;
        return match report {
            Ok(report) => std::mem::replace(&mut outcome.there, Ok(report)).err(),
            // Another agent than before, or its time is over: there is nothing to come back for.
            Err(_) => None,
        };
    }
    None
}

fn median_round_trip(report: &TestReport) -> Option<Span> {
    report.parts.iter().find_map(|part| {
        let TestPartReport::Probes(probes) = part else { return None };
        let path = Histogram::decode(&probes.path).ok().filter(|path| !path.is_empty())?;
        Some(Span::from_ns(path.quantile(0.5)))
    })
}

#[cfg(test)]
mod tests {
    use plumb_remote::datagram_header::TestToken;
    use plumb_remote::session::SessionFault;

    use super::*;

    fn searched(there: Result<TestReport, ControlSessionError>) -> MtuSearchOutcome {
        let error = Some("packets of 1280 bytes arrive".to_owned());
        let account = MtuPartReport { error, ..MtuPartReport::default() };
        let here =
            TestReport { parts: vec![TestPartReport::Mtu(account)], ..TestReport::default() };
        let outcome = TestOutcome { here, there, token: TestToken([0; 16]), rate_max: None };
        MtuSearchOutcome { outcome, duration: Span::from_ms(1) }
    }

    fn plan() -> NetTestPlan {
        NetTestPlan {
            idle: Span::from_secs(2),
            time: Span::from_secs(4),
            warm_up: None,
            interval: Span::from_ms(200),
            drain: Span::from_secs(10),
            directions: vec![TransferDirection::Down],
            exchanges: Vec::new(),
            streams: 1,
            congestion: None,
            window_bytes: None,
            block_bytes: 1 << 17,
            rate_bytes_per_second: None,
            placement: ThreadPlacementPolicy::Queue,
            mtu: None,
            udp: None,
            probes_per_second: 200,
            probe_bytes: 64,
            rounds: 3,
            is_brief: false,
        }
    }

    #[test]
    fn the_time_that_a_search_may_take_is_in_the_time_that_is_announced() {
        let mut wanted = plan();
        let without = wanted.estimate();
        wanted.mtu = Some(Span::from_secs(30));
        // Once, however often the phases are measured.
        assert_eq!(wanted.estimate(), without + Span::from_secs(30));
        assert!(wanted.check().is_ok(), "the test of the search lasts as long");
    }

    #[test]
    fn brief_rounds_end_within_fifteen_seconds_and_grow_with_the_round_trip() {
        let wanted = NetTestPlan {
            idle: Span::from_ms(400),
            time: Span::from_ms(500),
            interval: Span::from_ms(100),
            directions: vec![TransferDirection::Down, TransferDirection::Up],
            rounds: 6,
            is_brief: true,
            ..plan()
        };
        let within = |round_trip| wanted.round_estimate(round_trip) * 6;
        assert!(within(Span::from_ms(20)) <= Span::from_secs(15), "{}", within(Span::from_ms(20)));
        assert_eq!(wanted.long_path_notice(Span::from_ms(20)), None);
        let notice = wanted.long_path_notice(Span::from_ms(540)).unwrap();
        assert!(notice.contains("540 ms") && notice.contains("--rounds N"), "{notice}");
        let far = wanted.spec(NetPhaseKind::Load(TransferDirection::Up), Span::from_ms(200));
        assert_eq!((far.warm_up_ns, far.duration_ns), (2_000_000_000, 4_000_000_000));
    }

    #[test]
    fn a_search_that_is_cut_keeps_what_was_found_and_the_reason() {
        let lost = ControlSessionError { activity: "running a test", fault: SessionFault::Closed };
        let mut measured = NetMeasurement::default();
        measured.note_search(searched(Err(lost.clone())), false);
        let said = measured.error.as_ref().map(ToString::to_string);
        assert_eq!(said, Some(lost.to_string()));
        assert!(!measured.is_empty() && !measured.is_stopped());
        let mut measured = NetMeasurement::default();
        measured.note_search(searched(Err(lost)), true);
        assert!(!measured.is_empty() && measured.is_stopped());
        assert!(measured.mtu.unwrap().error.unwrap().contains("1280"));
    }

    #[test]
    fn a_search_that_came_to_its_end_stops_nothing() {
        let mut measured = NetMeasurement::default();
        measured.note_search(searched(Ok(TestReport::default())), false);
        assert!(measured.error.is_none());
        // A failed search alone is nothing to show.
        assert!(measured.is_empty());
    }
}
