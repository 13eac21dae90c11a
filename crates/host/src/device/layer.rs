//! Layers: devices over a device, each of which changes one thing and leaves the rest as it is below.
//!
//! Left out: what they change.

use std::os::fd::BorrowedFd;

use plumb_base::time::{Instant, Span};
use plumb_wire::mac::MacAddr;
use plumb_wire::medium::Capabilities;
use plumb_wire::packet::{Packet, Pool};

use super::{Device, DeviceCounters, DeviceError};

/// What a layer does with packets and waiting: whatever is one is a [`Device`] too.
///
/// Each method is that of [`Device`] without `_through`, and does what the device below does unless said otherwise.
pub trait Layer {
    /// What is below.
    type Below: Device + ?Sized;

    /// The device below.
    fn below(&self) -> &Self::Below;

    /// The device below.
    fn below_mut(&mut self) -> &mut Self::Below;

    /// See [`Device::receive`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn receive_through(
        &mut self,
        now: Instant,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        self.below_mut().receive(now, batch, max, pool)
    }

    /// See [`Device::transmit`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn transmit_through(
        &mut self,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    ) -> Result<(), DeviceError> {
        self.below_mut().transmit(batch, pool)
    }

    /// See [`Device::wait`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn wait_through(
        &mut self,
        timeout: Option<Span>,
        pool: &mut Pool,
    ) -> Result<bool, DeviceError> {
        self.below_mut().wait(timeout, pool)
    }

    /// See [`Device::fd`].
    fn fd_through(&self) -> Option<BorrowedFd<'_>> {
        self.below().fd()
    }
}

impl<L: Layer> Device for L {
    fn name(&self) -> &str {
        self.below().name()
    }

    fn capabilities(&self) -> Capabilities {
        self.below().capabilities()
    }

    fn mac(&self) -> Option<MacAddr> {
        self.below().mac()
    }

    #[inline]
    fn receive(
        &mut self,
        now: Instant,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        self.receive_through(now, batch, max, pool)
    }

    #[inline]
    fn transmit(&mut self, batch: &mut Vec<Packet>, pool: &mut Pool) -> Result<(), DeviceError> {
        self.transmit_through(batch, pool)
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Span>, pool: &mut Pool) -> Result<bool, DeviceError> {
        self.wait_through(timeout, pool)
    }

    fn counters(&self) -> DeviceCounters {
        self.below().counters()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd_through()
    }
}

/// A device in memory of its own is a layer that changes nothing.
impl<D: Device + ?Sized> Layer for Box<D> {
    type Below = D;

    #[inline]
    fn below(&self) -> &D {
        self
    }

    #[inline]
    fn below_mut(&mut self) -> &mut D {
        self
    }
}
