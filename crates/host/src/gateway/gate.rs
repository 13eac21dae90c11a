//! The gate: a device that holds back the first packets of flows until the gateway has sockets for
//! them.
//!
//! What is held is copied out with its virtio header and given to the engine, which writes it to
//! the same TAP later: the link's own loop never waits. Left out: what the engine does.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use plumb_sys::fd;
use plumb_wire::ethernet::{EtherType, Frame};
use plumb_wire::flow::FiveTuple;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::tcp::{Flags, Segment};
use plumb_wire::{ipv4, ipv6};

use super::table::{Table, Verdict};
use super::target::Targets;
use crate::device::layer::Layer;
use crate::device::{Device, DeviceError, vnet};

/// A packet that is held: its flow, and what shall be written to the TAP once it may go on.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) flow: FiveTuple,
    pub(super) frame: Vec<u8>,
}

/// The far device of a link, with the gateway behind it.
#[derive(Debug)]
pub struct Gate<D> {
    device: D,
    table: Arc<Table>,
    targets: Targets,
    held: SyncSender<Held>,
    wake: Arc<OwnedFd>,
    scratch: Vec<Packet>,
}

impl<D: Device> Gate<D> {
    pub(super) fn new(
        device: D,
        table: Arc<Table>,
        targets: Targets,
        held: SyncSender<Held>,
        wake: Arc<OwnedFd>,
    ) -> Self {
        Self { device, table, targets, held, wake, scratch: Vec::new() }
    }

    /// Whether the device gets the packet; where not, it is with the engine, or ends.
    fn passes(&self, packet: &Packet, pool: &Pool) -> bool {
        let bytes = pool.bytes(packet);
        let Some(flow) = FiveTuple::of_sockets(bytes) else { return true };
        if is_for_many(flow.destination) {
            return true;
        }
        let verdict = match flow.protocol {
            // A later fragment, which waits with the kernel for its first one: that has the ports.
            Protocol::TCP | Protocol::UDP if flow.destination_port == 0 => Verdict::Pass,
            Protocol::TCP if !begins(bytes) => Verdict::Pass,
            Protocol::TCP => self.table.on_syn(flow),
            Protocol::UDP => self.table.on_datagram(flow),
            _ if self.targets.is_far(flow.destination) => Verdict::Pass,
            _ => {
                self.table.count(|counts| counts.not_carried += 1);
                Verdict::Drop
            }
        };
        if verdict == Verdict::Hold {
            self.hold(flow, packet, bytes);
        }
        verdict == Verdict::Pass
    }

    #[cold]
    fn hold(&self, flow: FiveTuple, packet: &Packet, bytes: &[u8]) {
        let mut frame = Vec::with_capacity(vnet::HEADER_LEN + bytes.len());
        frame.extend_from_slice(&vnet::emit(&packet.meta, bytes));
        frame.extend_from_slice(bytes);
        if self.held.try_send(Held { flow, frame }).is_err() {
            self.table.on_lost(flow);
            return;
        }
        // It can only fail when it would be awake anyway.
        fd::write((*self.wake).as_fd(), &1_u64.to_ne_bytes()).ok();
    }
}

/// Whether an address is that of many: those packets are the kernel's alone.
fn is_for_many(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
    }
}

/// Whether a frame of TCP begins a connection: SYN without ACK.
fn begins(bytes: &[u8]) -> bool {
    let flags = || -> Option<Flags> {
        let frame = Frame::parse(bytes).ok()?;
        let payload = match frame.ether_type() {
            EtherType::IPV4 => ipv4::Packet::parse(frame.payload()).ok()?.payload(),
            EtherType::IPV6 => {
                let packet = ipv6::Packet::parse(frame.payload()).ok()?;
                let mut extensions = packet.extensions();
                extensions.by_ref().for_each(drop);
                extensions.payload()
            }
            _ => return None,
        };
        Some(Segment::parse(payload).ok()?.flags())
    };
    flags().is_some_and(|flags| flags.contains(Flags::SYN) && !flags.contains(Flags::ACK))
}

impl<D: Device> Layer for Gate<D> {
    type Below = D;

    #[inline]
    fn below(&self) -> &D {
        &self.device
    }

    #[inline]
    fn below_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn transmit_through(
        &mut self,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    ) -> Result<(), DeviceError> {
        let mut held = std::mem::take(&mut self.scratch);
        held.extend(batch.extract_if(.., |packet| !self.passes(packet, pool)));
        pool.free_all(&mut held);
        self.scratch = held;
        self.device.transmit(batch, pool)
    }
}
