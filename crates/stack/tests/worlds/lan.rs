//! The worlds that the tests run in: two hosts or more on one link, of one family or of both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_base::seed::Seed;
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::packet::PoolConfig;

use crate::virtual_link::VirtualLink;

/// What the tests' pools hold.
pub const FRAMES: PoolConfig = PoolConfig { count: 1_024, size: 2_048, large: 16 };

/// The link address of a host.
pub fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}

/// The address of a host.
pub fn address(v6: bool, host: u8) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()).into()
    } else {
        Ipv4Addr::new(192, 0, 2, host).into()
    }
}

/// A port of a host.
pub fn end(v6: bool, host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(address(v6, host), port)
}

/// Hosts 1, 2 and so on, machines 0, 1 and so on, each with an address of both families.
pub fn lan(hosts: u8, medium: Medium, offloads: bool, seed: Seed) -> VirtualLink<IpHost> {
    let machines = (1..=hosts)
        .map(|number| {
            let mut host =
                IpHost::new(HostConfig::default(), seed.derive(&format!("host {number}")));
            let plain = match medium {
                Medium::Ethernet => InterfaceConfig::ethernet(mac(number), 1_500),
                Medium::Ip => InterfaceConfig::ip(1_500),
            };
            let mut config = plain
                .with_address(address(false, number), 24)
                .with_address(address(true, number), 64);
            if offloads {
                config.capabilities = DeviceCapabilities {
                    checksum_tx: true,
                    segments_tcp: true,
                    segments_udp: true,
                    ..config.capabilities
                };
            }
            host.add_interface(&config).unwrap();
            host
        })
        .collect();
    VirtualLink::new(machines, medium, FRAMES, seed)
}

/// Asserts that every packet of every host, and every frame of the pool, is accounted for.
///
/// Nothing may be on its way, and nothing wait in a socket.
pub fn check(world: &VirtualLink<IpHost>, what: &str) {
    for host in &world.machines {
        let queued = u64::try_from(host.queued()).unwrap();
        if let Err(unbalanced) = host.counters().check(queued) {
            panic!("{what}: {unbalanced}");
        }
    }
    assert_eq!(world.in_flight(), 0, "{what}");
    let expected = (FRAMES.count as usize, FRAMES.large as usize);
    assert_eq!(world.pool.available(), expected, "{what}: no frame is lost");
    let fates = world.fates();
    assert_eq!(fates.heard + fates.duplicated, fates.delivered + fates.lost, "{what}: {fates:?}");
}
