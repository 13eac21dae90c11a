//! smoltcp with one UDP socket, the mirror on top of it, and its receive token.
//!
//! Frames are given to smoltcp in place: it makes no copy that plumb's stack does not make.

use plumb_harness::mirror::mirror_process::MirrorSetup;
use plumb_harness::report::LaunchFault;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr};

/// Datagrams that may wait in each direction, and their bytes.
const QUEUE: usize = 64;
const QUEUE_BYTES: usize = 128 * 1024;

/// An interface, its one socket, and the application's buffer.
pub struct SmoltcpStack {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    buffer: Vec<u8>,
}

impl SmoltcpStack {
    /// A stack at the mirror's addresses over a device.
    pub fn new(site: &MirrorSetup, device: &mut impl Device) -> Result<Self, LaunchFault> {
        let mac = EthernetAddress(site.mac.0);
        let mut interface = Interface::new(Config::new(mac.into()), device, Instant::ZERO);
        let prefix = if site.local.is_ipv4() { 24 } else { 64 };
        let address = IpCidr::new(site.local.ip().into(), prefix);
        interface.update_ip_addrs(|addresses| {
            // The list has room for one: it is empty.
            let _ = addresses.push(address);
        });
        let queue = || {
            udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; QUEUE], vec![0; QUEUE_BYTES])
        };
        let mut socket = udp::Socket::new(queue(), queue());
        socket
            .bind(site.local.port())
            .map_err(|error| LaunchFault::Failed(format!("smoltcp cannot bind: {error}")))?;
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Ok(Self { interface, sockets, handle, buffer: vec![1; 1 << 16] })
    }

    /// Takes what the device has; at most one frame.
    #[inline]
    pub fn receive(&mut self, now: Instant, device: &mut impl Device) {
        self.interface.poll_ingress_single(now, device, &mut self.sockets);
    }

    /// Returns every datagram that waits; how many.
    #[inline]
    pub fn mirror(&mut self) -> u64 {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.handle);
        let mut mirrored = 0;
        while let Ok((len, meta)) = socket.recv_slice(&mut self.buffer) {
            let mut back = udp::UdpMetadata::from(meta.endpoint);
            back.local_address = meta.local_address;
            // A full queue drops the datagram, as it would anywhere.
            if socket.send_slice(&self.buffer[..len], back).is_ok() {
                mirrored += 1;
            }
        }
        mirrored
    }

    /// Sends what waits.
    #[inline]
    pub fn send(&mut self, now: Instant, device: &mut impl Device) {
        self.interface.poll_egress(now, device, &mut self.sockets);
    }
}

/// A frame that has arrived.
pub struct RxToken<'a>(pub &'a [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F>(self, f: F) -> R
    where
        F: FnOnce(&[u8]) -> R,
    {
        f(self.0)
    }
}

/// Ethernet without limits on bursts, and every checksum left to the stack.
pub fn capabilities(mtu: usize) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ethernet;
    // smoltcp counts the Ethernet header.
    capabilities.max_transmission_unit = mtu + 14;
    capabilities
}
