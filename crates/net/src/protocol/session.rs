//! The two sides of a session as machines: bytes and moments in, actions and a deadline out.
//!
//! Every state has a deadline, and every error names the state it happened in. Left out: sockets, threads and
//! clocks, which a driver has.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};

use super::frame::{Deframer, FrameError, frame};
use super::hello::{HELLO_MAX, Hello, HelloError, not_plumb};
use super::message::{Message, Refusal};

pub mod agent;
pub mod client;

#[cfg(test)]
pub(crate) mod tests;

/// How long each thing may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
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

impl Default for Timing {
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

impl Timing {
    /// How long so many bytes may be on their way, beside what an answer may take: a control connection carries at least
    /// 100 kb/s.
    fn of_bytes(bytes: usize) -> Span {
        Span::from_us(80) * u64::try_from(bytes).unwrap_or(u64::MAX / 80_000_000)
    }
}

/// Why a session ended before its time, and what it was doing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("while {during}: {fault}")]
pub struct SessionError {
    /// What the session was doing.
    pub during: &'static str,
    /// What happened.
    pub fault: Fault,
}

/// What ended a session before its time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The state's deadline passed.
    #[error("nothing came of it in {0}; the other side or the path to it hangs: try again")]
    Late(Span),
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
    #[error("{0}; what is at the other end is not plumb, or is out of order")]
    Frame(#[from] FrameError),
    /// Not plumb, or another version.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// A frame that holds no message.
    #[error("a message that cannot be read came; bring both sides to the same version of plumb")]
    Undecodable,
    /// A message that may not come now.
    #[error("'{0}' came, which may not come now; bring both sides to the same version of plumb")]
    Unexpected(&'static str),
    /// The other side said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// What both machines do alike: frames, hellos and keep-alive.
#[derive(Clone, Debug)]
struct Line {
    timing: Timing,
    deframer: Deframer,
    hello: Hello,
    /// The version spoken, once the hellos agree.
    version: Option<u16>,
    heard_at: Instant,
    said_at: Instant,
    pings: u32,
    out: VecDeque<Vec<u8>>,
}

/// What a frame turned out to be.
#[derive(Debug)]
enum Heard {
    /// Nothing more for now.
    Nothing,
    /// The hellos agree.
    Greeted,
    /// A message that the state decides about.
    Message(Message),
    /// A message that was dealt with.
    Quiet,
}

impl Line {
    fn new(now: Instant, hello: Hello, timing: Timing) -> Self {
        let out = VecDeque::from([frame(&hello.encode())]);
        Self {
            timing,
            deframer: Deframer::default(),
            hello,
            version: None,
            heard_at: now,
            said_at: now,
            pings: 0,
            out,
        }
    }

    fn push(&mut self, now: Instant, bytes: &[u8]) {
        self.heard_at = now;
        self.deframer.push(bytes);
    }

    fn say(&mut self, now: Instant, message: &Message) {
        self.said_at = now;
        self.out.push_back(frame(&message.encode()));
    }

    /// The next thing that was heard; frames after the hello may have `limit` bytes.
    fn next(&mut self, now: Instant, limit: usize) -> Result<Heard, Fault> {
        if self.version.is_none() {
            return self.next_hello();
        }
        let Some(payload) = self.deframer.next_frame(limit)? else { return Ok(Heard::Nothing) };
        match Message::decode(payload).ok_or(Fault::Undecodable)? {
            Message::Ping(number) => {
                self.say(now, &Message::Pong(number));
                Ok(Heard::Quiet)
            }
            Message::Pong(_) => Ok(Heard::Quiet),
            message => Ok(Heard::Message(message)),
        }
    }

    fn next_hello(&mut self) -> Result<Heard, Fault> {
        let hello = match self.deframer.next_frame(HELLO_MAX) {
            Ok(None) => return Ok(Heard::Nothing),
            Ok(Some(payload)) => Hello::decode(payload)?,
            Err(_) => return Err(not_plumb(self.deframer.pending()).into()),
        };
        self.version = Some(self.hello.agree(&hello)?);
        Ok(Heard::Greeted)
    }

    /// Why a stream that ended here was no good: before the hello, what came instead of it.
    fn closed(&self) -> Fault {
        match self.deframer.pending() {
            said if self.version.is_none() && !said.is_empty() => not_plumb(said).into(),
            _ => Fault::Closed,
        }
    }

    /// Keeps the line alive; an error when the other side is silent.
    fn handle_timeout(&mut self, now: Instant) -> Result<(), Fault> {
        if self.version.is_none() {
            return Ok(());
        }
        if now >= self.heard_at + self.timing.silence {
            return Err(Fault::Silent(self.timing.silence));
        }
        if now >= self.said_at + self.timing.ping {
            self.pings = self.pings.wrapping_add(1);
            self.say(now, &Message::Ping(self.pings));
        }
        Ok(())
    }

    fn deadline(&self) -> Instant {
        if self.version.is_none() {
            return Instant::NEVER;
        }
        (self.heard_at + self.timing.silence).min(self.said_at + self.timing.ping)
    }
}
