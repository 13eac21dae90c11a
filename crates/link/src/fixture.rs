//! What tests of single elements share: a pool with its account, and frames to put through.

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_base::time::{Instant, Span};
use plumb_wire::compose::{LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::ip::TrafficClass;
use plumb_wire::machine::Medium;
use plumb_wire::packet::{Pool, PoolConfig};

use crate::frame::{DiscardCounts, DiscardReason, HopContext, ImpairmentCounts, LinkFrame};

/// A UDP datagram in an Ethernet frame.
pub(crate) fn udp(v6: bool, class: TrafficClass, ports: (u16, u16), payload: usize) -> Vec<u8> {
    let path = if v6 {
        PacketTemplate::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
    } else {
        PacketTemplate::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST)
    };
    let link = LinkTemplate::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    PacketTemplate { link: Some(link), traffic_class: class, ..path }.udp(
        ports.0,
        ports.1,
        &vec![7; payload],
    )
}

/// Memory and accounts for elements under test.
pub(crate) struct ElementFixture {
    pub(crate) pool: Pool,
    pub(crate) discards: DiscardCounts,
    pub(crate) marked: u64,
    pub(crate) changes: ImpairmentCounts,
}

impl ElementFixture {
    /// With room for so many frames at once.
    pub fn new(frames: u32) -> Self {
        Self {
            pool: Pool::new(PoolConfig { count: frames, size: 256, large: 1 }),
            discards: DiscardCounts::default(),
            marked: 0,
            changes: ImpairmentCounts::default(),
        }
    }

    pub fn context(&mut self) -> HopContext<'_> {
        HopContext {
            pool: &mut self.pool,
            medium: Medium::Ethernet,
            discards: &mut self.discards,
            marked: &mut self.marked,
            changes: &mut self.changes,
        }
    }

    /// A frame of these bytes that counts as `wire_len`, arriving at `now`.
    pub fn frame(&mut self, now: Instant, bytes: &[u8], wire_len: u32, flow: u64) -> LinkFrame {
        let packet = self.pool.packet_of(bytes).unwrap();
        LinkFrame { packet, wire_len, count: 1, flow, entered: now, arrived: now }
    }

    /// A frame whose first eight bytes are a number, which [`ElementFixture::number`] reads again.
    pub fn numbered(&mut self, now: Instant, number: u64, wire_len: u32) -> LinkFrame {
        self.frame(now, &number.to_be_bytes(), wire_len, 0)
    }

    /// Reads a frame's number and takes its memory back.
    pub fn number(&mut self, frame: LinkFrame) -> u64 {
        let number = u64::from_be_bytes(*self.pool.bytes(&frame.packet).first_chunk().unwrap());
        self.pool.free(frame.packet);
        number
    }

    pub fn free(&mut self, frame: LinkFrame) {
        self.pool.free(frame.packet);
    }

    /// Frames discarded for a reason.
    pub fn discarded(&self, reason: DiscardReason) -> u64 {
        self.discards.of(reason).0
    }
}

/// So many microseconds after the origin.
pub(crate) fn at_us(us: u64) -> Instant {
    Instant::ORIGIN + Span::from_us(us)
}
