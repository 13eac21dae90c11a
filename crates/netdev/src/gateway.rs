//! The gateway: how programs in a namespace of their own reach the network outside, through a link.
//!
//! The far side of the link takes packets for every address as its own, so that the kernel there
//! ends each connection; for each, a second one is made outside, and bytes are carried between the
//! two. It needs no root, no packet filter and no address translation. A connection is begun
//! inside only once it stands outside, so that "refused" and a slow answer are what the program
//! sees. Nothing listens but in the private namespace. There is room for so many flows; a new one
//! beyond that takes the place of the one that can best be spared, and where none can, it is dropped.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use plumb_sys::fd;
use plumb_wire::ethernet::{EtherType, EthernetFrame};
use plumb_wire::flow::FiveTuple;
use plumb_wire::ip::IpProtocol;
use plumb_wire::packet::{Batch, Packet, Pool};
use plumb_wire::tcp::{TcpFlags, TcpSegment};
use plumb_wire::{ipv4, ipv6};

use crate::device::{Device, DeviceError, DeviceLayer, vnet};
use crate::gateway::flow_table::{FlowTable, GateVerdict};

pub use flow_table::{EvictionReason, GatewayCounters};
pub use resolver::{AddressMap, ResolverConfig};
pub use {engine::Gateway, engine::GatewayError, engine::GatewayOptions};
pub use {engine::OutsideSockets, engine::serve as serve_outside};

mod engine;
mod flow_table;
mod relay;
mod resolver;
mod tcp;
mod udp;

/// A packet that is held: its flow, and what shall be written to the TAP once it may go on.
///
/// What is held is copied out with its virtio header and given to the engine, which writes it to the same TAP later:
/// the link's own loop never waits.
#[derive(Debug)]
struct HeldPacket {
    flow: FiveTuple,
    frame: Vec<u8>,
}

/// The far device of a link, with the gateway behind it.
#[derive(Debug)]
pub struct GatewayDevice<D> {
    device: D,
    table: Arc<FlowTable>,
    targets: AddressMap,
    held: SyncSender<HeldPacket>,
    wake: Arc<OwnedFd>,
    scratch: Vec<Packet>,
}

impl<D: Device> GatewayDevice<D> {
    /// Whether the device gets the packet; where not, it is with the engine, or ends.
    fn passes(&self, packet: &Packet, pool: &Pool) -> bool {
        let bytes = pool.bytes(packet);
        let Some(flow) = FiveTuple::of_sockets(bytes) else { return true };
        if is_multicast(flow.destination) {
            return true;
        }
        let verdict = match flow.protocol {
            // A later fragment, which waits with the kernel for its first one: that has the ports.
            IpProtocol::TCP | IpProtocol::UDP if flow.destination_port == 0 => GateVerdict::Pass,
            IpProtocol::TCP if !is_syn(bytes) => GateVerdict::Pass,
            IpProtocol::TCP => self.table.on_syn(flow),
            IpProtocol::UDP => self.table.on_datagram(flow),
            _ if self.targets.is_far(flow.destination) => GateVerdict::Pass,
            _ => {
                self.table.count(|counts| counts.not_carried += 1);
                GateVerdict::Drop
            }
        };
        if verdict == GateVerdict::Hold {
            self.hold(flow, packet, bytes);
        }
        verdict == GateVerdict::Pass
    }

    #[cold]
    fn hold(&self, flow: FiveTuple, packet: &Packet, bytes: &[u8]) {
        let mut frame = Vec::with_capacity(vnet::HEADER_LEN + bytes.len());
        frame.extend_from_slice(&vnet::emit(&packet.meta, bytes));
        frame.extend_from_slice(bytes);
        if self.held.try_send(HeldPacket { flow, frame }).is_err() {
            self.table.on_lost(flow);
            return;
        }
        // It can only fail when it would be awake anyway.
        fd::write((*self.wake).as_fd(), &1_u64.to_ne_bytes()).ok();
    }
}

/// Whether an address is that of many: those packets are the kernel's alone.
fn is_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
    }
}

/// Whether a frame of TCP begins a connection: SYN without ACK.
fn is_syn(bytes: &[u8]) -> bool {
    let flags = || -> Option<TcpFlags> {
        let frame = EthernetFrame::parse(bytes).ok()?;
        let payload = match frame.ether_type() {
            EtherType::IPV4 => ipv4::Ipv4Packet::parse(frame.payload()).ok()?.payload(),
            EtherType::IPV6 => {
                let packet = ipv6::Ipv6Packet::parse(frame.payload()).ok()?;
                let mut extensions = packet.extensions();
                extensions.by_ref().for_each(drop);
                extensions.payload()
            }
            _ => return None,
        };
        Some(TcpSegment::parse(payload).ok()?.flags())
    };
    flags().is_some_and(|flags| flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::ACK))
}

impl<D: Device> DeviceLayer for GatewayDevice<D> {
    type Below = D;

    #[inline]
    fn below(&self) -> &D {
        &self.device
    }

    #[inline]
    fn below_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn transmit_through(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        let mut held = std::mem::take(&mut self.scratch);
        held.extend(batch.extract_if(.., |packet| !self.passes(packet, pool)));
        pool.free_all(&mut held);
        self.scratch = held;
        self.device.transmit(batch, pool)
    }
}
