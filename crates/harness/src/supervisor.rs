//! The supervisor: on another host, what starts the far process of a launch, and takes it along when it goes.
//!
//! It is this program again, started by whatever leads to that host, and speaks over its standard streams with the
//! worker alone. It opens the far ends of sockets, for who shows the launch's token; starts the peer, the sender or
//! the server as a worker would; and carries the words between them and the worker. Left out: how it is started,
//! and timing, which is the worker's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_sys::socket;
use plumb_sys::socket::IntOption;
use plumb_sys::{sched, signal};

use super::control_socket::ControlSocket;
use super::framing;
use super::page_load::{self, PageServer};
use super::peer_handle::{PeerHandle, PeerStartup};
use super::streams::cpu_load::CpuLoadProcess;
use super::streams::sender::SenderToWorker;
use super::streams::{StreamsSender, loaded_cpus, process_cpus, set_stream_options};
use crate::environment;
use crate::mechanisms::{
    IoResultExt as _, OpenError, PeerHandover, set_datagram_options, set_options, socket_facts,
};
use crate::peer_protocol::{PeerContext, PeerToWorker};
use plumb_clock::calibrate;

mod admission;
pub mod client;
pub(crate) mod protocol;

use protocol::{
    AdmissionSpec, OpenChannelRequest, OpenStreamsRequest, RemoteHostInfo, SUPERVISOR,
    ServePageRequest, SupervisorReply, SupervisorRequest, WORKER,
};

/// How long it may take to end by itself once the worker is gone.
const EXIT_GRACE: Span = Span::from_secs(2);
/// How long the worker's line, and its first words, are waited for.
const HELLO_TIMEOUT: Span = Span::from_secs(30);
/// How long calibrating this host's counter takes.
const CALIBRATION_TIME: Span = Span::from_ms(100);
/// What a worker has time for beside two blocks before it is thought to be gone.
const SILENCE_MARGIN: Span = Span::from_secs(30);
/// What a result must be read beside, of all that is known of this host.
const REPORTED_FACTS: [&str; 6] = [
    "cpu.hypervisor",
    "cpu.model",
    "kernel.release",
    "net.ipv4.tcp_congestion_control",
    "net.core.rmem_max",
    "net.core.wmem_max",
];

/// Runs it, of this version, on a host whose own addresses are told so; its exit code.
pub fn main(version: &str, addresses: fn() -> Vec<String>) -> u8 {
    match serve(version, addresses) {
        Ok(()) => 0,
        Err(error) => {
            // Who started it may read it; without anybody nobody does.
            drop(writeln!(io::stderr(), "{error}"));
            1
        }
    }
}

fn serve(version: &str, addresses: fn() -> Vec<String>) -> io::Result<()> {
    signal::ignore_keyboard_interrupt()?;
    let orders = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut answers = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    answers.write_all(protocol::hello_line(SUPERVISOR, version).as_bytes())?;
    if let Err(theirs) = protocol::read_hello(orders.as_fd(), WORKER, version, HELLO_TIMEOUT)? {
        return Err(io::Error::other(format!("this is plumb {version}, not {theirs}")));
    }
    framing::write(&mut answers, &host_info(addresses)?)?;
    let (tell, events) = mpsc::channel();
    let is_left = Arc::new(AtomicBool::new(false));
    read_requests(orders, tell.clone(), Arc::clone(&is_left))?;
    let supervisor = RemoteSupervisor {
        replies: answers,
        events,
        event_sender: tell,
        worker_gone: is_left,
        child: SupervisedProcess::Idle,
        admitted_address: None,
        silence_limit: HELLO_TIMEOUT,
    };
    supervisor.run()
}

fn host_info(addresses: fn() -> Vec<String>) -> io::Result<RemoteHostInfo> {
    let mut facts = environment::capture();
    facts.retain(|name, _| REPORTED_FACTS.contains(&name.as_str()));
    Ok(RemoteHostInfo { facts, cpus: sched::allowed_cpus()?, addresses: addresses() })
}

/// What happens to a supervisor.
enum SupervisorEvent {
    Request(SupervisorRequest),
    FromPeer(PeerToWorker),
    FromSender(SenderToWorker),
    /// Who it started is gone.
    ChildExited,
    /// The worker is.
    WorkerGone,
}

/// Hears the worker in a thread of its own.
fn read_requests(
    mut orders: File,
    tell: Sender<SupervisorEvent>,
    is_left: Arc<AtomicBool>,
) -> io::Result<()> {
    let hear = move || {
        while let Ok(Some(ask)) = framing::read(&mut orders) {
            if tell.send(SupervisorEvent::Request(ask)).is_err() {
                return;
            }
        }
        is_left.store(true, Relaxed);
        // Nobody hears it only when the process is about to end.
        drop(tell.send(SupervisorEvent::WorkerGone));
        plumb_sys::timer::sleep_ns(EXIT_GRACE.as_ns());
        // It still waits for who it started, or for somebody to read what it says. They die with it.
        signal::kill_self();
    };
    std::thread::Builder::new().name("orders".to_owned()).spawn(hear).map(drop)
}

/// Hears a process that was started in a thread of its own.
fn forward_messages<T: for<'de> serde::Deserialize<'de> + Send + 'static>(
    mut ear: ControlSocket,
    tell: Sender<SupervisorEvent>,
    event: fn(T) -> SupervisorEvent,
) -> io::Result<()> {
    let hear = move || {
        while let Ok(said) = ear.receive() {
            if tell.send(event(said)).is_err() {
                return;
            }
        }
        drop(tell.send(SupervisorEvent::ChildExited));
    };
    std::thread::Builder::new().name("ear".to_owned()).spawn(hear).map(drop)
}

/// Who was started.
enum SupervisedProcess {
    Idle,
    Peer(PeerHandle),
    Sender {
        source: StreamsSender,
        /// CPUs of which a part is taken away while it sends, and how much is left.
        slowed: Vec<u32>,
        percent: u8,
        share: Option<CpuLoadProcess>,
    },
    PageServer(PageServer),
}

struct RemoteSupervisor {
    replies: File,
    events: Receiver<SupervisorEvent>,
    /// For those who hear others.
    event_sender: Sender<SupervisorEvent>,
    worker_gone: Arc<AtomicBool>,
    child: SupervisedProcess,
    /// Who has shown a token last.
    admitted_address: Option<SocketAddr>,
    /// How long the worker may say nothing.
    silence_limit: Span,
}

impl RemoteSupervisor {
    /// Does what it is asked until the worker is gone, or silent for longer than any block lasts.
    fn run(mut self) -> io::Result<()> {
        loop {
            let silence = Duration::from_nanos(self.silence_limit.as_ns());
            // Whoever was started dies with what is dropped here.
            let Ok(event) = self.events.recv_timeout(silence) else { return Ok(()) };
            match event {
                SupervisorEvent::Request(ask) => self.handle_request(ask)?,
                SupervisorEvent::FromPeer(said) => self.send(&SupervisorReply::FromPeer(said))?,
                SupervisorEvent::FromSender(said) => {
                    self.send(&SupervisorReply::FromSender(said))?;
                }
                SupervisorEvent::ChildExited => {
                    return self.send(&SupervisorReply::Failed(
                        "its process on the other host ended".to_owned(),
                    ));
                }
                SupervisorEvent::WorkerGone => return Ok(()),
            }
        }
    }

    fn send(&mut self, tell: &SupervisorReply) -> io::Result<()> {
        framing::write(&mut self.replies, tell)
    }

    fn handle_request(&mut self, ask: SupervisorRequest) -> io::Result<()> {
        let answer = match ask {
            SupervisorRequest::MeasureConnect(door) => {
                self.admit_connection(&door).map(SupervisorReply::Admitted)
            }
            SupervisorRequest::OpenChannel(task) => {
                self.set_silence_limit(task.deadline_ns);
                self.open_channel(*task).map(SupervisorReply::Ready)
            }
            SupervisorRequest::OpenStreams(task) => {
                self.set_silence_limit(task.deadline_ns);
                self.open_streams(&task).map(SupervisorReply::Ready)
            }
            SupervisorRequest::ServePage(task) => {
                self.set_silence_limit(task.deadline_ns);
                self.serve_page(&task).map(SupervisorReply::Serving)
            }
            SupervisorRequest::ToPeer(message) => {
                let SupervisedProcess::Peer(peer) = &mut self.child else {
                    return Err(unexpected_request());
                };
                return peer.send(*message);
            }
            SupervisorRequest::ToSender(message) => {
                let SupervisedProcess::Sender { source, .. } = &mut self.child else {
                    return Err(unexpected_request());
                };
                return source.send(message);
            }
            SupervisorRequest::WritePage(steer) => {
                let page = match &self.child {
                    SupervisedProcess::Peer(peer) => peer.page(),
                    _ => None,
                };
                page.ok_or_else(unexpected_request)?.write(steer);
                Ok(SupervisorReply::PageWritten)
            }
            SupervisorRequest::SetCpuLoad(is_taken) => {
                self.set_cpu_load(is_taken).map(SupervisorReply::CpuLoadSet)
            }
            SupervisorRequest::ServerCpuTime => {
                let SupervisedProcess::PageServer(server) = &self.child else {
                    return Err(unexpected_request());
                };
                server
                    .cpu_ns()
                    .attempt("read the server's CPU clock")
                    .map(SupervisorReply::ServerCpuTime)
            }
        };
        self.send(&answer.unwrap_or_else(|error| match error {
            OpenError::Unavailable(reason) => SupervisorReply::Unavailable(reason),
            broken @ OpenError::Io { .. } => SupervisorReply::Failed(broken.to_string()),
        }))
    }

    fn set_silence_limit(&mut self, deadline_ns: u64) {
        self.silence_limit = Span::from_ns(deadline_ns) * 2 + SILENCE_MARGIN;
    }

    /// A listener for the worker, which is told its port.
    fn listener(&mut self, door: &AdmissionSpec) -> Result<TcpListener, OpenError> {
        let listener = admission::bind(door.address, TcpListener::bind)?;
        let at = listener.local_addr().attempt("read the listener's address")?;
        self.send(&SupervisorReply::Listening(at.port())).attempt("answer the worker")?;
        Ok(listener)
    }

    fn admit_connection(&mut self, door: &AdmissionSpec) -> Result<SocketAddr, OpenError> {
        let listener = self.listener(door)?;
        let streams = admission::admit(&listener, &door.token, 1, &self.worker_gone)?;
        let stream = streams.first().ok_or_else(|| broken(unexpected_request()))?;
        let from = stream.peer_addr().attempt("read an address")?;
        self.admitted_address = Some(from);
        Ok(from)
    }

    fn open_channel(
        &mut self,
        task: OpenChannelRequest,
    ) -> Result<BTreeMap<String, String>, OpenError> {
        let OpenChannelRequest { door, channel, cpu, seed, .. } = task;
        let options = &channel.options;
        let (fd, facts) = if channel.mechanism.is_lossy() {
            let socket = admission::bind(door.address, UdpSocket::bind)?;
            let port = socket.local_addr().attempt("read an address")?.port();
            self.send(&SupervisorReply::Listening(port)).attempt("answer the worker")?;
            admission::admit_datagram(&socket, &door.token, &self.worker_gone)?;
            let fd = OwnedFd::from(socket);
            set_datagram_options(options, &fd)?;
            let bytes = socket::option(fd.as_fd(), IntOption::ReceiveBuffer);
            let bytes = bytes.attempt("read SO_RCVBUF")?;
            (fd, vec![("rcvbuf", bytes.to_string())])
        } else {
            let listener = self.listener(&door)?;
            let streams = admission::admit(&listener, &door.token, 1, &self.worker_gone)?;
            let stream = streams.into_iter().next().ok_or_else(|| broken(unexpected_request()))?;
            let fd = OwnedFd::from(stream);
            set_options(options, &fd)?;
            let facts = socket_facts(&fd)?;
            (fd, facts)
        };
        let ticks_per_ns = calibrate(CALIBRATION_TIME).ticks_per_ns;
        let context = PeerContext { cpu, ticks_per_ns, seed };
        let handover = PeerHandover::of([fd]);
        let peer = PeerStartup::new()?.start_channel(handover, channel, true, context)?;
        peer.clone_control()
            .and_then(|ear| {
                forward_messages(ear, self.event_sender.clone(), SupervisorEvent::FromPeer)
            })
            .map_err(broken)?;
        self.child = SupervisedProcess::Peer(peer);
        Ok(facts.into_iter().map(|(name, fact)| (format!("far_{name}"), fact)).collect())
    }

    fn open_streams(
        &mut self,
        task: &OpenStreamsRequest,
    ) -> Result<BTreeMap<String, String>, OpenError> {
        let spec = &task.streams;
        let allowed = sched::allowed_cpus().attempt("read which CPUs may be used")?;
        let cpus = process_cpus(spec, task.cpu, &allowed)?;
        let listener = self.listener(&task.door)?;
        let streams =
            admission::admit(&listener, &task.door.token, spec.streams, &self.worker_gone)?;
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
        let source = StreamsSender::start(far, cpus, spec.tweaks, task.seed)?;
        let ear = source.clone_control().and_then(|ear| {
            forward_messages(ear, self.event_sender.clone(), SupervisorEvent::FromSender)
        });
        ear.map_err(broken)?;
        self.child =
            SupervisedProcess::Sender { source, slowed, percent: spec.cpu_percent, share: None };
        Ok(facts)
    }

    fn set_cpu_load(&mut self, is_taken: bool) -> Result<Result<(), String>, OpenError> {
        let SupervisedProcess::Sender { slowed, percent, share, .. } = &mut self.child else {
            return Err(broken(unexpected_request()));
        };
        *share = None;
        if is_taken {
            match CpuLoadProcess::start(slowed, *percent) {
                Ok(taken) => *share = Some(taken),
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        Ok(Ok(()))
    }

    /// Serves the page to who has shown a token, and to nobody else.
    fn serve_page(&mut self, task: &ServePageRequest) -> Result<SocketAddr, OpenError> {
        let guest = self.admitted_address.ok_or_else(|| broken(unexpected_request()))?.ip();
        let start = |address| page_load::start_page_server(address, task.cpu, Some(guest));
        let server = admission::bind(task.address, start)?;
        let address = server.address;
        self.child = SupervisedProcess::PageServer(server);
        Ok(address)
    }
}

fn broken(source: io::Error) -> OpenError {
    OpenError::Io { what: "do it on the other host", source }
}

fn unexpected_request() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "asked out of turn")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A supervisor whose worker says nothing, and where it answers.
    fn waiting(silence: Span) -> (RemoteSupervisor, io::PipeReader) {
        let (answers, write) = io::pipe().unwrap();
        let (tell, events) = mpsc::channel();
        let supervisor = RemoteSupervisor {
            replies: File::from(OwnedFd::from(write)),
            events,
            event_sender: tell,
            worker_gone: Arc::default(),
            child: SupervisedProcess::Idle,
            admitted_address: None,
            silence_limit: silence,
        };
        (supervisor, answers)
    }

    #[test]
    fn a_worker_that_is_silent_for_longer_than_any_block_lasts_is_not_waited_for() {
        // Its connection is open all the while, as that of a host that has vanished is.
        let (supervisor, _answers) = waiting(Span::from_ms(20));
        let (done, over) = mpsc::channel();
        std::thread::spawn(move || done.send(supervisor.run().is_ok()));
        assert_eq!(over.recv_timeout(Duration::from_mins(1)), Ok(true));
    }

    #[test]
    fn how_long_a_worker_may_be_silent_follows_from_how_long_its_blocks_may_last() {
        let (mut supervisor, _answers) = waiting(HELLO_TIMEOUT);
        supervisor.set_silence_limit(Span::from_secs(40).as_ns());
        assert_eq!(supervisor.silence_limit, Span::from_secs(110));
    }

    #[test]
    fn what_is_asked_before_anything_was_started_ends_the_session() {
        for ask in [
            SupervisorRequest::ServerCpuTime,
            SupervisorRequest::SetCpuLoad(true),
            SupervisorRequest::WritePage(crate::control_page::ControlPageWrite::Last(1)),
        ] {
            let (mut supervisor, answers) = waiting(HELLO_TIMEOUT);
            let outcome = supervisor.handle_request(ask);
            drop(supervisor);
            let said: Option<SupervisorReply> =
                framing::read(&mut File::from(OwnedFd::from(answers))).unwrap();
            assert!(
                outcome.is_err() || matches!(said, Some(SupervisorReply::Failed(_))),
                "{said:?}"
            );
        }
    }
}
