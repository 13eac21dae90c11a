//! Any number of hosts on one network: a namespace each, with a TAP device that whoever is the network
//! holds.
//!
//! Left out: the network, and what runs on the hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_wire::mac::MacAddr;

use super::bed::{MTU_MIN_V6, TAP_QUEUE_LEN, has_v6, quiet_namespace};
use super::{LabError, LinkChange, LinkOptions, Namespace, TestBed};

/// One host.
#[derive(Debug)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its number, from 0: its device is at that port of the network.
    pub number: u8,
    /// Where it is.
    pub namespace: Namespace,
    has_v6: bool,
}

impl Host {
    /// The name of the device of every host.
    pub const DEVICE: &'static str = TestBed::NEAR_DEVICE;
    /// Hosts of one network at most: a byte of their addresses, 0 and 255 excepted.
    pub const MOST: usize = 254;

    /// A host of this number, whose device is still to be opened as [`Host::DEVICE`] inside; then
    /// [`Host::bring_up`].
    ///
    /// # Errors
    /// As [`Namespace::new`].
    pub fn new(name: &str, number: u8, options: LinkOptions) -> Result<Self, LabError> {
        let namespace = quiet_namespace()?;
        let has_v6 = has_v6(&namespace) && options.mtu >= MTU_MIN_V6;
        Ok(Self { name: name.to_owned(), number, namespace, has_v6 })
    }

    /// Its addresses, with the bits of their networks: 10.77.0.1 and fd77::1 of the first.
    pub fn addresses(&self) -> Vec<(IpAddr, u8)> {
        let low = u16::from(self.number) + 1;
        let (bits_v4, bits_v6) = TestBed::PREFIX_LEN;
        let v4 = Ipv4Addr::new(10, 77, 0, self.number + 1).into();
        let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, low).into();
        let mut addresses = vec![(v4, bits_v4)];
        if self.has_v6 {
            addresses.push((v6, bits_v6));
        }
        addresses
    }

    fn mac(&self) -> MacAddr {
        MacAddr([0x02, 0, 0, 0, 0x77, self.number + 1])
    }

    /// Gives its device room for bursts, link address, MTU, addresses, and the others as neighbours, and
    /// brings it up.
    ///
    /// # Errors
    /// [`LabError::NoDevice`] before the device is opened; the kernel refuses a value.
    pub fn bring_up(&self, all: &[Self], options: LinkOptions) -> Result<(), LabError> {
        let mut netlink = self.namespace.netlink()?;
        let index = netlink.link(Self::DEVICE)?.index;
        let change = LinkChange {
            tx_queue_len: Some(TAP_QUEUE_LEN),
            mtu: Some(options.mtu),
            mac: Some(self.mac()),
            ..LinkChange::default()
        };
        netlink.change_link(index, &change)?;
        netlink.set_up(index, true)?;
        for (address, prefix_len) in self.addresses() {
            netlink.add_address(index, address, prefix_len)?;
        }
        for other in all.iter().filter(|other| options.neighbours && other.number != self.number) {
            for (address, _) in other.addresses() {
                netlink.add_neighbour(index, address, other.mac())?;
            }
        }
        Ok(())
    }
}
