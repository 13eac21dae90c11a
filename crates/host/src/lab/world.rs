//! The far side of a bed as the whole world: the near side sends everything there, and the kernel
//! there takes it for its own.
//!
//! Left out: what answers (`crate::gateway`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{LabError, TestBed, set_sysctl};

/// Prefixes besides the bed's own that the far side sends through the link: routers in between have
/// addresses there (RFC 5737 and RFC 3849, both for documentation).
const ROUTERS: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0)), 24),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0x77, 0, 0, 0, 0)), 64),
];

impl TestBed {
    /// Makes the far side stand for everything that is not the near one: side `A` sends all of it there,
    /// and sockets of side `B` may be bound to any address, and hear what is sent to it.
    ///
    /// # Errors
    /// The kernel refuses a route; the bed has no namespace at its far side.
    pub fn open_far_to_all(&self) -> Result<(), LabError> {
        let missing = || LabError::NoDevice { name: Self::FAR_DEVICE.to_owned() };
        let far = self.b().ok_or_else(missing)?;
        let mut near_routes = self.a().netlink()?;
        let mut far_routes = far.netlink()?;
        let near_index = near_routes.link(Self::NEAR_DEVICE)?.index;
        let far_index = far_routes.link(Self::FAR_DEVICE)?.index;
        let loopback = far_routes.link("lo")?.index;
        for (near, far_address, prefix_len) in self.addresses() {
            let (family, everything): (_, IpAddr) = match near {
                IpAddr::V4(_) => ("ipv4", Ipv4Addr::UNSPECIFIED.into()),
                IpAddr::V6(_) => ("ipv6", Ipv6Addr::UNSPECIFIED.into()),
            };
            near_routes.add_route((everything, 0), Some(far_address), near_index)?;
            set_sysctl(far, &format!("{family}/ip_nonlocal_bind"), "1")?;
            let own = (network(near, prefix_len), prefix_len);
            let routers = ROUTERS.into_iter().filter(|(net, _)| net.is_ipv6() == near.is_ipv6());
            for through in std::iter::once(own).chain(routers) {
                far_routes.add_route_before_own(through, far_index)?;
            }
            far_routes.add_own_route((everything, 0), loopback)?;
        }
        Ok(())
    }
}

/// The first address of a network.
fn network(address: IpAddr, prefix_len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}
