//! The agent: serves clients over whatever carries a session, within its limits.
//!
//! One [`MeasurementAgent`] a process; each client is served by a thread of the caller's.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{fmt, io, thread};

use plumb_base::time::{Instant, Span};
use plumb_clock::now;

use crate::address::{BindAddress, host_addresses};
use crate::control_stream::{ControlEvent, ControlStream, StreamPump};
use crate::datagram_header::TestToken;
use crate::message::{
    ProtocolHello, ReadyMessage, ServiceId, TaskRefusal, TaskRequest, WelcomeMessage,
};
use crate::overlap::{OverlapTracker, OverlapWatch, locked};
use crate::service::{
    AgentLimits, PreparedTask, TaskContext, TaskEvent, TaskMessages, TaskOutbox, TaskService,
};
use crate::session::agent::{AgentAction, AgentSession, ReportLookup};
use crate::session::{ControlSessionError, SessionFault, SessionTiming, TaskTimes};
use crate::task_control::TestControl;

/// Most messages that wait for a task.
const INBOX_MAX: usize = 64;
/// Most reports that are kept.
const REPORTS_MAX: usize = 64;
/// Most bytes of all of them together, as they would be sent.
const REPORT_BYTES_MAX: usize = 32 << 20;

/// One agent: its limits, its clients, and what it keeps for them.
#[derive(Debug)]
pub struct MeasurementAgent {
    program: String,
    limits: AgentLimits,
    timing: SessionTiming,
    services: BTreeMap<ServiceId, Box<dyn TaskService>>,
    state: Mutex<AgentState>,
    overlaps: Arc<Mutex<OverlapTracker>>,
}

#[derive(Debug, Default)]
struct AgentState {
    clients: u32,
    /// Tests that are ready or run.
    tests: u32,
    report_cache: ReportCache,
}

/// A task that a client has under way.
struct ActiveTask {
    token: TestToken,
    control: Arc<TestControl>,
    /// Closed when the task is to end. Bounded: the client sends as much as it likes.
    inbox: Option<SyncSender<Vec<u8>>>,
    outlives_session: bool,
}

impl ActiveTask {
    /// One that has ended, whose report is delivered.
    fn fetched(token: TestToken) -> Self {
        let control = Arc::default();
        Self { token, control, inbox: None, outlives_session: true }
    }
}

impl MeasurementAgent {
    /// An agent of this program's version.
    pub fn new(
        program: &str,
        limits: AgentLimits,
        timing: SessionTiming,
        services: Vec<Box<dyn TaskService>>,
    ) -> Arc<Self> {
        let services = services.into_iter().map(|service| (service.id(), service)).collect();
        let (program, state, overlaps) = (program.to_owned(), Mutex::default(), Arc::default());
        Arc::new(Self { program, limits, timing, services, state, overlaps })
    }

    /// Clients and tests at this moment.
    pub fn active_counts(&self) -> (u32, u32) {
        let state = self.state();
        (state.clients, state.tests)
    }

    /// Reports that are kept with their bytes, and tests that may overlap with others.
    pub fn kept_counts(&self) -> (usize, usize, usize) {
        let state = self.state();
        let (reports, bytes) = (state.report_cache.reports.len(), state.report_cache.bytes());
        (reports, bytes, locked(&self.overlaps).live())
    }

    /// Serves one client until it is gone.
    ///
    /// # Errors
    /// Why it ended before its time, and in which state.
    pub fn serve(self: &Arc<Self>, stream: ControlStream) -> Result<(), ControlSessionError> {
        let mut session = ServedSession::new(self, now());
        let Ok(pump) = StreamPump::start(stream) else {
            let (activity, fault) = (session.session.activity(), SessionFault::Closed);
            return Err(ControlSessionError { activity, fault });
        };
        loop {
            if let Some(ended) = session.act(now(), &pump) {
                pump.close();
                return ended;
            }
            let wait = session.deadline().saturating_since(now());
            let event = pump.wait(wait.into());
            session.handle_event(now(), event);
        }
    }

    /// Prepares a task, whose thread then waits for its start.
    fn prepare(
        self: &Arc<Self>,
        now: Instant,
        number: u32,
        request: &TaskRequest,
        host: &dyn SessionHost,
    ) -> Result<(ReadyMessage, TaskTimes, ActiveTask), TaskRefusal> {
        let failed = |error: io::Error| TaskRefusal::SetupFailed(error.to_string());
        let service = self.services.get(&request.service).ok_or(TaskRefusal::NoService)?;
        let token = random_token().map_err(failed)?;
        let allowed = self.limits.tests_max;
        let slot = AgentSlot::take(self, allowed, |state| &mut state.tests)
            .map_err(|running| TaskRefusal::TestLimit { running, allowed })?;
        let control = Arc::<TestControl>::default();
        let port = self.limits.data_port;
        let bind = match self.limits.data_address {
            Some(only) => BindAddress::only(only, port),
            None => BindAddress::requested(request.to, port),
        };
        let overlap = OverlapWatch::new(Arc::clone(&self.overlaps), Arc::clone(&control));
        let limits = self.limits;
        let context = TaskContext { token, bind, limits, control: Arc::clone(&control), overlap };
        let PreparedTask { ready, times, outlives_session, run } =
            service.prepare(&request.payload, context)?;
        let kept_for = if outlives_session { limits.report_retention } else { Span::ZERO };
        if kept_for > Span::ZERO {
            let until = now + times.longest + self.timing.start + self.timing.answer;
            self.state().report_cache.begin(now, token, until);
        }
        let (inbox_sender, inbox) = mpsc::sync_channel(INBOX_MAX);
        let (agent, events) = (Arc::clone(self), host.events());
        let work = move |now: &dyn Fn() -> Instant| {
            let outbox = TaskOutbox { token, events: events.clone() };
            let report = run(TaskMessages { inbox, outbox });
            drop(slot);
            if kept_for > Span::ZERO {
                agent.state().report_cache.finish(now(), token, report.clone(), kept_for);
            }
            // A client that has lost its session comes back for it.
            events.send(ControlEvent::Local(TaskEvent::Finished(token, report))).ok();
        };
        host.start(Box::new(work)).map_err(failed)?;
        let outlives_session = kept_for > Span::ZERO;
        let task = ActiveTask { token, control, inbox: Some(inbox_sender), outlives_session };
        Ok((ReadyMessage { task: number, token, payload: ready }, times, task))
    }

    fn welcome(&self) -> WelcomeMessage {
        WelcomeMessage {
            program: self.program.clone(),
            duration_max_ns: self.limits.duration_max.as_ns(),
            rate_max: self.limits.rate_max,
            streams_max: self.limits.streams_max,
            probes_max: self.limits.probes_max,
            report_retention_ns: self.limits.report_retention.as_ns(),
            addresses: host_addresses(),
            services: self.services.keys().copied().collect(),
        }
    }

    fn state(&self) -> MutexGuard<'_, AgentState> {
        locked(&self.state)
    }
}

/// What a session needs of whoever has sockets, threads and a clock.
pub trait SessionHost {
    /// Has bytes written; false when so much waits to be written that the client cannot be reading.
    fn send(&self, bytes: Vec<u8>) -> bool;

    /// Where a task tells what happens.
    fn events(&self) -> SyncSender<ControlEvent<TaskEvent>>;

    /// Has a task done, in a thread of its own.
    ///
    /// # Errors
    /// There can be no more threads.
    fn start(&self, work: TaskWork) -> io::Result<()>;
}

/// All of a task that is ready, until its place is free and its report kept; it is given the clock.
pub type TaskWork = Box<dyn FnOnce(&dyn Fn() -> Instant) + Send>;

impl SessionHost for StreamPump<TaskEvent> {
    fn send(&self, bytes: Vec<u8>) -> bool {
        Self::send(self, bytes)
    }

    fn events(&self) -> SyncSender<ControlEvent<TaskEvent>> {
        self.sender()
    }

    fn start(&self, work: TaskWork) -> io::Result<()> {
        let name = thread::Builder::new().name("test".to_owned());
        name.spawn(move || work(&now)).map(drop)
    }
}

/// The session of one client and its task, without a socket, a thread or a clock.
pub struct ServedSession {
    agent: Arc<MeasurementAgent>,
    session: AgentSession,
    under_way: Option<ActiveTask>,
    /// None for one that is refused because there are too many.
    _slot: Option<AgentSlot>,
}

impl fmt::Debug for ServedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedSession").field("session", &self.session).finish_non_exhaustive()
    }
}

impl ServedSession {
    /// Of a client that has just come.
    pub fn new(agent: &Arc<MeasurementAgent>, now: Instant) -> Self {
        let hello = ProtocolHello::of_this_program(&agent.program);
        let mut session = AgentSession::new(now, hello, agent.welcome(), agent.timing);
        let slot = AgentSlot::take(agent, agent.limits.clients_max, |state| &mut state.clients);
        if let Err(clients) = slot {
            session.refuse(now, TaskRefusal::ClientLimit { clients });
        }
        Self { agent: Arc::clone(agent), session, under_way: None, _slot: slot.ok() }
    }

    /// When [`Self::handle_event`] is due without one.
    pub fn deadline(&self) -> Instant {
        self.session.deadline()
    }

    /// Bytes that came and are no whole message yet.
    pub fn pending_bytes(&self) -> usize {
        self.session.pending_bytes()
    }

    /// Takes what happened, if anything did, and the time.
    pub fn handle_event(&mut self, now: Instant, event: Option<ControlEvent<TaskEvent>>) {
        let session = &mut self.session;
        match event {
            Some(ControlEvent::Bytes(bytes)) => session.handle_bytes(now, &bytes),
            Some(ControlEvent::Closed) => session.handle_closed(),
            Some(ControlEvent::Local(event)) => match (event, &self.under_way) {
                (TaskEvent::Finished(token, report), Some(task)) if task.token == token => {
                    session.on_finished(now, report);
                }
                (TaskEvent::Data(token, payload), Some(task)) if task.token == token => {
                    session.send_data(now, payload);
                }
                _ => {}
            },
            None => {}
        }
        // However busy the line is, a deadline is a deadline.
        if now >= session.deadline() {
            session.handle_timeout(now);
        }
    }

    /// Does what is to be done; how the session ended, once it has.
    pub fn act(
        &mut self,
        now: Instant,
        host: &dyn SessionHost,
    ) -> Option<Result<(), ControlSessionError>> {
        while let Some(action) = self.session.poll_action() {
            if let AgentAction::Close(error) = action {
                return Some(error.map_or(Ok(()), Err));
            }
            self.perform(now, action, host);
        }
        None
    }

    fn perform(&mut self, now: Instant, action: AgentAction, host: &dyn SessionHost) {
        match action {
            AgentAction::Send(bytes) => {
                if !host.send(bytes) {
                    self.session.handle_closed();
                }
            }
            AgentAction::Prepare { task, request } => {
                let outcome = self.agent.prepare(now, task, &request, host);
                let outcome = outcome.map(|(ready, times, task)| {
                    self.under_way = Some(task);
                    (ready, times)
                });
                self.session.on_prepared(now, outcome);
            }
            AgentAction::Data(payload) => {
                let inbox = self.under_way.as_ref().and_then(|task| task.inbox.as_ref());
                // A task that has ended reads nothing any more.
                if let Some(Err(TrySendError::Full(_))) = inbox.map(|inbox| inbox.try_send(payload))
                {
                    self.session.handle_overrun();
                }
            }
            AgentAction::Begin => {
                if let Some(task) = &self.under_way {
                    task.control.begin();
                }
            }
            AgentAction::Halt => {
                if let Some(task) = &mut self.under_way {
                    task.inbox = None;
                    task.control.halt();
                }
            }
            AgentAction::Forget => {
                if let Some(task) = self.under_way.take() {
                    self.agent.state().report_cache.forget(task.token);
                }
            }
            AgentAction::Abandon => {
                if let Some(task) = self.under_way.take() {
                    task.control.abandon();
                    if !task.outlives_session || task.control.began_ns().is_none() {
                        task.control.halt();
                    }
                }
            }
            AgentAction::Fetch(token) => {
                let found = self.agent.state().report_cache.find(now, token);
                self.under_way = Some(ActiveTask::fetched(token));
                self.session.on_report_lookup(now, found);
            }
            AgentAction::Close(_) => {}
        }
    }
}

fn random_token() -> io::Result<TestToken> {
    let (high, low) = (plumb_clock::entropy()?, plumb_clock::entropy()?);
    Ok(TestToken((u128::from(high) << 64 | u128::from(low)).to_be_bytes()))
}

/// One of the places for clients or for tests, until it is dropped.
struct AgentSlot {
    agent: Arc<MeasurementAgent>,
    taken: fn(&mut AgentState) -> &mut u32,
}

impl AgentSlot {
    /// Takes one of so many; how many are taken, where all are.
    fn take(
        agent: &Arc<MeasurementAgent>,
        allowed: u32,
        taken: fn(&mut AgentState) -> &mut u32,
    ) -> Result<Self, u32> {
        let mut state = agent.state();
        let count = taken(&mut state);
        if *count >= allowed {
            return Err(*count);
        }
        *count += 1;
        Ok(Self { agent: Arc::clone(agent), taken })
    }
}

impl Drop for AgentSlot {
    fn drop(&mut self) {
        *(self.taken)(&mut self.agent.state()) -= 1;
    }
}

#[derive(Clone, Debug)]
struct CachedReport {
    until: Instant,
    /// As it would be sent, which is the least that it takes.
    report: Option<Vec<u8>>,
}

/// Reports that wait for a client that went away: by token, each until its deadline; beyond the limits, the oldest go
/// first.
#[derive(Clone, Debug, Default)]
struct ReportCache {
    reports: BTreeMap<TestToken, CachedReport>,
}

impl ReportCache {
    /// Makes room for the report of a test that begins, which must have come by `until`.
    fn begin(&mut self, now: Instant, token: TestToken, until: Instant) {
        self.expire(now);
        while self.reports.len() >= REPORTS_MAX {
            let oldest = self.reports.iter().min_by_key(|(_, kept)| kept.until);
            let Some(oldest) = oldest.map(|(token, _)| *token) else { break };
            self.reports.remove(&oldest);
        }
        self.reports.insert(token, CachedReport { until, report: None });
    }

    /// Keeps the report of a test for so long from now.
    fn finish(&mut self, now: Instant, token: TestToken, report: Vec<u8>, kept_for: Span) {
        self.expire(now);
        // A test whose place was given away has none any more.
        if let Some(kept) = self.reports.get_mut(&token) {
            *kept = CachedReport { until: now + kept_for, report: Some(report) };
        }
        while self.bytes() > REPORT_BYTES_MAX {
            let reports = self.reports.iter().filter(|(_, kept)| kept.report.is_some());
            let oldest = reports.min_by_key(|(_, kept)| kept.until).map(|(token, _)| *token);
            let Some(oldest) = oldest else { break };
            self.reports.remove(&oldest);
        }
    }

    /// Bytes of all reports that are kept.
    fn bytes(&self) -> usize {
        self.reports.values().filter_map(|kept| kept.report.as_ref()).map(Vec::len).sum()
    }

    /// What is kept under a token.
    fn find(&mut self, now: Instant, token: TestToken) -> ReportLookup {
        self.expire(now);
        match self.reports.get(&token) {
            None => ReportLookup::Missing,
            Some(CachedReport { report: None, .. }) => ReportLookup::Running,
            Some(CachedReport { report: Some(bytes), .. }) => ReportLookup::Report(bytes.clone()),
        }
    }

    /// Forgets a test.
    fn forget(&mut self, token: TestToken) {
        self.reports.remove(&token);
    }

    fn expire(&mut self, now: Instant) {
        self.reports.retain(|_, kept| now < kept.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::after_origin(Span::from_secs(secs))
    }

    /// Notes where its tasks are to be bound, and prepares none.
    #[derive(Clone, Debug, Default)]
    struct BindRecorder(Arc<Mutex<Vec<BindAddress>>>);

    impl TaskService for BindRecorder {
        fn id(&self) -> ServiceId {
            ServiceId::LOAD
        }

        fn prepare(&self, _: &[u8], context: TaskContext) -> Result<PreparedTask, TaskRefusal> {
            locked(&self.0).push(context.bind);
            Err(TaskRefusal::NoService)
        }
    }

    /// Sends nothing and does nothing.
    struct IdleHost;

    impl SessionHost for IdleHost {
        fn send(&self, _: Vec<u8>) -> bool {
            true
        }

        fn events(&self) -> SyncSender<ControlEvent<TaskEvent>> {
            mpsc::sync_channel(1).0
        }

        fn start(&self, _: TaskWork) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn data_is_taken_only_at_the_address_that_the_client_goes_to() {
        let here = "192.0.2.1".parse().unwrap();
        for (data_address, to, expected) in [
            (None, Some(here), BindAddress::requested(Some(here), 7)),
            (None, None, BindAddress::anywhere(7)),
            (Some(here), Some("192.0.2.2".parse().unwrap()), BindAddress::only(here, 7)),
        ] {
            let recorder = BindRecorder::default();
            let limits = AgentLimits { data_port: 7, data_address, ..AgentLimits::default() };
            let services: Vec<Box<dyn TaskService>> = vec![Box::new(recorder.clone())];
            let agent = MeasurementAgent::new("test", limits, SessionTiming::default(), services);
            let request = TaskRequest { service: ServiceId::LOAD, payload: Vec::new(), to };
            assert!(agent.prepare(at(0), 1, &request, &IdleHost).is_err());
            assert_eq!(*locked(&recorder.0), [expected], "{to:?}");
        }
    }

    #[test]
    fn a_report_is_there_until_it_was_received_or_its_deadline() {
        let mut cache = ReportCache::default();
        let (one, two) = (TestToken([1; 16]), TestToken([2; 16]));
        cache.begin(at(0), one, at(20));
        cache.begin(at(0), two, at(20));
        assert_eq!(cache.find(at(1), one), ReportLookup::Running);
        cache.finish(at(10), one, vec![1], Span::from_secs(60));
        assert!(matches!(cache.find(at(69), one), ReportLookup::Report(_)));
        assert!(matches!(cache.find(at(69), one), ReportLookup::Report(_)));
        assert_eq!(cache.find(at(70), one), ReportLookup::Missing);
        assert_eq!(cache.find(at(20), two), ReportLookup::Missing);
        cache.begin(at(80), one, at(100));
        cache.forget(one);
        assert!(cache.reports.is_empty());
    }

    #[test]
    fn reports_beyond_the_bytes_that_are_kept_send_the_oldest_away() {
        let mut cache = ReportCache::default();
        for n in 1..=3 {
            let token = TestToken([n; 16]);
            cache.begin(at(0), token, at(20));
            let report = vec![0; REPORT_BYTES_MAX / 2 - 1_000];
            cache.finish(at(u64::from(n)), token, report, Span::from_secs(60));
            assert!(cache.bytes() <= REPORT_BYTES_MAX);
        }
        assert_eq!(cache.find(at(4), TestToken([1; 16])), ReportLookup::Missing);
        for kept in [2, 3] {
            assert!(matches!(cache.find(at(4), TestToken([kept; 16])), ReportLookup::Report(_)));
        }
    }

    #[test]
    fn the_cache_stays_within_its_limit() {
        let mut cache = ReportCache::default();
        for n in 0..=u8::MAX {
            cache.begin(at(0), TestToken([n; 16]), at(100 + u64::from(n)));
        }
        assert_eq!(cache.reports.len(), REPORTS_MAX);
        assert_eq!(cache.find(at(1), TestToken([255; 16])), ReportLookup::Running);
        assert_eq!(cache.find(at(1), TestToken([0; 16])), ReportLookup::Missing);
    }
}
