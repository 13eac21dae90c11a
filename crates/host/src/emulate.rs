//! Emulation: a network that exists in a model only, driven in real time over devices.
//!
//! A frame keeps its logical time: what the model says happens at a moment happened at that moment,
//! however late the driver looked. So lateness never accumulates; it is when a frame is handed over,
//! and is counted. Left out: the models (`plumb_link`), and making devices and namespaces (`crate::lab`).

use std::io;
use std::os::fd::BorrowedFd;

use plumb_base::time::{Instant, Span};
use plumb_sys::tun;
use plumb_wire::coalesce::coalesce;
use plumb_wire::machine::Port;
use plumb_wire::packet::{Packet, Pool};

use crate::clock::Timeline;
use crate::device::{Device, DeviceCounters, DeviceError};

mod network;
mod precision;
mod punctuality;
mod taps;

pub use network::{Due, Network};
pub use precision::{MeasuredPrecision, Precision, measure_precision};
pub use punctuality::{ABSENCE_MIN, Punctuality, Sizes};
pub use taps::{TapsError, taps};

use punctuality::Account;

/// The longest sleep: how soon a driver that nothing wakes looks at its clock and its devices' health.
const HEARTBEAT: Span = Span::from_ms(10);

/// How a network is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How a frame's moment is waited for.
    pub precision: Precision,
    /// Beyond which lateness a deadline counts as missed; from the precision that was measured when absent.
    pub tolerance: Option<Span>,
    /// Most frames that are taken from a device before the others have their turn.
    pub batch: usize,
    /// Whether frames that leave together are joined into super-segments, for devices that take
    /// them.
    pub joins: bool,
}

impl Default for Options {
    /// Hybrid, a tolerance as measured, 16 frames, joining.
    fn default() -> Self {
        Self {
            precision: Precision::Hybrid { spin: None },
            tolerance: None,
            batch: 16,
            joins: true,
        }
    }
}

/// Drives a network: device `n` is at its port `n`.
///
/// Devices are never asked to wait: those that can be opened so that receiving without waiting is
/// cheapest should be ([`crate::device::Wait::Spin`]).
#[derive(Debug)]
pub struct Emulator<N, D> {
    network: N,
    devices: Vec<D>,
    pool: Pool,
    timeline: Timeline,
    options: Options,
    measured: MeasuredPrecision,
    margin: Span,
    account: Account,
    batch: Vec<Packet>,
    due: Vec<Due>,
    /// The moments of what is being handed over.
    moments: Vec<Instant>,
    now: Instant,
    healthy_until: Instant,
}

impl<N: Network, D: Device> Emulator<N, D> {
    /// An emulator ready to run, on this thread: its precision is measured now, which takes about a
    /// tenth of a second.
    ///
    /// Panics when there are not as many devices as ports.
    pub fn new(
        network: N,
        devices: Vec<D>,
        pool: Pool,
        timeline: Timeline,
        options: Options,
    ) -> Self {
        assert!(devices.len() == usize::from(network.ports()), "a device for each port");
        assert!(options.batch > 0, "frames in a batch");
        let measured = measure_precision(&timeline);
        let margin = match options.precision {
            Precision::Timer => Span::ZERO,
            Precision::Hybrid { spin } => spin.unwrap_or(measured.margin()),
            Precision::Busy => Span::from_ps(u64::MAX),
        };
        let tolerance = options.tolerance.unwrap_or(measured.tolerance(options.precision));
        let now = timeline.now();
        Self {
            network,
            devices,
            pool,
            timeline,
            options,
            measured,
            margin,
            account: Account::new(now, tolerance),
            batch: Vec::with_capacity(options.batch),
            due: Vec::with_capacity(options.batch),
            moments: Vec::with_capacity(options.batch),
            now,
            healthy_until: now + HEARTBEAT,
        }
    }

    /// What waiting is worth here.
    pub fn measured(&self) -> &MeasuredPrecision {
        &self.measured
    }

    /// How punctual it was so far.
    pub fn punctuality(&self) -> Punctuality {
        self.account.punctuality()
    }

    /// What each device counted.
    pub fn counters(&self) -> Vec<DeviceCounters> {
        self.devices.iter().map(Device::counters).collect()
    }

    /// The network.
    pub fn network(&mut self) -> &mut N {
        &mut self.network
    }

    /// Gives back what was put in.
    pub fn into_parts(self) -> (N, Vec<D>, Pool) {
        (self.network, self.devices, self.pool)
    }

    /// Takes turns until `until` says that it is enough; it is asked before every turn, and so at least
    /// every ten milliseconds.
    ///
    /// # Errors
    /// The first of a device's.
    pub fn run(
        &mut self,
        mut until: impl FnMut(&mut N, Instant) -> bool,
    ) -> Result<(), DeviceError> {
        while !until(&mut self.network, self.now) {
            self.turn()?;
        }
        Ok(())
    }

    /// One turn: takes what has come, gives what is due, and waits where there was nothing to do.
    ///
    /// # Errors
    /// A device's.
    pub fn turn(&mut self) -> Result<(), DeviceError> {
        let now = self.read_clock();
        self.account.on_look(now);
        let entered = self.take()?;
        let now = self.read_clock();
        if self.network.deadline().is_some_and(|deadline| deadline <= now) {
            self.network.handle_deadline(now, &mut self.pool);
        }
        let left = self.give(now)?;
        if entered + left == 0 {
            self.wait(now)?;
        }
        Ok(())
    }

    /// The moment it is; never before one that was read earlier.
    #[inline]
    fn read_clock(&mut self) -> Instant {
        self.now = self.timeline.now().max(self.now);
        self.now
    }

    /// Takes what has come to every device; how many frames.
    fn take(&mut self) -> Result<usize, DeviceError> {
        let mut count = 0;
        for index in 0..self.devices.len() {
            let (device, max) = (&mut self.devices[index], self.options.batch);
            let result = device.receive(self.now, &mut self.batch, max, &mut self.pool);
            if !self.batch.is_empty() {
                count += self.batch.len();
                self.account.on_entered(self.batch.len());
                // Read after receiving: a frame has not entered before it was here.
                let now = self.read_clock();
                self.network.handle_packets(now, port(index), &mut self.batch, &mut self.pool);
            }
            result?;
        }
        Ok(count)
    }

    /// Gives what is due to every device; how many frames.
    fn give(&mut self, now: Instant) -> Result<usize, DeviceError> {
        let mut count = 0;
        for index in 0..self.devices.len() {
            let max = self.options.batch;
            self.network.poll_due(now, port(index), &mut self.due, max, &mut self.pool);
            if !self.due.is_empty() {
                count += self.due.len();
                self.hand_over(index)?;
            }
        }
        Ok(count)
    }

    /// Hands over what is due at one port, and keeps the account of it.
    fn hand_over(&mut self, index: usize) -> Result<(), DeviceError> {
        let device = &mut self.devices[index];
        let count = self.due.len();
        self.moments.clear();
        for due in self.due.drain(..) {
            self.moments.push(due.at);
            self.batch.push(due.packet);
        }
        let capabilities = device.capabilities();
        let takes_joined = capabilities.segments_tcp && capabilities.segments_udp;
        if self.options.joins && count > 1 && takes_joined {
            coalesce(&mut self.batch, capabilities.medium, &mut self.pool);
        }
        let before = self.timeline.now().max(self.now);
        let result = device.transmit(&mut self.batch, &mut self.pool);
        let after = self.timeline.now().max(before);
        self.now = after;
        // A batch is handed over one frame after the other, in about equal times.
        let each = (after - before) / count.max(1) as u64;
        let mut at = before;
        for &moment in &self.moments {
            at += each;
            self.account.on_sent(at, moment);
        }
        result
    }

    /// Waits until a frame may have come or something is due, in the way of the precision.
    fn wait(&mut self, now: Instant) -> Result<(), DeviceError> {
        if now >= self.healthy_until {
            self.healthy_until = now + HEARTBEAT * 10;
            return self.look_after_devices();
        }
        let left = self.network.deadline().map(|deadline| deadline.saturating_since(now));
        if left.is_some_and(|left| left <= self.margin) || self.options.precision == Precision::Busy
        {
            std::hint::spin_loop();
            return Ok(());
        }
        let asleep = left.map_or(HEARTBEAT, |left| (left - self.margin).min(HEARTBEAT));
        self.sleep(now, asleep)
    }

    fn sleep(&mut self, now: Instant, asleep: Span) -> Result<(), DeviceError> {
        let mut fds: Vec<BorrowedFd<'_>> = Vec::with_capacity(self.devices.len());
        for device in &self.devices {
            // A device that cannot be slept on is looked at again and again.
            let Some(fd) = device.fd() else { return Ok(()) };
            fds.push(fd);
        }
        let mut ready = vec![false; fds.len()];
        self.account.on_sleep(now + asleep);
        match tun::wait_readable(&fds, &mut ready, Some(asleep.as_ns())) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(source) => {
                let names: Vec<&str> = self.devices.iter().map(Device::name).collect();
                Err(DeviceError::Io { what: "wait for", name: names.join(", "), source })
            }
        }
    }

    /// Lets each device do what it does while nothing happens: find out that it is gone, write its
    /// recording.
    #[cold]
    fn look_after_devices(&mut self) -> Result<(), DeviceError> {
        for device in &mut self.devices {
            device.wait(Some(Span::ZERO), &mut self.pool)?;
        }
        Ok(())
    }
}

fn port(index: usize) -> Port {
    Port(u16::try_from(index).expect("as many devices as ports have numbers"))
}
