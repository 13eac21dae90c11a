//! Emulation: a network that exists in a model only, driven in real time over devices.
//!
//! A frame keeps its logical time: what the model says happens at a moment happened at that moment,
//! however late the driver looked. So lateness never accumulates; it is when a frame is handed over,
//! and is counted.

use std::io;
use std::os::fd::BorrowedFd;

use plumb_base::time::{Instant, Span};
use plumb_clock::InstantClock;
use plumb_link::report::Network;
use plumb_sys::fd;
use plumb_wire::coalesce::coalesce;
use plumb_wire::machine::{DuePacket, PortId};
use plumb_wire::packet::{Packet, Pool};

use crate::device::{Device, DeviceError};

pub mod check;
mod control;
pub mod control_socket;
pub mod running_link;
mod timing;

pub use control::{
    EmulatorControl, EmulatorEndedError, EmulatorReport, EmulatorState, InterfaceDropCounter,
    PortLosses, TapPairError, raise_priority, tap_pair,
};
pub use timing::{
    EmulatorTiming, MeasuredPrecision, STALL_MIN, SpanTotals, TimerPrecision, measure_precision,
};

use control::ControlReceiver;
use timing::TimingRecorder;

/// The longest sleep: how soon a driver that nothing wakes looks at its clock and its devices' health.
const SLEEP_MAX: Span = Span::from_ms(10);

/// How often devices are looked after while nothing happens.
const HEALTH_CHECK_INTERVAL: Span = Span::from_ms(100);

/// How a network is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatorOptions {
    /// How a frame's moment is waited for.
    pub precision: TimerPrecision,
    /// Beyond which lateness a deadline counts as missed; from the precision that was measured when absent.
    pub tolerance: Option<Span>,
    /// Most frames that are taken from a device before the others have their turn.
    pub batch: usize,
    /// Whether frames that leave together are joined into super-segments, for devices that take
    /// them.
    pub joins: bool,
}

impl Default for EmulatorOptions {
    /// Hybrid, a tolerance as measured, 16 frames, joining.
    fn default() -> Self {
        Self {
            precision: TimerPrecision::Hybrid { spin: None },
            tolerance: None,
            batch: 16,
            joins: true,
        }
    }
}

/// Drives a network: device `n` is at its port `n`.
///
/// Devices are never asked to wait: those that can be opened so that receiving without waiting is
/// cheapest should be ([`DeviceWait::Spin`](crate::device::DeviceWait::Spin)).
#[derive(Debug)]
pub struct Emulator<N, D> {
    state: EmulatorState<N>,
    /// The devices.
    pub devices: Vec<D>,
    timeline: InstantClock,
    options: EmulatorOptions,
    control_receiver: ControlReceiver<EmulatorState<N>>,
    batch: Vec<Packet>,
    due: Vec<DuePacket>,
    /// The moments of what is being handed over.
    moments: Vec<Instant>,
    next_health_check: Instant,
    /// When a frame came last.
    last_arrival: Instant,
}

impl<N: Network, D: Device> Emulator<N, D> {
    /// An emulator ready to run, on this thread: its precision is measured now, which takes about a
    /// tenth of a second. The timeline is that of the network's start.
    ///
    /// Panics when there are not as many devices as ports.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn new(
        network: N,
        devices: Vec<D>,
        pool: Pool,
        timeline: InstantClock,
        options: EmulatorOptions,
    ) -> io::Result<Self> {
        assert!(devices.len() == usize::from(network.ports()), "a device for each port");
        assert!(options.batch > 0, "frames in a batch");
        let measured = measure_precision(&timeline);
        let margin = match options.precision {
            TimerPrecision::Timer => Span::ZERO,
            TimerPrecision::Hybrid { spin } => spin.unwrap_or(measured.margin()),
            TimerPrecision::Busy => Span::from_ps(u64::MAX),
        };
        let tolerance = options.tolerance.unwrap_or(measured.tolerance(options.precision));
        let now = timeline.now();
        let inside = EmulatorState {
            now,
            network,
            pool,
            timing: TimingRecorder::new(now, tolerance),
            losses: vec![PortLosses::default(); devices.len()],
            precision: options.precision,
            measured,
            margin,
            nice: control::nice(),
        };
        Ok(Self {
            state: inside,
            devices,
            timeline,
            options,
            control_receiver: ControlReceiver::new()?,
            batch: Vec::with_capacity(options.batch),
            due: Vec::with_capacity(options.batch),
            moments: Vec::with_capacity(options.batch),
            next_health_check: now + HEALTH_CHECK_INTERVAL,
            last_arrival: Instant::ORIGIN,
        })
    }

    /// Counts what the kernel loses at the interface of a port as lost.
    pub fn watch(&mut self, port: PortId, interface: InterfaceDropCounter) {
        self.control_receiver.watch(port, interface);
    }

    /// A way to talk to it while it runs.
    pub fn control(&self) -> EmulatorControl<EmulatorState<N>> {
        self.control_receiver.control()
    }

    /// What it shows, up to date.
    pub fn state(&mut self) -> &mut EmulatorState<N> {
        self.count_losses();
        for (port, overrun) in self.control_receiver.interface_drops() {
            self.state.losses[usize::from(port.0)].received += overrun;
        }
        &mut self.state
    }

    /// Asks the devices what they have lost.
    fn count_losses(&mut self) {
        for (device, losses) in self.devices.iter().zip(&mut self.state.losses) {
            let counters = device.counters();
            let received = counters.rx_dropped + counters.rx_malformed;
            *losses = PortLosses { received, sent: counters.tx_dropped };
        }
    }

    /// Gives back what was put in.
    pub fn into_parts(self) -> (N, Vec<D>, Pool) {
        (self.state.network, self.devices, self.state.pool)
    }

    /// Takes turns until [`EmulatorControl::stop`].
    ///
    /// # Errors
    /// The first of a device's.
    pub fn run(&mut self) -> Result<(), DeviceError> {
        loop {
            if self.control_receiver.is_pending() {
                self.run_jobs();
                if self.control_receiver.is_stopped() {
                    return Ok(());
                }
            }
            self.run_once()?;
        }
    }

    /// Does what was asked. What the kernel lost before the devices is added by whoever asks: it is a
    /// question to the kernel for each, and frames wait meanwhile.
    #[cold]
    fn run_jobs(&mut self) {
        self.read_clock();
        self.count_losses();
        for job in self.control_receiver.take_jobs() {
            job(&mut self.state);
        }
    }

    /// One turn: takes what has come, gives what is due, and waits where there was nothing to do.
    ///
    /// # Errors
    /// A device's.
    fn run_once(&mut self) -> Result<(), DeviceError> {
        let now = self.read_clock();
        self.state.timing.on_poll(now);
        let entered = self.receive_all()?;
        let now = self.read_clock();
        let EmulatorState { network, pool, .. } = &mut self.state;
        if network.deadline().is_some_and(|deadline| deadline <= now) {
            network.handle_deadline(now, pool);
        }
        let left = self.transmit_due(now)?;
        if entered + left == 0 { self.wait(now) } else { Ok(()) }
    }

    /// The moment it is; never before one that was read earlier.
    #[inline]
    fn read_clock(&mut self) -> Instant {
        self.state.now = self.timeline.now().max(self.state.now);
        self.state.now
    }

    /// Takes what has come to every device; how many frames.
    fn receive_all(&mut self) -> Result<usize, DeviceError> {
        let mut count = 0;
        for index in 0..self.devices.len() {
            let (device, max) = (&mut self.devices[index], self.options.batch);
            let EmulatorState { now, pool, .. } = &mut self.state;
            let result = device.receive(*now, &mut self.batch, max, pool);
            if !self.batch.is_empty() {
                count += self.batch.len();
                let found = self.batch.len();
                // Read after receiving: a frame has not entered before it was here.
                let now = self.read_clock();
                self.last_arrival = now;
                let EmulatorState { network, pool, timing: account, .. } = &mut self.state;
                network.handle_packets(now, port(index), &mut self.batch, pool);
                account.on_entered(found);
            }
            result?;
        }
        Ok(count)
    }

    /// Gives what is due to every device; how many frames.
    fn transmit_due(&mut self, now: Instant) -> Result<usize, DeviceError> {
        let mut count = 0;
        for index in 0..self.devices.len() {
            let EmulatorState { network, pool, .. } = &mut self.state;
            network.poll_due(now, port(index), &mut self.due, self.options.batch, pool);
            if !self.due.is_empty() {
                count += self.due.len();
                self.transmit_batch(index)?;
            }
        }
        Ok(count)
    }

    /// Hands over what is due at one port, and keeps the account of it.
    fn transmit_batch(&mut self, index: usize) -> Result<(), DeviceError> {
        let count = self.due.len();
        self.moments.clear();
        for due in self.due.drain(..) {
            self.moments.push(due.at);
            self.batch.push(due.packet);
        }
        let device = &mut self.devices[index];
        let capabilities = device.info().capabilities;
        let EmulatorState { pool, now, timing: account, .. } = &mut self.state;
        let takes_joined = capabilities.segments_tcp && capabilities.segments_udp;
        if self.options.joins && count > 1 && takes_joined {
            coalesce(&mut self.batch, capabilities.medium, pool);
        }
        let before = self.timeline.now().max(*now);
        let result = device.transmit(&mut self.batch, pool);
        let after = self.timeline.now().max(before);
        *now = after;
        // A batch is handed over one frame after the other, in about equal times.
        let each = (after - before) / count.max(1) as u64;
        let mut at = before;
        for &moment in &self.moments {
            at += each;
            account.on_sent(at, moment);
        }
        result
    }

    /// Waits until a frame may have come or something is due, in the way of the precision.
    fn wait(&mut self, now: Instant) -> Result<(), DeviceError> {
        if now >= self.next_health_check {
            self.next_health_check = now + HEALTH_CHECK_INTERVAL;
            return self.check_devices();
        }
        let margin = self.state.margin;
        let left = self.state.network.deadline().map(|deadline| deadline.saturating_since(now));
        // Frames come in bursts, and one that finds the driver asleep enters late by what waking costs.
        let may_come = now.saturating_since(self.last_arrival) < margin;
        let is_near = left.is_some_and(|left| left <= margin);
        if is_near || may_come || self.options.precision == TimerPrecision::Busy {
            std::hint::spin_loop();
            self.state.timing.on_idle();
            return Ok(());
        }
        let asleep = left.map_or(SLEEP_MAX, |left| (left - margin).min(SLEEP_MAX));
        self.sleep(now, asleep)
    }

    fn sleep(&mut self, now: Instant, asleep: Span) -> Result<(), DeviceError> {
        let mut fds: Vec<BorrowedFd<'_>> = Vec::with_capacity(1 + self.devices.len());
        fds.push(self.control_receiver.fd());
        for device in &self.devices {
            // A device that cannot be slept on is looked at again and again.
            let Some(fd) = device.fd() else { return Ok(()) };
            fds.push(fd);
        }
        self.state.timing.on_sleep(now + asleep);
        match fd::wait_readable(&fds, &mut [], Some(asleep.as_ns())) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(source) => {
                let names: Vec<&str> =
                    self.devices.iter().map(|device| device.info().name.as_str()).collect();
                Err(DeviceError::Io { what: "wait for", name: names.join(", "), source })
            }
        }
    }

    /// Lets each device do what it does while nothing happens: find out that it is gone, write its
    /// recording.
    #[cold]
    fn check_devices(&mut self) -> Result<(), DeviceError> {
        for device in &mut self.devices {
            device.wait(Some(Span::ZERO), &mut self.state.pool)?;
        }
        Ok(())
    }
}

fn port(index: usize) -> PortId {
    PortId(u16::try_from(index).expect("as many devices as ports have numbers"))
}
