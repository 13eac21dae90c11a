//! plumb's own stack as a mirror: the peer of experiments about stacks.
//!
//! Left out: other stacks' mirrors, and what `plumb stack mirror` says to people.

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_host::clock::Timeline;
use plumb_host::device::drive::{Driver, End, Options};
use plumb_host::device::packet::{PacketDevice, PacketOptions};
use plumb_host::device::tap::Tap;
use plumb_host::device::xdp::{XdpDevice, XdpOptions};
use plumb_host::device::{Device, Wait};
use plumb_host::harness::mirror::peer::{Mirror, MirrorError, Reins, ReplayTask, Site, Times};
use plumb_host::harness::spec::MirrorDevice;
use plumb_host::lab::Namespace;
use plumb_stack::host::{Host, HostConfig};
use plumb_stack::interface::InterfaceConfig;
use plumb_wire::medium::Capabilities;
use plumb_wire::packet::{Frames, Pool};

mod edge;
mod replay;
mod turn;

use edge::Edges;
use turn::{Turnpike, turnpike};

/// How often the process is interrupted, which bounds how late it notices that it should stop.
const TICK: Span = Span::from_ms(20);

/// Frames of a mirror's pool: it has one packet under way, and room for a burst.
const FRAMES: Frames = Frames { count: 256, size: 2_048, large: 2 };

/// Makes the mirror that a site asks for.
///
/// # Errors
/// When this host lacks the device or forbids it.
pub fn open(mut site: Site) -> Result<Box<dyn Mirror>, MirrorError> {
    let lack = |error: &dyn std::error::Error| MirrorError::Unavailable(error.to_string());
    let wait = site.spec.wait();
    match site.spec.device {
        MirrorDevice::Tap => {
            let fd = handed_over(&mut site)?;
            let tap = Tap::adopt(fd, site.spec.tap_settings()).map_err(|e| lack(&e))?;
            over(tap, Pool::new(FRAMES), &site)
        }
        MirrorDevice::Packet => {
            // Its link address is not the interface's, unless the kernel shall decode its frames.
            let promiscuous = !site.spec.contended;
            let options = PacketOptions { wait, promiscuous, ..PacketOptions::default() };
            let namespace = Namespace::from(handed_over(&mut site)?);
            let device = namespace
                .enter(|| PacketDevice::open(&site.interface, &options))
                .map_err(|e| lack(&e))?
                .map_err(|e| lack(&e))?;
            over(device, Pool::new(FRAMES), &site)
        }
        MirrorDevice::Xdp => {
            let options = XdpOptions { wait, ..XdpOptions::default() };
            let namespace = Namespace::from(handed_over(&mut site)?);
            let (device, pool) = namespace
                .enter(|| XdpDevice::open(&site.interface, &options))
                .map_err(|e| lack(&e))?
                .map_err(|e| lack(&e))?;
            over(device, pool, &site)
        }
        MirrorDevice::Memory => Ok(Box::new(replay::ReplayMirror::new(&site)?)),
        MirrorDevice::Veth => Err(MirrorError::Broken(
            "the end of a veth is the kernel's, which mirrors there by itself".to_owned(),
        )),
    }
}

fn handed_over(site: &mut Site) -> Result<std::os::fd::OwnedFd, MirrorError> {
    let missing = || MirrorError::Broken("no descriptor was handed over".to_owned());
    site.fds.pop().ok_or_else(missing)
}

/// A host at the mirror's address, behind a device of these capabilities.
fn host(site: &Site, capabilities: Capabilities) -> Result<Host, MirrorError> {
    let mut host = Host::new(HostConfig::default(), Seed(site.seed));
    let prefix_len = if site.local.is_ipv4() { 24 } else { 64 };
    let interface = InterfaceConfig {
        capabilities,
        mac: site.mac,
        addresses: vec![(site.local.ip(), prefix_len)],
        link_local: site.local.is_ipv6(),
    };
    host.add_interface(&interface).map_err(|error| MirrorError::Broken(error.to_string()))?;
    Ok(host)
}

fn over<D: Device + 'static>(
    device: D,
    pool: Pool,
    site: &Site,
) -> Result<Box<dyn Mirror>, MirrorError> {
    let edges = Edges::new(site.watch);
    let host = host(site, device.capabilities())?;
    let machine = turnpike(host, site.local, site.spec.turn, edges.clone())?;
    let batch = usize::from(site.spec.batch.max(1));
    let options = Options { batch, tick: Some(TICK), wait: Wait::Block };
    let timeline = Timeline::begin(site.watch);
    let driver = Driver::observed(vec![device], pool, timeline, options, edges.clone());
    Ok(Box::new(StackMirror { driver, machine, edges }))
}

/// plumb's stack over one device.
struct StackMirror<D> {
    driver: Driver<D, Edges>,
    machine: Turnpike,
    edges: Edges,
}

impl<D: Device> Mirror for StackMirror<D> {
    fn mirror(&mut self, reins: &Reins) -> Result<(), MirrorError> {
        self.edges.follow(reins);
        let end = self.driver.run(&mut self.machine, |_, _, _| reins.stop());
        match end.map_err(|error| MirrorError::Broken(error.to_string()))? {
            End::Stopped => Ok(()),
            End::Finished => Err(MirrorError::Broken("the device is at its end".to_owned())),
        }
    }

    fn replay(&mut self, _task: &ReplayTask) -> Result<Vec<f64>, MirrorError> {
        Err(MirrorError::Unavailable("a device with a client replays nothing".to_owned()))
    }

    fn times(&mut self) -> Times {
        self.edges.times()
    }

    fn tally(&mut self) -> Vec<(String, u64)> {
        let served = self.machine.application.take_served();
        let calls = self.driver.devices().iter().map(|device| device.counters().calls).sum();
        let refused = served.received - served.sent;
        let tally = [("mirrored", served.sent), ("refused", refused), ("device_calls", calls)];
        tally.map(|(name, count)| (name.to_owned(), count)).to_vec()
    }
}
