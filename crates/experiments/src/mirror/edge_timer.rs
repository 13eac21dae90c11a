//! Clock reads at the edges of the stack: where a packet comes from its device and from its socket, and where it
//! goes back to each.
//!
//! What the oscilloscope was in 1997. Switched by the worker, packet by packet, so that what the reads
//! cost is known too.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plumb_clock::Stopwatch;
use plumb_harness::mirror::mirror_process::{MirrorControl, NamedSamples};
use plumb_netdev::device::driver::PacketObserver;
use plumb_wire::machine::PortId;
use plumb_wire::packet::Packet;

/// The edges of one mirror, seen from its device and from its socket.
#[derive(Clone, Debug)]
pub(super) struct StackEdgeTimer {
    inner: Rc<EdgeTimerState>,
}

#[derive(Debug)]
struct EdgeTimerState {
    watch: Stopwatch,
    controls: RefCell<Option<MirrorControl>>,
    probing: Cell<bool>,
    arrived: Cell<u64>,
    received: Cell<u64>,
    times: RefCell<Vec<[f64; 2]>>,
}

impl StackEdgeTimer {
    pub(super) fn new(watch: Stopwatch) -> Self {
        let inner = EdgeTimerState {
            watch,
            controls: RefCell::new(None),
            probing: Cell::new(false),
            arrived: Cell::new(0),
            received: Cell::new(0),
            times: RefCell::new(Vec::new()),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Lets the worker switch the clock reads from now on.
    pub(super) fn set_controls(&self, reins: &MirrorControl) {
        *self.inner.controls.borrow_mut() = Some(reins.clone());
    }

    /// The packet has reached its socket, and turns round there.
    #[inline]
    pub(super) fn on_socket(&self) {
        if self.inner.probing.get() {
            self.inner.received.set(self.inner.watch.begin());
        }
    }

    /// What was timed since the last call.
    pub(super) fn times(&self) -> NamedSamples {
        let times = std::mem::take(&mut *self.inner.times.borrow_mut());
        let of = |pick: fn(&[f64; 2]) -> f64| times.iter().map(pick).collect();
        vec![
            ("receive".to_owned(), of(|[receive, _]| *receive)),
            ("send".to_owned(), of(|[_, send]| *send)),
            ("stack".to_owned(), of(|[receive, send]| receive + send)),
        ]
    }
}

impl PacketObserver for StackEdgeTimer {
    #[inline]
    fn on_received(&mut self, _port: PortId, _batch: &[Packet]) {
        let probing = self.inner.controls.borrow().as_ref().is_some_and(MirrorControl::probing);
        self.inner.probing.set(probing);
        if probing {
            self.inner.received.set(0);
            self.inner.arrived.set(self.inner.watch.begin());
        }
    }

    #[inline]
    fn on_transmit(&mut self, _port: PortId, _batch: &[Packet]) {
        let EdgeTimerState { watch, probing, arrived, received, times, .. } = &*self.inner;
        // Answers to ARP never were at a socket.
        if !probing.replace(false) || received.get() == 0 {
            return;
        }
        let left = watch.begin();
        let ns = |from: u64, to: u64| watch.ns(to.wrapping_sub(from));
        times.borrow_mut().push([ns(arrived.get(), received.get()), ns(received.get(), left)]);
    }
}
