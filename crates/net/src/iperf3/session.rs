//! The server's side of a test's control connection: what it waits for, until when, and what it does.
//!
//! Pure: bytes and moments go in, actions come out. Every state has a deadline, and what is read in
//! each is bounded before it is read. Left out: sockets and streams ([`super::server`]).

use std::collections::VecDeque;
use std::fmt;

use plumb_base::time::{Instant, Span};
use plumb_base::units::rate::Rate;

use super::message::{
    Fault, FrameError, Message, PARAMETERS_MAX, RESULTS_MAX, frame_len, framed, unframed,
};
use super::parameters::{Parameters, ParametersError};
use super::results::{Results, ResultsError};

/// How long a client may take for its parameters and its goodbye.
const WAIT_SHORT: Span = Span::from_secs(10);
/// How long a client may take for its streams and its results.
const WAIT_LONG: Span = Span::from_secs(30);
/// By how much a test may be longer than it was said to be.
const GRACE: Span = Span::from_secs(40);

/// What a server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest test.
    pub duration: Span,
    /// Bits a second of all streams of a test together.
    pub bitrate: Option<Rate>,
    /// Streams of a test in each direction.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { duration: Span::from_secs(86_400), bitrate: None, streams: 128 }
    }
}

/// What the session has its driver do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send these bytes over the control connection.
    Send(Vec<u8>),
    /// Expect the client's streams; then call [`Session::streams_ready`].
    Open(Box<Parameters>),
    /// Let data flow.
    Start,
    /// Stop sending; go on receiving.
    Stop,
    /// The client sent this much: drain, then call [`Session::finished`].
    Drain(Box<Results>),
    /// The session is over.
    End(Result<(), SessionError>),
}

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The client's parameters.
    Parameters,
    /// The client's streams.
    Streams,
    /// The end of the test.
    Running,
    /// The client's results.
    Results,
    /// What this side has not received yet.
    Drain,
    /// The client's goodbye.
    Goodbye,
    /// Nothing: it is over.
    Ended,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parameters => "waiting for the client's parameters",
            Self::Streams => "waiting for the client's streams",
            Self::Running => "running the test",
            Self::Results => "waiting for the client's results",
            Self::Drain => "receiving what was still under way",
            Self::Goodbye => "waiting for the client's goodbye",
            Self::Ended => "after the end",
        })
    }
}

/// Why a session ended before its end, and in which state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} (while {stage})")]
pub struct SessionError {
    /// What it waited for.
    pub stage: Stage,
    /// What happened instead.
    pub cause: Cause,
}

/// What ends a session early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Nothing came in time.
    #[error("nothing came from the client for {0}")]
    Deadline(Span),
    /// The control connection ended.
    #[error("the client closed the control connection")]
    Closed,
    /// The client was stopped.
    #[error("the client was stopped by its user")]
    Terminated,
    /// A byte that is no message, or none of this state.
    #[error("the client sent byte {0}, which means nothing here")]
    Unexpected(u8),
    /// Not the JSON that it has to be.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Parameters that cannot be met.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    /// More than this server allows.
    #[error("the client asks for {asked}, and this server allows {allowed}")]
    Limit {
        /// What was asked for.
        asked: String,
        /// What is allowed.
        allowed: String,
    },
    /// Results that are not understood.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// What the driver could not do.
    #[error("{0}")]
    Driver(String),
}

/// One test, from its cookie on.
#[derive(Debug)]
pub struct Session {
    stage: Stage,
    limits: Limits,
    since: Instant,
    deadline: Instant,
    inbox: Vec<u8>,
    actions: VecDeque<Action>,
    running_for: Option<Span>,
}

impl Session {
    /// A client has connected and sent its cookie, and there is room for its test.
    pub fn begin(now: Instant, limits: Limits) -> Self {
        let mut session = Self {
            stage: Stage::Parameters,
            limits,
            since: now,
            deadline: now + WAIT_SHORT,
            inbox: Vec::new(),
            actions: VecDeque::new(),
            running_for: None,
        };
        session.say(Message::ParameterExchange);
        session
    }

    /// What it waits for.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// When it stops waiting.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Bytes that are held because they are no whole message yet.
    pub const fn held(&self) -> usize {
        self.inbox.len()
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Bytes came over the control connection.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.inbox.extend(bytes);
        loop {
            let before = (self.inbox.len(), self.stage);
            match self.stage {
                Stage::Parameters => self.parameters(now),
                Stage::Running | Stage::Streams => self.running(now),
                Stage::Results => self.results(now),
                Stage::Goodbye => self.goodbye(),
                // Nothing is due while draining: what comes early is read afterwards, and is little.
                Stage::Drain if self.inbox.len() <= 16 => {}
                Stage::Drain => self.fail(Cause::Unexpected(self.inbox[0]), Fault::MESSAGE),
                Stage::Ended => self.inbox.clear(),
            }
            if (self.inbox.len(), self.stage) == before {
                return;
            }
        }
    }

    /// The control connection ended.
    pub fn close(&mut self, _now: Instant) {
        match self.stage {
            Stage::Ended => {}
            // Everything was said: some clients do not say goodbye.
            Stage::Goodbye => self.end(Ok(())),
            _ => self.fail(Cause::Closed, Fault::CLOSED),
        }
    }

    /// The deadline has passed.
    pub fn timeout(&mut self, now: Instant) {
        if now < self.deadline {
            return;
        }
        match self.stage {
            Stage::Ended => {}
            Stage::Goodbye => self.end(Ok(())),
            stage => {
                let fault = if stage == Stage::Running { Fault::EXPIRED } else { Fault::SILENCE };
                self.fail(Cause::Deadline(now.saturating_since(self.since)), fault);
            }
        }
    }

    /// Every stream of the client is there.
    pub fn streams_ready(&mut self, now: Instant) {
        if self.stage != Stage::Streams {
            return;
        }
        let duration = self.running_for.unwrap_or(self.limits.duration);
        self.enter(Stage::Running, now, duration + GRACE);
        self.say(Message::TestStart);
        self.say(Message::TestRunning);
        self.actions.push_back(Action::Start);
    }

    /// The driver could not go on.
    pub fn fail_driver(&mut self, why: String, fault: Fault) {
        if self.stage != Stage::Ended {
            self.fail(Cause::Driver(why), fault);
        }
    }

    /// Somebody ends this server.
    pub fn terminate(&mut self) {
        if self.stage != Stage::Ended {
            self.say(Message::ServerTerminate);
            self.end_with(Cause::Driver("this server was stopped".to_owned()));
        }
    }

    /// Everything was received, and these are this side's results.
    pub fn finished(&mut self, now: Instant, results: &Results) {
        if self.stage != Stage::Drain {
            return;
        }
        self.actions.push_back(Action::Send(framed(&results.to_json())));
        self.say(Message::DisplayResults);
        self.enter(Stage::Goodbye, now, WAIT_SHORT);
        self.receive(now, &[]);
    }

    fn parameters(&mut self, now: Instant) {
        let Some(text) = self.frame(PARAMETERS_MAX, "parameters", Fault::PARAMETERS) else {
            return;
        };
        let read = unframed(&text, "parameters").map_err(Cause::from);
        let read = read.and_then(|json| Ok(Parameters::of_json(&json)?));
        let parameters = match read {
            Ok(parameters) => parameters,
            Err(cause) => return self.fail(cause, Fault::PARAMETERS),
        };
        if let Err((cause, fault)) = self.allow(&parameters) {
            return self.fail(cause, fault);
        }
        self.running_for = parameters.seconds().map(|seconds| Span::from_secs(seconds.into()));
        self.actions.push_back(Action::Open(Box::new(parameters)));
        self.enter(Stage::Streams, now, WAIT_LONG);
    }

    /// The streams are expected: the client may connect them.
    pub fn listening(&mut self) {
        if self.stage == Stage::Streams {
            self.say(Message::CreateStreams);
        }
    }

    fn allow(&self, parameters: &Parameters) -> Result<(), (Cause, Fault)> {
        let Limits { duration, bitrate, streams } = self.limits;
        let limit = |asked: String, allowed: String| Cause::Limit { asked, allowed };
        let seconds = Span::from_secs(parameters.seconds().unwrap_or(0).into());
        if seconds > duration {
            let cause = limit(format!("{seconds}"), format!("{duration}"));
            return Err((cause, Fault::DURATION));
        }
        if parameters.streams > streams {
            let cause = limit(format!("{} streams", parameters.streams), format!("{streams}"));
            return Err((cause, Fault { code: 6, system: 0 }));
        }
        if let Some(most) = bitrate {
            let all = u64::try_from(parameters.client_sends().len()).unwrap_or(u64::MAX);
            let rate = parameters.bitrate.map(Rate::bits_per_second);
            // As fast as can be is more than any limit.
            let asked = rate.map_or(u64::MAX, |rate| rate.saturating_mul(all));
            if asked > most.bits_per_second() {
                let asked = if asked == u64::MAX {
                    "no limit of its rate".to_owned()
                } else {
                    format!("{asked} bits a second")
                };
                return Err((limit(asked, most.to_string()), Fault::RATE));
            }
        }
        Ok(())
    }

    fn running(&mut self, now: Instant) {
        let Some(&byte) = self.inbox.first() else { return };
        self.inbox.remove(0);
        match Message::of_byte(byte) {
            Some(Message::TestEnd) if self.stage == Stage::Running => {
                self.actions.push_back(Action::Stop);
                self.say(Message::ExchangeResults);
                self.enter(Stage::Results, now, WAIT_LONG);
            }
            Some(Message::ClientTerminate) => self.end_with(Cause::Terminated),
            // It is leaving without results.
            Some(Message::Done) => self.end_with(Cause::Closed),
            _ => self.fail(Cause::Unexpected(byte), Fault::MESSAGE),
        }
    }

    fn results(&mut self, now: Instant) {
        let Some(text) = self.frame(RESULTS_MAX, "results", Fault::RESULTS) else { return };
        let read = unframed(&text, "results").map_err(Cause::from);
        match read.and_then(|json| Ok(Results::of_json(&json)?)) {
            Ok(results) => {
                self.actions.push_back(Action::Drain(Box::new(results)));
                self.enter(Stage::Drain, now, WAIT_LONG);
            }
            Err(cause) => self.fail(cause, Fault::RESULTS),
        }
    }

    fn goodbye(&mut self) {
        let Some(&byte) = self.inbox.first() else { return };
        self.inbox.clear();
        match Message::of_byte(byte) {
            Some(Message::Done) => self.end(Ok(())),
            Some(Message::ClientTerminate) => self.end_with(Cause::Terminated),
            _ => self.end_with(Cause::Unexpected(byte)),
        }
    }

    /// The text of a frame, once all of it is there.
    fn frame(&mut self, limit: usize, what: &'static str, fault: Fault) -> Option<Vec<u8>> {
        let head = *self.inbox.first_chunk::<4>()?;
        let len = match frame_len(head, limit, what) {
            Ok(len) => len,
            Err(error) => {
                self.fail(error.into(), fault);
                return None;
            }
        };
        if self.inbox.len() < 4 + len {
            return None;
        }
        let rest = self.inbox.split_off(4 + len);
        let mut text = std::mem::replace(&mut self.inbox, rest);
        text.drain(..4);
        Some(text)
    }

    fn enter(&mut self, stage: Stage, now: Instant, wait: Span) {
        (self.stage, self.since, self.deadline) = (stage, now, now + wait);
    }

    fn say(&mut self, message: Message) {
        self.actions.push_back(Action::Send(vec![message.byte()]));
    }

    /// Ends it with the protocol's word about why.
    fn fail(&mut self, cause: Cause, fault: Fault) {
        self.actions.push_back(Action::Send(fault.bytes()));
        self.end_with(cause);
    }

    fn end_with(&mut self, cause: Cause) {
        self.end(Err(SessionError { stage: self.stage, cause }));
    }

    fn end(&mut self, result: Result<(), SessionError>) {
        self.stage = Stage::Ended;
        self.deadline = Instant::NEVER;
        self.inbox = Vec::new();
        self.actions.push_back(Action::End(result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::ORIGIN;

    fn after(seconds: u64) -> Instant {
        START + Span::from_secs(seconds)
    }

    fn actions(session: &mut Session) -> Vec<Action> {
        std::iter::from_fn(|| session.poll_action()).collect()
    }

    fn send(message: Message) -> Action {
        Action::Send(vec![message.byte()])
    }

    fn error(session: &mut Session) -> String {
        match actions(session).pop() {
            Some(Action::End(Err(error))) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// A session that has come to a stage on the straight way.
    fn at(stage: Stage) -> Session {
        let mut session = Session::begin(START, Limits::default());
        if stage == Stage::Parameters {
            return session;
        }
        session.receive(START, &framed(&Parameters::default().to_json()));
        if stage == Stage::Streams {
            return session;
        }
        session.streams_ready(START);
        if stage == Stage::Running {
            return session;
        }
        session.receive(after(10), &[Message::TestEnd.byte()]);
        if stage == Stage::Results {
            return session;
        }
        session.receive(after(10), &framed(&Results::default().to_json()));
        if stage == Stage::Goodbye {
            session.finished(after(10), &Results::default());
        }
        session
    }

    #[test]
    fn a_test_goes_through_its_states_in_the_protocols_order() {
        let parameters = Parameters::default();
        let mut session = Session::begin(START, Limits::default());
        assert_eq!(actions(&mut session), [send(Message::ParameterExchange)]);
        // However its bytes are cut.
        for byte in framed(&parameters.to_json()) {
            session.receive(START, &[byte]);
        }
        assert_eq!(actions(&mut session), [Action::Open(Box::new(parameters))]);
        session.listening();
        assert_eq!(actions(&mut session), [send(Message::CreateStreams)]);
        session.streams_ready(after(1));
        let started = [send(Message::TestStart), send(Message::TestRunning), Action::Start];
        assert_eq!(actions(&mut session), started);
        session.receive(after(11), &[Message::TestEnd.byte()]);
        assert_eq!(actions(&mut session), [Action::Stop, send(Message::ExchangeResults)]);
        let results = Results { has_retransmits: Some(true), ..Results::default() };
        session.receive(after(11), &framed(&results.to_json()));
        assert_eq!(actions(&mut session), [Action::Drain(Box::new(results))]);
        session.finished(after(11), &Results::default());
        let own = Action::Send(framed(&Results::default().to_json()));
        assert_eq!(actions(&mut session), [own, send(Message::DisplayResults)]);
        session.receive(after(11), &[Message::Done.byte()]);
        assert_eq!(actions(&mut session), [Action::End(Ok(()))]);
    }

    #[test]
    fn every_state_has_a_deadline_and_its_error_names_the_state() {
        for (stage, words) in [
            (Stage::Parameters, "the client's parameters"),
            (Stage::Streams, "the client's streams"),
            (Stage::Running, "running the test"),
            (Stage::Results, "the client's results"),
            (Stage::Drain, "still under way"),
        ] {
            let mut session = at(stage);
            assert_eq!(session.stage(), stage);
            let deadline = session.deadline();
            assert!(deadline < Instant::NEVER, "{stage:?}");
            session.timeout(START);
            assert_eq!(session.stage(), stage, "not before its time");
            session.timeout(deadline);
            assert!(error(&mut session).contains(words), "{stage:?}");
        }
        let mut session = at(Stage::Goodbye);
        session.timeout(session.deadline());
        assert_eq!(actions(&mut session).pop(), Some(Action::End(Ok(()))));
    }

    #[test]
    fn a_test_may_last_as_long_as_it_said_and_the_protocols_grace() {
        assert_eq!(at(Stage::Running).deadline(), after(50));
    }

    #[test]
    fn a_control_connection_cut_at_any_state_ends_the_session() {
        for stage in
            [Stage::Parameters, Stage::Streams, Stage::Running, Stage::Results, Stage::Drain]
        {
            let mut session = at(stage);
            session.close(after(1));
            assert!(error(&mut session).contains("closed the control connection"), "{stage:?}");
        }
        let mut session = at(Stage::Goodbye);
        session.close(after(11));
        assert_eq!(actions(&mut session).pop(), Some(Action::End(Ok(()))));
    }

    #[test]
    fn parameters_that_say_they_are_long_are_refused_before_they_come() {
        let mut session = at(Stage::Parameters);
        session.receive(START, &[0, 0, 0x20, 1]);
        assert!(error(&mut session).contains("8193 bytes"));
        assert!(session.inbox.is_empty());
    }

    #[test]
    fn what_is_more_than_the_server_allows_is_refused_by_name() {
        let limits = Limits {
            duration: Span::from_secs(60),
            bitrate: Rate::from_bits_per_second(10_000_000),
            streams: 4,
        };
        let fits = Parameters {
            bitrate: Rate::from_bits_per_second(2_500_000),
            streams: 4,
            ..Parameters::default()
        };
        let unlimited = Parameters { bitrate: None, ..fits.clone() };
        let wide = Parameters { streams: 5, ..fits.clone() };
        let fast = Parameters { bitrate: Rate::from_bits_per_second(2_500_001), ..fits.clone() };
        let long =
            Parameters { extent: super::super::parameters::Extent::Seconds(61), ..fits.clone() };
        let refused =
            [(unlimited, "no limit"), (wide, "5 streams"), (fast, "10000004"), (long, "61.0 s")];
        for (parameters, words) in refused {
            let mut session = Session::begin(START, limits);
            session.receive(START, &framed(&parameters.to_json()));
            let error = error(&mut session);
            assert!(error.contains(words), "{error}");
        }
        let mut session = Session::begin(START, limits);
        session.receive(START, &framed(&fits.to_json()));
        assert_eq!(session.stage(), Stage::Streams);
    }

    #[test]
    fn a_message_out_of_place_is_refused_and_one_that_ends_everything_is_heeded() {
        let mut session = at(Stage::Running);
        session.receive(after(1), &[Message::CreateStreams.byte()]);
        assert!(error(&mut session).contains("byte 10"));
        let mut session = at(Stage::Running);
        session.receive(after(1), &[Message::ClientTerminate.byte()]);
        assert!(error(&mut session).contains("stopped by its user"));
    }
}
