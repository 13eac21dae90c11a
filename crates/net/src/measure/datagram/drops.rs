//! Where the lost datagrams of a stream were lost: what both sides' sockets say about it, and what the kernels of both
//! hosts say that they dropped meanwhile.
//!
//! Exact where a kernel says it of this socket: refused by the queue of the sender's device, and dropped for want of
//! room in the receiver's buffer. A root queueing discipline counts the drops of all below it, of every program's
//! packets; those that drop what waited too long (CoDel and its kin) report it to no socket, so as many of the rest
//! were lost there as its count grew. What neither kernel knows about was lost between the two; the counts of everybody's
//! packets beside it bound how much of that was on the hosts after all.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use plumb_sys::netlink::{
    ACKNOWLEDGE, DUMP, NetlinkError, NetlinkRequest, REQUEST, RouteSocket, attribute, number32,
};
use serde::{Deserialize, Serialize};

use crate::evidence::{KernelCounters, read_counters};

// linux/rtnetlink.h, linux/pkt_sched.h and linux/gen_stats.h.
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const TC_H_ROOT: u32 = u32::MAX;
/// Bytes of rtmsg and of tcmsg.
const ROUTE: usize = 12;
const QDISC: usize = 20;
/// The kernel answers at once.
const TIMEOUT: Duration = Duration::from_millis(100);

/// What the kernel counts, by the names that are reported: datagrams that found no room in their socket's receive buffer,
/// and on their way to the device; with a wrong checksum, and for a port that nobody listens on; packets that devices
/// dropped on reception and on transmission, and that found a processor's input queue full.
const NAMES: [&str; 7] = [
    "receive_buffer",
    "send_buffer",
    "checksum",
    "no_port",
    "device_receive",
    "device_transmit",
    "backlog",
];

/// Counts of [`NAMES`] since the system started, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDrops([u64; NAMES.len()]);

impl KernelDrops {
    /// Reads the counts now, of the calling thread's network namespace; those that this host does not tell are zero.
    pub fn read() -> Self {
        Self::of(&read_counters())
    }

    fn of(counters: &KernelCounters) -> Self {
        let count = |name: String| counters.get(&name).copied().unwrap_or(0);
        let udp = |name| count(format!("Udp.{name}")) + count(format!("v6.Udp6{name}"));
        let devices = |column| {
            let of_devices = counters.iter().filter(|(name, _)| name.starts_with("dev."));
            of_devices.filter(|(name, _)| name.ends_with(column)).map(|(_, count)| count).sum()
        };
        Self([
            udp("RcvbufErrors"),
            udp("SndbufErrors"),
            udp("InCsumErrors"),
            udp("NoPorts"),
            devices(".rx_drop"),
            devices(".tx_drop"),
            count("softnet.dropped".to_owned()),
        ])
    }

    /// Those that are not zero, by name.
    pub(super) fn grown(&self) -> BTreeMap<String, u64> {
        let grown = NAMES.into_iter().zip(self.0).filter(|(_, count)| *count > 0);
        grown.map(|(name, count)| (name.to_owned(), count)).collect()
    }

    /// What was added since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].saturating_sub(earlier.0[index])))
    }
}

/// Packets that the root discipline of the device towards a connected socket's peer has dropped so far; `None` where
/// the kernel does not say, or the device has no discipline.
pub(super) fn drops_towards_peer(sender: &UdpSocket) -> Option<u64> {
    let peer = sender.peer_addr().ok()?;
    let device = device_towards(peer).ok()??;
    let mut found = None;
    let mut body = [0; QDISC];
    body[4..8].copy_from_slice(&device.to_ne_bytes());
    let request = NetlinkRequest::new(RTM_GETQDISC, REQUEST | DUMP, &body);
    let mut socket = RouteSocket::open(Some(TIMEOUT)).ok()?;
    let outcome = socket.query(request, |message| {
        if message.kind == RTM_NEWQDISC {
            found = root_drops(message.body, device).or(found);
        }
    });
    outcome.ok()?;
    found.map(u64::from)
}

/// The index of the device by which packets leave for an address.
fn device_towards(peer: SocketAddr) -> Result<Option<u32>, NetlinkError> {
    if let SocketAddr::V6(peer) = peer
        && peer.scope_id() != 0
    {
        return Ok(Some(peer.scope_id()));
    }
    let mut found = None;
    RouteSocket::open(Some(TIMEOUT))?.query(route_to(peer.ip().to_canonical()), |message| {
        if message.kind == RTM_NEWROUTE {
            let rest = message.body.get(ROUTE..);
            found = rest.and_then(|rest| attribute(rest, RTA_OIF)).and_then(|oif| number32(oif, 0));
        }
    })?;
    Ok(found)
}

/// The request for the route to an address: rtmsg, and the address.
fn route_to(address: IpAddr) -> NetlinkRequest {
    let octets = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    // AF_INET and AF_INET6, and the length of the prefix in bits.
    let (family, bits) = if address.is_ipv4() { (2, 32) } else { (10, 128) };
    let body = [family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut request = NetlinkRequest::new(RTM_GETROUTE, REQUEST | ACKNOWLEDGE, &body);
    request.attribute(RTA_DST, &octets);
    request
}

/// The drops of a tcmsg and its attributes, where it is of the root of this device.
fn root_drops(message: &[u8], device: u32) -> Option<u32> {
    let is_of_device = number32(message, 4)? == device;
    let is_root = number32(message, 12)? == TC_H_ROOT;
    let queue = attribute(attribute(message.get(QDISC..)?, TCA_STATS2)?, TCA_STATS_QUEUE)?;
    // qlen, backlog, drops, requeues, overlimits.
    number32(queue, 8).filter(|_| is_of_device && is_root)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn qdisc(device: u32, parent: u32, drops: u32) -> Vec<u8> {
        let queue: Vec<u8> =
            [9, 9_000, drops, 0, 7].iter().flat_map(|n: &u32| n.to_ne_bytes()).collect();
        let mut body = [0, device, 0x8001_0000, parent, 2].map(u32::to_ne_bytes).concat();
        body.extend(with(1, b"fq_codel\0"));
        body.extend(with(TCA_STATS2 | 0x8000, &[with(1, &[0; 16]), with(3, &queue)].concat()));
        body
    }

    #[test]
    fn drops_are_of_both_families_and_of_all_devices() {
        let counts = [
            ("Udp.RcvbufErrors", 10),
            ("v6.Udp6RcvbufErrors", 30),
            ("Udp.SndbufErrors", 11),
            ("Udp.InCsumErrors", 2),
            ("v6.Udp6NoPorts", 4),
            ("dev.lo.rx_drop", 4),
            ("dev.eth0.rx_drop", 1),
            ("dev.eth0.rx_packets", 9),
            ("dev.eth0.tx_drop", 8),
            ("softnet.dropped", 11),
        ];
        let counts = counts.map(|(name, count)| (name.to_owned(), count)).into();
        let drops = KernelDrops([40, 11, 2, 4, 5, 8, 11]);
        assert_eq!(KernelDrops::of(&counts), drops);
        assert_eq!(drops.since(drops), KernelDrops::of(&KernelCounters::new()));
    }

    #[test]
    fn queue_drops_are_of_the_root_of_the_device() {
        assert_eq!(root_drops(&qdisc(3, TC_H_ROOT, 42), 3), Some(42));
        assert_eq!(root_drops(&qdisc(4, TC_H_ROOT, 42), 3), None);
        assert_eq!(root_drops(&qdisc(3, 0x8001_0001, 42), 3), None);
    }

    #[test]
    fn the_device_towards_this_host_is_the_loopback() {
        for (at, loopback) in [("127.0.0.1:9", 1), ("[::ffff:127.0.0.1]:9", 1)] {
            if let Ok(Some(device)) = device_towards(at.parse().unwrap()) {
                assert_eq!(device, loopback, "{at}");
            }
        }
        assert_eq!(device_towards("[fe80::1%7]:9".parse().unwrap()).unwrap(), Some(7));
    }

    proptest! {
        #[test]
        fn root_drops_reads_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            root_drops(&bytes, 3);
        }
    }
}
