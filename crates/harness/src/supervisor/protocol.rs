//! What a supervisor and who has started it say to each other: a line each, then messages.
//!
//! The lines are text, so that two programs of different versions understand at least that they are. Left out:
//! what comes of it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use plumb_base::time::Span;
use plumb_sys::fd;
use serde::{Deserialize, Serialize};

use crate::control_page::ControlPageWrite;
use crate::peer_protocol::{PeerToWorker, WorkerToPeer};
use crate::spec::{ChannelSpec, TcpStreamsSpec};
use crate::streams::sender::{SenderToWorker, WorkerToSender};
use plumb_clock::monotonic_ns;

/// The number of what they say; it rises whenever a message changes.
const PROTOCOL_VERSION: u32 = 3;
/// What a supervisor's line begins with.
pub(super) const SUPERVISOR: &str = "plumb-supervisor";
/// What the line of who has started it begins with.
pub(super) const WORKER: &str = "plumb-worker";
/// Bytes that a login may print before the supervisor's line.
const BANNER_BYTES_MAX: usize = 64 << 10;

/// Whether a connection belongs to this launch is told by these bytes, which are new for each.
pub(crate) type AdmissionToken = [u8; 16];

/// Where the far end of a launch is opened, and who is let in.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct AdmissionSpec {
    /// The address at which the other side will ask.
    pub(crate) address: IpAddr,
    /// What it will show.
    pub(crate) token: AdmissionToken,
}

/// What a supervisor is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SupervisorRequest {
    /// Let one connection in, to see that the way is free and how long it is.
    MeasureConnect(AdmissionSpec),
    /// Open the far end of a channel, and start the peer with it.
    OpenChannel(Box<OpenChannelRequest>),
    /// Open the far ends of streams, and start the process that sends.
    OpenStreams(Box<OpenStreamsRequest>),
    /// Start the process that serves the page to who knocked last.
    ServePage(ServePageRequest),
    /// To the peer.
    ToPeer(Box<WorkerToPeer>),
    /// To the process that sends.
    ToSender(WorkerToSender),
    /// Write to the page that the peer reads.
    WritePage(ControlPageWrite),
    /// Take CPU time away from the process that sends; or no longer.
    SetCpuLoad(bool),
    /// What the process that serves has used.
    ServerCpuTime,
}

/// A channel's far end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OpenChannelRequest {
    /// Who is let in.
    pub(crate) door: AdmissionSpec,
    /// The channel.
    pub(crate) channel: ChannelSpec,
    /// The CPU of the peer.
    pub(crate) cpu: Option<u32>,
    /// Seed of the launch.
    pub(crate) seed: u64,
    /// Deadline of a block.
    pub(crate) deadline_ns: u64,
}

/// The far ends of streams.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OpenStreamsRequest {
    /// Who is let in.
    pub(crate) door: AdmissionSpec,
    /// The streams.
    pub(crate) streams: TcpStreamsSpec,
    /// The CPU of the process that sends, where the streams name no number of CPUs.
    pub(crate) cpu: Option<u32>,
    /// Seed of the launch.
    pub(crate) seed: u64,
    /// Deadline of a block.
    pub(crate) deadline_ns: u64,
}

/// A page to visit.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServePageRequest {
    /// Where it is asked for.
    pub(crate) address: IpAddr,
    /// The CPU of the process that serves.
    pub(crate) cpu: Option<u32>,
    /// Deadline of a block.
    pub(crate) deadline_ns: u64,
}

/// What a supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SupervisorReply {
    /// It can be asked for at this port.
    Listening(u16),
    /// Who asked had the token, and came from here.
    Admitted(SocketAddr),
    /// What was to be started runs; what is known of its sockets.
    Ready(BTreeMap<String, String>),
    /// That host cannot do it.
    Unavailable(String),
    /// Something broke.
    Failed(String),
    /// From the peer.
    FromPeer(PeerToWorker),
    /// From the process that sends.
    FromSender(SenderToWorker),
    /// It is on the page.
    PageWritten,
    /// CPU time is taken away, or no longer; or why it may not be.
    CpuLoadSet(Result<(), String>),
    /// Where the page is served.
    Serving(SocketAddr),
    /// CPU time that the process that serves has used.
    ServerCpuTime(u64),
}

/// The host that a supervisor is on, as it says itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteHostInfo {
    /// What a result must be read beside: kernel, processor, congestion control.
    pub facts: BTreeMap<String, String>,
    /// The CPUs that its processes may use.
    pub cpus: Vec<u32>,
    /// Its own addresses.
    pub addresses: Vec<String>,
}

/// The line of a program of this version.
pub(super) fn hello_line(who: &str, version: &str) -> String {
    format!("{who} {PROTOCOL_VERSION} {version}\n")
}

/// The version of who has said a line, if it is one; `Ok` where this program understands it.
pub(super) fn parse_hello(line: &str, who: &str, own: &str) -> Option<Result<(), String>> {
    let (protocol, version) =
        line.trim_end().strip_prefix(who)?.strip_prefix(' ')?.split_once(' ')?;
    let is_same = protocol.parse() == Ok(PROTOCOL_VERSION) && version == own;
    Some(if is_same { Ok(()) } else { Err(version.to_owned()) })
}

/// Reads lines until one is of this kind: whether its version is this one, or which else.
///
/// # Errors
/// The other side is gone, silent for too long, or says something else.
pub(super) fn read_hello(
    from: BorrowedFd<'_>,
    who: &str,
    own: &str,
    patience: Span,
) -> io::Result<Result<(), String>> {
    let until = monotonic_ns() + patience.as_ns();
    let mut line = Vec::new();
    for _ in 0..BANNER_BYTES_MAX {
        wait_readable(from, until)?;
        let mut byte = [0];
        // A byte at a time: what follows the line is not this function's.
        if read(from, &mut byte)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if byte[0] != b'\n' {
            line.push(byte[0]);
            continue;
        }
        if let Some(heard) = parse_hello(&String::from_utf8_lossy(&line), who, own) {
            return Ok(heard);
        }
        line.clear();
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it says something else"))
}

fn read(from: BorrowedFd<'_>, byte: &mut [u8]) -> io::Result<usize> {
    loop {
        match fd::read(from, byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Waits until there is something to read, or the other side is gone.
///
/// # Errors
/// Nothing came in time.
pub(super) fn wait_readable(from: BorrowedFd<'_>, until_ns: u64) -> io::Result<()> {
    loop {
        let left = until_ns.saturating_sub(monotonic_ns());
        if left == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout_ms = i32::try_from(left / 1_000_000 + 1).unwrap_or(i32::MAX);
        match fd::poll_readable(from, timeout_ms) {
            Ok(true) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(false) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_supervisor_of_another_version_is_known_by_its_line_whatever_a_login_prints_before() {
        let hear = |said: &str| {
            let (mut there, here) = UnixStream::pair().unwrap();
            there.write_all(said.as_bytes()).unwrap();
            drop(there);
            read_hello(here.as_fd(), SUPERVISOR, "1.2 (abc)", Span::from_secs(60))
        };
        let own = hello_line(SUPERVISOR, "1.2 (abc)");
        assert_eq!(hear(&format!("Welcome!\n\n{own}rest")).unwrap(), Ok(()));
        assert_eq!(
            hear(&hello_line(SUPERVISOR, "1.1 (abd)")).unwrap(),
            Err("1.1 (abd)".to_owned())
        );
        let newer = own.replace(&format!(" {PROTOCOL_VERSION} "), " 4000 ");
        assert_eq!(hear(&newer).unwrap(), Err("1.2 (abc)".to_owned()));
        let gone = hear("sh: plumb: not found\n").unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
        let flood = hear(&"no\n".repeat(BANNER_BYTES_MAX)).unwrap_err();
        assert_eq!(flood.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn who_says_nothing_is_given_up() {
        let (_there, here) = UnixStream::pair().unwrap();
        let outcome = read_hello(here.as_fd(), SUPERVISOR, "1", Span::from_ms(1));
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
