//! The other host as a worker reaches it: a command that carries the words of a steward there.
//!
//! Whoever forgets it ends the command, and with it the steward and all that it has started. Left out: what the
//! command is, which whoever starts plumb decides.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_sys::process;
use plumb_sys::socket::{self, Kind};
use serde::{Deserialize, Serialize};

use super::door::{self, PATIENCE};
use super::word::{
    self, Ask, ChannelTask, Door, Presence, STEWARD, Steer, StreamsTask, Tell, Token, VisitsTask,
    WORKER,
};
use crate::clock::{entropy, monotonic_ns};
use crate::harness::frame;
use crate::harness::spec::{LaunchSpec, StreamsSpec};
use crate::local::{Attempt as _, OpenError, Setup, set_options};
use crate::said::Said;

/// Another host, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostSpec {
    /// What it is called.
    pub name: String,
    /// The program, with its arguments, that gives the standard streams of a steward there.
    pub command: Vec<String>,
    /// The version that the steward must have: this program's.
    pub version: String,
    /// Where its IPv4 sockets are reached; the port does not matter.
    pub v4: Option<SocketAddr>,
    /// Where its IPv6 sockets are.
    pub v6: Option<SocketAddr>,
    /// The CPUs there that its processes may use.
    pub cpus: Vec<u32>,
}

/// Why there is no steward.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The command cannot be run.
    #[error("cannot run '{program}': {source}; install it, or reach the host by another command")]
    Start {
        /// The program.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The command ended, or its output did, before a steward greeted.
    #[error(
        "nothing on the other host took up the work: {said}; see whether the command that leads there works"
    )]
    Ended {
        /// How it ended.
        status: Option<i32>,
        /// The end of what it wrote on standard error.
        said: String,
    },
    /// No steward greeted in time.
    #[error(
        "the other host did not answer within {patience}: {said}; see whether it is up, and no firewall between"
    )]
    Silent {
        /// How long that was.
        patience: Span,
        /// The end of what the command wrote on standard error.
        said: String,
    },
    /// It is another version's.
    #[error(
        "the other host has plumb {theirs}, and this one {ours}: both ends must be one program; copy it there"
    )]
    Skew {
        /// Version there.
        theirs: String,
        /// Version here.
        ours: String,
    },
}

/// How long a steward's greeting is waited for: a login may take its time.
const GREETING: Span = Span::from_secs(20);
/// How long it is given to end by itself.
const ENDING: Span = Span::from_secs(2);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// What is waited for beyond a block's own deadline.
const BEYOND: Span = Span::from_secs(5);
/// How often a datagram is sent until one has arrived.
const AGAIN: Span = Span::from_ms(50);
/// Times that the way is measured.
const KNOCKS: u32 = 3;

/// A steward on another host, ready to be asked.
#[derive(Debug)]
pub struct Reached {
    child: Child,
    control: File,
    said: Said,
    presence: Presence,
    /// What was said while something else was waited for.
    early: VecDeque<Tell>,
    /// How long an answer may take.
    patience: Span,
    /// What the page there says, as far as it was told.
    steered: [Option<Steer>; 4],
    /// What is known of the sockets there, for the record.
    pub(crate) facts: BTreeMap<String, String>,
}

impl Reached {
    /// Has a command start a steward on another host, and greets it.
    ///
    /// # Errors
    /// There is none, or one of another version.
    pub fn reach(spec: &HostSpec) -> Result<Self, ReachError> {
        let (program, arguments) =
            spec.command.split_first().map_or(("", &[][..]), |(program, rest)| (program, rest));
        let failed = |source| ReachError::Start { program: program.to_owned(), source };
        let (own, theirs) = socket::pair(Kind::Stream).map_err(failed)?;
        let second = theirs.try_clone().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(theirs).stdout(second).stderr(Stdio::piped());
        // Neither is it interrupted with the terminal's programs, nor left behind.
        command.process_group(0);
        process::end_with_starter(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        // It holds the other end of the socket, which otherwise never closed.
        drop(command);
        let said = Said::listen(child.stderr.take());
        let mut this = Self {
            child,
            control: File::from(own),
            said,
            presence: Presence::default(),
            early: VecDeque::new(),
            patience: GREETING,
            steered: [None; 4],
            facts: BTreeMap::new(),
        };
        match this.greet(&spec.version) {
            Ok(Ok(())) => Ok(this),
            Ok(Err(theirs)) => Err(ReachError::Skew { theirs, ours: spec.version.clone() }),
            Err(error) => Err(this.explain(&error)),
        }
    }

    fn greet(&mut self, version: &str) -> io::Result<Result<(), String>> {
        if let Err(theirs) = word::hear_line(self.control.as_fd(), STEWARD, version, GREETING)? {
            return Ok(Err(theirs));
        }
        self.control.write_all(word::line(WORKER, version).as_bytes())?;
        self.presence = self.hear_any()?;
        Ok(Ok(()))
    }

    /// Why there is no steward, by what the command has said and how it ended.
    fn explain(&mut self, error: &io::Error) -> ReachError {
        let is_silent = error.kind() == io::ErrorKind::TimedOut;
        // One that is about to end shall say how.
        let until = monotonic_ns() + ENDING.as_ns();
        let mut status = None;
        while !is_silent && status.is_none() && monotonic_ns() < until {
            status = self.child.try_wait().ok().flatten();
            plumb_sys::timer::sleep_ns(2_000_000);
        }
        self.kill();
        let said = self.said.end().trim().to_owned();
        if is_silent {
            return ReachError::Silent { patience: GREETING, said };
        }
        ReachError::Ended { status: status.and_then(|status| status.code()), said }
    }

    /// Kills the command and all that it has begun: a shell need not become its last command.
    fn kill(&mut self) {
        // The number of one that was waited for may be another's.
        if let Ok(None) = self.child.try_wait() {
            drop(process::kill_group(self.child.id()));
        }
    }

    /// The host, as it says itself.
    pub const fn presence(&self) -> &Presence {
        &self.presence
    }

    /// How long a connection to an address there takes, the least of some; fails where none gets through.
    ///
    /// # Errors
    /// What keeps it from getting through, and what to do about it.
    pub fn knock(&mut self, at: SocketAddr) -> Result<Span, String> {
        let mut least = Span::from_secs(3_600);
        for _ in 0..KNOCKS {
            least = least.min(self.knock_once(at).map_err(|error| error.to_string())?);
        }
        Ok(least)
    }

    fn knock_once(&mut self, at: SocketAddr) -> Result<Span, OpenError> {
        let door = door(at)?;
        self.ask(&Ask::Knock(door))?;
        let began = monotonic_ns();
        let stream = connect(at, self.port()?)?;
        let took = Span::from_ns(monotonic_ns() - began);
        door::show(&stream, &door.token, 0).attempt("show the launch's token")?;
        match self.answer()? {
            Tell::Met(_) => Ok(took),
            other => Err(out_of_turn(&other)),
        }
    }

    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<(), OpenError> {
        self.say(ask).map_err(lost)
    }

    /// Asks without waiting for an answer.
    pub(crate) fn say(&mut self, ask: &Ask) -> io::Result<()> {
        frame::write(&mut self.control, ask)
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> io::Result<Tell> {
        match self.early.pop_front() {
            Some(tell) => Ok(tell),
            None => self.hear_any(),
        }
    }

    fn hear_any<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<T> {
        let until = monotonic_ns().saturating_add(self.patience.as_ns());
        word::wait(self.control.as_fd(), until)?;
        // Nor may the rest of it take longer than its beginning.
        let channel = std::os::unix::net::UnixStream::from(self.connection()?);
        channel.set_read_timeout(Some(self.patience.into()))?;
        frame::read(&mut self.control)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the connection to the other host ended")
        })
    }

    /// Its answer to what would open something.
    fn answer(&mut self) -> Result<Tell, OpenError> {
        match self.hear().map_err(lost)? {
            Tell::Unavailable(reason) => Err(OpenError::Unavailable(reason)),
            Tell::Failed(reason) => Err(lost(io::Error::other(reason))),
            tell => Ok(tell),
        }
    }

    fn port(&mut self) -> Result<u16, OpenError> {
        match self.answer()? {
            Tell::Listening(port) => Ok(port),
            other => Err(out_of_turn(&other)),
        }
    }

    fn ready(&mut self) -> Result<(), OpenError> {
        match self.answer()? {
            Tell::Ready(facts) => {
                self.facts.extend(facts);
                Ok(())
            }
            other => Err(out_of_turn(&other)),
        }
    }

    /// Writes to the page that the peer reads, and returns when it is there.
    pub(crate) fn steer(&mut self, steer: Steer) -> io::Result<()> {
        let place = match steer {
            Steer::Last(_) => 0,
            Steer::Count(_) => 1,
            Steer::Stop(_) => 2,
            Steer::DelayNs(_) => 3,
        };
        if self.steered[place] == Some(steer) {
            return Ok(());
        }
        self.say(&Ask::Steer(steer))?;
        loop {
            match self.hear_any()? {
                Tell::Steered => break,
                other => self.early.push_back(other),
            }
        }
        self.steered[place] = Some(steer);
        Ok(())
    }

    /// Opens both ends of a channel, and has the peer take over the far one: the near one.
    pub(crate) fn open_channel(
        &mut self,
        setup: &Setup<'_>,
        at: SocketAddr,
        launch: &LaunchSpec,
        is_datagram: bool,
    ) -> Result<OwnedFd, OpenError> {
        self.patience = Span::from_ns(launch.deadline_ns) + BEYOND;
        let door = door(at)?;
        self.ask(&Ask::Channel(Box::new(ChannelTask {
            door,
            channel: setup.channel.clone(),
            cpu: launch.cpu_peer,
            seed: launch.seed,
            deadline_ns: launch.deadline_ns,
        })))?;
        let port = self.port()?;
        if is_datagram {
            let socket = self.meet(at, port, &door.token)?;
            return Ok(socket.into());
        }
        let stream = connect(at, port)?;
        door::show(&stream, &door.token, 0).attempt("show the launch's token")?;
        let near = OwnedFd::from(stream);
        set_options(&setup.channel.options, &near)?;
        self.ready()?;
        Ok(near)
    }

    /// Shows the token by datagrams until one has arrived: the socket that is connected then.
    fn meet(&mut self, at: SocketAddr, port: u16, token: &Token) -> Result<UdpSocket, OpenError> {
        let any: IpAddr = match at {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket =
            UdpSocket::bind(SocketAddr::new(any, 0)).attempt("bind the near UDP socket")?;
        socket.connect(with_port(at, port)).attempt("connect the near UDP socket")?;
        let until = monotonic_ns() + PATIENCE.as_ns();
        loop {
            // One that is lost, or refused by a router for now, is sent again.
            drop(socket.send(&door::shown(token, 0)));
            let next = monotonic_ns() + AGAIN.as_ns();
            match word::wait(self.control.as_fd(), next) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && next < until => {}
                _ => break,
            }
        }
        self.ready()?;
        Ok(socket)
    }

    /// Opens both ends of streams, and has the process that sends take over the far ones: the near ones.
    pub(crate) fn open_streams(
        &mut self,
        launch: &LaunchSpec,
        streams: &StreamsSpec,
        at: SocketAddr,
    ) -> Result<Vec<TcpStream>, OpenError> {
        self.patience = Span::from_ns(launch.deadline_ns) + BEYOND;
        let door = door(at)?;
        self.ask(&Ask::Streams(Box::new(StreamsTask {
            door,
            streams: streams.clone(),
            cpu: launch.cpu_peer,
            seed: launch.seed,
            deadline_ns: launch.deadline_ns,
        })))?;
        let port = self.port()?;
        let mut near = Vec::new();
        for number in 0..streams.streams {
            let stream = connect(at, port)?;
            door::show(&stream, &door.token, number).attempt("show the launch's token")?;
            near.push(stream);
        }
        self.ready()?;
        Ok(near)
    }

    /// Has the page be served there for this host alone: where.
    pub(crate) fn open_visits(
        &mut self,
        launch: &LaunchSpec,
        at: SocketAddr,
    ) -> Result<SocketAddr, OpenError> {
        self.patience = Span::from_ns(launch.deadline_ns) + BEYOND;
        // Who shows the token is who may ask for the page.
        self.knock_once(at)?;
        let (cpu, deadline_ns) = (launch.cpu_peer, launch.deadline_ns);
        self.ask(&Ask::Visits(VisitsTask { at: at.ip(), cpu, deadline_ns }))?;
        match self.answer()? {
            Tell::Serving(serving) => Ok(with_port(at, serving.port())),
            other => Err(out_of_turn(&other)),
        }
    }

    /// CPU time that the process that serves has used.
    pub(crate) fn server_cpu_ns(&mut self) -> io::Result<u64> {
        self.say(&Ask::ServerCpu)?;
        match self.hear()? {
            Tell::ServerCpu(ns) => Ok(ns),
            other => Err(io::Error::other(format!("the other host said {other:?} out of turn"))),
        }
    }

    /// Takes CPU time away there, or no longer.
    pub(crate) fn share(&mut self, is_taken: bool) -> Result<(), OpenError> {
        self.ask(&Ask::Share(is_taken))?;
        match self.answer()? {
            Tell::Shared(outcome) => outcome.map_err(OpenError::Unavailable),
            other => Err(out_of_turn(&other)),
        }
    }

    /// Its connection, to see whether it is gone.
    pub(crate) fn connection(&self) -> io::Result<OwnedFd> {
        self.control.as_fd().try_clone_to_owned()
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        // Whatever of this fails, the steward sees that nobody is there any more.
        if let Ok(fd) = self.connection() {
            drop(std::os::unix::net::UnixStream::from(fd).shutdown(std::net::Shutdown::Write));
        }
        let until = monotonic_ns() + ENDING.as_ns();
        let mut rest = [0; 1 << 10];
        while word::wait(self.control.as_fd(), until).is_ok()
            && matches!(self.control.read(&mut rest), Ok(1..))
        {}
        self.kill();
        drop(self.child.wait());
    }
}

/// A steward that several parts of a worker ask.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<Reached>>);

impl Shared {
    pub(crate) fn new(reached: Reached) -> Self {
        Self(Arc::new(Mutex::new(reached)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Reached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A door that nobody else knows.
fn door(at: SocketAddr) -> Result<Door, OpenError> {
    let mut token: Token = [0; 16];
    for half in token.chunks_mut(8) {
        let random = entropy().attempt("read random bits")?;
        half.copy_from_slice(&random.to_le_bytes());
    }
    Ok(Door { at: at.ip(), token })
}

fn with_port(mut at: SocketAddr, port: u16) -> SocketAddr {
    at.set_port(port);
    at
}

fn connect(at: SocketAddr, port: u16) -> Result<TcpStream, OpenError> {
    let at = with_port(at, port);
    TcpStream::connect_timeout(&at, CONNECT).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::TimedOut => format!(
                "no connection to {at} within {} s, though the host itself is reached: let through what its firewall, \
                 or one on the way, keeps from the ports in net.ipv4.ip_local_port_range, or name another address \
                 with --to",
                CONNECT.as_secs()
            ),
            io::ErrorKind::ConnectionRefused => format!(
                "{at} refuses the connection, though plumb listens on the other host: that address is another \
                 host's, or a firewall's; name its own with --to"
            ),
            _ => format!("no connection to {at}: {error}; name another address of the host with --to"),
        };
        lost(io::Error::other(why))
    })
}

fn lost(source: io::Error) -> OpenError {
    OpenError::Io { what: "work with the other host", source }
}

fn out_of_turn(tell: &Tell) -> OpenError {
    lost(io::Error::other(format!("it said {tell:?} out of turn")))
}
