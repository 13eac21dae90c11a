//! The agent: serves clients over whatever carries a session, within its limits.
//!
//! One [`MeasurementAgent`] a process; each client is served by a thread of the caller's.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use plumb_base::time::{Instant, Span};
use plumb_clock::now;

use crate::address::{BindAddress, host_addresses};
use crate::control_stream::{ControlEvent, ControlStream, StreamPump};
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
use crate::token::TestToken;

/// Most reports that are kept.
const REPORTS_MAX: usize = 64;
/// Most bytes of all of them together, as they would be sent.
const REPORT_BYTES_MAX: usize = 128 << 20;

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
    /// Closed when the task is to end.
    inbox: Option<Sender<Vec<u8>>>,
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

    /// Serves one client until it is gone.
    ///
    /// # Errors
    /// Why it ended before its time, and in which state.
    pub fn serve(self: &Arc<Self>, stream: ControlStream) -> Result<(), ControlSessionError> {
        let hello = ProtocolHello::of_this_program(&self.program);
        let mut session = AgentSession::new(now(), hello, self.welcome(), self.timing);
        let Ok(pump) = StreamPump::start(stream) else {
            let (activity, fault) = (session.activity(), SessionFault::Closed);
            return Err(ControlSessionError { activity, fault });
        };
        let slot = AgentSlot::take(self, self.limits.clients_max, |state| &mut state.clients);
        if let Err(clients) = slot {
            session.refuse(now(), TaskRefusal::ClientLimit { clients });
        }
        let mut under_way: Option<ActiveTask> = None;
        loop {
            while let Some(action) = session.poll_action() {
                if let AgentAction::Close(error) = action {
                    pump.close();
                    return error.map_or(Ok(()), Err);
                }
                self.perform(action, &mut session, &pump, &mut under_way);
            }
            let wait = session.deadline().saturating_since(now());
            match pump.wait(wait.into()) {
                Some(ControlEvent::Bytes(bytes)) => session.handle_bytes(now(), &bytes),
                Some(ControlEvent::Closed) => session.handle_closed(),
                Some(ControlEvent::Local(event)) => match (event, &under_way) {
                    (TaskEvent::Finished(token, report), Some(task)) if task.token == token => {
                        session.on_finished(now(), report);
                    }
                    (TaskEvent::Data(token, payload), Some(task)) if task.token == token => {
                        session.send_data(now(), payload);
                    }
                    _ => {}
                },
                None => {}
            }
            // However busy the line is, a deadline is a deadline.
            if now() >= session.deadline() {
                session.handle_timeout(now());
            }
        }
    }

    fn perform(
        self: &Arc<Self>,
        action: AgentAction,
        session: &mut AgentSession,
        pump: &StreamPump<TaskEvent>,
        under_way: &mut Option<ActiveTask>,
    ) {
        match action {
            AgentAction::Send(bytes) => {
                if !pump.send(bytes) {
                    session.handle_closed();
                }
            }
            AgentAction::Prepare { task, request } => {
                let outcome = self.prepare(task, &request, pump.sender());
                let outcome = outcome.map(|(ready, times, task)| {
                    *under_way = Some(task);
                    (ready, times)
                });
                session.on_prepared(now(), outcome);
            }
            AgentAction::Data(payload) => {
                if let Some(inbox) = under_way.as_ref().and_then(|task| task.inbox.as_ref()) {
                    // A task that has ended reads nothing any more.
                    inbox.send(payload).ok();
                }
            }
            AgentAction::Begin => {
                if let Some(task) = under_way {
                    task.control.begin();
                    let began_ns = task.control.began_ns().unwrap_or_default();
                    locked(&self.overlaps).begin(began_ns);
                }
            }
            AgentAction::Halt => {
                if let Some(task) = under_way {
                    task.inbox = None;
                    task.control.halt();
                }
            }
            AgentAction::Forget => {
                if let Some(task) = under_way.take() {
                    self.state().report_cache.forget(task.token);
                }
            }
            AgentAction::Abandon => {
                if let Some(task) = under_way.take() {
                    task.control.abandon();
                    if !task.outlives_session || task.control.began_ns().is_none() {
                        task.control.halt();
                    }
                }
            }
            AgentAction::Fetch(token) => {
                let found = self.state().report_cache.find(now(), token);
                *under_way = Some(ActiveTask::fetched(token));
                session.on_report_lookup(now(), found);
            }
            AgentAction::Close(_) => {}
        }
    }

    /// Prepares a task, whose thread then waits for its start.
    fn prepare(
        self: &Arc<Self>,
        number: u32,
        request: &TaskRequest,
        events: SyncSender<ControlEvent<TaskEvent>>,
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
            let until = now() + times.longest + self.timing.start + self.timing.answer;
            self.state().report_cache.begin(now(), token, until);
        }
        let (inbox_sender, inbox) = mpsc::channel();
        let agent = Arc::clone(self);
        let work = move || {
            let outbox = TaskOutbox { token, events: events.clone() };
            let report = run(TaskMessages { inbox, outbox });
            drop(slot);
            if kept_for > Span::ZERO {
                agent.state().report_cache.finish(now(), token, report.clone(), kept_for);
            }
            // A client that has lost its session comes back for it.
            events.send(ControlEvent::Local(TaskEvent::Finished(token, report))).ok();
        };
        thread::Builder::new().name("test".to_owned()).spawn(work).map_err(failed)?;
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
