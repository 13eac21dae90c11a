//! Emulation: a network that exists in a model only, driven in real time over devices.
//!
//! A frame keeps its logical time: what the model says happens at a moment happened at that moment,
//! however late the driver looked. So lateness never accumulates; it is when a frame is handed over,
//! and is counted. Left out: the models (`plumb_link`), and making devices and namespaces (`crate::lab`).

use std::io;
use std::os::fd::BorrowedFd;

use plumb_base::time::{Instant, Span};
use plumb_link::network::Network;
use plumb_sys::tun;
use plumb_wire::coalesce::coalesce;
use plumb_wire::machine::Port;
use plumb_wire::machine::timed::Due;
use plumb_wire::packet::{Packet, Pool};

use crate::clock::Timeline;
use crate::device::{Device, DeviceError};

pub mod check;
mod control;
mod inside;
mod interface;
mod precedence;
mod precision;
mod punctuality;
mod taps;

pub use control::{Control, Ended};
pub use inside::{DriverReport, Inside, Losses};
pub use interface::Interface;
pub use precedence::take_precedence;
pub use precision::{MeasuredPrecision, Precision, measure_precision};
pub use punctuality::{ABSENCE_MIN, Punctuality, Sizes};
pub use taps::{TapsError, taps};

use control::Ear;
use punctuality::Account;

/// The longest sleep: how soon a driver that nothing wakes looks at its clock and its devices' health.
const HEARTBEAT: Span = Span::from_ms(10);

/// How often devices are looked after while nothing happens.
const CARE: Span = Span::from_ms(100);

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
    inside: Inside<N>,
    devices: Vec<D>,
    timeline: Timeline,
    options: Options,
    ear: Ear<Inside<N>>,
    batch: Vec<Packet>,
    due: Vec<Due>,
    /// The moments of what is being handed over.
    moments: Vec<Instant>,
    care: Instant,
    /// When a frame came last.
    entered: Instant,
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
        timeline: Timeline,
        options: Options,
    ) -> io::Result<Self> {
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
        let inside = Inside {
            now,
            network,
            pool,
            account: Account::new(now, tolerance),
            losses: vec![Losses::default(); devices.len()],
            precision: options.precision,
            measured,
            margin,
            nice: precedence::nice(),
        };
        Ok(Self {
            inside,
            devices,
            timeline,
            options,
            ear: Ear::new()?,
            batch: Vec::with_capacity(options.batch),
            due: Vec::with_capacity(options.batch),
            moments: Vec::with_capacity(options.batch),
            care: now + CARE,
            entered: Instant::ORIGIN,
        })
    }

    /// Counts what the kernel loses at the interface of a port as lost.
    pub fn watch(&mut self, port: Port, interface: Interface) {
        self.ear.watch(port, interface);
    }

    /// A way to talk to it while it runs.
    pub fn control(&self) -> Control<Inside<N>> {
        self.ear.control()
    }

    /// What it shows, up to date.
    pub fn inside(&mut self) -> &mut Inside<N> {
        self.count_losses();
        for (port, overrun) in self.ear.overruns() {
            self.inside.losses[usize::from(port.0)].received += overrun;
        }
        &mut self.inside
    }

    /// Asks the devices what they have lost.
    fn count_losses(&mut self) {
        for (device, losses) in self.devices.iter().zip(&mut self.inside.losses) {
            let counters = device.counters();
            let received = counters.rx_dropped + counters.rx_malformed;
            *losses = Losses { received, sent: counters.tx_dropped };
        }
    }

    /// The devices.
    pub fn devices(&self) -> &[D] {
        &self.devices
    }

    /// Gives back what was put in.
    pub fn into_parts(self) -> (N, Vec<D>, Pool) {
        (self.inside.network, self.devices, self.inside.pool)
    }

    /// Takes turns until [`Control::stop`].
    ///
    /// # Errors
    /// The first of a device's.
    pub fn run(&mut self) -> Result<(), DeviceError> {
        loop {
            if self.ear.is_pending() {
                self.listen();
                if self.ear.is_stopped() {
                    return Ok(());
                }
            }
            self.turn()?;
        }
    }

    /// Does what was asked. What the kernel lost before the devices is added by whoever asks: it is a
    /// question to the kernel for each, and frames wait meanwhile.
    #[cold]
    fn listen(&mut self) {
        self.read_clock();
        self.count_losses();
        for job in self.ear.jobs() {
            job(&mut self.inside);
        }
    }

    /// One turn: takes what has come, gives what is due, and waits where there was nothing to do.
    ///
    /// # Errors
    /// A device's.
    fn turn(&mut self) -> Result<(), DeviceError> {
        let now = self.read_clock();
        self.inside.account.on_look(now);
        let entered = self.take()?;
        let now = self.read_clock();
        let Inside { network, pool, .. } = &mut self.inside;
        if network.deadline().is_some_and(|deadline| deadline <= now) {
            network.handle_deadline(now, pool);
        }
        let left = self.give(now)?;
        if entered + left == 0 { self.wait(now) } else { Ok(()) }
    }

    /// The moment it is; never before one that was read earlier.
    #[inline]
    fn read_clock(&mut self) -> Instant {
        self.inside.now = self.timeline.now().max(self.inside.now);
        self.inside.now
    }

    /// Takes what has come to every device; how many frames.
    fn take(&mut self) -> Result<usize, DeviceError> {
        let mut count = 0;
        for index in 0..self.devices.len() {
            let (device, max) = (&mut self.devices[index], self.options.batch);
            let Inside { now, pool, .. } = &mut self.inside;
            let result = device.receive(*now, &mut self.batch, max, pool);
            if !self.batch.is_empty() {
                count += self.batch.len();
                let found = self.batch.len();
                // Read after receiving: a frame has not entered before it was here.
                let now = self.read_clock();
                self.entered = now;
                let Inside { network, pool, account, .. } = &mut self.inside;
                network.handle_packets(now, port(index), &mut self.batch, pool);
                account.on_entered(found);
            }
            result?;
        }
        Ok(count)
    }

    /// Gives what is due to every device; how many frames.
    fn give(&mut self, now: Instant) -> Result<usize, DeviceError> {
        let mut count = 0;
        for index in 0..self.devices.len() {
            let Inside { network, pool, .. } = &mut self.inside;
            network.poll_due(now, port(index), &mut self.due, self.options.batch, pool);
            if !self.due.is_empty() {
                count += self.due.len();
                self.hand_over(index)?;
            }
        }
        Ok(count)
    }

    /// Hands over what is due at one port, and keeps the account of it.
    fn hand_over(&mut self, index: usize) -> Result<(), DeviceError> {
        let count = self.due.len();
        self.moments.clear();
        for due in self.due.drain(..) {
            self.moments.push(due.at);
            self.batch.push(due.packet);
        }
        let device = &mut self.devices[index];
        let capabilities = device.capabilities();
        let Inside { pool, now, account, .. } = &mut self.inside;
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
        if now >= self.care {
            self.care = now + CARE;
            return self.look_after_devices();
        }
        let margin = self.inside.margin;
        let left = self.inside.network.deadline().map(|deadline| deadline.saturating_since(now));
        // Frames come in bursts, and one that finds the driver asleep enters late by what waking costs.
        let may_come = now.saturating_since(self.entered) < margin;
        let is_near = left.is_some_and(|left| left <= margin);
        if is_near || may_come || self.options.precision == Precision::Busy {
            std::hint::spin_loop();
            self.inside.account.on_idle();
            return Ok(());
        }
        let asleep = left.map_or(HEARTBEAT, |left| (left - margin).min(HEARTBEAT));
        self.sleep(now, asleep)
    }

    fn sleep(&mut self, now: Instant, asleep: Span) -> Result<(), DeviceError> {
        let mut fds: Vec<BorrowedFd<'_>> = Vec::with_capacity(1 + self.devices.len());
        fds.push(self.ear.fd());
        for device in &self.devices {
            // A device that cannot be slept on is looked at again and again.
            let Some(fd) = device.fd() else { return Ok(()) };
            fds.push(fd);
        }
        self.inside.account.on_sleep(now + asleep);
        match tun::wait_readable(&fds, &mut [], Some(asleep.as_ns())) {
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
            device.wait(Some(Span::ZERO), &mut self.inside.pool)?;
        }
        Ok(())
    }
}

fn port(index: usize) -> Port {
    Port(u16::try_from(index).expect("as many devices as ports have numbers"))
}
