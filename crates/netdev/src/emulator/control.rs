//! Word to an emulator that runs, from other threads: changes, questions, and the end.
//!
//! What is asked is done by the driver's own thread between two of its turns, so nothing is locked
//! while frames pass.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::{fmt, io};

use plumb_base::time::{Instant, Span};
use plumb_link::report::Network;
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_sys::{fd, sched};
use plumb_wire::machine::PortId;
use plumb_wire::packet::Pool;

use crate::device::tap::{TapDevice, TapOffload, TapOptions};
use crate::device::{DeviceOpenError, DeviceWait};
use crate::emulator::timing::{EmulatorTiming, MeasuredPrecision, TimerPrecision, TimingRecorder};
use crate::lab::{InterfaceStats, LabError, NetNamespace, NetlinkSocket, TestBed, TestBedOptions};

/// The emulator has ended, and does nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link has ended: start it again")]
pub struct EmulatorEndedError;

/// What is done between two turns.
type EmulatorJob<E> = Box<dyn FnOnce(&mut E) + Send>;

struct ControlShared<E> {
    /// `None` once the emulator has ended.
    jobs: Mutex<Option<Vec<EmulatorJob<E>>>>,
    pending: AtomicBool,
    stopped: AtomicBool,
    wake: OwnedFd,
    /// Read by whoever asks, on its own thread: the kernel takes its time for an answer.
    interfaces: Mutex<Vec<(PortId, InterfaceDropCounter)>>,
}

/// A way to talk to an emulator that runs; `E` is what it lets others see.
pub struct EmulatorControl<E> {
    shared: Arc<ControlShared<E>>,
}

impl<E> Clone for EmulatorControl<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<E> fmt::Debug for EmulatorControl<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmulatorControl")
            .field("stopped", &self.shared.stopped)
            .finish_non_exhaustive()
    }
}

impl<E> EmulatorControl<E> {
    /// Asks it to end after its present turn.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.wake();
    }

    /// Has something done between two turns, and waits for its answer.
    ///
    /// # Errors
    /// [`EmulatorEndedError`] when the emulator ends before it is done.
    pub fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut E) -> R + Send + 'static,
    ) -> Result<R, EmulatorEndedError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Box::new(move |inside: &mut E| {
            // The caller may have given up.
            let _ = answer.send(work(inside));
        });
        match &mut *self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(jobs) => jobs.push(job),
            None => return Err(EmulatorEndedError),
        }
        self.wake();
        answered.recv().map_err(|_| EmulatorEndedError)
    }

    /// Adds to what a driver has told what the kernel lost before its devices, which the driver does not
    /// wait for.
    pub fn add_interface_drops(&self, report: &mut EmulatorReport) {
        for (port, frames) in self.shared.interface_drops() {
            if let Some(losses) = report.losses.get_mut(usize::from(port.0)) {
                losses.received += frames;
            }
        }
    }

    fn wake(&self) {
        self.shared.pending.store(true, Ordering::Release);
        // It can only be full, and then it wakes too.
        let _ = fd::write(self.shared.wake.as_fd(), &1_u64.to_ne_bytes());
    }
}

impl<E> ControlShared<E> {
    fn interface_drops(&self) -> Vec<(PortId, u64)> {
        let mut interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        interfaces.iter_mut().map(|(port, interface)| (*port, interface.queue_drops())).collect()
    }
}

/// The emulator's side of it.
pub(super) struct ControlReceiver<E> {
    shared: Arc<ControlShared<E>>,
}

impl<E> fmt::Debug for ControlReceiver<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlReceiver").finish_non_exhaustive()
    }
}

impl<E> ControlReceiver<E> {
    /// # Errors
    /// There are no more descriptors.
    pub fn new() -> io::Result<Self> {
        let wake = fd::eventfd()?;
        fd::set_nonblocking(wake.as_fd(), true)?;
        let (pending, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        let (jobs, interfaces) = (Mutex::new(Some(Vec::new())), Mutex::default());
        let shared = ControlShared { jobs, pending, stopped, wake, interfaces };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub fn control(&self) -> EmulatorControl<E> {
        EmulatorControl { shared: Arc::clone(&self.shared) }
    }

    /// Counts what the kernel loses at the interface of a port as lost.
    pub fn watch(&self, port: PortId, interface: InterfaceDropCounter) {
        let mut interfaces = self.shared.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        interfaces.retain(|(watched, _)| *watched != port);
        interfaces.push((port, interface));
    }

    /// What the kernel lost at each interface.
    pub fn interface_drops(&self) -> Vec<(PortId, u64)> {
        self.shared.interface_drops()
    }

    /// What a sleep must be ended by.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Whether there is anything to do: one load, for every turn.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.shared.pending.load(Ordering::Relaxed)
    }

    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// What is to be done now.
    pub fn take_jobs(&self) -> Vec<EmulatorJob<E>> {
        // In this order what comes between is found now or wakes again.
        self.shared.pending.store(false, Ordering::Release);
        let _ = fd::read(self.shared.wake.as_fd(), &mut [0; 8]);
        let mut jobs = self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<E> Drop for ControlReceiver<E> {
    fn drop(&mut self) {
        // Those who wait for an answer learn that none will come.
        *self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What a running emulator shows to whoever asks through its [`crate::emulator::EmulatorControl`].
#[derive(Debug)]
pub struct EmulatorState<N> {
    /// The moment it is.
    pub now: Instant,
    /// The network.
    pub network: N,
    /// The pool of all frames.
    pub pool: Pool,
    pub(super) timing: TimingRecorder,
    pub(super) losses: Vec<PortLosses>,
    pub(super) precision: TimerPrecision,
    pub(super) measured: MeasuredPrecision,
    pub(super) margin: Span,
    pub(super) nice: i32,
}

/// How an emulation went so far, its network's own account aside.
#[derive(Clone, Debug)]
pub struct EmulatorReport {
    /// How moments are waited for.
    pub precision: TimerPrecision,
    /// What that was worth when it was tried.
    pub measured: MeasuredPrecision,
    /// How long before a moment it spins.
    pub margin: Span,
    /// The nice value of its thread, −20 to 19: the less, the greater its weight against others.
    pub nice: i32,
    /// How punctual it was.
    pub timing: EmulatorTiming,
    /// What was lost at each port.
    pub losses: Vec<PortLosses>,
}

/// What was lost at one device, which the network did not mean to lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLosses {
    /// Frames that came and found no room: the kernel's queue was full, or no frame of the pool was free.
    pub received: u64,
    /// Frames that the kernel did not take.
    pub sent: u64,
}

impl PortLosses {
    /// Both.
    pub fn total(&self) -> u64 {
        self.received + self.sent
    }
}

impl<N: Network> EmulatorState<N> {
    /// How it went so far: through a [`EmulatorControl`] without what the kernel lost before the devices, which
    /// [`EmulatorControl::add_interface_drops`] adds.
    pub fn report(&self) -> EmulatorReport {
        EmulatorReport {
            precision: self.precision,
            measured: self.measured,
            margin: self.margin,
            nice: self.nice,
            timing: self.timing.timing(),
            losses: self.losses.clone(),
        }
    }
}

impl<N: Network> EmulatorState<N> {
    /// The same into a `EmulatorReport::form`, without a copy of what may be long: its empty distribution is exchanged
    /// for that of what happened since it was last done. That of every report after that begins there too.
    pub fn exchange_report(&mut self, form: &mut EmulatorReport) {
        self.timing.exchange_report(&mut form.timing);
        form.losses.clone_from(&self.losses);
    }
}

impl<N: Network + 'static> EmulatorControl<EmulatorState<N>> {
    /// Makes the network what `spec` says from now on; what is in flight stays so.
    ///
    /// # Errors
    /// [`EmulatorEndedError`], or within it what the network has against it.
    pub fn set(&self, spec: LinkSpec) -> Result<Result<(), SpecError>, EmulatorEndedError> {
        self.call(move |inside| inside.network.reconfigure(inside.now, &spec, &mut inside.pool))
    }

    /// How it went so far.
    ///
    /// # Errors
    /// [`EmulatorEndedError`].
    pub fn report(&self) -> Result<EmulatorReport, EmulatorEndedError> {
        let mut report = self.call(|inside| inside.report())?;
        self.add_interface_drops(&mut report);
        Ok(report)
    }
}

impl EmulatorReport {
    /// The same with an empty distribution, for `EmulatorState::hand_over`.
    #[must_use]
    pub fn with_empty_histograms(&self) -> Self {
        let mut form = self.clone();
        form.timing.lateness = form.timing.lateness.empty_like();
        form
    }

    /// Adds the distribution of an earlier report to that of what happened since.
    pub fn merge_earlier(&mut self, earlier: &Self) {
        self.timing.lateness.merge(&earlier.timing.lateness);
    }

    /// Whether the emulation was what it says: no deadline missed, nothing lost that was not meant to
    /// be, no frame that may have entered late, and the machine awake throughout.
    pub fn is_faithful(&self) -> bool {
        self.timing.missed.count == 0
            && self.timing.entered_late == 0
            && self.timing.suspended == Span::ZERO
            && self.losses.iter().all(|losses| losses.total() == 0)
    }
}

/// Why there is no such pair.
#[derive(Debug, thiserror::Error)]
pub enum TapPairError {
    /// The namespaces.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The devices.
    #[error(transparent)]
    Tap(#[from] DeviceOpenError),
}

/// Makes both namespaces and opens both TAPs, near and far, as an emulator wants them; they are up and
/// have their addresses.
///
/// # Errors
/// As [`TestBed::taps`] and [`TapDevice::open`].
pub fn tap_pair(options: TestBedOptions) -> Result<(TestBed, [TapDevice; 2]), TapPairError> {
    let bed = TestBed::taps(options)?;
    let settings = TapOptions {
        wait: DeviceWait::Spin,
        offload: if options.offloads { TapOffload::Segments } else { TapOffload::None },
        mtu: Some(options.mtu),
        ..TapOptions::default()
    };
    let near = bed.in_near(|| TapDevice::open(TestBed::NEAR_DEVICE, settings))??;
    let far = bed.in_far(|| TapDevice::open(TestBed::FAR_DEVICE, settings))??;
    bed.bring_up_taps()?;
    Ok((bed, [near, far]))
}

/// An interface whose counters are watched.
#[derive(Debug)]
pub struct InterfaceDropCounter {
    netlink: NetlinkSocket,
    name: String,
    before: InterfaceStats,
}

impl InterfaceDropCounter {
    /// The one of this name in a namespace, from now on.
    ///
    /// # Errors
    /// There is none.
    pub fn watch(namespace: &NetNamespace, name: &str) -> Result<Self, LabError> {
        let mut netlink = namespace.netlink()?;
        let before = netlink.interface(name)?.stats;
        Ok(Self { netlink, name: name.to_owned(), before })
    }

    /// Frames that the kernel sent and that found its queue full; those of an interface that is gone
    /// are not known any more.
    pub(super) fn queue_drops(&mut self) -> u64 {
        let stats = self.netlink.interface(&self.name).map(|link| link.stats);
        stats.map_or(0, |stats| stats.tx_dropped.saturating_sub(self.before.tx_dropped))
    }
}

/// Gives this thread, and none but it, the greatest weight that this user may: nice −20 for root, what
/// RLIMIT_NICE allows for others. Where that is refused, it stays what it was; lateness then shows it.
///
/// Linux weighs threads within a group only: sessions where autogroups are switched on (sched(7)), and
/// control groups. Against threads of other groups it changes nothing.
///
/// The driver needs no more CPU, only the right to be next: it does not wait until the program that sent a frame has had
/// its share. Not real-time, with which a driver that spins would stop the machine.
pub fn raise_priority() {
    if sched::set_nice(sched::LEAST_NICE).is_ok() {
        return;
    }
    let allowed = sched::nice_allowed();
    if allowed < nice() {
        sched::set_nice(allowed).ok();
    }
}

/// This thread's nice value.
pub(super) fn nice() -> i32 {
    sched::nice().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_answered_by_the_thread_that_listens() {
        let receiver = ControlReceiver::<u32>::new().unwrap();
        let control = receiver.control();
        let asker = std::thread::spawn(move || {
            let first = control.call(|number| {
                *number += 1;
                *number
            });
            let second = control.call(|number| *number * 10);
            control.stop();
            (first, second)
        });
        let mut number = 41;
        while !receiver.is_stopped() {
            fd::poll_readable(receiver.fd(), -1).unwrap();
            for job in receiver.take_jobs() {
                job(&mut number);
            }
        }
        assert_eq!(asker.join().unwrap(), (Ok(42), Ok(420)));
    }

    #[test]
    fn whoever_asks_one_that_has_ended_or_ends_is_told() {
        let receiver = ControlReceiver::<()>::new().unwrap();
        let (early, late) = (receiver.control(), receiver.control());
        let asker = std::thread::spawn(move || early.call(|()| ()));
        while !receiver.is_pending() {
            std::thread::yield_now();
        }
        drop(receiver);
        assert_eq!(asker.join().unwrap(), Err(EmulatorEndedError));
        assert_eq!(late.call(|()| ()), Err(EmulatorEndedError));
    }

    #[test]
    fn precedence_is_taken_by_one_thread_and_never_makes_it_lighter() {
        let before = nice();
        let after = std::thread::spawn(|| {
            raise_priority();
            nice()
        });
        let after = after.join().unwrap();
        assert!(after <= before, "{before} to {after}");
        assert_eq!(nice(), before);
    }
}
