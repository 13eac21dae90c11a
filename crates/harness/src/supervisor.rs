//! The supervisor: on another host, what starts the far process of a launch, and takes it along when it goes.
//!
//! It is a service of the agent there, and a launch is a task of a session between that agent and the worker. It opens
//! the far ends of sockets, for whoever shows the task's token; starts the peer, the sender or the server as a worker
//! would; and carries messages between them and the worker. Timing is the worker's.

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use plumb_base::time::Span;
use plumb_clock::{calibrate, monotonic_ns};
use plumb_remote::address::BindAddress;
use plumb_remote::datagram_header::TestToken;
use plumb_remote::message::{ServiceId, TaskRefusal, decode, encode};
use plumb_remote::service::{PreparedTask, TaskContext, TaskMessages, TaskOutbox, TaskService};
use plumb_remote::task_control::TestControl;
use plumb_remote::token_listener::accept_all;
use plumb_remote::udp_handshake::{self, UdpHandshakeError};
use plumb_sys::sched;
use plumb_sys::socket::{self, IntOption};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::page_load::{self, PageServer};
use super::peer_handle::{FarProcess, PeerHandle, PeerStartup};
use super::streams::cpu_load::CpuLoadProcess;
use super::streams::sender::{SenderToWorker, WorkerToSender};
use super::streams::{loaded_cpus, process_cpus, set_stream_options, start_sender};
use crate::environment;
use crate::launch_protocol::{
    ADMISSION_TIMEOUT, ControlSocket, LaunchRequest, LaunchWork, PeerToWorker, RemoteHostInfo,
    SupervisorReply, SupervisorRequest, WorkerToPeer,
};
use crate::mechanisms::{
    IoResultExt as _, PeerHandover, set_congestion, set_datagram_options, set_options, socket_facts,
};
use crate::report::LaunchFault;
use crate::spec::{ChannelSpec, PeerContext, TcpStreamsSpec};

pub mod client;

/// How long calibrating this host's counter takes.
const CALIBRATION_TIME: Span = Span::from_ms(100);
/// What a result must be read beside, of all that is known about this host.
const REPORTED_FACTS: [&str; 6] = [
    "cpu.hypervisor",
    "cpu.model",
    "kernel.release",
    "net.ipv4.tcp_congestion_control",
    "net.core.rmem_max",
    "net.core.wmem_max",
];

/// Launches, as a service of an agent that the client itself has started: the processes are that user's.
#[derive(Debug)]
pub struct LaunchService;

impl TaskService for LaunchService {
    fn id(&self) -> ServiceId {
        ServiceId::LAUNCH
    }

    fn prepare(&self, payload: &[u8], context: TaskContext) -> Result<PreparedTask, TaskRefusal> {
        let failed = |error: io::Error| TaskRefusal::SetupFailed(error.to_string());
        let request: LaunchRequest = decode(payload)
            .ok_or_else(|| TaskRefusal::InvalidSpec("a launch that cannot be read".to_owned()))?;
        let TaskContext { token, bind, control, overlap, .. } = context;
        let socket = AdmissionSocket::bind(bind, request.is_datagram()).map_err(failed)?;
        if let AdmissionSocket::Listener(listener) = &socket {
            // Where it is refused, whoever sets the options of the connections says so.
            drop(set_congestion(request.congestion(), listener.as_fd()));
        }
        let ready = encode(&socket.port().map_err(failed)?);
        let times = request.times();
        let run = move |messages: TaskMessages| {
            let admission = Admission { socket, token, control };
            LaunchSupervisor::new(messages.outbox).run(&request, &admission, messages.inbox);
            overlap.finish();
            Vec::new()
        };
        Ok(PreparedTask { ready, times, outlives_session: false, run: Box::new(run) })
    }
}

/// Where the worker's connections or datagrams arrive.
enum AdmissionSocket {
    Listener(TcpListener),
    Datagram(UdpSocket),
}

impl AdmissionSocket {
    fn bind(address: BindAddress, is_datagram: bool) -> io::Result<Self> {
        if is_datagram {
            return address.open(UdpSocket::bind).map(Self::Datagram);
        }
        let listener = address.open(TcpListener::bind)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Listener(listener))
    }

    fn port(&self) -> io::Result<u16> {
        let address = match self {
            Self::Listener(listener) => listener.local_addr(),
            Self::Datagram(socket) => socket.local_addr(),
        };
        address.map(|address| address.port())
    }
}

/// A socket of the launch, and who is admitted at it.
struct Admission {
    socket: AdmissionSocket,
    token: TestToken,
    control: Arc<TestControl>,
}

impl Admission {
    /// So many connections of the worker, in its order.
    fn streams(&self, count: u16) -> Result<Vec<TcpStream>, LaunchFault> {
        let AdmissionSocket::Listener(listener) = &self.socket else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        let until_ns = monotonic_ns() + ADMISSION_TIMEOUT.as_ns();
        let take = |_, stream| Ok(stream);
        accept_all(listener, count.into(), self.token, until_ns, &self.control, take).map_err(
            |error| match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => nothing_arrived(),
                _ => failed(error),
            },
        )
    }

    /// The one connection of the worker, or a socket that is connected to it.
    fn socket(&self) -> Result<OwnedFd, LaunchFault> {
        let AdmissionSocket::Datagram(socket) = &self.socket else {
            let stream = self.streams(1)?.pop();
            return stream.map(OwnedFd::from).ok_or_else(nothing_arrived);
        };
        let is_stopped = || self.control.is_halted();
        udp_handshake::accept(socket, &self.token, ADMISSION_TIMEOUT, &is_stopped).map_err(
            |error| match error {
                UdpHandshakeError::Kernel(error) => failed(error),
                _ => nothing_arrived(),
            },
        )?;
        // Until the worker says over the session that it knows.
        let is_waiting = || self.control.began_ns().is_none() && !self.control.is_halted();
        udp_handshake::answer_repeated_hellos(socket, &self.token, &is_waiting)
            .and_then(|()| socket.set_read_timeout(None))
            .and_then(|()| socket.as_fd().try_clone_to_owned())
            .map_err(failed)
    }
}

fn nothing_arrived() -> LaunchFault {
    LaunchFault::Unavailable(format!(
        "nothing with the launch's token arrived at the other host within {ADMISSION_TIMEOUT}: let through what its firewall, \
         or one on the way, keeps from the ports in net.ipv4.ip_local_port_range"
    ))
}

fn failed(source: io::Error) -> LaunchFault {
    LaunchFault::failed("do it on the other host", source)
}

fn unexpected_request() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an unexpected request")
}

/// What was started; killed when forgotten.
enum SupervisedProcess {
    Nothing,
    Peer(PeerHandle),
    Sender {
        source: FarProcess,
        /// CPUs of which a part is taken away while it sends, and how much is left.
        slowed: Vec<u32>,
        percent: u8,
        share: Option<CpuLoadProcess>,
    },
    PageServer(PageServer),
}

/// The supervisor of one launch.
struct LaunchSupervisor {
    replies: TaskOutbox,
    child: SupervisedProcess,
}

impl LaunchSupervisor {
    const fn new(replies: TaskOutbox) -> Self {
        Self { replies, child: SupervisedProcess::Nothing }
    }

    /// Opens what is asked for, and does what the worker asks until it ends the launch, or is gone.
    fn run(
        mut self,
        request: &LaunchRequest,
        admission: &Admission,
        inbox: impl IntoIterator<Item = Vec<u8>>,
    ) {
        let opened = match &request.work {
            LaunchWork::Probe => admission.socket().and_then(|_| host_info()),
            LaunchWork::Channel(channel) => self.open_channel(channel, request, admission),
            LaunchWork::Streams(spec) => self.open_streams(spec, request, admission),
            LaunchWork::Page => self.serve_page(request, admission),
        };
        let is_open = opened.is_ok();
        self.reply(opened);
        if !is_open {
            return;
        }
        for message in inbox {
            let Some(request) = decode(&message) else { return };
            match self.handle_request(request) {
                Ok(Some(reply)) => self.reply(Ok(reply)),
                Ok(None) => {}
                Err(error) => return self.reply(Err(error)),
            }
        }
    }

    fn reply(&self, outcome: Result<SupervisorReply, LaunchFault>) {
        let reply = outcome.unwrap_or_else(SupervisorReply::Refused);
        self.replies.send(encode(&reply));
    }

    fn handle_request(
        &mut self,
        request: SupervisorRequest,
    ) -> Result<Option<SupervisorReply>, LaunchFault> {
        match (request, &mut self.child) {
            (SupervisorRequest::ToProcess(message), SupervisedProcess::Peer(peer)) => {
                pass_on::<WorkerToPeer>(&mut peer.process, &message)
            }
            (SupervisorRequest::ToProcess(message), SupervisedProcess::Sender { source, .. }) => {
                pass_on::<WorkerToSender>(source, &message)
            }
            (SupervisorRequest::WritePage(write), SupervisedProcess::Peer(peer)) => {
                peer.write(write).map_err(failed)?;
                Ok(Some(SupervisorReply::PageWritten))
            }
            (
                SupervisorRequest::SetCpuLoad(is_taken),
                SupervisedProcess::Sender { slowed, percent, share, .. },
            ) => {
                *share = None;
                let load = is_taken.then(|| CpuLoadProcess::start(slowed, *percent)).transpose();
                Ok(Some(SupervisorReply::CpuLoadSet(load.map(|load| *share = load))))
            }
            (SupervisorRequest::ServerCpuTime, SupervisedProcess::PageServer(server)) => {
                let used = server.cpu_ns().attempt("read the server's CPU clock")?;
                Ok(Some(SupervisorReply::ServerCpuTime(used)))
            }
            _ => Err(failed(unexpected_request())),
        }
    }

    fn open_channel(
        &mut self,
        channel: &ChannelSpec,
        request: &LaunchRequest,
        admission: &Admission,
    ) -> Result<SupervisorReply, LaunchFault> {
        let fd = admission.socket()?;
        let facts = if request.is_datagram() {
            set_datagram_options(&channel.options, &fd)?;
            let bytes = socket::option(fd.as_fd(), IntOption::ReceiveBuffer);
            vec![("rcvbuf", bytes.attempt("read SO_RCVBUF")?.to_string())]
        } else {
            set_options(&channel.options, &fd)?;
            socket_facts(&fd)?
        };
        let ticks_per_ns = calibrate(CALIBRATION_TIME).ticks_per_ns;
        let context = PeerContext { cpu: request.cpu, ticks_per_ns, seed: request.seed };
        let handover = PeerHandover::of([fd]);
        let peer = PeerStartup::new()?.start_channel(handover, channel.clone(), true, context)?;
        self.forward::<PeerToWorker>(peer.process.clone_control())?;
        self.child = SupervisedProcess::Peer(peer);
        let facts = facts.into_iter().map(|(name, fact)| (format!("far_{name}"), fact));
        Ok(SupervisorReply::Ready(facts.collect()))
    }

    fn open_streams(
        &mut self,
        spec: &TcpStreamsSpec,
        request: &LaunchRequest,
        admission: &Admission,
    ) -> Result<SupervisorReply, LaunchFault> {
        let allowed = sched::allowed_cpus().attempt("read which CPUs may be used")?;
        let cpus = process_cpus(spec, request.cpu, &allowed)?;
        let streams = admission.streams(request.connections())?;
        let mut facts = BTreeMap::new();
        for stream in &streams {
            set_stream_options(spec, stream.as_fd())?;
            let bytes = socket::option(stream.as_fd(), IntOption::SendBuffer);
            facts.insert("sndbuf".to_owned(), bytes.attempt("read SO_SNDBUF")?.to_string());
            let name = socket::congestion(stream.as_fd()).attempt("read TCP_CONGESTION")?;
            facts.insert("far_congestion".to_owned(), name);
        }
        let slowed = loaded_cpus(spec, &cpus, &allowed);
        let far = streams.into_iter().map(OwnedFd::from).collect();
        let source = start_sender(far, cpus, spec.tweaks, request.seed)?;
        self.forward::<SenderToWorker>(source.clone_control())?;
        self.child =
            SupervisedProcess::Sender { source, slowed, percent: spec.cpu_percent, share: None };
        Ok(SupervisorReply::Ready(facts))
    }

    /// Serves the page to the address that has shown the token, and to no other.
    fn serve_page(
        &mut self,
        request: &LaunchRequest,
        admission: &Admission,
    ) -> Result<SupervisorReply, LaunchFault> {
        let stream = TcpStream::from(admission.socket()?);
        let client = stream.peer_addr().attempt("read an address")?.ip().to_canonical();
        let mut address = stream.local_addr().attempt("read an address")?;
        // Of version 4 also where the listener took both versions.
        address.set_ip(address.ip().to_canonical());
        address.set_port(0);
        let server = page_load::start_page_server(address, request.cpu, Some(client))
            .attempt("serve the page on the other host")?;
        let address = server.address;
        self.child = SupervisedProcess::PageServer(server);
        Ok(SupervisorReply::Serving(address))
    }

    /// Passes on what a process says, in a thread of its own.
    fn forward<M: Serialize + DeserializeOwned>(
        &self,
        control: io::Result<ControlSocket>,
    ) -> Result<(), LaunchFault> {
        let mut control = control.map_err(failed)?;
        let replies = self.replies.clone();
        let work = move || {
            while let Ok(message) = control.receive::<M>() {
                if !replies.send(encode(&SupervisorReply::FromProcess(encode(&message)))) {
                    return;
                }
            }
            let ended = LaunchFault::Failed("its process on the other host ended".to_owned());
            replies.send(encode(&SupervisorReply::Refused(ended)));
        };
        let started = std::thread::Builder::new().name("forward".to_owned()).spawn(work);
        started.map(drop).map_err(failed)
    }
}

/// Passes on what the worker says to a process.
fn pass_on<M: Serialize + DeserializeOwned>(
    process: &mut FarProcess,
    message: &[u8],
) -> Result<Option<SupervisorReply>, LaunchFault> {
    let message: M = decode(message).ok_or_else(|| failed(unexpected_request()))?;
    process.send(&message).map(|()| None).map_err(failed)
}

fn host_info() -> Result<SupervisorReply, LaunchFault> {
    let mut facts = environment::capture();
    facts.retain(|name, _| REPORTED_FACTS.contains(&name.as_str()));
    let cpus = sched::allowed_cpus().attempt("read which CPUs may be used")?;
    Ok(SupervisorReply::Admitted(RemoteHostInfo { facts, cpus }))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use plumb_base::time::Instant;
    use plumb_remote::agent::MeasurementAgent;
    use plumb_remote::client::{ClientEvent, TaskClient};
    use plumb_remote::control_stream::ControlStream;
    use plumb_remote::message::TaskRequest;
    use plumb_remote::service::AgentLimits;
    use plumb_remote::session::SessionTiming;
    use plumb_remote::token_listener::send_preamble;

    use super::*;

    /// A client of an agent that does launches.
    fn client() -> TaskClient<Infallible> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = ControlStream::from_tcp(listener.accept().unwrap().0).unwrap();
        let (limits, timing) = (AgentLimits::default(), SessionTiming::default());
        let agent = MeasurementAgent::new("test", limits, timing, vec![Box::new(LaunchService)]);
        std::thread::spawn(move || agent.serve(far));
        TaskClient::connect(ControlStream::from_tcp(near).unwrap(), "test", timing).unwrap()
    }

    fn next(client: &mut TaskClient<Infallible>) -> Option<SupervisorReply> {
        loop {
            match client.next_event(Instant::NEVER) {
                Some(ClientEvent::Data(payload)) => return Some(decode(&payload).unwrap()),
                Some(ClientEvent::Reported(_)) => return None,
                _ => assert!(!client.is_over(), "{}", client.end_reason()),
            }
        }
    }

    #[test]
    fn a_launch_begins_for_the_token_and_ends_out_of_turn() {
        let mut client = client();
        let request = LaunchRequest::probe();
        let task = TaskRequest {
            service: ServiceId::LAUNCH,
            payload: encode(&request),
            to: Some([127, 0, 0, 1].into()),
        };
        let ready = client.request(task, request.times()).unwrap();
        let port: u16 = decode(&ready.payload).unwrap();
        let unknown = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(send_preamble(&unknown, 0, TestToken([0; 16])).is_err());
        let known = TcpStream::connect(("127.0.0.1", port)).unwrap();
        send_preamble(&known, 0, ready.token).unwrap();
        client.start();
        let Some(SupervisorReply::Admitted(host_info)) = next(&mut client) else { panic!() };
        assert!(!host_info.cpus.is_empty());
        assert!(client.send_data(encode(&SupervisorRequest::ServerCpuTime)));
        assert!(matches!(next(&mut client), Some(SupervisorReply::Refused(_))));
        assert!(next(&mut client).is_none());
    }

    #[test]
    fn silence_may_last_as_long_as_two_blocks() {
        let deadline_ns = Span::from_secs(40).as_ns();
        let request = LaunchRequest { deadline_ns, ..LaunchRequest::probe() };
        assert_eq!(request.times().quiet, Span::from_secs(110));
    }
}
