//! The two sides of a session as machines: bytes and moments in, actions and a deadline out.
//!
//! Every state has a deadline, and every error names the state it happened in. Left out: sockets, threads and
//! clocks, which a driver has.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};

use super::message::{
    ControlFrameError, Deframer, HELLO_MAX, HelloError, MAGIC, Message, ProtocolHello, TaskRefusal,
    frame, not_plumb,
};

pub mod agent;
pub mod client;

#[cfg(test)]
mod tests;

/// How long each thing may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTiming {
    /// Until the other side has said who it is.
    pub hello: Span,
    /// Until a question is answered, and on top of what a test takes by itself.
    pub answer: Span,
    /// Until a test that is ready begins.
    pub start: Span,
    /// Until a client that does nothing is sent away.
    pub idle: Span,
    /// After how long without a word a ping is sent.
    pub ping: Span,
    /// After how long without hearing anything the other side is held to be gone.
    pub silence: Span,
}

impl Default for SessionTiming {
    fn default() -> Self {
        Self {
            hello: Span::from_secs(20),
            answer: Span::from_secs(15),
            start: Span::from_secs(30),
            idle: Span::from_secs(600),
            ping: Span::from_secs(2),
            silence: Span::from_secs(12),
        }
    }
}

impl SessionTiming {
    /// How long so many bytes may be on their way, beside what an answer may take: a control connection carries at least
    /// 100 kb/s.
    fn of_bytes(bytes: usize) -> Span {
        Span::from_us(80) * u64::try_from(bytes).unwrap_or(u64::MAX / 80_000_000)
    }
}

/// How long a task may take, which both sides know from the task itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskTimes {
    /// From its start to its report.
    pub longest: Span,
    /// How long either side may be silent while it is ready or runs, when no pings disturb it; zero keeps the pings.
    pub quiet: Span,
}

/// Why a session ended before its time, and what it was doing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("while {activity}: {fault}")]
pub struct ControlSessionError {
    /// What the session was doing.
    pub activity: &'static str,
    /// What happened.
    pub fault: SessionFault,
}

/// What ended a session before its time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionFault {
    /// The state's deadline passed.
    #[error("it took longer than {0}; the other side or the path to it hangs: try again")]
    DeadlinePassed(Span),
    /// Not even a keep-alive came.
    #[error(
        "nothing at all was heard for {0}, so the control connection is half-open or the other side is gone; \
         check its host and the path to it"
    )]
    Silent(Span),
    /// The control connection ended.
    #[error("the control connection ended; the other side was stopped, or the path to it was cut")]
    Closed,
    /// What came is no frame.
    #[error("{0}; what is at the other end is not plumb, or is broken")]
    Frame(#[from] ControlFrameError),
    /// Not plumb, or another version.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// A frame that holds no message.
    #[error("a message that cannot be read came; bring both sides to the same version of plumb")]
    Undecodable,
    /// A message that may not come now.
    #[error("'{0}' came out of turn; bring both sides to the same version of plumb")]
    Unexpected(&'static str),
    /// More of the task's messages came than wait for it.
    #[error(
        "messages came faster than the task takes them; bring both sides to the same version of plumb"
    )]
    Overrun,
    /// The other side said no.
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
}

/// Bytes that a login may print before an agent's hello.
const BANNER_BYTES_MAX: usize = 64 << 10;

/// What both machines do alike: frames, hellos and keep-alive.
#[derive(Clone, Debug)]
struct SessionChannel {
    timing: SessionTiming,
    deframer: Deframer,
    hello: ProtocolHello,
    /// Whether other bytes may come before the hello.
    allows_banner: bool,
    /// The version spoken, once the hellos agree.
    version: Option<u16>,
    /// When the present state began, and when it must be over.
    since: Instant,
    until: Instant,
    received_at: Instant,
    sent_at: Instant,
    pings: u32,
    /// How long either side may be silent, without pings; zero for the usual times.
    quiet: Span,
    out: VecDeque<Vec<u8>>,
}

/// What a frame turned out to be.
#[derive(Debug)]
enum SessionInput {
    /// Nothing more for now.
    Nothing,
    /// The hellos agree.
    HelloAgreed,
    /// A message that the state decides about.
    Message(Message),
    /// A message that was dealt with.
    Handled,
}

impl SessionChannel {
    fn new(now: Instant, hello: ProtocolHello, timing: SessionTiming, allows_banner: bool) -> Self {
        let out = VecDeque::from([frame(&hello.encode())]);
        Self {
            timing,
            deframer: Deframer::default(),
            hello,
            allows_banner,
            version: None,
            since: now,
            until: now + timing.hello,
            received_at: now,
            sent_at: now,
            pings: 0,
            quiet: Span::ZERO,
            out,
        }
    }

    /// A state that must be over within some time.
    fn enter(&mut self, now: Instant, within: Span) {
        (self.since, self.until) = (now, now + within);
    }

    fn push(&mut self, now: Instant, bytes: &[u8]) {
        self.received_at = now;
        self.deframer.push(bytes);
    }

    fn send(&mut self, now: Instant, message: &Message) {
        self.sent_at = now;
        self.out.push_back(frame(&message.encode()));
    }

    /// The next thing that was heard; frames after the hello may have `limit` bytes.
    fn next(&mut self, now: Instant, limit: usize) -> Result<SessionInput, SessionFault> {
        if self.version.is_none() {
            return self.next_hello();
        }
        let Some(payload) = self.deframer.next_frame(limit)? else {
            return Ok(SessionInput::Nothing);
        };
        match Message::decode(payload).ok_or(SessionFault::Undecodable)? {
            Message::Ping(number) => {
                self.send(now, &Message::Pong(number));
                Ok(SessionInput::Handled)
            }
            Message::Pong(_) => Ok(SessionInput::Handled),
            message => Ok(SessionInput::Message(message)),
        }
    }

    fn next_hello(&mut self) -> Result<SessionInput, SessionFault> {
        if self.allows_banner
            && !self.deframer.skip_to(&MAGIC)
            && self.deframer.pending().len() <= BANNER_BYTES_MAX
        {
            return Ok(SessionInput::Nothing);
        }
        let hello = match self.deframer.next_frame(HELLO_MAX) {
            Ok(None) => return Ok(SessionInput::Nothing),
            Ok(Some(payload)) => ProtocolHello::decode(payload)?,
            Err(_) => return Err(not_plumb(self.deframer.pending()).into()),
        };
        self.version = Some(self.hello.negotiate(&hello)?);
        Ok(SessionInput::HelloAgreed)
    }

    /// Why a stream that ended here was no good: before the hello, what came instead of it.
    fn close_fault(&self) -> SessionFault {
        match self.deframer.pending() {
            said if self.version.is_none() && !said.is_empty() => not_plumb(said).into(),
            _ => SessionFault::Closed,
        }
    }

    /// Keeps the line alive; an error when the state has lasted too long, or the other side is silent.
    fn handle_timeout(&mut self, now: Instant) -> Result<(), SessionFault> {
        if now >= self.until {
            // Bytes that were not a hello are a better reason than none.
            return Err(match self.close_fault() {
                fault @ SessionFault::Hello(_) => fault,
                _ => SessionFault::DeadlinePassed(self.until.saturating_since(self.since)),
            });
        }
        if self.version.is_none() {
            return Ok(());
        }
        let (silence, ping) = self.keep_alive();
        if now >= self.received_at + silence {
            return Err(SessionFault::Silent(silence));
        }
        if now >= self.sent_at + ping {
            self.pings = self.pings.wrapping_add(1);
            self.send(now, &Message::Ping(self.pings));
        }
        Ok(())
    }

    /// How long the other side may be silent, and after how long without sending a ping is due.
    fn keep_alive(&self) -> (Span, Span) {
        match self.quiet {
            Span::ZERO => (self.timing.silence, self.timing.ping),
            quiet => (quiet, Span::from_ps(u64::MAX)),
        }
    }

    fn deadline(&self) -> Instant {
        if self.version.is_none() {
            return self.until;
        }
        let (silence, ping) = self.keep_alive();
        self.until.min(self.received_at + silence).min(self.sent_at + ping)
    }
}
