//! The mirror's process: takes over its side of the test bed and returns datagrams until told to stop.
//!
//! Public, because stacks that plumb does not contain are measured through it too, from programs of their own. The
//! kernel's own stack, as a process that receives and sends, is here.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{OwnedFd, RawFd};

use plumb_clock::Stopwatch;
use plumb_netdev::lab::adopt_fd;
use plumb_wire::compose::{self, LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::MacAddr;

use crate::channel::IoResultExt as _;
use crate::child_process;
use crate::effort::{CpuReading, postpone_tick};
use crate::launch_protocol::{
    AttachPeer, ControlPage, ControlSocket, DeliveryCounts, PeerEnd, PeerReport, PeerRole,
    PeerTask, PeerToWorker, WorkerToPeer,
};
use crate::report::LaunchFault;
use crate::spec::{MirrorSpec, MirrorStack, MirrorTransport, WakeMode};

/// Where a mirror stands: its side of the test bed, and how it should behave.
#[derive(Debug)]
pub struct MirrorSetup {
    /// What it is.
    pub spec: MirrorSpec,
    /// The TAP for [`super::super::spec::MirrorDevice::Tap`]; the namespace that holds `interface` for packet and
    /// AF_XDP sockets; a bound socket for the kernel's own stack; nothing for memory.
    pub fds: Vec<OwnedFd>,
    /// The interface in that namespace, where there is one.
    pub interface: String,
    /// The mirror's link address.
    pub mac: MacAddr,
    /// The client's link address.
    pub client_mac: MacAddr,
    /// Where it answers.
    pub local: SocketAddr,
    /// Who asks.
    pub client: SocketAddr,
    /// Reads the clock that the worker reads.
    pub watch: Stopwatch,
    /// Seed of the launch.
    pub seed: u64,
}

/// How the worker steers a mirror while it runs; looking costs one load.
#[derive(Clone, Debug)]
pub struct MirrorControl {
    page: ControlPage,
}

impl MirrorControl {
    /// Whether to leave the task. Worth asking for every packet, and whenever a call was interrupted.
    #[inline]
    pub fn stop(&self) -> bool {
        self.page.stop()
    }

    /// Whether packets are to be timed at the edges just now.
    #[inline]
    pub fn probing(&self) -> bool {
        self.page.probing()
    }
}

/// Named samples, in nanoseconds.
pub type NamedSamples = Vec<(String, Vec<f64>)>;

/// A replay: what to mirror from memory, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct ReplayTask {
    /// Frame size in bytes, link header included.
    pub frame: usize,
    /// Whether the payload must have left the caches before its packet comes.
    pub cold: bool,
    /// Wall time to aim at, in ticks of the site's watch.
    pub duration_ticks: u64,
    /// Most samples.
    pub samples_max: usize,
}

/// A stack that mirrors datagrams.
pub trait DatagramMirror {
    /// Mirrors until told to stop.
    ///
    /// # Errors
    /// When its device is gone or the kernel refuses.
    fn mirror(&mut self, control: &MirrorControl) -> Result<(), LaunchFault>;

    /// Gets the memory ready that a replay needs, before anything is counted.
    ///
    /// # Errors
    /// When it has no memory to replay from.
    fn prepare(&mut self, task: &ReplayTask) -> Result<(), LaunchFault> {
        let _ = task;
        Ok(())
    }

    /// Mirrors frames from memory; nanoseconds a packet.
    ///
    /// # Errors
    /// When it has no memory to replay from.
    fn replay(&mut self, task: &ReplayTask) -> Result<Vec<f64>, LaunchFault>;

    /// Times taken at the edges while probing, since the last call.
    fn times(&mut self) -> NamedSamples {
        Vec::new()
    }

    /// Things counted since the last call: packets, drops by reason, kernel calls.
    fn tally(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// Runs a mirror over an inherited control socket; its exit code. `open` makes the mirror of any stack but the
/// kernel's.
pub fn main(
    control: RawFd,
    open: impl FnOnce(MirrorSetup) -> Result<Box<dyn DatagramMirror>, LaunchFault>,
) -> u8 {
    child_process::main(control, |control_fd| serve(control_fd, open))
}

fn serve(
    control_fd: OwnedFd,
    open: impl FnOnce(MirrorSetup) -> Result<Box<dyn DatagramMirror>, LaunchFault>,
) -> io::Result<()> {
    let mut control = ControlSocket::new(control_fd);
    let WorkerToPeer::Attach(attach) = control.receive()? else {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    };
    let page = child_process::set_up_process(attach.context.cpu, attach.page_fd)?;
    let site = site(*attach)?;
    let watch = site.watch;
    let opened =
        if site.spec.stack == MirrorStack::Linux { kernel_mirror(site) } else { open(site) };
    answer_worker(control, page, watch, opened)
}

fn site(attach: AttachPeer) -> io::Result<MirrorSetup> {
    let PeerEnd::Mirror { mirror, interface, mac, client_mac, local, client } = attach.end else {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    };
    Ok(MirrorSetup {
        spec: mirror,
        fds: attach.fds.into_iter().map(adopt_fd).collect::<io::Result<_>>()?,
        interface,
        mac: MacAddr(mac),
        client_mac: MacAddr(client_mac),
        local,
        client,
        watch: Stopwatch::new(attach.context.ticks_per_ns),
        seed: attach.context.seed,
    })
}

/// Answers the worker until it says quit.
fn answer_worker(
    mut control: ControlSocket,
    page: ControlPage,
    watch: Stopwatch,
    opened: Result<Box<dyn DatagramMirror>, LaunchFault>,
) -> io::Result<()> {
    let mut mirror = match opened {
        Ok(mirror) => mirror,
        Err(error) => return control.send(&PeerToWorker::Attached(Err(error))),
    };
    control.send(&PeerToWorker::Attached(Ok(())))?;
    let steering = MirrorControl { page };
    loop {
        let WorkerToPeer::Begin(task) = control.receive()? else { return Ok(()) };
        drop((mirror.tally(), mirror.times()));
        let replay = replay_of(task, watch);
        if let Some(Err(error)) = replay.as_ref().map(|task| mirror.prepare(task)) {
            control.send(&PeerToWorker::Failed(error.to_string()))?;
            continue;
        }
        postpone_tick(task.quiet_ns);
        let before = CpuReading::now();
        control.send(&PeerToWorker::Armed)?;
        let outcome = perform(mirror.as_mut(), replay.as_ref(), &steering);
        let cpu = CpuReading::now().since(before);
        postpone_tick(0);
        let answer = match outcome {
            Ok(replayed) => {
                let mut times = mirror.times();
                times.extend(replayed);
                let checked = DeliveryCounts::default();
                let report = PeerReport { cpu, counters: mirror.tally(), delivery: checked, times };
                PeerToWorker::Done(Box::new(report))
            }
            Err(error) => PeerToWorker::Failed(error.to_string()),
        };
        control.send(&answer)?;
    }
}

/// The replay that a task asks for, if it asks for one.
fn replay_of(task: PeerTask, watch: Stopwatch) -> Option<ReplayTask> {
    let PeerRole::Replay { cold, duration_ns, samples_max } = task.role else { return None };
    Some(ReplayTask {
        frame: usize::try_from(task.size).ok()?,
        cold,
        duration_ticks: watch.ticks(duration_ns as f64),
        samples_max: samples_max as usize,
    })
}

fn perform(
    mirror: &mut dyn DatagramMirror,
    replay: Option<&ReplayTask>,
    control: &MirrorControl,
) -> Result<Option<(String, Vec<f64>)>, LaunchFault> {
    match replay {
        Some(task) => Ok(Some(("packet".to_owned(), mirror.replay(task)?))),
        None => mirror.mirror(control).map(|()| None),
    }
}

/// The mirror on the kernel's stack, over the socket that was handed over.
fn kernel_mirror(mut site: MirrorSetup) -> Result<Box<dyn DatagramMirror>, LaunchFault> {
    let fd = site.fds.pop();
    let fd = fd.ok_or_else(|| LaunchFault::Failed("no socket was handed over".to_owned()))?;
    let spins = site.spec.wake == WakeMode::Spin;
    if site.spec.transport == MirrorTransport::Tcp {
        let socket = TcpStream::from(fd);
        socket.set_nonblocking(spins).attempt("make the mirror's socket non-blocking")?;
        return Ok(Box::new(KernelMirror::new(socket)));
    }
    let socket = UdpSocket::from(fd);
    // Connected, as the client is: the route is looked up once, not for every datagram.
    socket.connect(site.client).attempt("connect the mirror's socket")?;
    socket.set_nonblocking(spins).attempt("make the mirror's socket non-blocking")?;
    Ok(Box::new(KernelMirror::new(socket)))
}

/// A connected socket of the kernel's.
trait KernelSocket {
    /// Receives a datagram, or some bytes of a stream.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Sends them back.
    fn send_back(&self, bytes: &[u8]) -> io::Result<()>;
}

impl KernelSocket for UdpSocket {
    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer)
    }

    #[inline]
    fn send_back(&self, bytes: &[u8]) -> io::Result<()> {
        self.send(bytes).map(drop)
    }
}

impl KernelSocket for TcpStream {
    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match (&*self).read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            received => received,
        }
    }

    #[inline]
    fn send_back(&self, bytes: &[u8]) -> io::Result<()> {
        (&*self).write_all(bytes)
    }
}

/// A socket and room for the largest datagram.
#[derive(Debug)]
struct KernelMirror<S> {
    socket: S,
    buffer: Vec<u8>,
    mirrored: u64,
}

impl<S> KernelMirror<S> {
    fn new(socket: S) -> Self {
        Self { socket, buffer: vec![1; 1 << 16], mirrored: 0 }
    }
}

impl<S: KernelSocket> DatagramMirror for KernelMirror<S> {
    fn mirror(&mut self, control: &MirrorControl) -> Result<(), LaunchFault> {
        while !control.stop() {
            match self.socket.receive(&mut self.buffer) {
                Ok(len) => {
                    self.socket.send_back(&self.buffer[..len]).attempt("send a message back")?;
                    self.mirrored += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::hint::spin_loop();
                }
                Err(error) => return Err(LaunchFault::failed("receive a message", error)),
            }
        }
        Ok(())
    }

    fn replay(&mut self, _task: &ReplayTask) -> Result<Vec<f64>, LaunchFault> {
        Err(LaunchFault::Unavailable("the kernel's stack takes no frames from memory".to_owned()))
    }

    fn tally(&mut self) -> Vec<(String, u64)> {
        vec![("mirrored".to_owned(), std::mem::take(&mut self.mirrored))]
    }
}

/// Bytes of the headers of a datagram over IPv4 and over IPv6, Ethernet's included.
const HEADERS: (usize, usize) = (14 + 20 + 8, 14 + 40 + 8);

/// Both ends of a datagram's way to the mirror.
#[derive(Clone, Copy, Debug)]
pub struct MirrorFlow {
    client: (MacAddr, IpAddr, u16),
    mirror: (MacAddr, IpAddr, u16),
}

impl MirrorFlow {
    /// From the client of a site to its mirror.
    pub fn of(site: &MirrorSetup) -> Self {
        Self {
            client: (site.client_mac, site.client.ip(), site.client.port()),
            mirror: (site.mac, site.local.ip(), site.local.port()),
        }
    }

    /// What the client asks before it sends: who has the mirror's address. Tells the mirror the client's link
    /// address as well.
    pub fn resolution(&self) -> Vec<u8> {
        let ((mac, client, _), (_, mirror, _)) = (self.client, self.mirror);
        match (client, mirror) {
            (IpAddr::V4(client), IpAddr::V4(mirror)) => compose::arp_request(mac, client, mirror),
            (IpAddr::V6(client), IpAddr::V6(mirror)) => {
                compose::neighbor_solicitation(mac, client, mirror)
            }
            _ => Vec::new(),
        }
    }

    /// A datagram in a frame of `len` bytes, or in the shortest that holds its headers.
    pub fn datagram(&self, len: usize) -> Vec<u8> {
        let headers = if self.client.1.is_ipv4() { HEADERS.0 } else { HEADERS.1 };
        let payload: Vec<u8> =
            (0..len.saturating_sub(headers)).map(|i| (i * 7).to_le_bytes()[0]).collect();
        self.datagram_of(&payload)
    }

    /// A datagram that carries this.
    pub fn datagram_of(&self, payload: &[u8]) -> Vec<u8> {
        let ((client_mac, client, client_port), (mirror_mac, mirror, mirror_port)) =
            (self.client, self.mirror);
        let link = Some(LinkTemplate::new(client_mac, mirror_mac));
        PacketTemplate { link, ..PacketTemplate::new(client, mirror) }.udp(
            client_port,
            mirror_port,
            payload,
        )
    }
}
