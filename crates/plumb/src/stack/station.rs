//! A station: plumb's stack with its addresses on one device, ready to run an application.
//!
//! Left out: applications, and what is printed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use plumb_analysis::document::stack::{SCHEMA, StackDevice, StackDocument};
use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_host::clock::{self, Stopwatch, Timeline};
use plumb_host::device::drive::{Driver, End, Options};
use plumb_host::device::memory;
use plumb_host::device::{Device, DeviceCounters, DeviceError, Wait};
use plumb_host::stop;
use plumb_stack::counters::{Count, Counters, Kind, Layer};
use plumb_stack::host::{Host, HostConfig};
use plumb_stack::interface::{InterfaceConfig, is_unicast};
use plumb_stack::route::{Prefix, Route};
use plumb_wire::mac::MacAddr;
use plumb_wire::malformed::Malformed;
use plumb_wire::medium::{Capabilities, Medium};
use plumb_wire::packet::Pool;

use super::device::{Attached, Decoration, DeviceName, pool_for};
use super::faults;
use super::service::{Offer, Services};
use crate::problem::{Exit, Problem};
use plumb_stack::node::{Application, Node};

/// How often a blocking call is interrupted, so that a request to stop is never missed.
const TICK: Span = Span::from_ms(50);

/// How long the counter is calibrated against the kernel's clock.
const CALIBRATION: Span = Span::from_ms(50);

/// What checksums that do not fit mostly mean on AF_XDP.
const OPEN_CHECKSUMS: &str = "UDP checksums did not fit: over virtual Ethernet the kernel leaves them \
     open, which AF_XDP does not tell; at the other end: ethtool -K INTERFACE tx off";

/// MTU of a link in memory.
const MEMORY_MTU: u32 = 1_500;

/// Where and as whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The device.
    pub device: DeviceName,
    /// Addresses with the bits of their networks.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routers, at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Link address; the device's own, or one by chance, where absent.
    pub mac: Option<MacAddr>,
    /// How the device waits.
    pub wait: Wait,
    /// Most packets at a time.
    pub batch: usize,
    /// What stands between.
    pub decoration: Decoration,
    /// Of every random choice.
    pub seed: Seed,
    /// Over a link in memory: who is at its other end, and what it does.
    pub far: Option<(IpAddr, Vec<Offer>)>,
}

/// Why a run is over.
#[derive(Debug)]
pub enum Ended {
    /// All was done.
    Complete,
    /// The time is over.
    Duration,
    /// The user wanted no more.
    Interrupted,
    /// The device is.
    Device(DeviceError),
}

impl Ended {
    /// The end of a course: a device that has nothing more is in the way of one that is not over.
    #[must_use]
    pub fn of_course(self, is_over: bool) -> Self {
        match self {
            Self::Complete if !is_over => Self::Device(DeviceError::Finished),
            ended => ended,
        }
    }

    /// Its name in documents.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Duration => "duration",
            Self::Interrupted => "interrupted",
            Self::Device(_) => "device",
        }
    }
}

/// A stack on its device.
#[derive(Debug)]
pub struct Station {
    /// The stack.
    pub host: Host,
    /// Its device, pool and clock.
    pub driver: Driver<Attached>,
    /// The clock.
    pub timeline: Timeline,
    facts: StackDevice,
    addresses: Vec<String>,
}

/// What is left after a run.
#[derive(Debug)]
pub struct Finished<A> {
    /// The application.
    pub application: A,
    /// Why it ended.
    pub ended: Ended,
    /// A document with everything but what the application knows.
    pub document: StackDocument,
}

/// The clock that times, calibrated.
pub fn timeline() -> Timeline {
    Timeline::begin(Stopwatch::new(clock::calibrate(CALIBRATION).ticks_per_ns))
}

impl Station {
    /// Opens the device and gives the stack its addresses; what the user should know goes to `remark`.
    ///
    /// # Errors
    /// The device cannot be opened, or cannot have these addresses.
    pub fn open(settings: &Settings, mut remark: impl FnMut(&str)) -> Result<Self, Problem> {
        listen()?;
        refuse_own_addresses(settings, &mut remark)?;
        let timeline = timeline();
        let (device, pool) = match (&settings.device, &settings.far) {
            (DeviceName::Memory, Some((far, offers))) => far_end(settings, *far, offers)?,
            (name, _) => name.open(settings.wait, settings.mac.is_some())?,
        };
        let seed = settings.seed;
        let own_mac = settings.mac.is_some();
        let mac = settings.mac.or_else(|| device.mac()).unwrap_or_else(|| mac_by_chance(seed));
        warn_of_forwarding(settings, own_mac, &mut remark);
        let capabilities = device.capabilities();
        let ethernet = capabilities.medium == Medium::Ethernet;
        let device = Attached::new(device, &settings.decoration, timeline, seed)?;
        let config = InterfaceConfig {
            capabilities,
            mac,
            addresses: settings.addresses.clone(),
            link_local: ethernet,
        };
        let host = host(&config, &settings.gateways, seed)?;
        let addresses = host.interfaces().iter().flat_map(|interface| &interface.addresses);
        let addresses =
            addresses.map(|address| format!("{}/{}", address.ip, address.prefix.len())).collect();
        let facts = StackDevice {
            name: settings.device.to_string(),
            mac: if ethernet { mac.to_string() } else { String::new() },
            mtu: capabilities.mtu,
            wait: wait_name(settings.wait).to_owned(),
            batch: settings.batch as u64,
        };
        let options = Options { batch: settings.batch, tick: Some(TICK), wait: settings.wait };
        let driver = Driver::new(vec![device], pool, timeline, options);
        Ok(Self { host, driver, timeline, facts, addresses })
    }

    /// What the stack is and where, in one line.
    pub fn describe(&self) -> String {
        let StackDevice { name, mac, mtu, .. } = &self.facts;
        let link = if mac.is_empty() { String::new() } else { format!(" as {mac}") };
        format!("{} on {name}{link}, MTU {mtu}", self.addresses.join(", "))
    }

    /// Runs an application until `until` says why it is enough, the user interrupts, or the device is
    /// at its end.
    pub fn run<A: Application>(
        self,
        application: A,
        mut until: impl FnMut(&mut Node<A>, Instant) -> Option<Ended>,
    ) -> Finished<A> {
        let Self { host, mut driver, facts, addresses, .. } = self;
        let mut node = Node { host, application };
        let begun = driver.read_clock();
        {
            let Node { host, application } = &mut node;
            application.handle(begun, host, driver.pool());
        }
        let mut ended = None;
        let outcome = driver.run(&mut node, |node, now, _| {
            let interrupted = (stop::requests() > 0).then_some(Ended::Interrupted);
            ended = interrupted.or_else(|| until(node, now));
            ended.is_some()
        });
        let seconds = driver.read_clock().saturating_since(begun).as_secs_f64();
        let (mut devices, _, ()) = driver.into_parts();
        let device = devices.first_mut();
        let flushed = device.map_or(Ok(()), Attached::finish);
        let ended = match (outcome, flushed, ended) {
            (Err(error), ..) | (Ok(_), Err(error), _) => Ended::Device(error),
            (Ok(End::Finished), Ok(()), _) | (Ok(End::Stopped), Ok(()), None) => Ended::Complete,
            (Ok(End::Stopped), Ok(()), Some(ended)) => ended,
        };
        let device_name = facts.name.clone();
        let mut document = StackDocument {
            schema: SCHEMA.to_owned(),
            stack: "plumb".to_owned(),
            device: Some(facts),
            addresses,
            seconds,
            ended: ended.name().to_owned(),
            stack_counters: nonzero(node.host.counters().iter()),
            drop_counters: drops(node.host.counters()),
            ..StackDocument::default()
        };
        let open_sums = node.host.counters().of_malformed(Layer::Udp, Malformed::Checksum);
        if matches!(device_name.split_once(':'), Some(("xdp", _))) && open_sums > 0 {
            document.flags.push(OPEN_CHECKSUMS.to_owned());
        }
        if let Some(device) = devices.first() {
            document.device_counters = nonzero(device_counters(device.counters()));
            if let Some((rx, tx)) = device.faults() {
                let counters = faults::counters(rx, tx).filter(|(_, count)| *count > 0);
                document.fault_counters = counters.collect();
            }
        }
        Finished { application: node.application, ended, document }
    }
}

/// Counts what asks this process to stop, or to say how things stand.
///
/// # Errors
/// The kernel refuses a handler or a timer.
pub fn listen() -> Result<(), Problem> {
    stop::listen()
        .and_then(|()| stop::listen_for_status())
        .and_then(|()| stop::interrupt_every(TICK))
        .map_err(|error| Problem::trouble("cannot listen for signals").because(error))
}

/// A host with one interface and its routes.
///
/// # Errors
/// Addresses that cannot be, a router that is on no network, or a second one of a family.
pub fn host(config: &InterfaceConfig, gateways: &[IpAddr], seed: Seed) -> Result<Host, Problem> {
    let mut host = Host::new(HostConfig::default(), seed);
    let port = host.add_interface(config).map_err(|error| refused(&error.to_string()))?;
    for &gateway in gateways {
        let on_link = host.interfaces()[usize::from(port.0)].is_on_link(gateway);
        if !on_link {
            return Err(Problem::usage(format!(
                "the router {gateway} is on no network of the stack"
            ))
            .because("a router must be reached without a router")
            .fix("give an address of its network with --addr, or another router"));
        }
        let prefix = Prefix::everything(gateway.is_ipv6());
        let other = host.routes().iter().find(|route| route.prefix == prefix);
        if let Some(other) = other.and_then(|route| route.gateway) {
            return Err(Problem::usage(format!("{other} and {gateway} cannot both be the router"))
                .because("the stack sends all that is for other networks to one, of each family")
                .fix("give --gateway once for IPv4 and once for IPv6"));
        }
        host.add_route(Route { prefix, port, gateway: Some(gateway) });
    }
    Ok(host)
}

/// A message of the stack, whose fix stands after a colon.
pub fn refused(message: &str) -> Problem {
    match message.split_once(": ") {
        Some((what, fix)) => Problem::usage(what).fix(fix),
        None => Problem::from_message(message, Exit::Usage),
    }
}

/// An address that the kernel has too: of a TAP's other side, no packet would ever leave the kernel;
/// on an interface that both see, both would answer; on one that is taken from it, it is deaf.
fn refuse_own_addresses(settings: &Settings, remark: &mut impl FnMut(&str)) -> Result<(), Problem> {
    if matches!(settings.device, DeviceName::Memory | DeviceName::Pcap(_)) {
        return Ok(());
    }
    for &(address, len) in &settings.addresses {
        let kernel_has_it = UdpSocket::bind(SocketAddr::new(address, 0)).is_ok();
        // To the address of all hosts of a network one may bind as well; the stack refuses it.
        let broadcast = Prefix::new(address, len).and_then(Prefix::broadcast).map(IpAddr::V4);
        if !kernel_has_it || !is_unicast(address) || broadcast == Some(address) {
            continue;
        }
        let what = format!("{address} is an address of this machine's kernel too");
        let silence = format!("ip addr del {address}/{len} dev INTERFACE");
        match settings.device {
            DeviceName::Tap(_) | DeviceName::Tun(_) => {
                return Err(Problem::usage(what)
                    .because("the kernel keeps what is sent to it: none of it would reach the stack")
                    .fix(format!(
                        "give the stack another address of the network, or take it from the kernel: \
                         {silence}"
                    )));
            }
            DeviceName::Xdp(_) => remark(&format!(
                "{what}, which hears nothing on this interface while the stack is there"
            )),
            _ => remark(&format!(
                "{what}, which will answer as well; to silence it: {silence} (and for ARP: ip link \
                 set INTERFACE arp off)"
            )),
        }
    }
    Ok(())
}

/// A kernel that forwards sends on what it is not meant to see.
fn warn_of_forwarding(settings: &Settings, own_mac: bool, remark: &mut impl FnMut(&str)) {
    if own_mac || !settings.device.is_shared_with_kernel() {
        return;
    }
    let forwards = |path: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    let sysctls = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
    for name in sysctls.into_iter().filter(|name| forwards(&format!("/proc/sys/{name}"))) {
        let name = name.replace('/', ".");
        remark(&format!(
            "the kernel forwards packets and shares its link address with the stack: it will send on \
             what is meant for the stack; give the stack one of its own (--mac 02:00:00:00:00:02), or \
             silence the kernel: sysctl {name}=0"
        ));
    }
}

/// A link in memory with somebody at its other end, in a thread that ends with the near end.
fn far_end(
    settings: &Settings,
    far: IpAddr,
    offers: &[Offer],
) -> Result<(Box<dyn Device>, Pool), Problem> {
    let capabilities = Capabilities::plain(Medium::Ethernet, MEMORY_MTU);
    let (near, device) = memory::pair(capabilities, settings.wait);
    let seed = settings.seed.derive("far");
    let len = settings.addresses.iter().find(|(ip, _)| ip.is_ipv4() == far.is_ipv4());
    let config = InterfaceConfig {
        capabilities,
        mac: mac_by_chance(seed),
        addresses: vec![(far, len.map_or(0, |&(_, len)| len))],
        link_local: true,
    };
    let mut host = host(&config, &[], seed)?;
    let services = Services::open(&mut host, offers)
        .map_err(|error| Problem::from_message(&error.to_string(), Exit::Usage))?;
    let mut node = Node { host, application: services };
    let options = Options { batch: settings.batch, tick: None, wait: settings.wait };
    let timeline = timeline();
    std::thread::spawn(move || {
        let mut driver = Driver::new(vec![device], pool_for(MEMORY_MTU), timeline, options);
        // It ends when the near end is gone, which is no error; nobody is left to hear of another.
        let _ = driver.run(&mut node, |_, _, _| false);
    });
    Ok((Box::new(near), pool_for(MEMORY_MTU)))
}

/// A locally administered link address.
pub fn mac_by_chance(seed: Seed) -> MacAddr {
    let mut octets = [0x02; 6];
    octets[1..].copy_from_slice(&seed.derive("mac").0.to_be_bytes()[..5]);
    MacAddr(octets)
}

/// Its word on the command line.
pub const fn wait_name(wait: Wait) -> &'static str {
    match wait {
        Wait::Block => "block",
        Wait::Poll(_) => "poll",
        Wait::Spin => "spin",
    }
}

/// Everything that was counted at all.
pub fn nonzero(counters: impl IntoIterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    let counted = counters.into_iter().filter(|(_, count)| *count > 0);
    counted.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Every reason for which a packet was dropped, with how many were.
pub fn drops(counters: &Counters) -> BTreeMap<String, u64> {
    let is_drop = |name: &str| {
        let count = Count::ALL.iter().find(|count| count.name() == name);
        // What is not in that list is a broken format.
        count.is_none_or(|count| matches!(count.kind(), Kind::RxDrop | Kind::TxDrop))
    };
    nonzero(counters.iter().filter(|(name, _)| is_drop(name)))
}

/// A device's counters by name.
pub fn device_counters(counters: DeviceCounters) -> [(&'static str, u64); 8] {
    [
        ("rx_packets", counters.rx_packets),
        ("rx_bytes", counters.rx_bytes),
        ("rx_dropped", counters.rx_dropped),
        ("rx_malformed", counters.rx_malformed),
        ("tx_packets", counters.tx_packets),
        ("tx_bytes", counters.tx_bytes),
        ("tx_dropped", counters.tx_dropped),
        ("calls", counters.calls),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_router_of_a_family_is_refused_and_one_of_each_is_not() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let config = InterfaceConfig::ip(1_500)
            .with_address(ip("10.0.0.2"), 24)
            .with_address(ip("fd77::2"), 64);
        let with = |routers: &[&str]| {
            let routers: Vec<IpAddr> = routers.iter().map(|text| ip(text)).collect();
            host(&config, &routers, Seed(1)).map(drop)
        };
        with(&["10.0.0.1", "fd77::1"]).unwrap();
        for routers in [["10.0.0.1", "10.0.0.9"], ["fd77::1", "fd77::9"], ["10.0.0.1", "10.0.0.1"]]
        {
            let problem = with(&routers).unwrap_err();
            assert!(problem.what.contains(routers[1]), "{problem}");
            assert_eq!(problem.exit, Exit::Usage);
        }
    }
}
