//! A witness of what the machine takes from whoever spins: between two looks of a thread that had nothing to
//! do in between, no time should pass.
//!
//! What is taken while the thread does something, a system call included, is not seen here: it counts
//! against the link.

use std::cell::RefCell;

use plumb_base::time::{Instant, Span};
use plumb_netdev::device::{Device, DeviceError, DeviceLayer};
use plumb_sys::clock::{ClockId, read_ns};
use plumb_wire::packet::{Batch, Pool};

/// Between two looks of a thread that does nothing else are well below two microseconds, and an interrupt of
/// the timer takes up to thirty in a virtual machine: that is the price of a CPU that one does have.
const TAKEN_MIN: u64 = 50_000;

/// A time in which the thread did not run, in nanoseconds of [`now`].
#[derive(Clone, Copy, Debug)]
pub struct StolenInterval {
    pub begin: u64,
    pub end: u64,
}

/// The clock by which the kernel stamps what it receives.
pub fn now() -> u64 {
    read_ns(ClockId::Realtime)
}

#[derive(Default)]
struct StealWatch {
    /// The last look, where nothing was done since.
    idle_since: Option<u64>,
    taken: Vec<StolenInterval>,
}

thread_local! {
    static WATCH: RefCell<StealWatch> = RefCell::default();
}

/// This thread looks at the clock, and did nothing since it last did but for what it [told](busy).
pub fn read_clock() -> u64 {
    let at = now();
    WATCH.with_borrow_mut(|watch| {
        if let Some(begin) = watch.idle_since.replace(at)
            && at.saturating_sub(begin) > TAKEN_MIN
        {
            watch.taken.push(StolenInterval { begin, end: at });
        }
    });
    at
}

/// This thread did something since it last looked.
fn busy() {
    WATCH.with_borrow_mut(|watch| watch.idle_since = None);
}

/// What was taken from this thread.
pub fn stolen() -> Vec<StolenInterval> {
    WATCH.with_borrow_mut(|watch| std::mem::take(&mut watch.taken))
}

/// A device whose driver is watched.
pub struct StealWatchedDevice<D>(pub D);

impl<D: Device> DeviceLayer for StealWatchedDevice<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.0
    }

    fn below_mut(&mut self) -> &mut D {
        &mut self.0
    }

    #[inline]
    fn receive_through(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        read_clock();
        let found = self.0.receive(now, batch, max, pool);
        if !batch.is_empty() {
            busy();
        }
        found
    }

    #[inline]
    fn transmit_through(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        busy();
        self.0.transmit(batch, pool)
    }

    #[inline]
    fn wait_through(
        &mut self,
        timeout: Option<Span>,
        pool: &mut Pool,
    ) -> Result<bool, DeviceError> {
        busy();
        self.0.wait(timeout, pool)
    }
}
