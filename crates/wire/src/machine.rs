//! The shape of everything pure that packets pass through: a host, a link, a queue, a router.
//!
//! A driver owns the clock, the devices and the pool; a machine owns its state and nothing else. The
//! same machine runs over real devices and in virtual time. What keeps logical time is a [`TimedMachine`].

use std::collections::VecDeque;

use plumb_base::time::Instant;

use crate::packet::{Batch, Packet, Pool};

/// Which of a machine's sides a packet enters or leaves by: the index of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Packets in, packets out, and the next moment at which something is due.
pub trait Machine {
    /// Takes every packet of `batch`, all of which arrived at `port`, and leaves it empty.
    fn handle_packets(&mut self, now: Instant, port: PortId, batch: &mut Batch, pool: &mut Pool);

    /// Appends what shall leave by `port` to `batch`, at most `max` packets.
    fn poll_packets(
        &mut self,
        now: Instant,
        port: PortId,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    );

    /// When [`Machine::handle_deadline`] is due, if anything is waiting for time to pass.
    fn deadline(&self) -> Option<Instant>;

    /// What follows the data of a packet that [`Machine::poll_packets`] gave last, where the machine keeps it ([`Packet::tail`]): in
    /// two pieces, the second mostly empty.
    fn tail(&self, _packet: &Packet) -> [&[u8]; 2] {
        [&[], &[]]
    }

    /// Does what is due. Afterwards [`Machine::deadline`] lies after `now`, or is `None`.
    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool);
}

/// A frame that shall leave.
#[derive(Debug)]
#[must_use = "it holds a packet: send it, or free it"]
pub struct DuePacket {
    /// When it is due by the model, however late that is seen to.
    pub at: Instant,
    /// The frame.
    pub packet: Packet,
}

/// A machine that keeps logical time; every one is a [`Machine`] too.
pub trait TimedMachine {
    /// Everything up to `now` happens; the moment that it then is inside, which is never before one given earlier.
    fn advance(&mut self, now: Instant, pool: &mut Pool) -> Instant;

    /// Takes a frame that arrives at `port` at `now`, up to which everything has happened.
    fn handle_packet(&mut self, now: Instant, port: PortId, packet: Packet, pool: &mut Pool);

    /// What waits to be polled at `port`, in the order in which it is due.
    fn egress(&mut self, port: PortId) -> &mut VecDeque<DuePacket>;

    /// The earliest moment at which something can leave; `None` when nothing is inside.
    fn next_departure(&self) -> Option<Instant>;
}

impl<M: TimedMachine + ?Sized> Machine for M {
    #[inline]
    fn handle_packets(&mut self, now: Instant, port: PortId, batch: &mut Batch, pool: &mut Pool) {
        let now = self.advance(now, pool);
        for packet in batch.drain(..) {
            self.handle_packet(now, port, packet, pool);
        }
        self.advance(now, pool);
    }

    #[inline]
    fn poll_packets(
        &mut self,
        now: Instant,
        port: PortId,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) {
        self.advance(now, pool);
        let egress = self.egress(port);
        let count = max.min(egress.len());
        batch.extend(egress.drain(..count).map(|due| due.packet));
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        self.next_departure()
    }

    #[inline]
    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool) {
        self.advance(now, pool);
    }
}

/// What a device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Ethernet frames, without their check sequence.
    Ethernet,
    /// Bare IP packets of either family.
    Ip,
}

/// What a device carries, and what it does by itself.
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCapabilities {
    /// What it carries.
    pub medium: Medium,
    /// Largest IP packet, in bytes, without the link header.
    pub mtu: u32,
    /// Accepts packets with [`crate::packet::ChecksumState::Partial`].
    pub checksum_tx: bool,
    /// Accepts TCP super-segments.
    pub segments_tcp: bool,
    /// Accepts UDP super-segments.
    pub segments_udp: bool,
    /// Writes a packet from several places: the payload of a super-segment may stay with the machine.
    pub gathers: bool,
    /// May deliver super-segments, and packets whose checksum is partial.
    pub coalesces: bool,
}

impl DeviceCapabilities {
    /// A plain device: one frame at a time, checksums complete.
    pub const fn plain(medium: Medium, mtu: u32) -> Self {
        Self {
            medium,
            mtu,
            checksum_tx: false,
            segments_tcp: false,
            segments_udp: false,
            gathers: false,
            coalesces: false,
        }
    }
}
