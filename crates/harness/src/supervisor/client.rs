//! The other host as a worker reaches it: the session with an agent there, which runs the supervisor of one launch.
//!
//! Whoever forgets it ends the launch, then the command that leads there, and with it the agent.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_clock::{monotonic_ns, now};
use plumb_net::measure::connect::connect_tcp;
use plumb_remote::address::with_port;
use plumb_remote::client::{ClientEvent, TaskClient, TaskClientError};
use plumb_remote::control_stream::AgentChildProcess;
use plumb_remote::datagram_header::TestToken;
use plumb_remote::message::{ServiceId, TaskRequest, decode, encode};
use plumb_remote::session::SessionTiming;
use plumb_remote::token_listener::{show_token, wait_accepted};
use plumb_remote::udp_handshake::{self, UdpHandshakeError};
use plumb_sys::process;
use plumb_sys::socket::{self, InetSocketKind};

use crate::launch_protocol::{
    ADMISSION_TIMEOUT, ControlPageWrite, LaunchRequest, LaunchWork, RemoteHostInfo,
    SupervisorReply, SupervisorRequest,
};
use crate::mechanisms::{ChannelSetup, IoResultExt as _, set_congestion, set_options};
use crate::report::LaunchFault;
use crate::spec::{HostSpec, LaunchSpec, TcpStreamsSpec};

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
    /// No session with an agent came about.
    #[error(
        "no plumb on the other host answered: {error}{}{said}; see whether the command that leads there works",
        if said.is_empty() { "" } else { ": " }
    )]
    Session {
        /// Why.
        error: TaskClientError,
        /// How the command ended.
        status: Option<i32>,
        /// The end of what it wrote on standard error.
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

/// How long the launch over there is given to end.
const EXIT_GRACE: Span = Span::from_secs(2);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take that no block is waited for.
const REPLY_TIMEOUT: Span = Span::from_secs(30);
/// What is waited for beyond a block's own deadline.
const REPLY_MARGIN: Span = Span::from_secs(5);
/// Times that the way is measured.
const CONNECT_TRIALS: u32 = 3;

/// A supervisor on another host, ready to be asked.
#[derive(Debug)]
pub struct SupervisorClient {
    client: TaskClient<Infallible>,
    process: AgentChildProcess,
    /// What was said while something else was waited for.
    queued_replies: VecDeque<SupervisorReply>,
    /// How long an answer may take.
    reply_timeout: Span,
    /// What the page there says, as far as it was told.
    written_page: [Option<ControlPageWrite>; 4],
    /// What is known about the sockets there, for the record.
    pub(crate) facts: BTreeMap<String, String>,
}

impl SupervisorClient {
    /// Has a command start an agent on another host, and begins a session with it.
    ///
    /// # Errors
    /// There is none, or one of another version.
    pub fn connect(spec: &HostSpec) -> Result<Self, ReachError> {
        let (program, arguments) =
            spec.command.split_first().map_or(("", &[][..]), |(program, rest)| (program, rest));
        let mut command = Command::new(program);
        command.args(arguments);
        process::kill_child_with_parent(&mut command);
        // Its own group is not interrupted with the terminal's programs.
        let (mut process, stream) = AgentChildProcess::start(command, true, &spec.name)
            .map_err(|source| ReachError::Start { program: program.to_owned(), source })?;
        let client = match TaskClient::connect(stream, &spec.version, SessionTiming::default()) {
            Ok(client) => client,
            Err(error) => {
                let (status, said) = process.end();
                let status = status.and_then(|status| status.code());
                let said = said.trim().to_owned();
                return Err(ReachError::Session { error, status, said });
            }
        };
        let theirs = &client.welcome().program;
        if *theirs != spec.version {
            let (theirs, ours) = (theirs.clone(), spec.version.clone());
            return Err(ReachError::VersionMismatch { theirs, ours });
        }
        Ok(Self {
            client,
            process,
            queued_replies: VecDeque::new(),
            reply_timeout: REPLY_TIMEOUT,
            written_page: [None; 4],
            facts: BTreeMap::new(),
        })
    }

    /// The host's own addresses.
    pub fn addresses(&self) -> &[String] {
        &self.client.welcome().addresses
    }

    /// How long a connection to an address there takes, the least of some, and what the host says about itself.
    ///
    /// # Errors
    /// What keeps a connection from getting through, and what to do about it.
    pub fn probe(&mut self, at: SocketAddr) -> Result<(Span, RemoteHostInfo), String> {
        let mut least = Span::from_secs(3_600);
        let mut host_info = RemoteHostInfo::default();
        for _ in 0..CONNECT_TRIALS {
            let (took, said) = self.probe_once(at).map_err(|error| error.to_string())?;
            (least, host_info) = (least.min(took), said);
        }
        Ok((least, host_info))
    }

    fn probe_once(&mut self, at: SocketAddr) -> Result<(Span, RemoteHostInfo), LaunchFault> {
        let (_, took) = self.begin(&LaunchRequest::probe(), at)?;
        let reply = self.answer()?;
        self.end_task();
        match reply {
            SupervisorReply::Admitted(host_info) => Ok((took, host_info)),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Has the other host open the far ends of sockets, and connects to them: the near ends, and how long a connection
    /// took.
    fn begin(
        &mut self,
        request: &LaunchRequest,
        at: SocketAddr,
    ) -> Result<(Vec<OwnedFd>, Span), LaunchFault> {
        let (service, payload) = (ServiceId::LAUNCH, encode(request));
        let task = TaskRequest { service, payload, to: Some(at.ip()) };
        let ready = self.client.request(task, request.times());
        let ready = ready.map_err(|error| supervisor_error(io::Error::other(error)))?;
        let port = decode(&ready.payload)
            .ok_or_else(|| supervisor_error(io::ErrorKind::InvalidData.into()))?;
        let at = with_port(at, port);
        let connected = if request.is_datagram() {
            connect_datagrams(at, ready.token).map(|socket| (vec![socket], Span::ZERO))
        } else {
            connect_streams(at, ready.token, request)
        };
        match &connected {
            Ok(_) => self.client.start(),
            // A task there that waits for a connection would block the next one.
            Err(_) => self.end_task(),
        }
        connected
    }

    /// The same for a process of a launch.
    fn begin_launch(
        &mut self,
        launch: &LaunchSpec,
        work: LaunchWork,
        at: SocketAddr,
    ) -> Result<Vec<OwnedFd>, LaunchFault> {
        self.reply_timeout = Span::from_ns(launch.deadline_ns) + REPLY_MARGIN;
        let request = LaunchRequest {
            work,
            cpu: launch.cpu_peer,
            seed: launch.seed,
            deadline_ns: launch.deadline_ns,
        };
        self.begin(&request, at).map(|(near, _)| near)
    }

    /// Ends the task that runs there, if one does, and waits until its process is gone.
    fn end_task(&mut self) {
        self.client.stop();
        let until = now() + EXIT_GRACE;
        while self.client.has_task() && now() < until {
            self.client.next_event(until);
        }
        self.queued_replies.clear();
    }

    /// Asks without waiting for an answer.
    pub(crate) fn send(&mut self, request: &SupervisorRequest) -> io::Result<()> {
        if self.client.send_data(encode(request)) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::BrokenPipe, "the launch on the other host has ended"))
    }

    /// What it says next.
    pub(crate) fn receive(&mut self) -> io::Result<SupervisorReply> {
        match self.queued_replies.pop_front() {
            Some(reply) => Ok(reply),
            None => self.receive_next(),
        }
    }

    fn receive_next(&mut self) -> io::Result<SupervisorReply> {
        let until = now() + self.reply_timeout;
        loop {
            let is_over = self.client.is_over();
            let until = if is_over { Instant::ORIGIN } else { until };
            match self.client.next_event(until) {
                Some(ClientEvent::Data(payload)) => {
                    return decode(&payload).ok_or_else(|| io::ErrorKind::InvalidData.into());
                }
                Some(ClientEvent::Reported(_)) => {
                    let ended = "the launch on the other host ended";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, ended));
                }
                Some(ClientEvent::Local(never)) => match never {},
                None if is_over => return Err(io::Error::other(self.client.end_reason())),
                None if now() >= until => return Err(io::ErrorKind::TimedOut.into()),
                None => {}
            }
        }
    }

    /// Its answer to what would open something.
    fn answer(&mut self) -> Result<SupervisorReply, LaunchFault> {
        match self.receive().map_err(supervisor_error)? {
            SupervisorReply::Refused(LaunchFault::Failed(reason)) => {
                Err(supervisor_error(io::Error::other(reason)))
            }
            SupervisorReply::Refused(error) => Err(error),
            reply => Ok(reply),
        }
    }

    fn receive_ready(&mut self) -> Result<(), LaunchFault> {
        match self.answer()? {
            SupervisorReply::Ready(facts) => {
                self.facts.extend(facts);
                Ok(())
            }
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Writes to the page that the peer reads, and returns when it is there.
    pub(crate) fn write_page(&mut self, write: ControlPageWrite) -> io::Result<()> {
        let place = match write {
            ControlPageWrite::Last(_) => 0,
            ControlPageWrite::Count(_) => 1,
            ControlPageWrite::Stop(_) => 2,
            ControlPageWrite::DelayNs(_) => 3,
        };
        if self.written_page[place] == Some(write) {
            return Ok(());
        }
        self.send(&SupervisorRequest::WritePage(write))?;
        loop {
            match self.receive_next()? {
                SupervisorReply::PageWritten => break,
                other => self.queued_replies.push_back(other),
            }
        }
        self.written_page[place] = Some(write);
        Ok(())
    }

    /// Opens both ends of a channel, and has the peer take over the far one: the near one.
    pub(crate) fn open_channel(
        &mut self,
        setup: &ChannelSetup<'_>,
        at: SocketAddr,
        launch: &LaunchSpec,
    ) -> Result<OwnedFd, LaunchFault> {
        let work = LaunchWork::Channel(setup.channel.clone());
        let near = self.begin_launch(launch, work, at)?.pop();
        let near = near.ok_or_else(|| supervisor_error(io::ErrorKind::NotConnected.into()))?;
        if !setup.channel.mechanism.is_lossy() {
            set_options(&setup.channel.options, &near)?;
        }
        self.receive_ready()?;
        Ok(near)
    }

    /// Opens both ends of streams, and has the process that sends take over the far ones: the near ones.
    pub(crate) fn open_streams(
        &mut self,
        launch: &LaunchSpec,
        streams: &TcpStreamsSpec,
        at: SocketAddr,
    ) -> Result<Vec<TcpStream>, LaunchFault> {
        let near = self.begin_launch(launch, LaunchWork::Streams(Box::new(streams.clone())), at)?;
        self.receive_ready()?;
        Ok(near.into_iter().map(TcpStream::from).collect())
    }

    /// Has the page be served there for this host alone: where.
    pub(crate) fn serve_page(
        &mut self,
        launch: &LaunchSpec,
        at: SocketAddr,
    ) -> Result<SocketAddr, LaunchFault> {
        self.begin_launch(launch, LaunchWork::Page, at)?;
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
            other => Err(io::Error::other(format!("the other host sent an unexpected {other:?}"))),
        }
    }

    /// Takes CPU time away there, or no longer.
    pub(crate) fn set_cpu_load(&mut self, is_taken: bool) -> Result<(), LaunchFault> {
        self.send(&SupervisorRequest::SetCpuLoad(is_taken)).map_err(supervisor_error)?;
        match self.answer()? {
            SupervisorReply::CpuLoadSet(outcome) => outcome,
            other => Err(unexpected_reply(&other)),
        }
    }

    /// A descriptor that is hung up once the other host is gone.
    pub(crate) fn connection(&self) -> io::Result<OwnedFd> {
        self.process.stdout.try_clone()
    }
}

impl Drop for SupervisorClient {
    fn drop(&mut self) {
        self.end_task();
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

/// Connections that have shown the token, and the least time that one took.
fn connect_streams(
    at: SocketAddr,
    token: TestToken,
    request: &LaunchRequest,
) -> Result<(Vec<OwnedFd>, Span), LaunchFault> {
    let mut streams = Vec::new();
    let mut least = Span::from_secs(3_600);
    for index in 0..request.connections() {
        let began = monotonic_ns();
        let stream = connect(at, request.congestion())?;
        least = least.min(Span::from_ns(monotonic_ns() - began));
        show_token(&stream, index, token).attempt("show the launch's token")?;
        streams.push(stream);
    }
    let near = streams.into_iter().map(|stream| {
        wait_accepted(&stream)?;
        stream.set_read_timeout(None)?;
        Ok(stream.into())
    });
    let near: io::Result<Vec<OwnedFd>> = near.collect();
    Ok((near.attempt("have the launch's token taken")?, least))
}

/// A socket that is connected to the far one, which has proved that what is sent to it arrives.
fn connect_datagrams(at: SocketAddr, token: TestToken) -> Result<OwnedFd, LaunchFault> {
    let any: IpAddr = match at {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).attempt("bind the near UDP socket")?;
    socket.connect(at).attempt("connect the near UDP socket")?;
    udp_handshake::connect(&socket, &token, 0, ADMISSION_TIMEOUT, &AtomicBool::new(false))
        .map_err(|error| match error {
            UdpHandshakeError::Kernel(error) => supervisor_error(error),
            nothing_came => LaunchFault::Unavailable(nothing_came.to_string()),
        })?;
    socket.set_read_timeout(None).attempt("wait for datagrams")?;
    Ok(socket.into())
}

fn connect(at: SocketAddr, congestion: Option<&str>) -> Result<TcpStream, LaunchFault> {
    let socket = socket::open(at.is_ipv6(), InetSocketKind::Stream).attempt("open a socket")?;
    set_congestion(congestion, socket.as_fd())?;
    connect_tcp(socket, at, CONNECT_TIMEOUT.into(), &|| false).map_err(|error| {
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

fn supervisor_error(source: io::Error) -> LaunchFault {
    LaunchFault::failed("work with the other host", source)
}

fn unexpected_reply(reply: &SupervisorReply) -> LaunchFault {
    supervisor_error(io::Error::other(format!("it sent an unexpected {reply:?}")))
}
