//! What the two sides of a session say: frames with a hello in the first and messages in the others, and how long each
//! may be.
//!
//! A frame is a length of four bytes, little-endian, and as many bytes. The longest depends on what may come next, so that
//! an unauthenticated client cannot make us buffer more than a hello.
//!
//! A hello is readable by any version. Its layout never changes: magic (8 bytes), oldest and newest version spoken
//! (2 bytes each, little-endian), features (8 bytes), length and text of the program's version. What may follow is of a
//! later version and is passed over. Of a message, a variant's position is its name on the wire (postcard): new ones go
//! last, and none is removed within a version.

use std::io::{self, Read, Write};
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::datagram_header::TestToken;

/// What every hello begins with.
pub const MAGIC: [u8; 8] = *b"plumbnet";
/// The oldest version of the protocol that this program speaks.
pub const VERSION_OLDEST: u16 = 9;
/// The newest version of the protocol that this program speaks.
pub const VERSION_NEWEST: u16 = 9;
/// Longest hello that is read.
pub const HELLO_MAX: usize = 512;
/// Longest text of a program's version.
const PROGRAM_MAX: usize = 200;
/// Bytes before that text.
const FIXED: usize = 8 + 2 + 2 + 8 + 1;

/// What a side says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolHello {
    /// The oldest version it speaks.
    pub oldest: u16,
    /// The newest version it speaks.
    pub newest: u16,
    /// What it can do beyond the version: a bit each.
    pub features: u64,
    /// Its program's version and commit.
    pub program: String,
}

/// What came first is no hello, or the two sides have no version in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Other bytes than a hello's.
    #[error(
        "what answers is not plumb: it began with \"{said}\"; check the command that starts the agent, and \
         that the shell over there prints nothing of its own when it starts"
    )]
    NotPlumb {
        /// The first of them, as text.
        said: String,
    },
    /// No version in common.
    #[error(
        "the two sides speak different versions: {here} here speaks {ours_oldest} to {ours_newest}, {there} \
         there speaks {theirs_oldest} to {theirs_newest}; bring the older side up to date \
         (plumb net --install copies this one over)"
    )]
    Skew {
        /// This program's version.
        here: String,
        /// Our oldest.
        ours_oldest: u16,
        /// Our newest.
        ours_newest: u16,
        /// The other program's version.
        there: String,
        /// Their oldest.
        theirs_oldest: u16,
        /// Their newest.
        theirs_newest: u16,
    },
}

impl ProtocolHello {
    /// This program's.
    pub fn of_this_program(program: &str) -> Self {
        let cut =
            (0..=PROGRAM_MAX.min(program.len())).rev().find(|&at| program.is_char_boundary(at));
        Self {
            oldest: VERSION_OLDEST,
            newest: VERSION_NEWEST,
            features: 0,
            program: program[..cut.unwrap_or(0)].to_owned(),
        }
    }

    /// Its bytes, without a frame around them.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.oldest.to_le_bytes());
        bytes.extend_from_slice(&self.newest.to_le_bytes());
        bytes.extend_from_slice(&self.features.to_le_bytes());
        bytes.push(u8::try_from(self.program.len()).expect("cut to fit when it was made"));
        bytes.extend_from_slice(self.program.as_bytes());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`HelloError::NotPlumb`] for any other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        Self::read(bytes).ok_or_else(|| not_plumb(bytes))
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>()?;
        if fixed[..8] != MAGIC {
            return None;
        }
        let short = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let text = rest.get(..usize::from(fixed[FIXED - 1]))?;
        Some(Self {
            oldest: short(8),
            newest: short(10),
            features: u64::from_le_bytes(fixed[12..20].try_into().ok()?),
            program: String::from_utf8_lossy(text).into_owned(),
        })
    }

    /// The version that both speak: the newest one.
    ///
    /// # Errors
    /// [`HelloError::Skew`] where there is none.
    pub fn negotiate(&self, theirs: &Self) -> Result<u16, HelloError> {
        let version = self.newest.min(theirs.newest);
        if version >= self.oldest.max(theirs.oldest) {
            return Ok(version);
        }
        Err(HelloError::Skew {
            here: self.program.clone(),
            ours_oldest: self.oldest,
            ours_newest: self.newest,
            there: theirs.program.clone(),
            theirs_oldest: theirs.oldest,
            theirs_newest: theirs.newest,
        })
    }
}

/// The error for bytes that are no hello.
pub fn not_plumb(bytes: &[u8]) -> HelloError {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
    HelloError::NotPlumb { said: head.escape_debug().to_string() }
}

/// Longest message, reports aside.
pub const MESSAGE_MAX: usize = 16 << 10;
/// Longest report.
pub const REPORT_MAX: usize = 64 << 20;

/// A kind of task that an agent can do; its payloads are opaque to the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServiceId(pub u8);

impl ServiceId {
    /// Traffic between the client and the agent.
    pub const LOAD: Self = Self(1);
    /// The far process of a launch.
    pub const LAUNCH: Self = Self(2);
}

/// What a client asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRequest {
    /// Who does it.
    pub service: ServiceId,
    /// The service's own description of the task.
    pub payload: Vec<u8>,
    /// Where the data will go, as the client sees it: the agent's address unless it is translated on the way.
    pub to: Option<IpAddr>,
}

/// One message of either side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Agent: the versions agree; these are the limits.
    Welcome(WelcomeMessage),
    /// Client: prepare this task.
    Request {
        /// The client's number for it.
        task: u32,
        /// The task.
        request: TaskRequest,
    },
    /// Agent: prepared.
    Ready(ReadyMessage),
    /// Client: start.
    Start {
        /// Which.
        task: u32,
    },
    /// Client: end the task now and report.
    Stop {
        /// Which.
        task: u32,
    },
    /// Agent: the report.
    Report {
        /// Which task's; 0 for one that was fetched.
        task: u32,
        /// The service's own report.
        payload: Vec<u8>,
    },
    /// Client: the report arrived and need not be kept.
    Received {
        /// Which task's.
        task: u32,
    },
    /// Client: send the report of a task whose connection was lost.
    Fetch {
        /// Its token.
        token: TestToken,
    },
    /// Agent: no.
    Refused(TaskRefusal),
    /// Either: keep-alive.
    Ping(u32),
    /// Either: reply to a keep-alive.
    Pong(u32),
    /// Either: end of the session.
    Bye,
    /// Either: a message of the task itself.
    Data {
        /// Which.
        task: u32,
        /// The service's own message.
        payload: Vec<u8>,
    },
}

impl Message {
    /// Its bytes, without a frame around them.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads one; none for bytes that are no message, or go on after it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }

    /// What it is called in an error.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Welcome(_) => "welcome",
            Self::Request { .. } => "request",
            Self::Ready(_) => "ready",
            Self::Start { .. } => "start",
            Self::Stop { .. } => "stop",
            Self::Report { .. } => "report",
            Self::Received { .. } => "received",
            Self::Fetch { .. } => "fetch",
            Self::Refused(_) => "refused",
            Self::Ping(_) => "ping",
            Self::Pong(_) => "pong",
            Self::Bye => "bye",
            Self::Data { .. } => "data",
        }
    }
}

/// A message or a payload as bytes, without a frame around them.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("every message is plain data")
}

/// Reads a message or a payload; none for bytes that are anything else, or go on after it.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// What an agent allows, and how it may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WelcomeMessage {
    /// Its program's version and commit.
    pub program: String,
    /// The longest test.
    pub duration_max_ns: u64,
    /// The most that it receives or sends, in bytes a second; none is no limit.
    pub rate_max: Option<u64>,
    /// Connections of one test.
    pub streams_max: u16,
    /// Probes a second.
    pub probes_max: u32,
    /// How long a report is kept for a client that lost its connection.
    pub report_retention_ns: u64,
    /// Its own addresses, for a client that knows none.
    pub addresses: Vec<String>,
    /// What it can do.
    pub services: Vec<ServiceId>,
}

/// A task that is prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyMessage {
    /// Which.
    pub task: u32,
    /// Shown by every connection and datagram of the task.
    pub token: TestToken,
    /// What the service's client needs to connect.
    pub payload: Vec<u8>,
}

/// Why an agent does not do a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum TaskRefusal {
    /// As many tasks as it allows are running.
    #[error(
        "the agent is busy: {running} tests run there and it allows {allowed}; try again later, or start it \
         with a larger --max-tests, and without --data-port"
    )]
    TestLimit {
        /// How many.
        running: u32,
        /// How many it allows.
        allowed: u32,
    },
    /// As many clients as it allows are connected.
    #[error(
        "the agent has {clients} clients, which is all that it allows; try again later, or start it with a \
         larger --max-clients"
    )]
    ClientLimit {
        /// How many.
        clients: u32,
    },
    /// Beyond a limit of the agent.
    #[error(
        "the agent allows {what} of {allowed} at most, and {asked} was asked for; ask for less, or start \
         it with other limits"
    )]
    Limit {
        /// What is limited.
        what: String,
        /// What was asked for.
        asked: u64,
        /// What is allowed.
        allowed: u64,
    },
    /// The request is not valid.
    #[error(
        "the agent rejects the test as invalid: {0}; this is a bug in plumb, report it with the command"
    )]
    InvalidSpec(String),
    /// The agent could not open or start what the task needs.
    #[error("the agent could not set up the test: {0}")]
    SetupFailed(String),
    /// No report is kept under this token.
    #[error(
        "the agent keeps no report of that test; it was fetched already, or its retention time is over"
    )]
    NoReport,
    /// It does not offer the service.
    #[error("the agent does not offer this kind of test")]
    NoService,
}

/// Bytes of a frame's length.
pub const HEADER_BYTES: usize = 4;

/// What came is no frame that may come now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlFrameError {
    /// Longer than anything that may come in this state.
    #[error("a frame of {len} bytes was announced where {limit} are the most")]
    TooLong {
        /// The announced length.
        len: usize,
        /// What is allowed.
        limit: usize,
    },
    /// No bytes at all.
    #[error("an empty frame was sent, which says nothing")]
    Empty,
}

/// `payload` as a frame.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("no message is near 4 GiB");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Writes one message as a frame.
///
/// # Errors
/// The stream's.
pub fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    // One write, so that the other side wakes once.
    to.write_all(&frame(&encode(message)))?;
    to.flush()
}

/// Reads one message; `None` when the other side has closed between messages.
///
/// # Errors
/// The stream's, and `InvalidData` for a frame that is too long or holds no message.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut header = [0; HEADER_BYTES];
    match from.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let len = usize::try_from(u32::from_le_bytes(header)).unwrap_or(usize::MAX);
    if len > REPORT_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    let message = decode(&bytes);
    message.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a message"))
}

/// Cuts a stream of bytes into frames.
#[derive(Clone, Debug, Default)]
pub struct Deframer {
    pending: Vec<u8>,
    /// Bytes of `pending` that were handed out already.
    taken: usize,
}

impl Deframer {
    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.pending.drain(..self.taken);
            self.taken = 0;
        }
        self.pending.extend_from_slice(bytes);
    }

    /// The payload of the next whole frame, of at most `limit` bytes.
    ///
    /// # Errors
    /// As soon as the length is there and cannot be right; the stream is of no use afterwards.
    pub fn next_frame(&mut self, limit: usize) -> Result<Option<&[u8]>, ControlFrameError> {
        let rest = &self.pending[self.taken..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let len = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX);
        if len > limit {
            return Err(ControlFrameError::TooLong { len, limit });
        }
        if len == 0 {
            return Err(ControlFrameError::Empty);
        }
        if rest.len() < len {
            return Ok(None);
        }
        let start = self.taken + HEADER_BYTES;
        self.taken = start + len;
        Ok(Some(&self.pending[start..start + len]))
    }

    /// Passes over what comes before a frame whose payload begins with `magic`. False while there is none.
    pub fn skip_to(&mut self, magic: &[u8]) -> bool {
        let rest = &self.pending[self.taken..];
        let begins = rest.windows(magic.len()).position(|bytes| bytes == magic);
        let Some(begins) = begins.and_then(|at| at.checked_sub(HEADER_BYTES)) else { return false };
        self.taken += begins;
        true
    }

    /// Bytes of the frame that has begun to come, once its length has.
    pub fn announced(&self) -> Option<usize> {
        let (header, _) = self.pending().split_first_chunk::<HEADER_BYTES>()?;
        usize::try_from(u32::from_le_bytes(*header)).ok()
    }

    /// Bytes that came and were not handed out.
    pub fn pending(&self) -> &[u8] {
        &self.pending[self.taken..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_they_were_written_and_never_with_something_after_them() {
        let messages = [
            Message::Start { task: 7 },
            Message::Fetch { token: TestToken([3; 16]) },
            Message::Refused(TaskRefusal::TestLimit { running: 4, allowed: 4 }),
            Message::Bye,
        ];
        for message in messages {
            let mut bytes = message.encode();
            assert_eq!(Message::decode(&bytes).as_ref(), Some(&message));
            bytes.push(0);
            assert_eq!(Message::decode(&bytes), None);
        }
    }

    /// A changed order of variants would be a new version of the protocol.
    #[test]
    fn the_first_byte_of_every_message_stays_what_it_is() {
        let first = |message: Message| message.encode()[0];
        assert_eq!(first(Message::Welcome(WelcomeMessage::default())), 0);
        assert_eq!(first(Message::Start { task: 0 }), 3);
        assert_eq!(first(Message::Received { task: 0 }), 6);
        assert_eq!(first(Message::Ping(0)), 9);
        assert_eq!(first(Message::Bye), 11);
        assert_eq!(first(Message::Data { task: 0, payload: Vec::new() }), 12);
    }

    #[test]
    fn a_hello_reads_as_it_was_written_and_a_longer_one_of_later_days_too() {
        let hello = ProtocolHello::of_this_program("0.1.0 (abc)");
        let mut bytes = hello.encode();
        assert_eq!(ProtocolHello::decode(&bytes).unwrap(), hello);
        bytes.extend_from_slice(b"something of version 7");
        assert_eq!(ProtocolHello::decode(&bytes).unwrap(), hello);
        assert!(ProtocolHello::of_this_program(&"ä".repeat(300)).encode().len() <= HELLO_MAX);
    }

    #[test]
    fn other_bytes_are_named_with_what_was_said() {
        let error = ProtocolHello::decode(b"bash: plumb: command not found\n").unwrap_err();
        assert!(error.to_string().contains("bash: plumb: command not found"), "{error}");
        for len in 0..FIXED {
            assert!(
                ProtocolHello::decode(&ProtocolHello::of_this_program("x").encode()[..len])
                    .is_err()
            );
        }
    }

    #[test]
    fn the_newest_common_version_is_spoken_and_none_is_a_named_skew() {
        let ours = ProtocolHello { oldest: 2, newest: 5, features: 0, program: "a".to_owned() };
        let other =
            |oldest, newest| ProtocolHello { oldest, newest, features: 0, program: "b".to_owned() };
        assert_eq!(ours.negotiate(&other(1, 3)), Ok(3));
        assert_eq!(ours.negotiate(&other(4, 9)), Ok(5));
        assert!(matches!(ours.negotiate(&other(6, 9)), Err(HelloError::Skew { .. })));
        assert!(matches!(ours.negotiate(&other(0, 1)), Err(HelloError::Skew { .. })));
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let payloads: Vec<Vec<u8>> = (1..40_u8).map(|n| vec![n; usize::from(n) * 7]).collect();
        let stream: Vec<u8> = payloads.iter().flat_map(|payload| frame(payload)).collect();
        for cut in [1, 2, 3, 5, 64, 1000, stream.len()] {
            let mut deframer = Deframer::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                deframer.push(piece);
                while let Some(payload) = deframer.next_frame(1 << 16).unwrap() {
                    seen.push(payload.to_vec());
                }
            }
            assert_eq!(seen, payloads, "cut every {cut}");
            assert!(deframer.pending().is_empty());
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_its_bytes_come() {
        let mut deframer = Deframer::default();
        deframer.push(b"SSH-");
        let error = deframer.next_frame(256).unwrap_err();
        assert_eq!(error, ControlFrameError::TooLong { len: 0x2d48_5353, limit: 256 });
        let mut deframer = Deframer::default();
        deframer.push(&[0; 4]);
        assert_eq!(deframer.next_frame(256), Err(ControlFrameError::Empty));
        assert!(read::<String>(&mut &[0xff, 0xff, 0xff, 0xff, 0][..]).is_err());
        assert!(read::<String>(&mut &[9, 0, 0, 0, 1][..]).is_err());
    }

    #[test]
    fn messages_come_back_until_the_stream_closes() {
        let mut bytes = Vec::new();
        write(&mut bytes, &("pipe".to_owned(), 64_u64)).unwrap();
        let mut stream = &bytes[..];
        assert_eq!(read(&mut stream).unwrap(), Some(("pipe".to_owned(), 64_u64)));
        assert_eq!(read::<(String, u64)>(&mut stream).unwrap(), None);
    }
}
