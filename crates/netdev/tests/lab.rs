//! The test bed with real namespaces and Linux at both ends.
//!
//! Needs root; says `skipped:` without, and fails for that under CI=true.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use plumb_clock::monotonic_ns;
use plumb_netdev::device::tap::{self, TapDevice, TapOptions};
use plumb_netdev::lab::{
    self, EthtoolOffload, FarEndMode, InterfaceChange, LabError, NetNamespace, RouterChain,
    TestBed, TestBedOptions, VethEnd,
};
use plumb_sys::fd::{poll_readable, read};
use plumb_wire::ethernet::MacAddr;

#[path = "support/allowed.rs"]
mod allowed;

use allowed::allowed;

/// Longest time that anything here is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The far socket echoes one datagram of the near one; true when it came back whole.
fn datagram_returns(bed: &TestBed, near: IpAddr, far: IpAddr, len: usize) -> bool {
    let open = |address| {
        let socket = UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let near = bed.in_near(|| open(near)).unwrap();
    let far = bed.in_far(|| open(far)).unwrap();
    let sent: Vec<u8> = (0..len).map(|index| u8::try_from(index % 251).unwrap()).collect();
    let mut buffer = vec![0; 65_536];
    let lost = |error| {
        let link = |namespace: &NetNamespace, name| namespace.netlink().unwrap().interface(name);
        let near = link(bed.near(), TestBed::NEAR_DEVICE);
        let far = link(bed.far().unwrap(), TestBed::FAR_DEVICE);
        panic!("lost: {error}; {near:?}, {far:?}, {bed:?}, {len} bytes")
    };
    near.send_to(&sent, far.local_addr().unwrap()).unwrap();
    let (returned, from) = far.recv_from(&mut buffer).unwrap_or_else(lost);
    far.send_to(&buffer[..returned], from).unwrap();
    let (returned, _) = near.recv_from(&mut buffer).unwrap_or_else(lost);
    buffer[..returned] == sent
}

#[test]
fn datagrams_of_both_families_cross_the_virtual_ethernet_and_come_back() {
    for options in [
        TestBedOptions::default(),
        TestBedOptions { neighbors: true, ..TestBedOptions::default() },
        TestBedOptions { offloads: false, mtu: 9000, ..TestBedOptions::default() },
    ] {
        let Some(bed) = allowed(TestBed::veth(FarEndMode::Answers, options)) else { return };
        assert!(bed.addresses().count() == 2, "IPv6 is there");
        for (near, far, _) in bed.addresses() {
            for len in [0, 1, 1472, 20_000] {
                assert!(datagram_returns(&bed, near, far, len), "{far}, {len} bytes, {options:?}");
            }
        }
    }
}

#[test]
fn a_stream_crosses_and_both_devices_count_its_packets() {
    let Some(bed) = allowed(TestBed::veth(FarEndMode::Answers, TestBedOptions::default())) else {
        return;
    };
    let listener = bed.in_far(|| TcpListener::bind((TestBed::FAR_V4, 7)).unwrap()).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = [0; 5];
        stream.read_exact(&mut text).unwrap();
        stream.write_all(&text).unwrap();
    });
    let mut stream = bed.in_near(|| TcpStream::connect((TestBed::FAR_V4, 7)).unwrap()).unwrap();
    stream.write_all(b"plumb").unwrap();
    let mut text = [0; 5];
    stream.read_exact(&mut text).unwrap();
    echo.join().unwrap();
    assert_eq!(&text, b"plumb");
    let near = bed.near().netlink().unwrap().interface(TestBed::NEAR_DEVICE).unwrap();
    assert!(near.is_up && near.has_carrier, "{near:?}");
    assert_eq!((near.mac, near.mtu), (Some(TestBed::NEAR_MAC), 1500));
    assert!(near.stats.tx_packets >= 4 && near.stats.rx_packets >= 3, "{near:?}");
    assert!(near.stats.rx_bytes > 5 && near.stats.tx_bytes > 5, "{near:?}");
}

#[test]
fn a_silent_far_end_answers_nothing_and_the_neighbours_are_told() {
    let options = TestBedOptions { neighbors: true, ..TestBedOptions::default() };
    let Some(bed) = allowed(TestBed::veth(FarEndMode::Silent, options)) else { return };
    for (near, far, _) in bed.addresses() {
        let socket = bed.in_near(|| UdpSocket::bind((near, 0)).unwrap()).unwrap();
        socket.connect((far, 7)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        socket.send(b"anybody?").unwrap();
        // Neither an echo nor an ICMP error: the wait runs out.
        let error = socket.recv(&mut [0; 64]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
    }
    let far = bed.far().unwrap().netlink().unwrap().interface(TestBed::FAR_DEVICE).unwrap();
    assert_eq!(far.stats.tx_packets, 0, "the far kernel said something");
    assert!(far.stats.rx_packets >= 2, "what was sent arrived: {far:?}");
}

#[test]
fn offloads_are_off_at_both_ends_where_the_bed_is_told_so() {
    for offloads in [true, false] {
        let options = TestBedOptions { offloads, ..TestBedOptions::default() };
        let Some(bed) = allowed(TestBed::veth(FarEndMode::Answers, options)) else { return };
        for which in [EthtoolOffload::TxChecksum, EthtoolOffload::Gso, EthtoolOffload::Tso] {
            assert_eq!(bed.near().offload(TestBed::NEAR_DEVICE, which).unwrap(), offloads);
            let b = bed.far().unwrap();
            assert_eq!(b.offload(TestBed::FAR_DEVICE, which).unwrap(), offloads, "{which:?}");
        }
    }
}

#[test]
fn a_router_between_two_namespaces_forwards_both_families() {
    let Some(router) = allowed(NetNamespace::new()) else { return };
    let hosts = [NetNamespace::new().unwrap(), NetNamespace::new().unwrap()];
    lab::set_forwarding(&router, true).unwrap();
    let address = |net: u8, host: u8| -> [(IpAddr, u8); 2] {
        [
            (format!("10.78.{net}.{host}").parse().unwrap(), 24),
            (format!("fd78:{net}::{host}").parse().unwrap(), 64),
        ]
    };
    for (net, host) in (0_u8..).zip(&hosts) {
        let end = |name: String| VethEnd { name, mac: None, mtu: 1500 };
        let name = format!("r{net}");
        router.netlink().unwrap().add_veth(&end(name.clone()), &end("h".into()), host).unwrap();
        for (namespace, name, last) in [(&router, name.as_str(), 1), (host, "h", 2)] {
            let mut netlink = namespace.netlink().unwrap();
            let index = netlink.interface(name).unwrap().index;
            netlink.set_up(index, true).unwrap();
            for (address, bits) in address(net, last) {
                netlink.add_address(index, address, bits).unwrap();
            }
        }
        let mut netlink = host.netlink().unwrap();
        let index = netlink.interface("h").unwrap().index;
        for (gateway, _) in address(net, 1) {
            let anywhere = match gateway {
                IpAddr::V4(_) => "0.0.0.0".parse().unwrap(),
                IpAddr::V6(_) => "::".parse().unwrap(),
            };
            netlink.add_route((anywhere, 0), Some(gateway), index).unwrap();
        }
    }
    for ((near, _), (far, _)) in address(0, 2).into_iter().zip(address(1, 2)) {
        let open = |namespace: &NetNamespace, address| {
            let socket = namespace.enter(|| UdpSocket::bind((address, 0)).unwrap()).unwrap();
            socket.set_read_timeout(Some(PATIENCE / 100)).unwrap();
            socket
        };
        let (near, far) = (open(&hosts[0], near), open(&hosts[1], far));
        let mut buffer = [0; 64];
        // A device that has just come up may lose what it is to send, neighbor requests too.
        let arrived = (0..100).find_map(|_| {
            near.send_to(b"over the router", far.local_addr().unwrap()).unwrap();
            far.recv_from(&mut buffer).ok()
        });
        let (len, from) = arrived.expect("one of a hundred");
        assert_eq!(
            (&buffer[..len], from),
            (b"over the router".as_slice(), near.local_addr().unwrap())
        );
    }
}

#[test]
fn a_tap_waits_with_its_addresses_for_whoever_opens_it() {
    let options = TestBedOptions { mtu: 1400, neighbors: true, ..TestBedOptions::default() };
    let Some(bed) = allowed(TestBed::tap(options)) else { return };
    assert!(matches!(bed.bring_up_near(), Err(LabError::NoDevice { .. })));
    bed.add_tap().unwrap();
    bed.bring_up_near().unwrap();
    let link = || bed.near().netlink().unwrap().interface(TestBed::NEAR_DEVICE).unwrap();
    assert!(link().is_up && !link().has_carrier, "nobody is at the other side: {:?}", link());
    let settings = TapOptions { offload: tap::TapOffload::None, ..TapOptions::default() };
    let tap = bed
        .in_near(|| TapDevice::open(TestBed::NEAR_DEVICE, settings))
        .unwrap()
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(link().has_carrier, "{:?}", link());
    assert_eq!((link().mtu, link().mac), (1400, Some(TestBed::NEAR_MAC)));
    assert!(link().is_running, "the kernel drops what is sent before it has noticed: {:?}", link());
    for (near, far, _) in bed.addresses() {
        let socket = bed.in_near(|| UdpSocket::bind((near, 0)).unwrap()).unwrap();
        socket.send_to(b"x", (far, 7)).unwrap();
        let mut frame = [0; 256];
        let mut len = 0;
        // Linux says at a time of its own which groups it listens to: IPv6 with a hop-by-hop header.
        while len == 0 || (frame[12..14] == [0x86, 0xdd] && frame[20] == 0) {
            assert!(poll_readable(tap.as_fd(), 30_000).unwrap());
            len = read(tap.as_fd(), &mut frame).unwrap();
        }
        // The datagram itself, without a question about its receiver before: Ethernet, IP, UDP.
        assert_eq!(len, 14 + if far.is_ipv4() { 20 } else { 40 } + 8 + 1, "to {far}");
    }
    drop(tap);
    // A process that another test starts meanwhile holds the descriptor until it runs its program.
    let end = monotonic_ns() + u64::try_from(PATIENCE.as_nanos()).unwrap();
    while link().has_carrier {
        assert!(monotonic_ns() < end, "{:?}", link());
    }
}

#[test]
fn a_device_changes_and_goes() {
    let Some(first) = allowed(NetNamespace::new()) else { return };
    let second = NetNamespace::new().unwrap();
    let end = |name: &str| VethEnd { name: name.to_owned(), mac: None, mtu: 1500 };
    first.netlink().unwrap().add_veth(&end("near"), &end("far"), &second).unwrap();
    let mut netlink = second.netlink().unwrap();
    let index = netlink.interface("far").unwrap().index;
    let mac = MacAddr([0x02, 1, 2, 3, 4, 5]);
    let change = InterfaceChange {
        up: Some(true),
        mtu: Some(1280),
        mac: Some(mac),
        arp: Some(false),
        tx_queue_len: Some(2_345),
    };
    netlink.change_interface(index, &change).unwrap();
    let show = || Command::new("ip").args(["link", "show", "far"]).output().unwrap();
    let shown = second.enter(show).unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("qlen 2345"));
    let link = netlink.interface("far").unwrap();
    assert_eq!((link.mtu, link.mac, link.is_up), (1280, Some(mac), true));
    netlink.remove_interface(index).unwrap();
    assert!(matches!(netlink.interface("far"), Err(LabError::NoDevice { .. })));
    // A virtual Ethernet has two ends or none.
    assert!(matches!(first.netlink().unwrap().interface("near"), Err(LabError::NoDevice { .. })));
}

#[test]
fn what_the_kernel_refuses_is_said_in_its_own_words() {
    let Some(namespace) = allowed(NetNamespace::new()) else { return };
    let mut netlink = namespace.netlink().unwrap();
    let loopback = netlink.interface("lo").unwrap().index;
    let unreachable = netlink
        .add_route(
            ("192.0.2.0".parse().unwrap(), 24),
            Some("198.51.100.1".parse().unwrap()),
            loopback,
        )
        .unwrap_err()
        .to_string();
    assert!(unreachable.contains("(Nexthop has invalid gateway)"), "{unreachable}");
    assert!(netlink.interface("lo").is_ok(), "the connection goes on");
}

#[test]
fn a_thread_comes_home_after_a_panic_inside() {
    let Some(namespace) = allowed(NetNamespace::new()) else { return };
    let here = || std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    let home = here();
    let inside = namespace.enter(here).unwrap();
    assert_ne!(inside, home);
    let outcome = std::panic::catch_unwind(|| namespace.enter(|| panic!("inside")));
    assert!(outcome.is_err());
    assert_eq!(here(), home);
}

#[test]
fn a_bed_that_is_dropped_leaves_no_device_and_no_namespace() {
    let devices = || -> BTreeSet<_> {
        let names = std::fs::read_dir("/sys/class/net").unwrap();
        names.map(|entry| entry.unwrap().file_name()).collect()
    };
    let before = devices();
    let Some(bed) = allowed(TestBed::veth(FarEndMode::Answers, TestBedOptions::default())) else {
        return;
    };
    assert_eq!(devices(), before, "a bed's devices are not seen outside");
    let socket = bed.in_near(|| UdpSocket::bind((TestBed::NEAR_V4, 0)).unwrap()).unwrap();
    socket.connect((TestBed::FAR_V4, 9)).unwrap();
    socket.send(b"x").unwrap();
    drop(bed);
    // The socket holds side A, but side B has gone, and its device with the other end of the wire.
    let gone = (0..3_000).any(|_| {
        socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        socket.recv(&mut [0; 8]).ok();
        socket.send(b"x").is_err_and(|error| {
            matches!(error.raw_os_error(), Some(errno::ENETUNREACH | errno::EINVAL))
        })
    });
    assert!(gone, "the wire outlived its bed");
    assert_eq!(devices(), before);
}

/// Error numbers of Linux.
mod errno {
    pub const EINVAL: i32 = 22;
    pub const ENETUNREACH: i32 = 101;
}

/// Datagrams of version 4 that a namespace has forwarded.
fn forwarded(namespace: &NetNamespace) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
    let text = namespace.enter(read).unwrap().unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|name| name == "ForwDatagrams").unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

#[test]
fn what_crosses_a_chain_is_forwarded_by_every_router_in_both_families() {
    for routers in [0_u8, 1, 3] {
        let Some(chain) = allowed(RouterChain::new(routers, TestBedOptions::default())) else {
            return;
        };
        assert_eq!(chain.routers().len(), usize::from(routers));
        let (v4, v6) = chain.far_addresses();
        for address in [Some(IpAddr::from(v4)), v6.map(IpAddr::from)].into_iter().flatten() {
            let far = chain.far().enter(|| UdpSocket::bind((address, 0)).unwrap()).unwrap();
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let near = chain.near().enter(|| UdpSocket::bind(any).unwrap()).unwrap();
            for socket in [&near, &far] {
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
            }
            let mut buffer = [0; 16];
            near.send_to(b"there", far.local_addr().unwrap()).unwrap();
            let (len, from) = far.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"there", "{address}");
            far.send_to(b"and back", from).unwrap();
            let (len, _) = near.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"and back", "{address}");
        }
        for router in chain.routers() {
            assert_eq!(forwarded(router), 2, "there and back, of {routers} routers");
        }
    }
}
