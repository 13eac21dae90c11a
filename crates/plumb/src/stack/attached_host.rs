//! plumb's stack on one device, running an application; and the services that it offers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use plumb_analysis::document::stack::{SCHEMA, ServiceCount, StackDevice, StackDocument};
use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_clock::{self, InstantClock, Stopwatch};
use plumb_harness::stop_signals;
use plumb_netdev::device::driver::{Driver, DriverExit, DriverOptions};
use plumb_netdev::device::memory;
use plumb_netdev::device::{Device, DeviceCounters, DeviceError, DeviceWait};
use plumb_stack::counters::{CounterId, CounterKind, HostCounters, ProtocolLayer};
use plumb_stack::host::{HostConfig, HostEvent, IpHost};
use plumb_stack::interface::{InterfaceConfig, is_unicast};
use plumb_stack::route::{IpPrefix, Route};
use plumb_stack::service::{self, HostApplication, HostNode, ServiceCounts, UdpService};
use plumb_stack::udp::{BindError, CopyPolicy, UdpOptions};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::malformed::FormatError;
use plumb_wire::packet::Pool;

use super::device::{AttachedDevice, DeviceInstrumentation, DeviceName, fault_counters, pool_for};
use crate::problem::Problem;

/// Interval of interruptions of blocking calls, so that requests to stop are noticed.
const TICK: Span = Span::from_ms(50);

/// Duration of the calibration of the counter against the kernel's clock.
const CALIBRATION: Span = Span::from_ms(50);

/// The usual cause of wrong checksums over AF_XDP.
const CHECKSUM_OFFLOAD_HINT: &str = "UDP checksums were wrong: over virtual Ethernet the kernel leaves them to \
     the device, which AF_XDP does not report; at the other end: ethtool -K INTERFACE tx off";

/// MTU of a link in memory.
const MEMORY_MTU: u32 = 1_500;

/// Device, addresses and other settings of a host.
#[derive(Clone, Debug)]
pub struct AttachedHostSettings {
    /// Device.
    pub device: DeviceName,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Default gateways, at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Link address [default: the device's, or a random one].
    pub mac: Option<MacAddr>,
    /// How to wait for packets.
    pub wait: DeviceWait,
    /// Most packets per batch.
    pub batch: usize,
    /// Recording and faults between stack and device.
    pub instrumentation: DeviceInstrumentation,
    /// Seed of every random choice.
    pub seed: Seed,
    /// The host at the other end of a link in memory, and its services.
    pub memory_peer: Option<(IpAddr, Vec<ServicePort>)>,
}

/// Why a run ended.
#[derive(Debug)]
pub enum StackEndReason {
    /// The application is complete.
    Complete,
    /// The time is up.
    Duration,
    /// Interrupted by the user.
    Interrupted,
    /// The device failed or has ended.
    Device(DeviceError),
}

impl StackEndReason {
    /// The end of a test: if the test is not over, the device has ended before it.
    #[must_use]
    pub fn of_echo_test(self, is_over: bool) -> Self {
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

/// A host on its device.
#[derive(Debug)]
pub struct AttachedHost {
    /// The stack.
    pub host: IpHost,
    /// Its device, pool and clock.
    pub driver: Driver<AttachedDevice>,
    /// The clock.
    pub timeline: InstantClock,
    facts: StackDevice,
    addresses: Vec<String>,
}

/// The result of a run.
#[derive(Debug)]
pub struct StackRunResult<A> {
    /// The application.
    pub application: A,
    /// Why it ended.
    pub ended: StackEndReason,
    /// The document, without the application's part.
    pub document: StackDocument,
}

/// A calibrated clock.
pub fn timeline() -> InstantClock {
    InstantClock::begin(Stopwatch::new(plumb_clock::calibrate(CALIBRATION).ticks_per_ns))
}

impl AttachedHost {
    /// Opens the device and configures the stack; passes warnings for the user to `warn`.
    ///
    /// # Errors
    /// The device cannot be opened, or the addresses are invalid.
    pub fn open(
        settings: &AttachedHostSettings,
        mut warn: impl FnMut(&str),
    ) -> Result<Self, Problem> {
        install_signal_handlers()?;
        check_addresses(settings, &mut warn)?;
        let timeline = timeline();
        let (device, pool) = match (&settings.device, &settings.memory_peer) {
            (DeviceName::Memory, Some((far, offers))) => memory_peer(settings, *far, offers)?,
            (name, _) => name.open(settings.wait, settings.mac.is_some())?,
        };
        let seed = settings.seed;
        let mac = settings.mac.or_else(|| device.info().mac).unwrap_or_else(|| random_mac(seed));
        warn_of_forwarding(settings, &mut warn);
        let capabilities = device.info().capabilities;
        let ethernet = capabilities.medium == Medium::Ethernet;
        let device = AttachedDevice::new(device, &settings.instrumentation, timeline, seed)?;
        let config = InterfaceConfig {
            capabilities,
            mac,
            addresses: settings.addresses.clone(),
            link_local: ethernet,
        };
        let host = host(&config, &settings.gateways, seed)?;
        let addresses = address_texts(&host);
        let facts = StackDevice {
            name: settings.device.to_string(),
            mac: if ethernet { mac.to_string() } else { String::new() },
            mtu: capabilities.mtu,
            wait: match settings.wait {
                DeviceWait::Block => "block",
                DeviceWait::Poll(_) => "poll",
                DeviceWait::Spin => "spin",
            }
            .to_owned(),
            batch: settings.batch as u64,
        };
        let options =
            DriverOptions { batch: settings.batch, tick: Some(TICK), wait: settings.wait };
        let driver = Driver::new(vec![device], pool, timeline, options);
        Ok(Self { host, driver, timeline, facts, addresses })
    }

    /// Addresses, device and MTU in one line.
    pub fn describe(&self) -> String {
        let StackDevice { name, mac, mtu, .. } = &self.facts;
        let link = if mac.is_empty() { String::new() } else { format!(" as {mac}") };
        format!("{} on {name}{link}, MTU {mtu}", self.addresses.join(", "))
    }

    /// Runs an application until `until` returns a reason, the user interrupts, or the device ends.
    pub fn run<A: HostApplication>(
        self,
        application: A,
        mut until: impl FnMut(&mut HostNode<A>, Instant) -> Option<StackEndReason>,
    ) -> StackRunResult<A> {
        let Self { host, mut driver, facts, addresses, .. } = self;
        let mut node = HostNode { host, application };
        let begun = driver.read_clock();
        node.application.handle(begun, &mut node.host, driver.pool());
        let mut ended = None;
        let outcome = driver.run(&mut node, |node, now, _| {
            let interrupted =
                (stop_signals::stop_requests() > 0).then_some(StackEndReason::Interrupted);
            ended = interrupted.or_else(|| until(node, now));
            ended.is_some()
        });
        let seconds = driver.read_clock().saturating_since(begun).as_secs_f64();
        let (mut devices, _, ()) = driver.into_parts();
        let device = devices.first_mut();
        let flushed = device.map_or(Ok(()), AttachedDevice::finish);
        let ended = match (outcome, flushed, ended) {
            (Err(error), ..) | (Ok(_), Err(error), _) => StackEndReason::Device(error),
            (Ok(DriverExit::Finished), Ok(()), _) | (Ok(DriverExit::Stopped), Ok(()), None) => {
                StackEndReason::Complete
            }
            (Ok(DriverExit::Stopped), Ok(()), Some(ended)) => ended,
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
        let open_sums =
            node.host.counters().malformed_value(ProtocolLayer::Udp, FormatError::Checksum);
        if matches!(device_name.split_once(':'), Some(("xdp", _))) && open_sums > 0 {
            document.flags.push(CHECKSUM_OFFLOAD_HINT.to_owned());
        }
        if let Some(device) = devices.first() {
            document.device_counters = nonzero(device_counters(device.counters()));
            if let Some((rx, tx)) = device.faults() {
                let counters = fault_counters(rx, tx).filter(|(_, count)| *count > 0);
                document.fault_counters = counters.collect();
            }
        }
        StackRunResult { application: node.application, ended, document }
    }
}

/// Counts SIGINT and its like and SIGUSR1 from now on, and interrupts blocking calls periodically.
///
/// # Errors
/// The kernel refuses a handler or a timer.
pub fn install_signal_handlers() -> Result<(), Problem> {
    stop_signals::count_stop_requests()
        .and_then(|()| stop_signals::count_status_requests())
        .and_then(|()| stop_signals::interrupt_every(TICK))
        .map_err(|error| Problem::failure("cannot listen for signals").because(error))
}

/// A host with one interface and its routes.
///
/// # Errors
/// Invalid addresses, a gateway that is not on-link, or a second one of a family.
pub fn host(config: &InterfaceConfig, gateways: &[IpAddr], seed: Seed) -> Result<IpHost, Problem> {
    let mut host = IpHost::new(HostConfig::default(), seed);
    let port = host.add_interface(config).map_err(|error| usage_problem(&error.to_string()))?;
    for &gateway in gateways {
        if !host.interfaces()[usize::from(port.0)].is_on_link(gateway) {
            return Err(Problem::usage(format!(
                "the gateway {gateway} is on no network of the stack"
            ))
            .because("a gateway must be reachable without a gateway")
            .fix("give an address of its network with --addr, or another gateway"));
        }
        let prefix = IpPrefix::default_route(gateway.is_ipv6());
        let other = host.routes().iter().find(|route| route.prefix == prefix);
        if let Some(other) = other.and_then(|route| route.gateway) {
            return Err(Problem::usage(format!(
                "{other} and {gateway} cannot both be the default gateway"
            ))
            .because("the stack has one default route per address family")
            .fix("give --gateway once for IPv4 and once for IPv6"));
        }
        host.add_route(Route { prefix, port, gateway: Some(gateway) });
    }
    Ok(host)
}

/// The problem of a message of the stack, which has its fix after a colon.
pub fn usage_problem(message: &str) -> Problem {
    match message.split_once(": ") {
        Some((what, fix)) => Problem::usage(what).fix(fix),
        None => Problem::rejected(message),
    }
}

/// Checks for addresses that the kernel has too. Over a TAP the kernel would deliver all packets to itself; on a shared
/// interface both would answer; over AF_XDP the kernel would get no packets.
fn check_addresses(
    settings: &AttachedHostSettings,
    warn: &mut impl FnMut(&str),
) -> Result<(), Problem> {
    if matches!(settings.device, DeviceName::Memory | DeviceName::Pcap(_)) {
        return Ok(());
    }
    for &(address, len) in &settings.addresses {
        let kernel_has_it = UdpSocket::bind(SocketAddr::new(address, 0)).is_ok();
        // The kernel allows binding to broadcast addresses too, which the stack rejects itself.
        let broadcast = IpPrefix::new(address, len).and_then(IpPrefix::broadcast).map(IpAddr::V4);
        if !kernel_has_it || !is_unicast(address) || broadcast == Some(address) {
            continue;
        }
        let what = format!("{address} is an address of this machine's kernel too");
        let remove = format!("ip addr del {address}/{len} dev INTERFACE");
        match settings.device {
            DeviceName::Tap(_) | DeviceName::Tun(_) => {
                return Err(Problem::usage(what)
                    .because("the kernel would keep packets to it instead of passing them to the stack")
                    .fix(format!(
                        "give the stack another address of the network, or remove it from the kernel: \
                         {remove}"
                    )));
            }
            DeviceName::Xdp(_) => warn(&format!(
                "{what}, which gets no packets on this interface while the stack runs"
            )),
            _ => warn(&format!(
                "{what}, which will answer as well; to prevent that: {remove} (and for ARP: ip link \
                 set INTERFACE arp off)"
            )),
        }
    }
    Ok(())
}

/// Warns that a kernel with forwarding will forward the stack's packets.
fn warn_of_forwarding(settings: &AttachedHostSettings, warn: &mut impl FnMut(&str)) {
    if settings.mac.is_some() || !matches!(settings.device, DeviceName::Packet(_)) {
        return;
    }
    let forwards = |path: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    let sysctls = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
    for name in sysctls.into_iter().filter(|name| forwards(&format!("/proc/sys/{name}"))) {
        let name = name.replace('/', ".");
        warn(&format!(
            "the kernel forwards packets and has the link address of the stack: it will forward the \
             stack's packets; give the stack another one (--mac 02:00:00:00:00:02), or disable \
             forwarding: sysctl {name}=0"
        ));
    }
}

/// A link in memory to another host, on a thread that ends with the near end.
fn memory_peer(
    settings: &AttachedHostSettings,
    far: IpAddr,
    offers: &[ServicePort],
) -> Result<(Box<dyn Device>, Pool), Problem> {
    let capabilities = DeviceCapabilities::plain(Medium::Ethernet, MEMORY_MTU);
    let (near, device) = memory::pair(capabilities, settings.wait);
    let seed = settings.seed.derive("far");
    let len = settings.addresses.iter().find(|(ip, _)| ip.is_ipv4() == far.is_ipv4());
    let config = InterfaceConfig {
        capabilities,
        mac: random_mac(seed),
        addresses: vec![(far, len.map_or(0, |&(_, len)| len))],
        link_local: true,
    };
    let mut host = host(&config, &[], seed)?;
    let application = OfferedServices::open(&mut host, offers)?;
    let mut node = HostNode { host, application };
    let options = DriverOptions { batch: settings.batch, tick: None, wait: settings.wait };
    let timeline = timeline();
    std::thread::spawn(move || {
        let mut driver = Driver::new(vec![device], pool_for(MEMORY_MTU), timeline, options);
        // Ends with the near end; nobody is left to report an error to.
        let _ = driver.run(&mut node, |_, _, _| false);
    });
    Ok((Box::new(near), pool_for(MEMORY_MTU)))
}

/// The addresses of a host with their prefix lengths.
pub fn address_texts(host: &IpHost) -> Vec<String> {
    let addresses = host.interfaces().iter().flat_map(|interface| &interface.addresses);
    addresses.map(|address| format!("{}/{}", address.ip, address.prefix.len())).collect()
}

/// A random, locally administered link address.
pub fn random_mac(seed: Seed) -> MacAddr {
    let mut octets = [0x02; 6];
    octets[1..].copy_from_slice(&seed.derive("mac").0.to_be_bytes()[..5]);
    MacAddr(octets)
}

/// Counters that are not zero.
pub fn nonzero(counters: impl IntoIterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    let counted = counters.into_iter().filter(|(_, count)| *count > 0);
    counted.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Counts of dropped packets by reason.
pub fn drops(counters: &HostCounters) -> BTreeMap<String, u64> {
    let is_drop = |name: &str| {
        let count = CounterId::ALL.iter().find(|count| count.name() == name);
        // Counters outside this list are of malformed packets.
        count.is_none_or(|count| matches!(count.kind(), CounterKind::RxDrop | CounterKind::TxDrop))
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

/// Kind of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// Returns datagrams in place.
    Mirror,
    /// Copies datagrams out and back, as a program with its own buffer does.
    Echo,
    /// Drops datagrams.
    Discard,
}

impl ServiceKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Mirror, Self::Echo, Self::Discard];

    /// Name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mirror => "mirror",
            Self::Echo => "echo",
            Self::Discard => "discard",
        }
    }

    const fn service(self) -> UdpService {
        match self {
            Self::Mirror => UdpService::Mirror,
            Self::Echo => UdpService::Echo(CopyPolicy::Fused),
            Self::Discard => UdpService::Discard,
        }
    }

    /// Default port (RFC 862, RFC 863; the mirror's is arbitrary).
    pub const fn port(self) -> u16 {
        match self {
            Self::Mirror => 1_997,
            Self::Echo => 7,
            Self::Discard => 9,
        }
    }
}

/// A service at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Kind.
    pub kind: ServiceKind,
    /// UDP port.
    pub port: u16,
}

impl ServicePort {
    /// The sum of its sockets' counts.
    fn count(self, sockets: &[ServiceCounts]) -> ServiceCount {
        let sum = |of: fn(&ServiceCounts) -> u64| sockets.iter().map(of).sum();
        ServiceCount {
            name: self.kind.name().to_owned(),
            port: self.port,
            received: sum(|served| served.received),
            bytes: sum(|served| served.bytes),
            answered: sum(|served| served.sent),
            from_service: sum(|served| served.from_service),
            to_group: sum(|served| served.to_group),
            failed: sum(|served| served.failed),
        }
    }
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.port)
    }
}

/// The services of a host.
#[derive(Debug)]
pub struct OfferedServices {
    ports: Vec<ServicePort>,
    /// Two sockets per service, one of each family.
    services: service::UdpServices,
    /// Messages for the user.
    pub notices: Vec<String>,
}

impl OfferedServices {
    /// Opens a socket of each family for each service.
    ///
    /// # Errors
    /// Two services at one port.
    pub fn open(host: &mut IpHost, offers: &[ServicePort]) -> Result<Self, BindError> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let mut services = service::UdpServices::default();
        for offer in offers {
            for ip in any {
                let local = SocketAddr::new(ip, offer.port);
                services.open(host, offer.kind.service(), local, UdpOptions::default())?;
            }
        }
        Ok(Self { ports: offers.to_vec(), services, notices: Vec::new() })
    }

    /// The counts of each service.
    pub fn counts(&self) -> Vec<ServiceCount> {
        let served: Vec<ServiceCounts> = self.services.counts().collect();
        let offers = self.ports.iter().zip(served.chunks(2));
        offers.map(|(offer, families)| offer.count(families)).collect()
    }

    /// Datagrams received by all services.
    pub fn received(&self) -> u64 {
        self.services.counts().map(|served| served.received).sum()
    }
}

impl HostApplication for OfferedServices {
    #[inline]
    fn handle(&mut self, now: Instant, host: &mut IpHost, pool: &mut Pool) {
        self.services.handle(now, host, pool);
        while let Some(event) = host.poll_event() {
            if let HostEvent::AddressConflict { address, mac, .. } = event {
                self.notices.push(address_conflict(address, mac));
            }
        }
    }
}

/// The message about another host with the stack's address.
pub fn address_conflict(address: IpAddr, mac: MacAddr) -> String {
    format!("address conflict: another host, {mac}, claims {address}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ExitReason;

    #[test]
    fn one_gateway_per_family_is_allowed() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let config = InterfaceConfig::ip(1_500)
            .with_address(ip("10.0.0.2"), 24)
            .with_address(ip("fd77::2"), 64);
        let with = |gateways: &[&str]| {
            let gateways: Vec<IpAddr> = gateways.iter().map(|text| ip(text)).collect();
            host(&config, &gateways, Seed(1)).map(drop)
        };
        with(&["10.0.0.1", "fd77::1"]).unwrap();
        for gateways in [["10.0.0.1", "10.0.0.9"], ["fd77::1", "fd77::9"], ["10.0.0.1", "10.0.0.1"]]
        {
            let problem = with(&gateways).unwrap_err();
            assert!(problem.what.contains(gateways[1]), "{problem}");
            assert_eq!(problem.exit, ExitReason::Usage);
        }
    }
}
