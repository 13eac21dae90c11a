//! Mirrors: a stack that returns every datagram, timed from outside by a client of the kernel's.
//!
//! The worker makes the two-namespace test bed, holds the client's socket, and does the timing; the peer, a fresh
//! process, holds the stack. Without a client the mirror itself times frames from memory: a replay.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use plumb_clock::Stopwatch;
use plumb_netdev::device::DeviceWait;
use plumb_netdev::device::tap::{self, TapDevice};
use plumb_netdev::lab::{FarEndMode, TestBed, TestBedOptions, become_root};
use plumb_result::CpuUsage;
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::Medium;

use crate::bench::ChannelBench;
use crate::channel::{
    ChannelSetup, EndpointLocation, IoResultExt as _, LOSS_TIMEOUT_TICKS, unavailable,
};
use crate::child_process::SELF_EXE;
use crate::effort::{Canary, EffortMeter, KernelTimes};
use crate::launch_protocol::{
    OrchestratorPipe, PeerEnd, PeerRole, PeerTask, PeerToWorker, WorkerMessage, WorkerToPeer,
};
use crate::mechanisms::{SocketCalls, StreamEnd, UdpEnd, set_options};
use crate::peer_handle::{PeerHandle, PeerStartup};
use crate::report::{BlockError, BlockOutcome, BlockReport, LaunchFault, summarize_part};
use crate::spec::{
    BlockSpec, BlockTask, ChannelSpec, LaunchSpec, Mechanism, MirrorDevice, MirrorSpec,
    MirrorStack, MirrorTransport, SocketOptions, WakeMode,
};

pub mod mirror_process;

/// Name of the program beside this one that mirrors with smoltcp.
const SMOLTCP_PROGRAM: &str = "plumb-mirror-smoltcp";

impl MirrorSpec {
    /// How the TAP of a mirror is opened, by the worker that makes it and by the mirror that adopts it.
    pub fn tap_settings(&self) -> tap::TapOptions {
        tap::TapOptions {
            medium: Medium::Ethernet,
            wait: self.wait(),
            offload: if self.offloads { tap::TapOffload::Checksum } else { tap::TapOffload::None },
            mtu: Some(1500),
        }
    }

    /// How its device waits.
    pub fn wait(&self) -> DeviceWait {
        match self.wake {
            WakeMode::Spin => DeviceWait::Spin,
            _ => DeviceWait::Block,
        }
    }
}

/// A worker's whole launch of a mirror.
pub(super) fn work(
    spec: &LaunchSpec,
    mirror: &MirrorSpec,
    mut orchestrator: OrchestratorPipe,
) -> io::Result<()> {
    let (client, mut peer) = match open(spec, mirror) {
        Ok(opened) => opened,
        Err(error) => return orchestrator.send(&WorkerMessage::Ready(Err(error))),
    };
    let facts = std::mem::take(&mut peer.facts);
    orchestrator.send(&WorkerMessage::Ready(Ok(facts)))?;
    match client {
        Some((MirrorClient::Datagrams(end), channel)) => {
            let mut bench = ChannelBench::new(end, &mut peer, spec, &channel);
            orchestrator.serve(|block| bench.measure(block))?;
        }
        Some((MirrorClient::Stream(end), channel)) => {
            let mut bench = ChannelBench::new(end, &mut peer, spec, &channel);
            orchestrator.serve(|block| bench.measure(block))?;
        }
        None => orchestrator.serve(|block| measure_replay(&mut peer, spec, block))?,
    }
    peer.quit()
}

/// The client's end of its channel to the mirror.
enum MirrorClient {
    Datagrams(UdpEnd),
    Stream(StreamEnd<SocketCalls>),
}

/// Makes the test bed and the client's socket in it, and starts the mirror.
fn open(
    spec: &LaunchSpec,
    mirror: &MirrorSpec,
) -> Result<(Option<(MirrorClient, ChannelSpec)>, PeerHandle), LaunchFault> {
    let startup = PeerStartup::new()?;
    let watch = startup.watchdog(LOSS_TIMEOUT_TICKS)?;
    let bed = make_bed(mirror)?;
    let program = program(mirror.stack)?;
    let mut peer = startup.start(&program, bed.handover, bed.end, spec.peer_context())?;
    peer.facts = bed.facts;
    let Some(socket) = bed.client else { return Ok((None, peer)) };
    let mechanism = match (mirror.transport, mirror.ipv6) {
        (MirrorTransport::Udp, false) => Mechanism::Udp4,
        (MirrorTransport::Udp, true) => Mechanism::Udp6,
        (MirrorTransport::Tcp, false) => Mechanism::Tcp4,
        (MirrorTransport::Tcp, true) => Mechanism::Tcp6,
    };
    let channel = ChannelSpec { mechanism, wake: mirror.wake, options: SocketOptions::default() };
    let ground = &EndpointLocation::Loopback;
    let setup =
        ChannelSetup { channel: &channel, watchdog: &watch, location: ground, seed: spec.seed };
    let end = match socket {
        ClientSocket::Datagrams(socket) => {
            MirrorClient::Datagrams(UdpEnd::over(&setup, socket.into())?)
        }
        ClientSocket::Connected(stream) => stream_end(&setup, stream)?,
        // The mirror, which has said that it is there, has opened the connection.
        ClientSocket::Listening(listener) => {
            stream_end(&setup, listener.accept().attempt("accept the mirror's connection")?.0)?
        }
    };
    Ok((Some((end, channel)), peer))
}

fn stream_end(setup: &ChannelSetup<'_>, stream: TcpStream) -> Result<MirrorClient, LaunchFault> {
    let fd = OwnedFd::from(stream);
    set_options(&setup.channel.options, &fd)?;
    Ok(MirrorClient::Stream(StreamEnd::new(setup, fd, None)?))
}

/// The program that mirrors with a stack: this one, or one that stands beside it.
fn program(stack: MirrorStack) -> Result<PathBuf, LaunchFault> {
    if stack != MirrorStack::Smoltcp {
        return Ok(PathBuf::from(SELF_EXE));
    }
    let own = std::env::current_exe().attempt("find plumb's own binary")?;
    let beside = own.with_file_name(SMOLTCP_PROGRAM);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(LaunchFault::Unavailable(format!(
        "{SMOLTCP_PROGRAM} does not stand beside plumb: build it with \
         'cargo build --release -p {SMOLTCP_PROGRAM}'"
    )))
}

/// Measures one block of a replay.
fn measure_replay(peer: &mut PeerHandle, launch: &LaunchSpec, spec: &BlockSpec) -> BlockOutcome {
    let BlockTask::Replay { frame, cold } = spec.task else {
        return Err(BlockError::wrong_task("frames from memory"));
    };
    let watch = Stopwatch::new(launch.ticks_per_ns);
    let canary = Canary::before(watch, spec);
    let mut kernel = KernelTimes::new(launch.cpu_peer.into_iter().collect());
    let meter = EffortMeter::start(&mut kernel, watch, spec);
    let (duration_ns, samples_max) = (spec.duration_ns, spec.samples_max);
    let role = PeerRole::Replay { cold, duration_ns, samples_max };
    peer.process.send(&WorkerToPeer::Begin(PeerTask {
        role,
        size: frame,
        ack: 0,
        quiet_ns: duration_ns,
    }))?;
    let done = loop {
        match peer.receive()? {
            PeerToWorker::Armed => {}
            PeerToWorker::Done(report) => break *report,
            PeerToWorker::Failed(why) => return Err(BlockError::Unavailable(why)),
            PeerToWorker::Attached(_) => {
                return Err(BlockError::Failed(
                    "protocol error: unexpected message from the mirror".to_owned(),
                ));
            }
        }
    };
    let effort = meter.stop(&mut kernel, watch, 0);
    let mut report = BlockReport { batch: 1, effort, ..BlockReport::default() };
    // The worker only waits.
    report.effort.local = CpuUsage::default();
    report.effort.peer = done.cpu;
    report.effort.canary_ns = canary.after();
    report.counters = done.counters.into_iter().filter(|(_, n)| *n > 0).collect();
    report.effort.operations = report.counters.get("packets").copied().unwrap_or(0);
    report.flags.push("peer-timed".to_owned());
    report.flags.push("batched".to_owned());
    let values = done.times.into_iter().find(|(name, _)| name == "packet");
    let values = values.map(|(_, values)| values).unwrap_or_default();
    if values.is_empty() {
        return Err(BlockError::Unavailable("the mirror timed nothing".to_owned()));
    }
    let rates: Vec<f64> = values.iter().map(|ns| 1e9 / ns).collect();
    for (response, values, scale) in [("packet", values, 0.001), ("packets", rates, 1.0)] {
        report.parts.push(summarize_part(response.to_owned(), &values, scale, spec));
    }
    Ok(report)
}

/// UDP port of the echo service (RFC 862), where every mirror answers.
const PORT: u16 = 7;

/// A user stack's own link address, where it must not be the device's: the kernel drops frames to
/// another host's address at its first look.
const STACK_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0x77, 3]);

/// A test bed with a client in it. Its namespaces last as long as the client's socket or what the mirror takes over.
#[derive(Debug)]
struct MirrorTestBed {
    end: PeerEnd,
    /// What the mirror takes over.
    handover: Vec<OwnedFd>,
    client: Option<ClientSocket>,
    facts: BTreeMap<String, String>,
}

/// The client's socket.
#[derive(Debug)]
enum ClientSocket {
    Datagrams(UdpSocket),
    Connected(TcpStream),
    Listening(TcpListener),
}

/// Makes the bed that a mirror needs.
fn make_bed(mirror: &MirrorSpec) -> Result<MirrorTestBed, LaunchFault> {
    if mirror.device == MirrorDevice::Memory {
        return Ok(memory_bed(mirror));
    }
    become_root().map_err(unavailable)?;
    let options = TestBedOptions { offloads: mirror.offloads, ..TestBedOptions::default() };
    let kernel_mac = TestBed::FAR_MAC;
    let (bed, mac) = match mirror.device {
        MirrorDevice::Tap => (TestBed::tap(options).map_err(unavailable)?, kernel_mac),
        MirrorDevice::Veth => {
            (TestBed::veth(FarEndMode::Answers, options).map_err(unavailable)?, kernel_mac)
        }
        _ => {
            let mac = if mirror.contended { kernel_mac } else { STACK_MAC };
            (TestBed::veth(FarEndMode::Silent, options).map_err(unavailable)?, mac)
        }
    };
    let (near, far): (IpAddr, IpAddr) = if mirror.ipv6 {
        (TestBed::NEAR_V6.into(), TestBed::FAR_V6.into())
    } else {
        (TestBed::NEAR_V4.into(), TestBed::FAR_V4.into())
    };
    let mirror_address = SocketAddr::new(far, PORT);
    let mut handover = handover(&bed, mirror, mirror_address)?;
    if mirror.device == MirrorDevice::Tap {
        bed.bring_up_near().map_err(unavailable)?;
    }
    let (client, client_address) =
        client_socket(&bed, mirror, SocketAddr::new(near, 0), mirror_address, &mut handover)?;
    let facts = BTreeMap::from([
        ("mtu".to_owned(), options.mtu.to_string()),
        ("offloads".to_owned(), if options.offloads { "on" } else { "off" }.to_owned()),
    ]);
    let end = PeerEnd::Mirror {
        mirror: mirror.clone(),
        interface: TestBed::FAR_DEVICE.to_owned(),
        mac: mac.0,
        client_mac: TestBed::NEAR_MAC.0,
        local: mirror_address,
        client: client_address,
    };
    Ok(MirrorTestBed { end, handover, client: Some(client), facts })
}

/// The client's socket at `near` and its address. What has a connection to the kernel's own mirror is connected here, and the other end is
/// handed over; another mirror opens it.
fn client_socket(
    bed: &TestBed,
    mirror: &MirrorSpec,
    near: SocketAddr,
    far: SocketAddr,
    handover: &mut Vec<OwnedFd>,
) -> Result<(ClientSocket, SocketAddr), LaunchFault> {
    if mirror.transport == MirrorTransport::Udp {
        let socket = bed.in_near(|| UdpSocket::bind(near)).map_err(unavailable)?;
        let socket = socket.attempt("bind the client's socket")?;
        socket.connect(far).attempt("connect the client to the mirror")?;
        let address = socket.local_addr().attempt("ask for the client's address")?;
        return Ok((ClientSocket::Datagrams(socket), address));
    }
    let listener = bed.in_near(|| TcpListener::bind(near)).map_err(unavailable)?;
    let listener = listener.attempt("listen for the mirror's connection")?;
    let address = listener.local_addr().attempt("ask for the client's address")?;
    if mirror.device != MirrorDevice::Veth {
        return Ok((ClientSocket::Listening(listener), address));
    }
    let there = bed.in_far(|| TcpStream::connect(address)).map_err(unavailable)?;
    let there = there.attempt("connect the mirror to the client")?;
    there.set_nodelay(true).attempt("set TCP_NODELAY")?;
    let (here, _) = listener.accept().attempt("accept the mirror's connection")?;
    *handover = vec![there.into()];
    Ok((ClientSocket::Connected(here), address))
}

/// Nothing but addresses, which the frames in memory bear.
fn memory_bed(mirror: &MirrorSpec) -> MirrorTestBed {
    let end = PeerEnd::Mirror {
        mirror: mirror.clone(),
        interface: String::new(),
        mac: TestBed::FAR_MAC.0,
        client_mac: TestBed::NEAR_MAC.0,
        local: (TestBed::FAR_V4, PORT).into(),
        client: (TestBed::NEAR_V4, 40_000).into(),
    };
    MirrorTestBed { end, handover: Vec::new(), client: None, facts: BTreeMap::new() }
}

/// What the mirror's process gets: a TAP, a bound socket, or the namespace to open its own in.
fn handover(
    bed: &TestBed,
    mirror: &MirrorSpec,
    address: SocketAddr,
) -> Result<Vec<OwnedFd>, LaunchFault> {
    let duplicate = |fd: BorrowedFd<'_>| {
        fd.try_clone_to_owned().attempt("duplicate a descriptor for the mirror")
    };
    match mirror.device {
        MirrorDevice::Veth => {
            let socket = bed.in_far(|| UdpSocket::bind(address)).map_err(unavailable)?;
            Ok(vec![socket.attempt("bind the mirror's socket")?.into()])
        }
        MirrorDevice::Tap => {
            let settings = mirror.tap_settings();
            let tap = bed
                .in_near(|| TapDevice::open(TestBed::NEAR_DEVICE, settings))
                .map_err(unavailable)?;
            let tap = tap.map_err(|error| LaunchFault::Unavailable(error.to_string()))?;
            Ok(vec![duplicate(tap.as_fd())?])
        }
        MirrorDevice::Packet | MirrorDevice::Xdp => {
            let missing = io::Error::from(io::ErrorKind::NotFound);
            let missing = || LaunchFault::failed("find the mirror's namespace", missing);
            let namespace = bed.far().ok_or_else(missing)?;
            Ok(vec![duplicate(namespace.as_fd())?])
        }
        MirrorDevice::Memory => Ok(Vec::new()),
    }
}
