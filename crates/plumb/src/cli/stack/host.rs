//! plumb's stack as the command line describes it: its device, addresses and checks, and its part of documents.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plumb_analysis::document::stack::{SCHEMA, StackDevice, StackDocument};
use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_duration;
use plumb_netdev::device::fault::FaultRates;
use plumb_netdev::device::{Device, DeviceCounters, DeviceWait};
use plumb_netdev::host::http_server::FileDirectory;
use plumb_netdev::host::services::{OfferedServices, ServiceKind, ServicePort};
use plumb_netdev::host::{self, AttachedHost, StackRun};
use plumb_stack::counters::{CounterId, CounterKind, HostCounters, ProtocolLayer};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::{InterfaceConfig, is_unicast};
use plumb_stack::route::{IpPrefix, Route};
use plumb_stack::service::HostNode;
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::malformed::FormatError;
use plumb_wire::packet::Pool;

use super::device::{self, DeviceKind, DeviceName, fault_counters};
use crate::cli::output::CliOutput;
use crate::cli::seed_or_random;
use crate::problem::Problem;

/// The usual cause of wrong checksums over AF_XDP.
const CHECKSUM_OFFLOAD_HINT: &str = "checksums were wrong: over virtual Ethernet the kernel leaves them to \
     the device, which AF_XDP does not report; at the other end: ethtool -K INTERFACE tx off";

/// MTU of a link in memory.
const MEMORY_MTU: u32 = 1_500;

/// Time that `--wait poll` spins after the last packet.
const POLL: Span = Span::from_us(50);

/// Device, addresses and other options of plumb's stack.
#[derive(Clone, Debug, Args)]
pub struct StackHostOptions {
    /// Device of the stack: tap:NAME, tun:NAME, packet:INTERFACE, xdp:INTERFACE, pcap:FILE or memory
    #[arg(long, value_name = "DEVICE", help_heading = "Stack")]
    pub device: Option<DeviceName>,
    /// Address of the stack with its prefix length; may be repeated
    #[arg(long, value_name = "ADDRESS/BITS", value_parser = parse_address)]
    #[arg(help_heading = "Stack")]
    pub addr: Vec<(IpAddr, u8)>,
    /// Default gateway; one per address family
    #[arg(long, value_name = "ADDRESS", help_heading = "Stack")]
    pub gateway: Vec<IpAddr>,
    /// MAC address of the stack [default: the interface's own; random on a TAP]
    #[arg(long, value_name = "MAC", help_heading = "Stack")]
    pub mac: Option<MacAddr>,
    /// How to wait for packets: block, poll for 50 µs and then block, or spin
    #[arg(long, value_name = "HOW", default_value = "block", help_heading = "Stack")]
    pub wait: StackWaitOption,
    /// Most packets per batch
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = "Stack")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub batch: u16,
    /// Record every packet, in both directions, to this pcapng file
    #[arg(long, value_name = "OUT.pcapng", help_heading = "Stack")]
    pub pcap: Option<PathBuf>,
    /// Inject faults in both directions: loss, burst, truncate, corrupt, duplicate, reorder
    #[arg(long, value_name = "FAULT=SHARE,…", value_parser = device::parse_faults)]
    #[arg(help_heading = "Stack")]
    pub faults: Option<FaultRates>,
    /// Print every counter at the end and on SIGUSR1; with a time, also periodically
    #[arg(long, value_name = "EVERY", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "0s", value_parser = parse_duration, help_heading = "Stack")]
    pub stats: Option<Span>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", help_heading = "Stack")]
    pub seed: Option<u64>,
}

/// How to wait for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackWaitOption {
    /// Sleep in the kernel
    Block,
    /// Spin for 50 µs, then sleep
    Poll,
    /// Spin
    Spin,
}

impl StackWaitOption {
    /// Name in documents.
    const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Poll => "poll",
            Self::Spin => "spin",
        }
    }
}

impl From<StackWaitOption> for DeviceWait {
    fn from(wait: StackWaitOption) -> Self {
        match wait {
            StackWaitOption::Block => Self::Block,
            StackWaitOption::Poll => Self::Poll(POLL),
            StackWaitOption::Spin => Self::Spin,
        }
    }
}

/// plumb's stack on its device.
#[derive(Debug)]
pub struct OpenedHost {
    /// The stack.
    pub attached: AttachedHost,
    /// Seed of every random choice.
    pub seed: Seed,
    /// What a document says of it.
    pub facts: HostFacts,
}

/// What a document says of a host.
#[derive(Debug)]
pub struct HostFacts {
    device: StackDevice,
    addresses: Vec<String>,
}

impl OpenedHost {
    /// Addresses, device and MTU in one line.
    pub fn describe(&self) -> String {
        let StackDevice { name, mac, mtu, .. } = &self.facts.device;
        let link = if mac.is_empty() { String::new() } else { format!(" as {mac}") };
        format!("{} on {name}{link}, MTU {mtu}", self.facts.addresses.join(", "))
    }
}

impl HostFacts {
    /// The document of a run, without the application's part.
    pub fn document<A>(self, command: &str, run: &StackRun<A>) -> StackDocument {
        let counters = run.host.counters();
        let wrong = |layer| counters.malformed_value(layer, FormatError::Checksum);
        let wrong_checksums = wrong(ProtocolLayer::Udp) + wrong(ProtocolLayer::Tcp);
        let is_xdp = self.device.name.starts_with("xdp:");
        let hint = (is_xdp && wrong_checksums > 0).then(|| CHECKSUM_OFFLOAD_HINT.to_owned());
        let faults = run.device.faults().into_iter().flat_map(|(rx, tx)| fault_counters(rx, tx));
        StackDocument {
            schema: SCHEMA.to_owned(),
            command: command.to_owned(),
            stack: "plumb".to_owned(),
            device: Some(self.device),
            addresses: self.addresses,
            seconds: run.seconds,
            ended: run.ended.name().to_owned(),
            stack_counters: nonzero(counters.iter()),
            drop_counters: drops(counters),
            device_counters: nonzero(device_counters(run.device.counters())),
            fault_counters: faults.filter(|(_, count)| *count > 0).collect(),
            flags: hint.into_iter().collect(),
            ..StackDocument::default()
        }
    }
}

impl StackHostOptions {
    /// Opens the device and configures the stack; `far` is the address and the services of the host at the other end
    /// of a link in memory.
    ///
    /// # Errors
    /// No device, or it cannot be opened; no address, or invalid ones.
    pub fn open(
        &self,
        far: Option<(IpAddr, &[ServicePort])>,
        output: &CliOutput,
    ) -> Result<OpenedHost, Problem> {
        let name = self.device_name()?;
        let far = far.filter(|_| name.kind == DeviceKind::Memory);
        let addresses = self.addresses(far.map(|(far, _)| far))?;
        let seed = seed_or_random(self.seed)?;
        install_signal_handlers()?;
        check_addresses(&name, &addresses, output)?;
        let timeline = host::calibrated_clock();
        let (device, pool) = match far {
            Some((far, offers)) => self.memory_peer(far, &addresses, offers, seed)?,
            None => name.open(self.wait.into(), self.mac.is_some())?,
        };
        if self.mac.is_none() && name.kind == DeviceKind::Packet {
            warn_of_forwarding(output);
        }
        let capabilities = device.info().capabilities;
        let is_ethernet = capabilities.medium == Medium::Ethernet;
        let mac = self.mac.or(device.info().mac).unwrap_or_else(|| random_mac(seed));
        let record = self.pcap.as_deref();
        let device =
            device::instrumented(device, record, name.file(), self.faults, timeline, seed)?;
        let config = InterfaceConfig { capabilities, mac, addresses, link_local: is_ethernet };
        let host = host(&config, &self.gateway, seed)?;
        let facts = HostFacts {
            device: StackDevice {
                name: name.text.clone(),
                mac: if is_ethernet { mac.to_string() } else { String::new() },
                mtu: capabilities.mtu,
                wait: self.wait.name().to_owned(),
                batch: self.batch.into(),
            },
            addresses: address_texts(&host),
        };
        let (batch, wait) = (self.batch.into(), self.wait.into());
        let attached = AttachedHost::new(host, device, pool, timeline, batch, wait);
        Ok(OpenedHost { attached, seed, facts })
    }

    fn device_name(&self) -> Result<DeviceName, Problem> {
        self.device.clone().ok_or_else(|| {
            Problem::usage("plumb's stack needs a device")
                .because("packets must enter and leave somewhere")
                .fix("name one, such as --device tap:NAME; 'plumb stack lab' creates some to try")
        })
    }

    fn addresses(&self, far: Option<IpAddr>) -> Result<Vec<(IpAddr, u8)>, Problem> {
        match (self.addr.is_empty(), far) {
            (false, _) => Ok(self.addr.clone()),
            (true, Some(far)) => Ok(vec![neighbor_address(far)]),
            (true, None) => Err(Problem::usage("plumb's stack needs an address")
                .because("it uses neither DHCP nor router advertisements")
                .fix("give it one of its network: --addr 10.77.0.2/24 or --addr fd77::2/64")),
        }
    }

    /// A link in memory to another host with services.
    fn memory_peer(
        &self,
        far: IpAddr,
        addresses: &[(IpAddr, u8)],
        offers: &[ServicePort],
        seed: Seed,
    ) -> Result<(Box<dyn Device>, Pool), Problem> {
        let capabilities = DeviceCapabilities::plain(Medium::Ethernet, MEMORY_MTU);
        let seed = seed.derive("far");
        let near = addresses.iter().find(|(near, _)| near.is_ipv4() == far.is_ipv4());
        let config = InterfaceConfig {
            capabilities,
            mac: random_mac(seed),
            addresses: vec![(far, near.map_or(0, |&(_, len)| len))],
            link_local: true,
        };
        let mut host = host(&config, &[], seed)?;
        let files = offers.iter().any(|offer| offer.kind == ServiceKind::Http);
        let files = files.then(|| served_directory(Path::new("."))).transpose()?;
        let application = OfferedServices::open(&mut host, offers, files)?;
        let node = HostNode { host, application };
        let (batch, wait) = (self.batch.into(), self.wait.into());
        let device = host::start_memory_peer(node, capabilities, batch, wait);
        Ok((device, host::pool_for(MEMORY_MTU)))
    }

    /// Time between two prints of the counters.
    pub fn status_every(&self) -> Option<Span> {
        self.stats.filter(|every| *every > Span::ZERO)
    }

    /// Rejects options of plumb's stack when the kernel's stack is used.
    ///
    /// # Errors
    /// Such an option was given.
    pub fn refuse_without_device(&self) -> Result<(), Problem> {
        let given = [
            (!self.addr.is_empty(), "--addr"),
            (!self.gateway.is_empty(), "--gateway"),
            (self.mac.is_some(), "--mac"),
            (self.pcap.is_some(), "--pcap"),
            (self.faults.is_some(), "--faults"),
            (self.stats.is_some(), "--stats"),
        ];
        match given.into_iter().find(|(given, _)| *given) {
            None => Ok(()),
            Some((_, option)) => Err(Problem::usage(format!("{option} is for plumb's own stack"))
                .because("without --device the kernel's stack is used")
                .fix(format!("name a device, or leave out {option}"))),
        }
    }
}

/// A directory whose files are served.
///
/// # Errors
/// It cannot be read.
pub fn served_directory(path: &Path) -> Result<FileDirectory, Problem> {
    FileDirectory::open(path).map_err(|error| {
        Problem::usage(format!("cannot serve the files of {}", path.display()))
            .because(error)
            .fix("name a directory that exists and that you may read: --directory DIR")
    })
}

/// The other address of the /31 or /127 network.
fn neighbor_address(far: IpAddr) -> (IpAddr, u8) {
    match far {
        IpAddr::V4(far) => (IpAddr::V4((far.to_bits() ^ 1).into()), 31),
        IpAddr::V6(far) => (IpAddr::V6((far.to_bits() ^ 1).into()), 127),
    }
}

/// Reads `10.77.0.2/24` or `fd77::2/64`.
pub fn parse_address(text: &str) -> Result<(IpAddr, u8), String> {
    let fault = || {
        format!("'{text}' is not an address with a prefix length: write 10.77.0.2/24 or fd77::2/64")
    };
    let (address, len) = text.split_once('/').ok_or_else(fault)?;
    let address: IpAddr = address.parse().map_err(|_| fault())?;
    let len: u8 = len.parse().map_err(|_| fault())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    if len <= max { Ok((address, len)) } else { Err(format!("{address} has only {max} bits")) }
}

/// Counts Ctrl-C and its like and SIGUSR1 from now on, and interrupts blocking calls periodically.
///
/// # Errors
/// The kernel refuses a handler or a timer.
pub fn install_signal_handlers() -> Result<(), Problem> {
    host::install_signal_handlers()
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
    device: &DeviceName,
    addresses: &[(IpAddr, u8)],
    output: &CliOutput,
) -> Result<(), Problem> {
    if matches!(device.kind, DeviceKind::Memory | DeviceKind::Pcap) {
        return Ok(());
    }
    for &(address, len) in addresses {
        let kernel_has_it = UdpSocket::bind(SocketAddr::new(address, 0)).is_ok();
        // The kernel allows binding to broadcast addresses too, which the stack rejects itself.
        let broadcast = IpPrefix::new(address, len).and_then(IpPrefix::broadcast).map(IpAddr::V4);
        if !kernel_has_it || !is_unicast(address) || broadcast == Some(address) {
            continue;
        }
        let what = format!("{address} is an address of this machine's kernel too");
        let remove = format!("ip addr del {address}/{len} dev INTERFACE");
        match device.kind {
            DeviceKind::Tap | DeviceKind::Tun => {
                return Err(Problem::usage(what)
                    .because("the kernel would keep packets to it instead of passing them to the stack")
                    .fix(format!(
                        "give the stack another address of the network, or remove it from the kernel: \
                         {remove}"
                    )));
            }
            DeviceKind::Xdp => output.note(&format!(
                "{what}, which gets no packets on this interface while the stack runs"
            )),
            _ => output.note(&format!(
                "{what}, which will answer as well; to prevent that: {remove} (and for ARP: ip link \
                 set INTERFACE arp off)"
            )),
        }
    }
    Ok(())
}

/// Warns that a kernel with forwarding will forward the stack's packets.
fn warn_of_forwarding(output: &CliOutput) {
    let forwards = |path: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    let sysctls = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
    for name in sysctls.into_iter().filter(|name| forwards(&format!("/proc/sys/{name}"))) {
        let name = name.replace('/', ".");
        output.note(&format!(
            "the kernel forwards packets and has the link address of the stack: it will forward the \
             stack's packets; give the stack another one (--mac 02:00:00:00:00:02), or disable \
             forwarding: sysctl {name}=0"
        ));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ExitReason;

    #[test]
    fn addresses_need_a_valid_prefix_length() {
        assert_eq!(parse_address("10.77.0.2/24"), Ok(("10.77.0.2".parse().unwrap(), 24)));
        assert_eq!(parse_address("fd77::2/64"), Ok(("fd77::2".parse().unwrap(), 64)));
        for text in ["10.77.0.2", "10.77.0/24", "10.77.0.2/33", "fd77::2/129", "a/b", "/"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn neighbor_address_is_the_other_of_two() {
        for (far, near, bits) in [("10.0.0.2", "10.0.0.3", 31), ("fd77::2", "fd77::3", 127)] {
            assert_eq!(neighbor_address(far.parse().unwrap()), (near.parse().unwrap(), bits));
        }
    }

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
