//! plumb's own stack as a mirror: the peer of experiments about stacks.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use plumb_base::seed::Seed;
use plumb_base::time::Instant;
use plumb_clock::{InstantClock, Stopwatch};
use plumb_harness::mirror::mirror_process::{
    DatagramMirror, MirrorControl, MirrorSetup, NamedSamples, ReplayTask,
};
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::{MirrorDevice, MirrorTransport, TurnaroundPoint};
use plumb_netdev::device::driver::{Driver, DriverExit, DriverOptions, PacketObserver};
use plumb_netdev::device::packet::{PacketDevice, PacketOptions};
use plumb_netdev::device::tap::TapDevice;
use plumb_netdev::device::xdp::{XdpDevice, XdpOptions};
use plumb_netdev::device::{Device, DeviceWait};
use plumb_netdev::lab::NetNamespace;
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::service::{HostApplication, HostNode, ServiceObserver, UdpService, UdpServices};
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{Received, TcpEvent, TcpId};
use plumb_stack::udp::{CopyPolicy, UdpOptions};
use plumb_wire::machine::{DeviceCapabilities, PortId};
use plumb_wire::packet::{Packet, Pool, PoolConfig};

pub(crate) mod replay;

/// Frames of a mirror's pool: it has one packet under way, and room for a burst.
const FRAMES: PoolConfig = PoolConfig { count: 256, size: 2_048, large: 2 };

/// Makes the mirror that a site asks for.
///
/// # Errors
/// When this host lacks the device or forbids it.
pub fn open(mut site: MirrorSetup) -> Result<Box<dyn DatagramMirror>, LaunchFault> {
    let lack = |error: &dyn std::error::Error| LaunchFault::Unavailable(error.to_string());
    let wait = site.spec.wait();
    match site.spec.device {
        MirrorDevice::Tap => {
            let fd = passed_descriptor(&mut site)?;
            let tap = TapDevice::adopt(fd, site.spec.tap_settings()).map_err(|e| lack(&e))?;
            mirror_on(tap, Pool::new(FRAMES), &site)
        }
        MirrorDevice::Packet => {
            // Its link address is not the interface's, unless the kernel is to decode its frames.
            let promiscuous = !site.spec.contended;
            let options = PacketOptions { wait, promiscuous, ..PacketOptions::default() };
            let namespace = NetNamespace::from(passed_descriptor(&mut site)?);
            let device = namespace
                .enter(|| PacketDevice::open(&site.interface, &options))
                .map_err(|e| lack(&e))?
                .map_err(|e| lack(&e))?;
            mirror_on(device, Pool::new(FRAMES), &site)
        }
        MirrorDevice::Xdp => {
            let options = XdpOptions { wait, ..XdpOptions::default() };
            let namespace = NetNamespace::from(passed_descriptor(&mut site)?);
            let (device, pool) = namespace
                .enter(|| XdpDevice::open(&site.interface, &options))
                .map_err(|e| lack(&e))?
                .map_err(|e| lack(&e))?;
            mirror_on(device, pool, &site)
        }
        MirrorDevice::Memory => Ok(Box::new(replay::StackReplayMirror::new(&site)?)),
        MirrorDevice::Veth => Err(LaunchFault::Failed(
            "the end of a veth is the kernel's, which mirrors there by itself".to_owned(),
        )),
    }
}

fn passed_descriptor(site: &mut MirrorSetup) -> Result<std::os::fd::OwnedFd, LaunchFault> {
    let missing = || LaunchFault::Failed("no descriptor was handed over".to_owned());
    site.fds.pop().ok_or_else(missing)
}

/// A host at the mirror's address, behind a device of these capabilities.
fn host(site: &MirrorSetup, capabilities: DeviceCapabilities) -> Result<IpHost, LaunchFault> {
    let mut host = IpHost::new(HostConfig::default(), Seed(site.seed));
    let prefix_len = if site.local.is_ipv4() { 24 } else { 64 };
    let interface = InterfaceConfig {
        capabilities,
        mac: site.mac,
        addresses: vec![(site.local.ip(), prefix_len)],
        link_local: site.local.is_ipv6(),
    };
    host.add_interface(&interface).map_err(|error| LaunchFault::Failed(error.to_string()))?;
    Ok(host)
}

fn mirror_on<D: Device + 'static>(
    device: D,
    pool: Pool,
    site: &MirrorSetup,
) -> Result<Box<dyn DatagramMirror>, LaunchFault> {
    let edges = StackEdgeTimer::new(site.watch);
    let mut host = host(site, device.info().capabilities)?;
    let batch = usize::from(site.spec.batch.max(1));
    let options = DriverOptions { batch, alarm: true, wait: DeviceWait::Block };
    let timeline = InstantClock::begin(site.watch);
    let mut driver = Driver::with_observer(vec![device], pool, timeline, options, edges.clone());
    if site.spec.transport == MirrorTransport::Udp {
        let machine = mirror_node(host, site.local, site.spec.turnaround, edges.clone())?;
        return Ok(Box::new(StackMirror { driver, machine, edges }));
    }
    let now = driver.read_clock();
    let application =
        TcpMirror::connect(&mut host, now, (site.local, site.client), &driver.pool, edges.clone())?;
    let mut machine = HostNode { host, application };
    let failed = |what: String| LaunchFault::Failed(format!("cannot open a connection: {what}"));
    driver
        .run(&mut machine, |node, _, _| node.application.is_open || node.application.is_over)
        .map_err(|error| failed(error.to_string()))?;
    if machine.application.is_over {
        return Err(failed("the client did not answer".to_owned()));
    }
    Ok(Box::new(StackMirror { driver, machine, edges }))
}

/// plumb's stack over one device, with an application that mirrors.
struct StackMirror<D, A> {
    driver: Driver<D, StackEdgeTimer>,
    machine: HostNode<A>,
    edges: StackEdgeTimer,
}

/// What an application has mirrored.
trait MirrorService: HostApplication {
    /// Messages returned, and refused, since the last call.
    fn take_mirrored(&mut self) -> [u64; 2];
}

impl MirrorService for UdpServices<StackEdgeTimer> {
    fn take_mirrored(&mut self) -> [u64; 2] {
        let served = self.take_counts();
        [served.sent, served.received - served.sent]
    }
}

impl<D: Device, A: MirrorService> DatagramMirror for StackMirror<D, A> {
    fn mirror(&mut self, reins: &MirrorControl) -> Result<(), LaunchFault> {
        self.edges.set_controls(reins);
        let end = self.driver.run(&mut self.machine, |_, _, _| reins.stop());
        match end.map_err(|error| LaunchFault::Failed(error.to_string()))? {
            DriverExit::Stopped => Ok(()),
            DriverExit::Finished => Err(LaunchFault::Failed("the device is at its end".to_owned())),
        }
    }

    fn replay(&mut self, _task: &ReplayTask) -> Result<Vec<f64>, LaunchFault> {
        Err(LaunchFault::Unavailable("a device with a client replays nothing".to_owned()))
    }

    fn times(&mut self) -> NamedSamples {
        self.edges.times()
    }

    fn tally(&mut self) -> Vec<(String, u64)> {
        let [sent, refused] = self.machine.application.take_mirrored();
        let calls = self.driver.devices.iter().map(|device| device.counters().calls).sum();
        let tally = [("mirrored", sent), ("refused", refused), ("device_calls", calls)];
        tally.map(|(name, count)| (name.to_owned(), count)).to_vec()
    }
}

/// Returns what it receives on one connection, which it opened.
struct TcpMirror {
    id: TcpId,
    is_open: bool,
    is_over: bool,
    buffer: Vec<u8>,
    mirrored: u64,
    edges: StackEdgeTimer,
}

impl TcpMirror {
    fn connect(
        host: &mut IpHost,
        now: Instant,
        (local, client): (SocketAddr, SocketAddr),
        pool: &Pool,
        edges: StackEdgeTimer,
    ) -> Result<Self, LaunchFault> {
        let config = TcpConfig { nagle: false, ..TcpConfig::default() };
        let id = host
            .tcp_connect(now, local, client, config, pool)
            .map_err(|error| LaunchFault::Failed(error.to_string()))?;
        let buffer = vec![0; 1 << 16];
        Ok(Self { id, is_open: false, is_over: false, buffer, mirrored: 0, edges })
    }
}

impl HostApplication for TcpMirror {
    #[inline]
    fn handle(&mut self, now: Instant, host: &mut IpHost, _pool: &mut Pool) {
        while let Some(event) = host.poll_tcp_event() {
            self.is_open |= matches!(event, TcpEvent::Writable(_));
            self.is_over |= matches!(event, TcpEvent::Closed(_));
        }
        while let Ok(Received::Data(len)) = host.tcp_receive(now, self.id, &mut self.buffer) {
            self.edges.on_socket();
            // The client has one message under way: there is room to return it.
            if host.tcp_send(now, self.id, &self.buffer[..len]) == Ok(len) {
                self.mirrored += 1;
            }
        }
    }
}

impl MirrorService for TcpMirror {
    fn take_mirrored(&mut self) -> [u64; 2] {
        [std::mem::take(&mut self.mirrored), 0]
    }
}

/// A host, the service at its one socket, and the edges between them.
type MirrorNode = HostNode<UdpServices<StackEdgeTimer>>;

impl ServiceObserver for StackEdgeTimer {
    #[inline]
    fn on_datagram(&mut self) {
        self.on_socket();
    }
}

/// A mirror at `local`.
fn mirror_node(
    mut host: IpHost,
    local: SocketAddr,
    turn: TurnaroundPoint,
    edges: StackEdgeTimer,
) -> Result<MirrorNode, LaunchFault> {
    let service = match turn {
        TurnaroundPoint::Fused => UdpService::Echo(CopyPolicy::Fused),
        TurnaroundPoint::Separate => UdpService::Echo(CopyPolicy::Separate),
        TurnaroundPoint::CopiedUnsummed => UdpService::Echo(CopyPolicy::NoChecksum),
        TurnaroundPoint::Udp | TurnaroundPoint::UdpUnsummed | TurnaroundPoint::Swap => {
            UdpService::Mirror
        }
    };
    let mut application = UdpServices::new(edges);
    application
        .open(&mut host, service, local, UdpOptions::default())
        .map_err(|error| LaunchFault::Failed(error.to_string()))?;
    Ok(HostNode { host, application })
}

/// Clock reads at the edges of the stack: where a packet comes from its device and from its socket, and where
/// it goes back to each.
///
/// What the oscilloscope was in 1997. Switched by the worker, packet by packet, so that what the reads
/// cost is known too.
#[derive(Clone, Debug)]
struct StackEdgeTimer {
    inner: Rc<EdgeTimerState>,
}

#[derive(Debug)]
struct EdgeTimerState {
    watch: Stopwatch,
    controls: RefCell<Option<MirrorControl>>,
    probing: Cell<bool>,
    arrived: Cell<u64>,
    received: Cell<u64>,
    times: RefCell<Vec<[f64; 2]>>,
}

impl StackEdgeTimer {
    fn new(watch: Stopwatch) -> Self {
        let inner = EdgeTimerState {
            watch,
            controls: RefCell::new(None),
            probing: Cell::new(false),
            arrived: Cell::new(0),
            received: Cell::new(0),
            times: RefCell::new(Vec::new()),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Lets the worker switch the clock reads from now on.
    fn set_controls(&self, reins: &MirrorControl) {
        *self.inner.controls.borrow_mut() = Some(reins.clone());
    }

    /// The packet has reached its socket, and turns round there.
    #[inline]
    fn on_socket(&self) {
        if self.inner.probing.get() {
            self.inner.received.set(self.inner.watch.begin());
        }
    }

    /// What was timed since the last call.
    fn times(&self) -> NamedSamples {
        let times = std::mem::take(&mut *self.inner.times.borrow_mut());
        let of = |pick: fn(&[f64; 2]) -> f64| times.iter().map(pick).collect();
        vec![
            ("receive".to_owned(), of(|[receive, _]| *receive)),
            ("send".to_owned(), of(|[_, send]| *send)),
            ("stack".to_owned(), of(|[receive, send]| receive + send)),
        ]
    }
}

impl PacketObserver for StackEdgeTimer {
    #[inline]
    fn on_received(&mut self, _port: PortId, _batch: &[Packet]) {
        let probing = self.inner.controls.borrow().as_ref().is_some_and(MirrorControl::probing);
        self.inner.probing.set(probing);
        if probing {
            self.inner.received.set(0);
            self.inner.arrived.set(self.inner.watch.begin());
        }
    }

    #[inline]
    fn on_transmit(&mut self, _port: PortId, _batch: &[Packet]) {
        let EdgeTimerState { watch, probing, arrived, received, times, .. } = &*self.inner;
        // Answers to ARP never were at a socket.
        if !probing.replace(false) || received.get() == 0 {
            return;
        }
        let left = watch.begin();
        let ns = |from: u64, to: u64| watch.ns(to.wrapping_sub(from));
        times.borrow_mut().push([ns(arrived.get(), received.get()), ns(received.get(), left)]);
    }
}
