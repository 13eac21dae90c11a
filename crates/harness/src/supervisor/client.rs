//! The other host as a worker reaches it: a command that carries the words of a supervisor there.
//!
//! Whoever forgets it ends the command, and with it the supervisor and all that it has started. Left out: what the
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
use plumb_sys::socket::{self, UnixSocketKind};
use serde::Deserialize;

use super::admission::{self, ADMISSION_TIMEOUT};
use super::protocol::{
    self, AdmissionSpec, AdmissionToken, OpenChannelRequest, OpenStreamsRequest, RemoteHostInfo,
    SUPERVISOR, ServePageRequest, SupervisorReply, SupervisorRequest, WORKER,
};
use crate::child_process::StderrTail;
use crate::control_page::ControlPageWrite;
use crate::framing;
use crate::mechanisms::{ChannelSetup, IoResultExt as _, OpenError, set_options};
use crate::spec::{HostSpec, LaunchSpec, TcpStreamsSpec};
use plumb_clock::{entropy, monotonic_ns};

/// Why there is no supervisor.
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
    /// The command ended, or its output did, before a supervisor greeted.
    #[error(
        "nothing on the other host took up the work: {said}; see whether the command that leads there works"
    )]
    Exited {
        /// How it ended.
        status: Option<i32>,
        /// The end of what it wrote on standard error.
        said: String,
    },
    /// No supervisor greeted in time.
    #[error(
        "the other host did not answer within {patience}: {said}; see whether it is up, and no firewall between"
    )]
    TimedOut {
        /// How long that was.
        patience: Span,
        /// The end of what the command wrote on standard error.
        said: String,
    },
    /// It is another version's.
    #[error(
        "the other host has plumb {theirs}, and this one {ours}: both ends must be one program; copy it there"
    )]
    VersionMismatch {
        /// Version there.
        theirs: String,
        /// Version here.
        ours: String,
    },
}

/// How long a supervisor's greeting is waited for: a login may take its time.
const HELLO_TIMEOUT: Span = Span::from_secs(20);
/// How long it is given to end by itself.
const EXIT_GRACE: Span = Span::from_secs(2);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What is waited for beyond a block's own deadline.
const REPLY_MARGIN: Span = Span::from_secs(5);
/// How often a datagram is sent until one has arrived.
const RESEND_INTERVAL: Span = Span::from_ms(50);
/// Times that the way is measured.
const CONNECT_TRIALS: u32 = 3;

/// A supervisor on another host, ready to be asked.
#[derive(Debug)]
pub struct SupervisorClient {
    child: Child,
    control: File,
    stderr: StderrTail,
    host_info: RemoteHostInfo,
    /// What was said while something else was waited for.
    queued_replies: VecDeque<SupervisorReply>,
    /// How long an answer may take.
    reply_timeout: Span,
    /// What the page there says, as far as it was told.
    written_page: [Option<ControlPageWrite>; 4],
    /// What is known of the sockets there, for the record.
    pub(crate) facts: BTreeMap<String, String>,
}

impl SupervisorClient {
    /// Has a command start a supervisor on another host, and greets it.
    ///
    /// # Errors
    /// There is none, or one of another version.
    pub fn connect(spec: &HostSpec) -> Result<Self, ReachError> {
        let (program, arguments) =
            spec.command.split_first().map_or(("", &[][..]), |(program, rest)| (program, rest));
        let failed = |source| ReachError::Start { program: program.to_owned(), source };
        let (own, theirs) = socket::pair(UnixSocketKind::Stream).map_err(failed)?;
        let second = theirs.try_clone().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(theirs).stdout(second).stderr(Stdio::piped());
        // Neither is it interrupted with the terminal's programs, nor left behind.
        command.process_group(0);
        process::kill_child_with_parent(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        // It holds the other end of the socket, which otherwise never closed.
        drop(command);
        let said = StderrTail::capture(child.stderr.take());
        let mut this = Self {
            child,
            control: File::from(own),
            stderr: said,
            host_info: RemoteHostInfo::default(),
            queued_replies: VecDeque::new(),
            reply_timeout: HELLO_TIMEOUT,
            written_page: [None; 4],
            facts: BTreeMap::new(),
        };
        match this.handshake(&spec.version) {
            Ok(Ok(())) => Ok(this),
            Ok(Err(theirs)) => {
                Err(ReachError::VersionMismatch { theirs, ours: spec.version.clone() })
            }
            Err(error) => Err(this.explain(&error)),
        }
    }

    fn handshake(&mut self, version: &str) -> io::Result<Result<(), String>> {
        if let Err(theirs) =
            protocol::read_hello(self.control.as_fd(), SUPERVISOR, version, HELLO_TIMEOUT)?
        {
            return Ok(Err(theirs));
        }
        self.control.write_all(protocol::hello_line(WORKER, version).as_bytes())?;
        self.host_info = self.receive_any()?;
        Ok(Ok(()))
    }

    /// Why there is no supervisor, by what the command has said and how it ended.
    fn explain(&mut self, error: &io::Error) -> ReachError {
        let is_silent = error.kind() == io::ErrorKind::TimedOut;
        // One that is about to end shall say how.
        let until = monotonic_ns() + EXIT_GRACE.as_ns();
        let mut status = None;
        while !is_silent && status.is_none() && monotonic_ns() < until {
            status = self.child.try_wait().ok().flatten();
            plumb_sys::timer::sleep_ns(2_000_000);
        }
        self.kill();
        let said = self.stderr.finish().trim().to_owned();
        if is_silent {
            return ReachError::TimedOut { patience: HELLO_TIMEOUT, said };
        }
        ReachError::Exited { status: status.and_then(|status| status.code()), said }
    }

    /// Kills the command and all that it has begun: a shell need not become its last command.
    fn kill(&mut self) {
        // The number of one that was waited for may be another's.
        if let Ok(None) = self.child.try_wait() {
            drop(process::kill_group(self.child.id()));
        }
    }

    /// The host, as it says itself.
    pub const fn host_info(&self) -> &RemoteHostInfo {
        &self.host_info
    }

    /// How long a connection to an address there takes, the least of some; fails where none gets through.
    ///
    /// # Errors
    /// What keeps it from getting through, and what to do about it.
    pub fn connect_time(&mut self, at: SocketAddr) -> Result<Span, String> {
        let mut least = Span::from_secs(3_600);
        for _ in 0..CONNECT_TRIALS {
            least = least.min(self.connect_time_once(at).map_err(|error| error.to_string())?);
        }
        Ok(least)
    }

    fn connect_time_once(&mut self, at: SocketAddr) -> Result<Span, OpenError> {
        let door = new_admission(at)?;
        self.request(&SupervisorRequest::MeasureConnect(door))?;
        let began = monotonic_ns();
        let stream = connect(at, self.receive_port()?)?;
        let took = Span::from_ns(monotonic_ns() - began);
        admission::send_preamble(&stream, &door.token, 0).attempt("show the launch's token")?;
        match self.answer()? {
            SupervisorReply::Admitted(_) => Ok(took),
            other => Err(unexpected_reply(&other)),
        }
    }

    pub(crate) fn request(&mut self, ask: &SupervisorRequest) -> Result<(), OpenError> {
        self.send(ask).map_err(supervisor_error)
    }

    /// Asks without waiting for an answer.
    pub(crate) fn send(&mut self, ask: &SupervisorRequest) -> io::Result<()> {
        framing::write(&mut self.control, ask)
    }

    /// What it says next.
    pub(crate) fn receive(&mut self) -> io::Result<SupervisorReply> {
        match self.queued_replies.pop_front() {
            Some(tell) => Ok(tell),
            None => self.receive_any(),
        }
    }

    fn receive_any<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<T> {
        let until = monotonic_ns().saturating_add(self.reply_timeout.as_ns());
        protocol::wait_readable(self.control.as_fd(), until)?;
        // Nor may the rest of it take longer than its beginning.
        let channel = std::os::unix::net::UnixStream::from(self.connection()?);
        channel.set_read_timeout(Some(self.reply_timeout.into()))?;
        framing::read(&mut self.control)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the connection to the other host ended")
        })
    }

    /// Its answer to what would open something.
    fn answer(&mut self) -> Result<SupervisorReply, OpenError> {
        match self.receive().map_err(supervisor_error)? {
            SupervisorReply::Unavailable(reason) => Err(OpenError::Unavailable(reason)),
            SupervisorReply::Failed(reason) => Err(supervisor_error(io::Error::other(reason))),
            tell => Ok(tell),
        }
    }

    fn receive_port(&mut self) -> Result<u16, OpenError> {
        match self.answer()? {
            SupervisorReply::Listening(port) => Ok(port),
            other => Err(unexpected_reply(&other)),
        }
    }

    fn receive_ready(&mut self) -> Result<(), OpenError> {
        match self.answer()? {
            SupervisorReply::Ready(facts) => {
                self.facts.extend(facts);
                Ok(())
            }
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Writes to the page that the peer reads, and returns when it is there.
    pub(crate) fn write_page(&mut self, steer: ControlPageWrite) -> io::Result<()> {
        let place = match steer {
            ControlPageWrite::Last(_) => 0,
            ControlPageWrite::Count(_) => 1,
            ControlPageWrite::Stop(_) => 2,
            ControlPageWrite::DelayNs(_) => 3,
        };
        if self.written_page[place] == Some(steer) {
            return Ok(());
        }
        self.send(&SupervisorRequest::WritePage(steer))?;
        loop {
            match self.receive_any()? {
                SupervisorReply::PageWritten => break,
                other => self.queued_replies.push_back(other),
            }
        }
        self.written_page[place] = Some(steer);
        Ok(())
    }

    /// Opens both ends of a channel, and has the peer take over the far one: the near one.
    pub(crate) fn open_channel(
        &mut self,
        setup: &ChannelSetup<'_>,
        at: SocketAddr,
        launch: &LaunchSpec,
        is_datagram: bool,
    ) -> Result<OwnedFd, OpenError> {
        self.reply_timeout = Span::from_ns(launch.deadline_ns) + REPLY_MARGIN;
        let door = new_admission(at)?;
        self.request(&SupervisorRequest::OpenChannel(Box::new(OpenChannelRequest {
            door,
            channel: setup.channel.clone(),
            cpu: launch.cpu_peer,
            seed: launch.seed,
            deadline_ns: launch.deadline_ns,
        })))?;
        let port = self.receive_port()?;
        if is_datagram {
            let socket = self.open_datagram_socket(at, port, &door.token)?;
            return Ok(socket.into());
        }
        let stream = connect(at, port)?;
        admission::send_preamble(&stream, &door.token, 0).attempt("show the launch's token")?;
        let near = OwnedFd::from(stream);
        set_options(&setup.channel.options, &near)?;
        self.receive_ready()?;
        Ok(near)
    }

    /// Shows the token by datagrams until one has arrived: the socket that is connected then.
    fn open_datagram_socket(
        &mut self,
        at: SocketAddr,
        port: u16,
        token: &AdmissionToken,
    ) -> Result<UdpSocket, OpenError> {
        let any: IpAddr = match at {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket =
            UdpSocket::bind(SocketAddr::new(any, 0)).attempt("bind the near UDP socket")?;
        socket.connect(with_port(at, port)).attempt("connect the near UDP socket")?;
        let until = monotonic_ns() + ADMISSION_TIMEOUT.as_ns();
        loop {
            // One that is lost, or refused by a router for now, is sent again.
            drop(socket.send(&admission::preamble(token, 0)));
            let next = monotonic_ns() + RESEND_INTERVAL.as_ns();
            match protocol::wait_readable(self.control.as_fd(), next) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && next < until => {}
                _ => break,
            }
        }
        self.receive_ready()?;
        Ok(socket)
    }

    /// Opens both ends of streams, and has the process that sends take over the far ones: the near ones.
    pub(crate) fn open_streams(
        &mut self,
        launch: &LaunchSpec,
        streams: &TcpStreamsSpec,
        at: SocketAddr,
    ) -> Result<Vec<TcpStream>, OpenError> {
        self.reply_timeout = Span::from_ns(launch.deadline_ns) + REPLY_MARGIN;
        let door = new_admission(at)?;
        self.request(&SupervisorRequest::OpenStreams(Box::new(OpenStreamsRequest {
            door,
            streams: streams.clone(),
            cpu: launch.cpu_peer,
            seed: launch.seed,
            deadline_ns: launch.deadline_ns,
        })))?;
        let port = self.receive_port()?;
        let mut near = Vec::new();
        for number in 0..streams.streams {
            let stream = connect(at, port)?;
            admission::send_preamble(&stream, &door.token, number)
                .attempt("show the launch's token")?;
            near.push(stream);
        }
        self.receive_ready()?;
        Ok(near)
    }

    /// Has the page be served there for this host alone: where.
    pub(crate) fn serve_page(
        &mut self,
        launch: &LaunchSpec,
        at: SocketAddr,
    ) -> Result<SocketAddr, OpenError> {
        self.reply_timeout = Span::from_ns(launch.deadline_ns) + REPLY_MARGIN;
        // Who shows the token is who may ask for the page.
        self.connect_time_once(at)?;
        let (cpu, deadline_ns) = (launch.cpu_peer, launch.deadline_ns);
        self.request(&SupervisorRequest::ServePage(ServePageRequest {
            address: at.ip(),
            cpu,
            deadline_ns,
        }))?;
        match self.answer()? {
            SupervisorReply::Serving(serving) => Ok(with_port(at, serving.port())),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// CPU time that the process that serves has used.
    pub(crate) fn server_cpu_ns(&mut self) -> io::Result<u64> {
        self.send(&SupervisorRequest::ServerCpuTime)?;
        match self.receive()? {
            SupervisorReply::ServerCpuTime(ns) => Ok(ns),
            other => Err(io::Error::other(format!("the other host said {other:?} out of turn"))),
        }
    }

    /// Takes CPU time away there, or no longer.
    pub(crate) fn set_cpu_load(&mut self, is_taken: bool) -> Result<(), OpenError> {
        self.request(&SupervisorRequest::SetCpuLoad(is_taken))?;
        match self.answer()? {
            SupervisorReply::CpuLoadSet(outcome) => outcome.map_err(OpenError::Unavailable),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Its connection, to see whether it is gone.
    pub(crate) fn connection(&self) -> io::Result<OwnedFd> {
        self.control.as_fd().try_clone_to_owned()
    }
}

impl Drop for SupervisorClient {
    fn drop(&mut self) {
        // Whatever of this fails, the supervisor sees that nobody is there any more.
        if let Ok(fd) = self.connection() {
            drop(std::os::unix::net::UnixStream::from(fd).shutdown(std::net::Shutdown::Write));
        }
        let until = monotonic_ns() + EXIT_GRACE.as_ns();
        let mut rest = [0; 1 << 10];
        while protocol::wait_readable(self.control.as_fd(), until).is_ok()
            && matches!(self.control.read(&mut rest), Ok(1..))
        {}
        self.kill();
        drop(self.child.wait());
    }
}

/// A supervisor that several parts of a worker ask.
#[derive(Clone, Debug)]
pub(crate) struct SharedSupervisor(Arc<Mutex<SupervisorClient>>);

impl SharedSupervisor {
    pub(crate) fn new(reached: SupervisorClient) -> Self {
        Self(Arc::new(Mutex::new(reached)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SupervisorClient> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A door that nobody else knows.
fn new_admission(at: SocketAddr) -> Result<AdmissionSpec, OpenError> {
    let mut token: AdmissionToken = [0; 16];
    for half in token.chunks_mut(8) {
        let random = entropy().attempt("read random bits")?;
        half.copy_from_slice(&random.to_le_bytes());
    }
    Ok(AdmissionSpec { address: at.ip(), token })
}

fn with_port(mut at: SocketAddr, port: u16) -> SocketAddr {
    at.set_port(port);
    at
}

fn connect(at: SocketAddr, port: u16) -> Result<TcpStream, OpenError> {
    let at = with_port(at, port);
    TcpStream::connect_timeout(&at, CONNECT_TIMEOUT).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::TimedOut => format!(
                "no connection to {at} within {} s, though the host itself is reached: let through what its firewall, \
                 or one on the way, keeps from the ports in net.ipv4.ip_local_port_range, or name another address \
                 with --to",
                CONNECT_TIMEOUT.as_secs()
            ),
            io::ErrorKind::ConnectionRefused => format!(
                "{at} refuses the connection, though plumb listens on the other host: that address is another \
                 host's, or a firewall's; name its own with --to"
            ),
            _ => format!("no connection to {at}: {error}; name another address of the host with --to"),
        };
        supervisor_error(io::Error::other(why))
    })
}

fn supervisor_error(source: io::Error) -> OpenError {
    OpenError::Io { what: "work with the other host", source }
}

fn unexpected_reply(tell: &SupervisorReply) -> OpenError {
    supervisor_error(io::Error::other(format!("it said {tell:?} out of turn")))
}
