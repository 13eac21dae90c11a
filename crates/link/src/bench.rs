//! What tests of single elements share: a pool with its account, and frames to put through.
//!
//! Left out: links, which have tests of their own.

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_base::time::{Instant, Span};
use plumb_wire::compose::{Link, Path};
use plumb_wire::mac::MacAddr;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Frames, Pool};
use plumb_wire::traffic_class::TrafficClass;

use crate::context::{Changes, Context, Discards, Reason};
use crate::frame::Frame;

/// A UDP datagram in an Ethernet frame.
pub(crate) fn udp(v6: bool, class: TrafficClass, ports: (u16, u16), payload: usize) -> Vec<u8> {
    let path = if v6 {
        Path::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
    } else {
        Path::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST)
    };
    let link = Link::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    Path { link: Some(link), traffic_class: class, ..path }.udp(ports.0, ports.1, &vec![7; payload])
}

/// Memory and accounts for elements under test.
pub(crate) struct Bench {
    pub(crate) pool: Pool,
    pub(crate) discards: Discards,
    pub(crate) marked: u64,
    pub(crate) changes: Changes,
}

impl Bench {
    /// With room for so many frames at once.
    pub(crate) fn new(frames: u32) -> Self {
        Self {
            pool: Pool::new(Frames { count: frames, size: 256, large: 1 }),
            discards: Discards::default(),
            marked: 0,
            changes: Changes::default(),
        }
    }

    pub(crate) fn context(&mut self) -> Context<'_> {
        Context {
            pool: &mut self.pool,
            medium: Medium::Ethernet,
            discards: &mut self.discards,
            marked: &mut self.marked,
            changes: &mut self.changes,
        }
    }

    /// A frame of these bytes that counts as `wire_len`, arriving at `now`.
    pub(crate) fn frame(&mut self, now: Instant, bytes: &[u8], wire_len: u32, flow: u64) -> Frame {
        let packet = self.pool.packet_of(bytes).unwrap();
        Frame { packet, wire_len, count: 1, flow, entered: now, arrived: now }
    }

    /// A frame whose first eight bytes are a number, which [`Bench::number`] reads again.
    pub(crate) fn numbered(&mut self, now: Instant, number: u64, wire_len: u32) -> Frame {
        self.frame(now, &number.to_be_bytes(), wire_len, 0)
    }

    /// Reads a frame's number and takes its memory back.
    pub(crate) fn number(&mut self, frame: Frame) -> u64 {
        let number = u64::from_be_bytes(*self.pool.bytes(&frame.packet).first_chunk().unwrap());
        self.pool.free(frame.packet);
        number
    }

    pub(crate) fn free(&mut self, frame: Frame) {
        self.pool.free(frame.packet);
    }

    /// Frames discarded for a reason.
    pub(crate) fn discarded(&self, reason: Reason) -> u64 {
        self.discards.of(reason).0
    }
}

/// So many microseconds after the origin.
pub(crate) fn at_us(us: u64) -> Instant {
    Instant::ORIGIN + Span::from_us(us)
}
