//! smoltcp with one TCP socket: the peer that plumb's stack is measured against.
//!
//! Timestamps as plumb has them, no congestion control (its default, and its fastest), and no Nagle algorithm.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use plumb_wire::ethernet::MacAddr;
use plumb_wire::packet::{Packet, Pool};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr};

use crate::application::{BulkSink, BulkSource, SocketApi};

/// An interface and its one socket.
pub struct SmoltcpHost {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

thread_local! {
    /// Milliseconds that timestamps show: smoltcp asks a function without arguments.
    static TIMESTAMP: std::cell::Cell<u32> = const { std::cell::Cell::new(1) };
}

impl SmoltcpHost {
    /// A host at an address, with a closed socket.
    pub fn new((mac, ip): (MacAddr, Ipv4Addr), buffer: usize, device: &mut impl Device) -> Self {
        let config = Config::new(EthernetAddress(mac.0).into());
        let mut interface = Interface::new(config, device, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // The list has room for one: it is empty.
            let _ = addresses.push(IpCidr::new(ip.into(), 24));
        });
        let memory = || tcp::SocketBuffer::new(vec![0; buffer]);
        let mut socket = tcp::Socket::new(memory(), memory());
        socket.set_tsval_generator(Some(|| TIMESTAMP.get()));
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self { interface, sockets, handle }
    }

    /// Waits for a connection.
    pub fn listen(&mut self, port: u16) {
        self.socket().listen(port).expect("the socket is closed");
    }

    /// Opens a connection.
    pub fn connect(&mut self, to: std::net::SocketAddr) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        socket.connect(self.interface.context(), to, 49_152).expect("the socket is closed");
    }

    /// Its socket.
    #[inline]
    pub fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut::<tcp::Socket<'_>>(self.handle)
    }

    /// Takes the one frame that the device has.
    #[inline]
    pub fn receive(&mut self, now: Instant, device: &mut impl Device) -> PollIngressSingleResult {
        self.interface.poll_ingress_single(now, device, &mut self.sockets)
    }

    /// Sends what may be sent, as far as the device takes it.
    #[inline]
    pub fn send(&mut self, now: Instant, device: &mut impl Device) {
        TIMESTAMP.set(u32::try_from(now.total_millis()).unwrap_or(0).wrapping_add(1));
        self.interface.poll_egress(now, device, &mut self.sockets);
    }

    /// How long it can wait, if nothing arrives.
    pub fn wait(&mut self, now: Instant) -> Option<smoltcp::time::Duration> {
        self.interface.poll_delay(now, &self.sockets)
    }

    /// Gives the stack as much as it takes.
    #[inline]
    pub fn feed(&mut self, source: &mut BulkSource, api: SocketApi, checks: bool) {
        let socket = self.socket();
        while socket.can_send() {
            let sent = match api {
                SocketApi::Slices => {
                    let sent = socket.send_slice(source.next()).expect("the connection is open");
                    source.advance(sent);
                    sent
                }
                SocketApi::InPlace if checks => {
                    socket.send(|room| twice(source.fill(room))).expect("the connection is open")
                }
                SocketApi::InPlace => {
                    socket.send(|room| twice(room.len())).expect("the connection is open")
                }
            };
            if sent == 0 {
                break;
            }
        }
    }

    /// Takes what the stack has received.
    #[inline]
    pub fn drain(&mut self, sink: &mut BulkSink, api: SocketApi) {
        let socket = self.socket();
        while socket.can_recv() {
            match api {
                SocketApi::Slices => {
                    let len = socket.recv_slice(sink.room()).expect("the connection is open");
                    sink.filled(len);
                }
                SocketApi::InPlace => {
                    socket.recv(|bytes| twice(sink.take(bytes))).expect("the connection is open");
                }
            }
        }
    }
}

fn twice(len: usize) -> (usize, usize) {
    (len, len)
}

/// A pool of frames, and those that wait at the other end of the link.
pub struct MemoryLink {
    pool: Pool,
    frames: VecDeque<Packet>,
    most: usize,
}

impl MemoryLink {
    /// A link that holds at most so many frames.
    pub fn new(pool: Pool, most: usize) -> Self {
        Self { pool, frames: VecDeque::with_capacity(most), most }
    }

    /// The first frame has been received.
    #[inline]
    pub fn free_first(&mut self) {
        if let Some(packet) = self.frames.pop_front() {
            self.pool.free(packet);
        }
    }

    /// Frames on the link.
    pub fn len(&self) -> usize {
        self.frames.len()
    }
}

/// The device of one end: frames arrive on one link and leave by another.
pub struct MemoryPort<'a> {
    pub from: &'a MemoryLink,
    pub to: &'a mut MemoryLink,
}

impl Device for MemoryPort<'_> {
    type RxToken<'a>
        = FrameRxToken<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = LinkTxToken<'a>
    where
        Self: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let packet = self.from.frames.front()?;
        Some((FrameRxToken(self.from.pool.bytes(packet)), LinkTxToken(self.to)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Self::TxToken<'_>> {
        (self.to.frames.len() < self.to.most).then_some(LinkTxToken(self.to))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(1_500)
    }
}

/// A frame that has arrived.
pub struct FrameRxToken<'a>(pub &'a [u8]);

impl phy::RxToken for FrameRxToken<'_> {
    fn consume<R, F>(self, f: F) -> R
    where
        F: FnOnce(&[u8]) -> R,
    {
        f(self.0)
    }
}

/// The right to send one frame.
pub struct LinkTxToken<'a>(&'a mut MemoryLink);

impl phy::TxToken for LinkTxToken<'_> {
    fn consume<R, F>(self, len: usize, f: F) -> R
    where
        F: FnOnce(&mut [u8]) -> R,
    {
        let MemoryLink { pool, frames, .. } = self.0;
        let mut packet =
            pool.allocate_for(len).expect("as many frames as the link holds, and more");
        let result = f(pool.append(&mut packet, len).expect("allocated for this length"));
        frames.push_back(packet);
        result
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
