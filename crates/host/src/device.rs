//! Devices: where packets enter and leave the machine, one a file, all of one shape.
//!
//! A device moves packets between its kernel interface and a pool, in batches, and knows how to wait
//! for more. Left out: what is done with the packets (a [`plumb_wire::machine::Machine`]), and
//! setting up interfaces and namespaces (`crate::lab`).

use std::io;
use std::os::fd::BorrowedFd;

use plumb_base::time::{Instant, Span};
use plumb_wire::mac::MacAddr;
use plumb_wire::medium::Capabilities;
use plumb_wire::packet::{Packet, Pool};

pub mod drive;
pub mod fault;
mod idle;
pub mod layer;
pub mod memory;
pub mod packet;
pub mod pcap;
pub mod record;
pub mod tap;
pub mod vnet;
pub mod xdp;

/// Smallest MTU of a link that carries IPv4 (RFC 791 §3.2), in bytes.
pub const MTU_MIN_IPV4: u32 = 68;
/// Smallest MTU of a link that carries IPv6 (RFC 8200 §5), in bytes.
pub const MTU_MIN_IPV6: u32 = 1_280;

/// How a device waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Asleep in the kernel.
    Block,
    /// Spinning this long after the last packet, then asleep.
    Poll(Span),
    /// Spinning for ever.
    Spin,
}

/// Why a device did not move packets.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The interface was removed. One that is only down drops what is sent, and counts it.
    #[error("the interface {name} was removed while it was in use")]
    Gone {
        /// Its name.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A device that replays has nothing more.
    #[error("the capture is at its end")]
    Finished,
    /// The kernel refused.
    #[error("cannot {what} {name}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The device.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// What a device counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets received, super-segments counted once.
    pub rx_packets: u64,
    /// Their bytes, link headers included.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that arrived and were lost for want of a free frame or ring slot.
    pub rx_dropped: u64,
    /// Packets that the kernel would not take.
    pub tx_dropped: u64,
    /// Packets that were malformed before any protocol looked: an impossible vnet header.
    pub rx_malformed: u64,
    /// Kernel calls made.
    pub calls: u64,
}

/// A place where packets enter and leave.
pub trait Device {
    /// Its name, for messages.
    fn name(&self) -> &str;

    /// What it carries and what it does by itself.
    fn capabilities(&self) -> Capabilities;

    /// Its own link address, where it has one that the stack should use.
    fn mac(&self) -> Option<MacAddr>;

    /// Appends what has arrived to `batch`, at most `max` packets, without waiting; how many.
    ///
    /// Each is stamped with `now` as its time of receipt. Packets for which the pool has no frame are
    /// dropped and counted.
    ///
    /// # Errors
    /// When the device is gone, at its end, or the kernel refuses; the packets got so far are kept.
    fn receive(
        &mut self,
        now: Instant,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError>;

    /// Sends every packet of `batch` in order and gives its frames back; what the kernel does not take now
    /// is dropped and counted. Leaves `batch` empty.
    ///
    /// # Errors
    /// When the device is gone or the kernel refuses for good.
    fn transmit(&mut self, batch: &mut Vec<Packet>, pool: &mut Pool) -> Result<(), DeviceError>;

    /// Waits until there may be something to receive, at most `timeout` (for ever when absent), in
    /// the way the device was opened with; whether there may be. An interruption by a signal ends the wait early
    /// with `false`.
    ///
    /// A device that can wait inside its receiving call does so here and keeps the packet for the next
    /// [`Device::receive`]: one kernel call less for each packet.
    ///
    /// # Errors
    /// As for [`Device::receive`].
    fn wait(&mut self, timeout: Option<Span>, pool: &mut Pool) -> Result<bool, DeviceError>;

    /// What was counted.
    fn counters(&self) -> DeviceCounters;

    /// What poll(2) can watch for packets; `None` where there is no such thing.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
