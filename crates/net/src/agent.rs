//! The agent: serves clients over whatever carries a session, within its limits.
//!
//! One [`Agent`] for a process, however many clients come; each is served by a thread of its caller's. Left out:
//! listening, and showing who one is.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use plumb_base::time::Span;

use crate::clock::{now, steady_ns};
use crate::measure::bind::Bind;
use crate::measure::control::Control;
use crate::measure::report::{Overlap, TestReport};
use crate::measure::run::{self, Course};
use crate::measure::spec::{PartSpec, TestSpec};
use crate::measure::standstill::Standstill;
use crate::protocol::hello::Hello;
use crate::protocol::message::{Ready, Refusal, Welcome};
use crate::protocol::session::agent::{Action, AgentSession};
use crate::protocol::session::{SessionError, Timing};
use crate::protocol::shelf::Shelf;
use crate::protocol::token::Token;
use crate::transport::{Event, Pump, Stream};

pub mod addresses;
mod budget;
mod neighbours;
mod overlap;

#[cfg(test)]
mod tests;

use neighbours::Neighbours;
use overlap::Ledger;

/// What an agent allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes a second that a test may send, and as many that it may have taken; none is no limit.
    pub rate_max: Option<u64>,
    /// The longest test.
    pub duration_max: Span,
    /// Streams of one test in each direction.
    pub streams_max: u16,
    /// Probes a second of one test.
    pub probes_max: u32,
    /// Clients at a time.
    pub peers_max: u32,
    /// Tests at a time, of all clients.
    pub tests_max: u32,
    /// How long a report is kept for a client that went away; zero ends the test with its connection.
    pub kept: Span,
    /// The port that data is taken at; 0 is any. One other than 0 allows one test at a time.
    pub data_port: u16,
    /// The only address that data is taken at; none is the one that the client goes to, or any.
    pub data_address: Option<IpAddr>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate_max: None,
            duration_max: Span::from_secs(3_600),
            streams_max: 128,
            probes_max: 10_000,
            peers_max: 32,
            tests_max: 8,
            kept: Span::from_secs(300),
            data_port: 0,
            data_address: None,
        }
    }
}

/// One agent: its limits, its clients, and what it keeps for them.
#[derive(Debug)]
pub struct Agent {
    program: String,
    limits: Limits,
    timing: Timing,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    peers: u32,
    /// Tests that are ready or run.
    tests: u32,
    ledger: Ledger,
    shelf: Shelf,
}

/// A test that a client has under way.
struct UnderWay {
    token: Token,
    control: Arc<Control>,
    /// Whether its client is gone, so that it ends when nothing gets through any more.
    is_abandoned: Arc<AtomicBool>,
}

/// A test that is over.
type Over = (Token, Box<TestReport>);

impl Agent {
    /// An agent of this program's version.
    pub fn new(program: &str, limits: Limits, timing: Timing) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { program: program.to_owned(), limits, timing, state })
    }

    /// Clients and tests at this moment.
    pub fn busy(&self) -> (u32, u32) {
        let state = self.state();
        (state.peers, state.tests)
    }

    /// Serves one client until it is gone.
    ///
    /// # Errors
    /// Why it ended before its time, and in which state.
    pub fn serve(self: &Arc<Self>, stream: Stream) -> Result<(), SessionError> {
        let hello = Hello::of_this_program(&self.program);
        let mut session = AgentSession::new(now(), hello, self.welcome(), self.timing);
        let Ok(pump) = Pump::start(stream) else {
            session.handle_closed();
            return last_words(&mut session);
        };
        let seat = Seat::take(self);
        if seat.is_none() {
            let peers = self.limits.peers_max;
            session.refuse(now(), Refusal::TooManyPeers { peers });
        }
        let mut under_way: Option<UnderWay> = None;
        loop {
            while let Some(action) = session.poll_action() {
                if let Action::Close(error) = action {
                    pump.close();
                    return error.map_or(Ok(()), Err);
                }
                self.perform(action, &mut session, &pump, &mut under_way);
            }
            let wait = session.deadline().saturating_since(now());
            match pump.wait(wait.into()) {
                Some(Event::Bytes(bytes)) => session.handle_bytes(now(), &bytes),
                Some(Event::Closed) => session.handle_closed(),
                Some(Event::Own((token, report)))
                    if under_way.as_ref().is_some_and(|test| test.token == token) =>
                {
                    session.finished(now(), *report);
                }
                Some(Event::Own(_)) | None => {}
            }
            // However busy the line is, a deadline is a deadline.
            if now() >= session.deadline() {
                session.handle_timeout(now());
            }
        }
    }

    fn perform(
        self: &Arc<Self>,
        action: Action,
        session: &mut AgentSession,
        pump: &Pump<Over>,
        under_way: &mut Option<UnderWay>,
    ) {
        match action {
            Action::Send(bytes) => {
                if !pump.send(bytes) {
                    session.handle_closed();
                }
            }
            Action::Prepare { test, spec, to } => {
                let outcome = self.prepare(test, &spec, to, pump.sender());
                let outcome = outcome.map(|(ready, test)| {
                    *under_way = Some(test);
                    ready
                });
                session.prepared(now(), outcome);
            }
            Action::Begin => {
                if let Some(test) = under_way {
                    test.control.begin();
                    let began_ns = test.control.began_ns().unwrap_or_default();
                    self.state().ledger.open(began_ns);
                }
            }
            Action::Halt => {
                if let Some(test) = under_way {
                    test.control.halt();
                }
            }
            Action::Forget => {
                if let Some(test) = under_way.take() {
                    self.state().shelf.forget(test.token);
                }
            }
            Action::Abandon => {
                if let Some(test) = under_way.take() {
                    test.is_abandoned.store(true, Ordering::Relaxed);
                    if self.limits.kept == Span::ZERO || test.control.began_ns().is_none() {
                        test.control.halt();
                    }
                }
            }
            Action::Fetch(token) => {
                let found = self.state().shelf.find(now(), token);
                let (control, is_abandoned) = Default::default();
                *under_way = Some(UnderWay { token, control, is_abandoned });
                session.found(now(), found);
            }
            Action::Close(_) => {}
        }
    }

    /// Makes ready for a test, whose thread then waits for its beginning.
    fn prepare(
        self: &Arc<Self>,
        test: u32,
        spec: &TestSpec,
        to: Option<IpAddr>,
        over: SyncSender<Event<Over>>,
    ) -> Result<(Ready, UnderWay), Refusal> {
        run::check(spec)?;
        let rate_max = budget::allow(spec, &self.limits)?;
        let trouble = |error: io::Error| Refusal::Trouble(error.to_string());
        let token = random_token().map_err(trouble)?;
        let place = Place::take(self)?;
        let control = Arc::<Control>::default();
        let port = self.limits.data_port;
        let at = self.limits.data_address;
        let at = at.map_or_else(|| Bind::asked(to, port), |only| Bind::only(only, port));
        let (course, ports) =
            Course::offer(spec, token, rate_max, at, Arc::clone(&control)).map_err(trouble)?;
        let certificates = course.certificates();
        let longest = Span::from_ns(spec.longest_ns()) + self.timing.start + self.timing.answer;
        self.state().shelf.begin(now(), token, now() + longest);
        let (agent, running) = (Arc::clone(self), Arc::clone(&control));
        let is_abandoned = Arc::<AtomicBool>::default();
        let is_told = tells_of_its_client(spec);
        let (is_alone, mut standstill) = (Arc::clone(&is_abandoned), Standstill::new(now(), spec));
        let process = neighbours::own_process();
        let work = move || {
            let mut neighbours = None;
            let mut report = course.run(&mut |progress| {
                let show = || Neighbours::open(process, running.began_ns()?).into();
                neighbours = neighbours.take().or_else(show);
                neighbours.iter_mut().for_each(Neighbours::hear);
                standstill.note(now(), &progress);
                if is_told && is_alone.load(Ordering::Relaxed) && standstill.has_lasted(now()) {
                    running.halt();
                }
            });
            report.overlap = agent.overlap_of(&running, neighbours);
            drop(place);
            let kept = agent.limits.kept;
            if kept > Span::ZERO {
                agent.state().shelf.finish(now(), token, &report, kept);
            }
            // A client that has gone away comes back for it.
            over.send(Event::Own((token, Box::new(report)))).ok();
        };
        thread::Builder::new().name("test".to_owned()).spawn(work).map_err(trouble)?;
        let ready = Ready { test, token, ports, rate_max, certificates };
        Ok((ready, UnderWay { token, control, is_abandoned }))
    }

    fn overlap_of(&self, control: &Control, neighbours: Option<Neighbours>) -> Overlap {
        let Some(began_ns) = control.began_ns() else { return Overlap::default() };
        let ended_ns = steady_ns();
        let elsewhere = neighbours.map(|neighbours| neighbours.close(ended_ns)).unwrap_or_default();
        self.state().ledger.close(began_ns, ended_ns, &elsewhere)
    }

    fn welcome(&self) -> Welcome {
        Welcome {
            program: self.program.clone(),
            duration_max_ns: self.limits.duration_max.as_ns(),
            rate_max: self.limits.rate_max,
            streams_max: self.limits.streams_max,
            probes_max: self.limits.probes_max,
            kept_ns: self.limits.kept.as_ns(),
            addresses: addresses::of_this_host(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a test whose client is gone ends as soon as nothing shows any more that somebody is there.
fn tells_of_its_client(spec: &TestSpec) -> bool {
    // The halves of other parts tell of no progress, and end with their connections or by their own time. But nothing
    // else ends datagrams, and nobody has to take them for an hour who has asked for them once.
    let sends = |part: &PartSpec| matches!(part, PartSpec::Datagrams(part) if !part.is_up);
    let tells = |part: &PartSpec| {
        matches!(part, PartSpec::Streams(_) | PartSpec::Probes(_) | PartSpec::Datagrams(_))
    };
    spec.parts.iter().all(tells) || spec.parts.iter().any(sends)
}

/// Why a session ended that never had a connection.
fn last_words(session: &mut AgentSession) -> Result<(), SessionError> {
    while let Some(action) = session.poll_action() {
        if let Action::Close(Some(error)) = action {
            return Err(error);
        }
    }
    Ok(())
}

fn random_token() -> io::Result<Token> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(Token(bytes))
}

/// One of the places for clients, until it is dropped.
struct Seat {
    agent: Arc<Agent>,
}

impl Seat {
    fn take(agent: &Arc<Agent>) -> Option<Self> {
        let mut state = agent.state();
        if state.peers >= agent.limits.peers_max {
            return None;
        }
        state.peers += 1;
        Some(Self { agent: Arc::clone(agent) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.agent.state().peers -= 1;
    }
}

/// One of the places for tests, until it is dropped.
struct Place {
    agent: Arc<Agent>,
}

impl Place {
    fn take(agent: &Arc<Agent>) -> Result<Self, Refusal> {
        let mut state = agent.state();
        let (running, allowed) = (state.tests, agent.limits.tests_max);
        if running >= allowed {
            return Err(Refusal::Busy { running, allowed });
        }
        state.tests += 1;
        Ok(Self { agent: Arc::clone(agent) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.agent.state().tests -= 1;
    }
}
