//! Frames that a replay feeds to a mirror: as the client of a test bed would send them.

use std::net::IpAddr;

use plumb_wire::compose::{self, Link, Path};
use plumb_wire::mac::MacAddr;

use super::peer::Site;

/// Bytes of the headers of a datagram over IPv4 and over IPv6, Ethernet's included.
const HEADERS: (usize, usize) = (14 + 20 + 8, 14 + 40 + 8);

/// Both ends of a datagram's way to the mirror.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    client: (MacAddr, IpAddr, u16),
    mirror: (MacAddr, IpAddr, u16),
}

impl Ends {
    /// From the client of a site to its mirror.
    pub fn of(site: &Site) -> Self {
        Self {
            client: (site.client_mac, site.client.ip(), site.client.port()),
            mirror: (site.mac, site.local.ip(), site.local.port()),
        }
    }

    /// What the client asks before it sends: who has the mirror's address. Tells the mirror the client's link
    /// address as well.
    pub fn resolution(&self) -> Vec<u8> {
        let ((mac, client, _), (_, mirror, _)) = (self.client, self.mirror);
        match (client, mirror) {
            (IpAddr::V4(client), IpAddr::V4(mirror)) => compose::arp_request(mac, client, mirror),
            (IpAddr::V6(client), IpAddr::V6(mirror)) => {
                compose::neighbour_solicitation(mac, client, mirror)
            }
            _ => Vec::new(),
        }
    }

    /// A datagram in a frame of `len` bytes, or in the shortest that holds its headers.
    pub fn datagram(&self, len: usize) -> Vec<u8> {
        let ((client_mac, client, client_port), (mirror_mac, mirror, mirror_port)) =
            (self.client, self.mirror);
        let headers = if client.is_ipv4() { HEADERS.0 } else { HEADERS.1 };
        let payload: Vec<u8> =
            (0..len.saturating_sub(headers)).map(|i| (i * 7).to_le_bytes()[0]).collect();
        let link = Some(Link::new(client_mac, mirror_mac));
        Path { link, ..Path::new(client, mirror) }.udp(client_port, mirror_port, &payload)
    }
}
