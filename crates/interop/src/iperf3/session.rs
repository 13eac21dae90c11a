//! The server's side of a test's control connection: what it waits for, until when, and what it does.
//!
//! Pure: bytes and moments go in, actions come out. Every state has a deadline, and what is read in
//! each is bounded before it is read. Left out: sockets and streams ([`super::server`]).

use std::collections::VecDeque;
use std::fmt;

use plumb_base::time::{Instant, Span};
use plumb_base::units::Rate;

use super::message::{
    Iperf3ErrorCode, Iperf3Message, PARAMETERS_MAX, RESULTS_MAX, decode_frame, encode_frame,
    frame_len,
};
use super::parameters::Iperf3Parameters;
use super::results::Iperf3Results;

/// How long a client may take for its parameters and its goodbye.
const WAIT_SHORT: Span = Span::from_secs(10);
/// How long a client may take for its streams and its results.
const WAIT_LONG: Span = Span::from_secs(30);
/// By how much a test may be longer than it was said to be.
const GRACE: Span = Span::from_secs(40);

const CLOSED: &str = "the client closed the control connection";
const TERMINATED: &str = "the client was stopped by its user";

/// The cause of a byte that is no message, or none of this state.
fn unexpected(byte: u8) -> String {
    format!("the client sent byte {byte}, which means nothing here")
}

/// What a server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iperf3Limits {
    /// The longest test.
    pub duration: Span,
    /// Bits a second of all streams of a test together.
    pub bitrate: Option<Rate>,
    /// Streams of a test in each direction.
    pub streams: u32,
}

impl Default for Iperf3Limits {
    fn default() -> Self {
        Self { duration: Span::from_secs(86_400), bitrate: None, streams: 128 }
    }
}

/// What the session has its driver do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Iperf3Action {
    /// Send these bytes over the control connection.
    Send(Vec<u8>),
    /// Expect the client's streams; then call [`Iperf3Session::streams_ready`].
    AcceptStreams(Box<Iperf3Parameters>),
    /// Let data flow.
    Start,
    /// Stop sending; go on receiving.
    Stop,
    /// The client sent this much: drain, then call [`Iperf3Session::finished`].
    Drain(Box<Iperf3Results>),
    /// The session is over.
    End(Result<(), Iperf3SessionError>),
}

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iperf3State {
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
    AwaitingDone,
    /// Nothing: it is over.
    Ended,
}

impl fmt::Display for Iperf3State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parameters => "waiting for the client's parameters",
            Self::Streams => "waiting for the client's streams",
            Self::Running => "running the test",
            Self::Results => "waiting for the client's results",
            Self::Drain => "receiving data in flight",
            Self::AwaitingDone => "waiting for the client to end the test",
            Self::Ended => "after the end",
        })
    }
}

/// Why a session ended before its end, and in which state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} (while {stage})")]
pub struct Iperf3SessionError {
    /// What it waited for.
    pub stage: Iperf3State,
    /// What happened instead.
    pub cause: String,
}

/// One test, from its cookie on.
#[derive(Debug)]
pub struct Iperf3Session {
    stage: Iperf3State,
    limits: Iperf3Limits,
    since: Instant,
    deadline: Instant,
    inbox: Vec<u8>,
    actions: VecDeque<Iperf3Action>,
    running_for: Option<Span>,
}

impl Iperf3Session {
    /// A client has connected and sent its cookie, and there is room for its test.
    pub fn begin(now: Instant, limits: Iperf3Limits) -> Self {
        let mut session = Self {
            stage: Iperf3State::Parameters,
            limits,
            since: now,
            deadline: now + WAIT_SHORT,
            inbox: Vec::new(),
            actions: VecDeque::new(),
            running_for: None,
        };
        session.send_message(Iperf3Message::ParameterExchange);
        session
    }

    /// What it waits for.
    pub const fn stage(&self) -> Iperf3State {
        self.stage
    }

    /// When it stops waiting.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Bytes that are held because they are no whole message yet.
    pub const fn buffered(&self) -> usize {
        self.inbox.len()
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Iperf3Action> {
        self.actions.pop_front()
    }

    /// Bytes came over the control connection.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.inbox.extend(bytes);
        loop {
            let before = (self.inbox.len(), self.stage);
            match self.stage {
                Iperf3State::Parameters => self.parameters(now),
                Iperf3State::Running | Iperf3State::Streams => self.running(now),
                Iperf3State::Results => self.results(now),
                Iperf3State::AwaitingDone => self.receive_done(),
                // Nothing is due while draining: what comes early is read afterwards, and is little.
                Iperf3State::Drain if self.inbox.len() <= 16 => {}
                Iperf3State::Drain => {
                    self.fail(unexpected(self.inbox[0]), Iperf3ErrorCode::MESSAGE);
                }
                Iperf3State::Ended => self.inbox.clear(),
            }
            if (self.inbox.len(), self.stage) == before {
                return;
            }
        }
    }

    /// The control connection ended.
    pub fn close(&mut self, _now: Instant) {
        match self.stage {
            Iperf3State::Ended => {}
            // Everything was said: some clients do not say goodbye.
            Iperf3State::AwaitingDone => self.end(Ok(())),
            _ => self.fail(CLOSED, Iperf3ErrorCode::CLOSED),
        }
    }

    /// The deadline has passed.
    pub fn timeout(&mut self, now: Instant) {
        if now < self.deadline {
            return;
        }
        match self.stage {
            Iperf3State::Ended => {}
            Iperf3State::AwaitingDone => self.end(Ok(())),
            stage => {
                let fault = if stage == Iperf3State::Running {
                    Iperf3ErrorCode::EXPIRED
                } else {
                    Iperf3ErrorCode::SILENCE
                };
                let waited = now.saturating_since(self.since);
                self.fail(format!("nothing came from the client for {waited}"), fault);
            }
        }
    }

    /// Every stream of the client is there.
    pub fn streams_ready(&mut self, now: Instant) {
        if self.stage != Iperf3State::Streams {
            return;
        }
        let duration = self.running_for.unwrap_or(self.limits.duration);
        self.enter(Iperf3State::Running, now, duration + GRACE);
        self.send_message(Iperf3Message::TestStart);
        self.send_message(Iperf3Message::TestRunning);
        self.actions.push_back(Iperf3Action::Start);
    }

    /// The driver could not go on.
    pub fn fail_driver(&mut self, why: String, fault: Iperf3ErrorCode) {
        if self.stage != Iperf3State::Ended {
            self.fail(why, fault);
        }
    }

    /// Somebody ends this server.
    pub fn terminate(&mut self) {
        if self.stage != Iperf3State::Ended {
            self.send_message(Iperf3Message::ServerTerminate);
            self.end_with("this server was stopped");
        }
    }

    /// Everything was received, and these are this side's results.
    pub fn finished(&mut self, now: Instant, results: &Iperf3Results) {
        if self.stage != Iperf3State::Drain {
            return;
        }
        self.actions.push_back(Iperf3Action::Send(encode_frame(&results.to_json())));
        self.send_message(Iperf3Message::DisplayResults);
        self.enter(Iperf3State::AwaitingDone, now, WAIT_SHORT);
        self.receive(now, &[]);
    }

    fn parameters(&mut self, now: Instant) {
        let Some(text) = self.frame(PARAMETERS_MAX, "parameters", Iperf3ErrorCode::PARAMETERS)
        else {
            return;
        };
        let read = decode_frame(&text, "parameters").map_err(|error| error.to_string());
        let read = read
            .and_then(|json| Iperf3Parameters::of_json(&json).map_err(|error| error.to_string()));
        let parameters = match read {
            Ok(parameters) => parameters,
            Err(cause) => return self.fail(cause, Iperf3ErrorCode::PARAMETERS),
        };
        if let Err((cause, fault)) = self.check_limits(&parameters) {
            return self.fail(cause, fault);
        }
        self.running_for = parameters.seconds().map(|seconds| Span::from_secs(seconds.into()));
        self.actions.push_back(Iperf3Action::AcceptStreams(Box::new(parameters)));
        self.enter(Iperf3State::Streams, now, WAIT_LONG);
    }

    /// The streams are expected: the client may connect them.
    pub fn accepting_streams(&mut self) {
        if self.stage == Iperf3State::Streams {
            self.send_message(Iperf3Message::CreateStreams);
        }
    }

    fn check_limits(&self, parameters: &Iperf3Parameters) -> Result<(), (String, Iperf3ErrorCode)> {
        let Iperf3Limits { duration, bitrate, streams } = self.limits;
        let limit = |asked: String, allowed: String| {
            format!("the client asks for {asked}, and this server allows {allowed}")
        };
        let seconds = Span::from_secs(parameters.seconds().unwrap_or(0).into());
        if seconds > duration {
            let cause = limit(format!("{seconds}"), format!("{duration}"));
            return Err((cause, Iperf3ErrorCode::DURATION));
        }
        if parameters.streams > streams {
            let cause = limit(format!("{} streams", parameters.streams), format!("{streams}"));
            return Err((cause, Iperf3ErrorCode { code: 6, system: 0 }));
        }
        if let Some(most) = bitrate {
            let all = u64::try_from(parameters.client_sends().len()).unwrap_or(u64::MAX);
            let rate = parameters.bitrate.map(Rate::bits_per_second);
            // As fast as can be is more than any limit.
            let asked = rate.map_or(u64::MAX, |rate| rate.saturating_mul(all));
            if asked > most.bits_per_second() {
                let asked = if asked == u64::MAX {
                    "no rate limit".to_owned()
                } else {
                    format!("{asked} bits a second")
                };
                return Err((limit(asked, most.to_string()), Iperf3ErrorCode::RATE));
            }
        }
        Ok(())
    }

    fn running(&mut self, now: Instant) {
        let Some(&byte) = self.inbox.first() else { return };
        self.inbox.remove(0);
        match Iperf3Message::from_byte(byte) {
            Some(Iperf3Message::TestEnd) if self.stage == Iperf3State::Running => {
                self.actions.push_back(Iperf3Action::Stop);
                self.send_message(Iperf3Message::ExchangeResults);
                self.enter(Iperf3State::Results, now, WAIT_LONG);
            }
            Some(Iperf3Message::ClientTerminate) => self.end_with(TERMINATED),
            // It is leaving without results.
            Some(Iperf3Message::Done) => self.end_with(CLOSED),
            _ => self.fail(unexpected(byte), Iperf3ErrorCode::MESSAGE),
        }
    }

    fn results(&mut self, now: Instant) {
        let Some(text) = self.frame(RESULTS_MAX, "results", Iperf3ErrorCode::RESULTS) else {
            return;
        };
        let read = decode_frame(&text, "results").map_err(|error| error.to_string());
        match read.and_then(|json| Iperf3Results::of_json(&json).map_err(|error| error.to_string()))
        {
            Ok(results) => {
                self.actions.push_back(Iperf3Action::Drain(Box::new(results)));
                self.enter(Iperf3State::Drain, now, WAIT_LONG);
            }
            Err(cause) => self.fail(cause, Iperf3ErrorCode::RESULTS),
        }
    }

    fn receive_done(&mut self) {
        let Some(&byte) = self.inbox.first() else { return };
        self.inbox.clear();
        match Iperf3Message::from_byte(byte) {
            Some(Iperf3Message::Done) => self.end(Ok(())),
            Some(Iperf3Message::ClientTerminate) => self.end_with(TERMINATED),
            _ => self.end_with(unexpected(byte)),
        }
    }

    /// The text of a frame, once all of it is there.
    fn frame(
        &mut self,
        limit: usize,
        what: &'static str,
        fault: Iperf3ErrorCode,
    ) -> Option<Vec<u8>> {
        let head = *self.inbox.first_chunk::<4>()?;
        let len = match frame_len(head, limit, what) {
            Ok(len) => len,
            Err(error) => {
                self.fail(error.to_string(), fault);
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

    fn enter(&mut self, stage: Iperf3State, now: Instant, wait: Span) {
        (self.stage, self.since, self.deadline) = (stage, now, now + wait);
    }

    fn send_message(&mut self, message: Iperf3Message) {
        self.actions.push_back(Iperf3Action::Send(vec![message.byte()]));
    }

    /// Ends it with the protocol's word about why.
    fn fail(&mut self, cause: impl Into<String>, fault: Iperf3ErrorCode) {
        self.actions.push_back(Iperf3Action::Send(fault.bytes()));
        self.end_with(cause);
    }

    fn end_with(&mut self, cause: impl Into<String>) {
        self.end(Err(Iperf3SessionError { stage: self.stage, cause: cause.into() }));
    }

    fn end(&mut self, result: Result<(), Iperf3SessionError>) {
        self.stage = Iperf3State::Ended;
        self.deadline = Instant::NEVER;
        self.inbox = Vec::new();
        self.actions.push_back(Iperf3Action::End(result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::ORIGIN;

    fn after(seconds: u64) -> Instant {
        START + Span::from_secs(seconds)
    }

    fn actions(session: &mut Iperf3Session) -> Vec<Iperf3Action> {
        std::iter::from_fn(|| session.poll_action()).collect()
    }

    fn send(message: Iperf3Message) -> Iperf3Action {
        Iperf3Action::Send(vec![message.byte()])
    }

    fn error(session: &mut Iperf3Session) -> String {
        match actions(session).pop() {
            Some(Iperf3Action::End(Err(error))) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// A session that has come to a stage on the straight way.
    fn at(stage: Iperf3State) -> Iperf3Session {
        let mut session = Iperf3Session::begin(START, Iperf3Limits::default());
        if stage == Iperf3State::Parameters {
            return session;
        }
        session.receive(START, &encode_frame(&Iperf3Parameters::default().to_json()));
        if stage == Iperf3State::Streams {
            return session;
        }
        session.streams_ready(START);
        if stage == Iperf3State::Running {
            return session;
        }
        session.receive(after(10), &[Iperf3Message::TestEnd.byte()]);
        if stage == Iperf3State::Results {
            return session;
        }
        session.receive(after(10), &encode_frame(&Iperf3Results::default().to_json()));
        if stage == Iperf3State::AwaitingDone {
            session.finished(after(10), &Iperf3Results::default());
        }
        session
    }

    #[test]
    fn a_test_goes_through_its_states_in_the_protocols_order() {
        let parameters = Iperf3Parameters::default();
        let mut session = Iperf3Session::begin(START, Iperf3Limits::default());
        assert_eq!(actions(&mut session), [send(Iperf3Message::ParameterExchange)]);
        // However its bytes are cut.
        for byte in encode_frame(&parameters.to_json()) {
            session.receive(START, &[byte]);
        }
        assert_eq!(actions(&mut session), [Iperf3Action::AcceptStreams(Box::new(parameters))]);
        session.accepting_streams();
        assert_eq!(actions(&mut session), [send(Iperf3Message::CreateStreams)]);
        session.streams_ready(after(1));
        let started =
            [send(Iperf3Message::TestStart), send(Iperf3Message::TestRunning), Iperf3Action::Start];
        assert_eq!(actions(&mut session), started);
        session.receive(after(11), &[Iperf3Message::TestEnd.byte()]);
        assert_eq!(
            actions(&mut session),
            [Iperf3Action::Stop, send(Iperf3Message::ExchangeResults)]
        );
        let results = Iperf3Results { has_retransmits: Some(true), ..Iperf3Results::default() };
        session.receive(after(11), &encode_frame(&results.to_json()));
        assert_eq!(actions(&mut session), [Iperf3Action::Drain(Box::new(results))]);
        session.finished(after(11), &Iperf3Results::default());
        let own = Iperf3Action::Send(encode_frame(&Iperf3Results::default().to_json()));
        assert_eq!(actions(&mut session), [own, send(Iperf3Message::DisplayResults)]);
        session.receive(after(11), &[Iperf3Message::Done.byte()]);
        assert_eq!(actions(&mut session), [Iperf3Action::End(Ok(()))]);
    }

    #[test]
    fn every_state_has_a_deadline_and_its_error_names_the_state() {
        for (stage, words) in [
            (Iperf3State::Parameters, "the client's parameters"),
            (Iperf3State::Streams, "the client's streams"),
            (Iperf3State::Running, "running the test"),
            (Iperf3State::Results, "the client's results"),
            (Iperf3State::Drain, "data in flight"),
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
        let mut session = at(Iperf3State::AwaitingDone);
        session.timeout(session.deadline());
        assert_eq!(actions(&mut session).pop(), Some(Iperf3Action::End(Ok(()))));
    }

    #[test]
    fn a_test_may_last_as_long_as_it_said_and_the_protocols_grace() {
        assert_eq!(at(Iperf3State::Running).deadline(), after(50));
    }

    #[test]
    fn a_control_connection_cut_at_any_state_ends_the_session() {
        for stage in [
            Iperf3State::Parameters,
            Iperf3State::Streams,
            Iperf3State::Running,
            Iperf3State::Results,
            Iperf3State::Drain,
        ] {
            let mut session = at(stage);
            session.close(after(1));
            assert!(error(&mut session).contains("closed the control connection"), "{stage:?}");
        }
        let mut session = at(Iperf3State::AwaitingDone);
        session.close(after(11));
        assert_eq!(actions(&mut session).pop(), Some(Iperf3Action::End(Ok(()))));
    }

    #[test]
    fn parameters_that_say_they_are_long_are_refused_before_they_come() {
        let mut session = at(Iperf3State::Parameters);
        session.receive(START, &[0, 0, 0x20, 1]);
        assert!(error(&mut session).contains("8193 bytes"));
        assert!(session.inbox.is_empty());
    }

    #[test]
    fn what_is_more_than_the_server_allows_is_refused_by_name() {
        let limits = Iperf3Limits {
            duration: Span::from_secs(60),
            bitrate: Rate::from_bits_per_second(10_000_000),
            streams: 4,
        };
        let fits = Iperf3Parameters {
            bitrate: Rate::from_bits_per_second(2_500_000),
            streams: 4,
            ..Iperf3Parameters::default()
        };
        let unlimited = Iperf3Parameters { bitrate: None, ..fits.clone() };
        let wide = Iperf3Parameters { streams: 5, ..fits.clone() };
        let fast =
            Iperf3Parameters { bitrate: Rate::from_bits_per_second(2_500_001), ..fits.clone() };
        let long = Iperf3Parameters {
            length_limit: super::super::parameters::Iperf3TestLength::Seconds(61),
            ..fits.clone()
        };
        let refused = [
            (unlimited, "no rate limit"),
            (wide, "5 streams"),
            (fast, "10000004"),
            (long, "61.0 s"),
        ];
        for (parameters, words) in refused {
            let mut session = Iperf3Session::begin(START, limits);
            session.receive(START, &encode_frame(&parameters.to_json()));
            let error = error(&mut session);
            assert!(error.contains(words), "{error}");
        }
        let mut session = Iperf3Session::begin(START, limits);
        session.receive(START, &encode_frame(&fits.to_json()));
        assert_eq!(session.stage(), Iperf3State::Streams);
    }

    #[test]
    fn a_message_out_of_place_is_refused_and_one_that_ends_everything_is_heeded() {
        let mut session = at(Iperf3State::Running);
        session.receive(after(1), &[Iperf3Message::CreateStreams.byte()]);
        assert!(error(&mut session).contains("byte 10"));
        let mut session = at(Iperf3State::Running);
        session.receive(after(1), &[Iperf3Message::ClientTerminate.byte()]);
        assert!(error(&mut session).contains("stopped by its user"));
    }
}
