//! What the queueing discipline of the device that leads to a peer has dropped: rtnetlink(7), of the calling thread's
//! network namespace.
//!
//! Disciplines that drop what waited too long (CoDel and its kin) say so to no socket and in no file. A root
//! discipline counts what all below it drop, of everybody's packets. Left out: whose they were.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::{fd, netlink, socket};

// linux/rtnetlink.h, linux/netlink.h, linux/pkt_sched.h and linux/gen_stats.h.
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const TC_H_ROOT: u32 = u32::MAX;
/// What an attribute's kind is without its flags.
const KIND: u16 = 0x3fff;
/// Bytes of nlmsghdr, of rtmsg and of tcmsg.
const MESSAGE: usize = 16;
const ROUTE: usize = 12;
const QDISC: usize = 20;
/// The kernel answers at once; nobody waits longer for it.
const PATIENCE_MS: i32 = 100;
/// Parts of an answer that are read at most.
const PARTS_MAX: usize = 1_000;

/// Packets that the root discipline of the device towards a connected socket's peer has dropped so far; `None` where
/// the kernel does not say, or the device has no discipline.
pub(super) fn drops_towards_peer(sender: &UdpSocket) -> Option<u64> {
    let peer = sender.peer_addr().ok()?;
    let device = device_towards(peer).ok()??;
    let mut found = None;
    let mut body = [0; QDISC];
    body[4..8].copy_from_slice(&device.to_ne_bytes());
    ask(RTM_GETQDISC, REQUEST | DUMP, &body, |kind, message| {
        if kind == RTM_NEWQDISC {
            found = root_drops(message, device).or(found);
        }
    })
    .ok()?;
    found.map(u64::from)
}

/// The number of the device by which packets leave for an address.
fn device_towards(peer: SocketAddr) -> io::Result<Option<u32>> {
    if let SocketAddr::V6(peer) = peer
        && peer.scope_id() != 0
    {
        return Ok(Some(peer.scope_id()));
    }
    let mut found = None;
    ask(RTM_GETROUTE, REQUEST, &route_to(peer.ip().to_canonical()), |kind, message| {
        if kind == RTM_NEWROUTE {
            found = message.get(ROUTE..).and_then(|rest| attribute(rest, RTA_OIF)).and_then(number);
        }
    })?;
    Ok(found)
}

/// The question for the way to an address: rtmsg, and the address.
fn route_to(address: IpAddr) -> Vec<u8> {
    const INET: u8 = 2;
    const INET6: u8 = 10;
    let (family, octets) = match address {
        IpAddr::V4(v4) => (INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (INET6, v6.octets().to_vec()),
    };
    let len = u8::try_from(octets.len()).unwrap_or(0);
    let mut body = vec![family, len * 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    body.extend((u16::from(len) + 4).to_ne_bytes());
    body.extend(RTA_DST.to_ne_bytes());
    body.extend(octets);
    body
}

/// Asks once, and passes on the messages of the answer, each without its header.
fn ask(kind: u16, flags: u16, body: &[u8], mut hear: impl FnMut(u16, &[u8])) -> io::Result<()> {
    let asked: OwnedFd = netlink::route_socket()?;
    let len = u32::try_from(MESSAGE + body.len()).unwrap_or(0);
    let mut request = len.to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    socket::send(asked.as_fd(), &request)?;
    let mut buffer = vec![0; 65_536];
    for _ in 0..PARTS_MAX {
        if !fd::poll_readable(asked.as_fd(), PATIENCE_MS)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let len = socket::receive(asked.as_fd(), &mut buffer, false)?;
        let mut is_over = flags & DUMP == 0;
        for (kind, message) in messages(&buffer[..len]) {
            is_over |= kind == NLMSG_DONE || kind == NLMSG_ERROR;
            hear(kind, message);
        }
        if is_over {
            return Ok(());
        }
    }
    Ok(())
}

/// The messages of one part of an answer: kind and what follows the header.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::try_from(number(bytes.get(..4)?)?).ok()?;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let message = bytes.get(MESSAGE..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, message))
    })
}

/// The drops of a tcmsg and its attributes, where it is of the root of this device.
fn root_drops(message: &[u8], device: u32) -> Option<u32> {
    let is_of_device = number(message.get(4..8)?)? == device;
    let is_root = number(message.get(12..16)?)? == TC_H_ROOT;
    let queue = attribute(attribute(message.get(QDISC..)?, TCA_STATS2)?, TCA_STATS_QUEUE)?;
    // qlen, backlog, drops, requeues, overlimits.
    number(queue.get(8..12)?).filter(|_| is_of_device && is_root)
}

/// The value of the first attribute of a kind.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & KIND;
        let value = bytes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
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
    fn drops_are_those_of_the_root_of_the_device_and_of_no_other() {
        assert_eq!(root_drops(&qdisc(3, TC_H_ROOT, 42), 3), Some(42));
        assert_eq!(root_drops(&qdisc(4, TC_H_ROOT, 42), 3), None);
        assert_eq!(root_drops(&qdisc(3, 0x8001_0001, 42), 3), None);
        let body = qdisc(3, TC_H_ROOT, 42);
        let len = u32::try_from(MESSAGE + body.len()).unwrap();
        let mut one = len.to_ne_bytes().to_vec();
        one.extend(RTM_NEWQDISC.to_ne_bytes());
        one.extend([0; 10]);
        one.extend(body);
        let both = [one.clone(), one].concat();
        let read: Vec<_> =
            messages(&both).map(|(kind, body)| (kind, root_drops(body, 3))).collect();
        assert_eq!(read, [(RTM_NEWQDISC, Some(42)); 2]);
    }

    #[test]
    fn the_way_to_this_host_is_found_where_the_kernel_says_it() {
        for (at, loopback) in [("127.0.0.1:9", 1), ("[::ffff:127.0.0.1]:9", 1)] {
            if let Ok(Some(device)) = device_towards(at.parse().unwrap()) {
                assert_eq!(device, loopback, "{at}");
            }
        }
        assert_eq!(device_towards("[fe80::1%7]:9".parse().unwrap()).unwrap(), Some(7));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = root_drops(&bytes, 3);
            prop_assert!(messages(&bytes).count() <= 200 / MESSAGE + 1);
            let _ = attribute(&bytes, 3);
        }
    }
}
