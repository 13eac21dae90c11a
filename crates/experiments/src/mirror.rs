//! plumb's own stack as a mirror: the peer of experiments about stacks.
//!
//! Left out: other stacks' mirrors, and what `plumb stack mirror` says to people.

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_clock::InstantClock;
use plumb_harness::mirror::mirror_process::{
    DatagramMirror, MirrorControl, MirrorError, MirrorSetup, NamedSamples, ReplayTask,
};
use plumb_harness::spec::MirrorDevice;
use plumb_netdev::device::driver::{Driver, DriverExit, DriverOptions};
use plumb_netdev::device::packet::{PacketDevice, PacketOptions};
use plumb_netdev::device::tap::TapDevice;
use plumb_netdev::device::xdp::{XdpDevice, XdpOptions};
use plumb_netdev::device::{Device, DeviceWait};
use plumb_netdev::lab::NetNamespace;
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_wire::machine::DeviceCapabilities;
use plumb_wire::packet::{Pool, PoolConfig};

mod edge_timer;
mod mirror_node;
mod replay;

use edge_timer::StackEdgeTimer;
use mirror_node::{MirrorNode, mirror_node};

/// How often the process is interrupted, which bounds how late it notices that it should stop.
const TICK: Span = Span::from_ms(20);

/// Frames of a mirror's pool: it has one packet under way, and room for a burst.
const FRAMES: PoolConfig = PoolConfig { count: 256, size: 2_048, large: 2 };

/// Makes the mirror that a site asks for.
///
/// # Errors
/// When this host lacks the device or forbids it.
pub fn open(mut site: MirrorSetup) -> Result<Box<dyn DatagramMirror>, MirrorError> {
    let lack = |error: &dyn std::error::Error| MirrorError::Unavailable(error.to_string());
    let wait = site.spec.wait();
    match site.spec.device {
        MirrorDevice::Tap => {
            let fd = passed_descriptor(&mut site)?;
            let tap = TapDevice::adopt(fd, site.spec.tap_settings()).map_err(|e| lack(&e))?;
            mirror_on(tap, Pool::new(FRAMES), &site)
        }
        MirrorDevice::Packet => {
            // Its link address is not the interface's, unless the kernel shall decode its frames.
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
        MirrorDevice::Veth => Err(MirrorError::Failed(
            "the end of a veth is the kernel's, which mirrors there by itself".to_owned(),
        )),
    }
}

fn passed_descriptor(site: &mut MirrorSetup) -> Result<std::os::fd::OwnedFd, MirrorError> {
    let missing = || MirrorError::Failed("no descriptor was handed over".to_owned());
    site.fds.pop().ok_or_else(missing)
}

/// A host at the mirror's address, behind a device of these capabilities.
fn host(site: &MirrorSetup, capabilities: DeviceCapabilities) -> Result<IpHost, MirrorError> {
    let mut host = IpHost::new(HostConfig::default(), Seed(site.seed));
    let prefix_len = if site.local.is_ipv4() { 24 } else { 64 };
    let interface = InterfaceConfig {
        capabilities,
        mac: site.mac,
        addresses: vec![(site.local.ip(), prefix_len)],
        link_local: site.local.is_ipv6(),
    };
    host.add_interface(&interface).map_err(|error| MirrorError::Failed(error.to_string()))?;
    Ok(host)
}

fn mirror_on<D: Device + 'static>(
    device: D,
    pool: Pool,
    site: &MirrorSetup,
) -> Result<Box<dyn DatagramMirror>, MirrorError> {
    let edges = StackEdgeTimer::new(site.watch);
    let host = host(site, device.capabilities())?;
    let machine = mirror_node(host, site.local, site.spec.turnaround, edges.clone())?;
    let batch = usize::from(site.spec.batch.max(1));
    let options = DriverOptions { batch, tick: Some(TICK), wait: DeviceWait::Block };
    let timeline = InstantClock::begin(site.watch);
    let driver = Driver::with_observer(vec![device], pool, timeline, options, edges.clone());
    Ok(Box::new(StackMirror { driver, machine, edges }))
}

/// plumb's stack over one device.
struct StackMirror<D> {
    driver: Driver<D, StackEdgeTimer>,
    machine: MirrorNode,
    edges: StackEdgeTimer,
}

impl<D: Device> DatagramMirror for StackMirror<D> {
    fn mirror(&mut self, reins: &MirrorControl) -> Result<(), MirrorError> {
        self.edges.set_controls(reins);
        let end = self.driver.run(&mut self.machine, |_, _, _| reins.stop());
        match end.map_err(|error| MirrorError::Failed(error.to_string()))? {
            DriverExit::Stopped => Ok(()),
            DriverExit::Finished => Err(MirrorError::Failed("the device is at its end".to_owned())),
        }
    }

    fn replay(&mut self, _task: &ReplayTask) -> Result<Vec<f64>, MirrorError> {
        Err(MirrorError::Unavailable("a device with a client replays nothing".to_owned()))
    }

    fn times(&mut self) -> NamedSamples {
        self.edges.times()
    }

    fn tally(&mut self) -> Vec<(String, u64)> {
        let served = self.machine.application.take_counts();
        let calls = self.driver.devices().iter().map(|device| device.counters().calls).sum();
        let refused = served.received - served.sent;
        let tally = [("mirrored", served.sent), ("refused", refused), ("device_calls", calls)];
        tally.map(|(name, count)| (name.to_owned(), count)).to_vec()
    }
}
